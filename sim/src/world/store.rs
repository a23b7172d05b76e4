//! The model of a node's store: one queue, applied in order, synced in batches; announced and answered in
//! sequence order. It refuses, goes silent, is slow, and loses what was not synced, as it is told.

use super::state::{Applied, State, announcement};
use crate::draw::Draw;
use mast_core::ids::{OpId, TenantId};
use mast_core::shard::input::Input;
use mast_core::store::port::{CommitResult, Durability, Read, ReadResult, Refusal, Write};
use mast_core::store::position::Seq;
use std::collections::{BTreeMap, VecDeque};

/// A commit that waits.
#[derive(Debug)]
struct Waiting {
    shard: u16,
    op: OpId,
    writes: Vec<Write>,
    class: Durability,
}

/// A commit that was applied and is not answered.
#[derive(Debug)]
struct Open {
    shard: u16,
    op: OpId,
    silent: bool,
    /// Index in `tail`, to know whether it is durable; refused ones have none.
    outcome: Result<Applied, Refusal>,
}

/// How the store behaves now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mood {
    /// Refuses appends until then, µs.
    pub full_until: u64,
    /// Refuses all until then, µs.
    pub down_until: u64,
    /// Does not answer until then, µs.
    pub silent_until: u64,
    /// The next sync takes at least so long, µs.
    pub slow_sync: u64,
}

/// Something that the store tells a shard.
pub struct Told {
    /// Whom.
    pub shard: u16,
    /// What.
    pub input: Input<'static>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct SimStore {
    /// All that was applied.
    pub state: State,
    /// What surely survives a power cut.
    durable: State,
    /// Applied commits that are not in `durable`.
    tail: VecDeque<Vec<Write>>,
    queue: VecDeque<Waiting>,
    open: Vec<Open>,
    /// Everything up to here was announced.
    pub announced: u64,
    /// A batch is being applied or synced.
    pub busy: bool,
    /// How it behaves.
    pub mood: Mood,
    /// Up to where each shard needs nothing; `None`: it needs nothing at all.
    floors: BTreeMap<(u16, TenantId), Option<u64>>,
    /// Commits refused or left without an answer by a fault.
    pub harmed: u64,
    /// Deletes that were refused or not answered: what they should have removed may come back.
    pub harmed_deletes: u64,
    /// Commits of QoS 2 publishes whose outcome stayed unknown.
    pub unknown_qos2: u64,
    /// Commits refused for their conditions.
    pub conflicts: u64,
    /// Commits that were applied and lost in a crash.
    pub lost: u64,
    /// Commits that a crash met before their answer.
    pub cut_off: u64,
}

impl SimStore {
    /// Takes a commit in.
    pub fn submit(&mut self, shard: u16, op: OpId, writes: Vec<Write>, class: Durability) {
        self.queue.push_back(Waiting { shard, op, writes, class });
    }

    /// True if a batch can begin.
    pub fn can_begin(&self) -> bool {
        !self.busy && !self.queue.is_empty()
    }

    /// Applies what waits (or a part of it); returns whether it must be synced before it is answered.
    pub fn apply_batch(&mut self, now: u64, draw: &mut Draw) -> bool {
        let n =
            if draw.chance(50) { self.queue.len() } else { 1 + draw.below(self.queue.len() as u64) as usize };
        let mut sync = false;
        for _ in 0..n {
            let Some(commit) = self.queue.pop_front() else { break };
            sync |= commit.class == Durability::Synced;
            let silent = now < self.mood.silent_until && draw.chance(70);
            let applies = !silent || draw.chance(50);
            let outcome = if applies { self.apply(now, &commit.writes) } else { Err(Refusal::Unavailable) };
            if silent || outcome.as_ref().is_err_and(|e| !matches!(e, Refusal::Conflict { .. })) {
                self.note_harm(&commit.writes, silent);
            }
            self.conflicts += u64::from(matches!(outcome, Err(Refusal::Conflict { .. })));
            self.open.push(Open { shard: commit.shard, op: commit.op, silent, outcome });
        }
        sync
    }

    fn note_harm(&mut self, writes: &[Write], silent: bool) {
        self.harmed += 1;
        let deletes = writes.iter().any(|w| matches!(w, Write::Delete { .. }));
        self.harmed_deletes += u64::from(deletes);
        let qos2 = writes
            .iter()
            .any(|w| matches!(w, Write::Append(a) if a.message.qos == mast_core::message::QoS::ExactlyOnce));
        self.unknown_qos2 += u64::from(silent && qos2);
    }

    fn apply(&mut self, now: u64, writes: &[Write]) -> Result<Applied, Refusal> {
        if now < self.mood.down_until {
            return Err(Refusal::Unavailable);
        }
        if now < self.mood.full_until && writes.iter().any(|w| matches!(w, Write::Append(_))) {
            return Err(Refusal::Full);
        }
        self.state.check(writes)?;
        self.tail.push_back(writes.to_vec());
        Ok(self.state.apply(writes))
    }

    /// The batch is done: `synced` tells whether it is on the disk. Appends are announced to all shards,
    /// then each commit is answered.
    pub fn finish_batch(&mut self, synced: bool, shards: u16) -> Vec<Told> {
        if synced {
            for writes in self.tail.drain(..) {
                self.durable.apply(&writes);
            }
        }
        let mut told = Vec::new();
        for open in std::mem::take(&mut self.open) {
            let result = match open.outcome {
                Ok(applied) => {
                    self.announced = applied.last;
                    if !applied.entries.is_empty() {
                        let batch = announcement(&applied);
                        for shard in 0..shards {
                            told.push(Told { shard, input: Input::Committed(batch.clone()) });
                        }
                    }
                    CommitResult::Done { last: Seq(applied.last) }
                }
                Err(refusal) => CommitResult::Refused(refusal),
            };
            if !open.silent {
                told.push(Told { shard: open.shard, input: Input::CommitDone { op: open.op, result } });
            }
        }
        told
    }

    /// Answers a read as of what is announced.
    pub fn read(&self, now: u64, read: &Read) -> ReadResult {
        if now < self.mood.down_until {
            return ReadResult::Failed(Refusal::Unavailable);
        }
        match read {
            Read::Log(read) => ReadResult::Page(self.state.read(read, self.announced)),
            Read::At { seqs, .. } => ReadResult::Page(self.state.at(seqs, self.announced)),
            Read::Bound { read, max_count, max_bytes } => {
                self.state.bound(read, self.announced, *max_count, *max_bytes)
            }
        }
    }

    /// A shard needs nothing of a tenant up to `floor` (`None`: nothing at all); what no shard needs is
    /// gone at once. Nothing goes before all shards have told.
    pub fn floor(&mut self, shard: u16, shards: u16, tenant: TenantId, floor: Option<u64>) {
        self.floors.insert((shard, tenant), floor);
        let mut least = self.announced;
        for shard in 0..shards {
            match self.floors.get(&(shard, tenant)) {
                Some(Some(floor)) => least = least.min(*floor),
                Some(None) => {}
                None => return,
            }
        }
        self.state.trim(tenant, least);
        self.durable.trim(tenant, least);
    }

    /// The node dies. What was applied and not synced survives up to a drawn point of the commit order;
    /// without a power cut all that was announced survives.
    pub fn crash(&mut self, power: bool, draw: &mut Draw) {
        self.cut_off += (self.queue.len() + self.open.len()) as u64;
        self.queue.clear();
        self.open.clear();
        self.floors.clear();
        self.busy = false;
        self.mood = Mood::default();
        let mut kept = draw.below(self.tail.len() as u64 + 1) as usize;
        if !power {
            // The process died, the kernel did not: written is written.
            let mut head = self.durable.head;
            let announced = self
                .tail
                .iter()
                .take_while(|writes| {
                    head += writes.iter().filter(|w| !matches!(w, Write::Check { .. })).count() as u64;
                    head <= self.announced
                })
                .count();
            kept = kept.max(announced);
        }
        self.lost += (self.tail.len() - kept) as u64;
        for writes in self.tail.drain(..).take(kept) {
            self.durable.apply(&writes);
        }
        // Sessions that messages are spilled for end with the process, and their messages with them.
        self.durable.log.retain(|_, append| append.spill.is_none());
        self.state = self.durable.clone();
        self.announced = self.state.head;
    }
}
