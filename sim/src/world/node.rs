//! The node: shards, their mailboxes, their connections, and the execution of their effects, by the
//! driver's contract: one `handle`, then `poll` until idle.

use super::World;
use super::event::Event;
use super::link::Server;
use super::store::Told;
use mast_core::ids::{ConnId, ShardIx};
use mast_core::settings::Settings;
use mast_core::shard::input::{Effect, Input, LogEvent, Outbox, Step};
use mast_core::shard::peer::PeerMsg;
use mast_core::shard::{Shard, ShardConfig};
use mast_core::store::port::{CommitResult, Restored, Write};
use mast_core::tenant::Tenancy;
use mast_core::time::{Mono, Now, Wall};
use std::collections::VecDeque;

/// Virtual wall clock at time 0, ms.
const WALL_START: u64 = 1_700_000_000_000;
/// How long a closing socket is waited for, µs.
const LINGER: u64 = 5_000_000;

/// One slot of a shard's connection table.
#[derive(Debug, Default)]
pub struct Slot {
    generation: u32,
    /// The link in it.
    pub link: Option<usize>,
}

/// A running process.
pub struct Node {
    /// Its shards.
    pub shards: Vec<Shard>,
    /// Connections by shard.
    pub slots: Vec<Vec<Slot>>,
    /// What is on its way to a shard, from the store and from other shards, and when the last of it
    /// arrives. One inbox: what was put in first is seen first, or unlogged and logged messages of a
    /// publisher could pass each other.
    pub told: Vec<(VecDeque<Input<'static>>, u64)>,
    /// Earliest wake that is scheduled, by shard.
    wakes: Vec<u64>,
}

impl World {
    /// Both clocks.
    pub(super) fn clock(&self) -> Now {
        let wall = (WALL_START + self.now / 1000).saturating_add_signed(self.wall_shift);
        Now { mono: Mono(self.now), wall: Wall(wall) }
    }

    /// The tenants, and the rules of this time.
    pub(super) fn tenancy(&self) -> Tenancy {
        let rules = self.ledger.rights.rules(self.now, &self.registry);
        Tenancy { registry: self.registry.clone(), rules, limits: self.limits() }
    }

    /// Starts the process: shards are made, then told what the store holds, in any order.
    pub(super) fn boot(&mut self) {
        let now = self.clock();
        let count = self.scenario.topology.shards;
        let interest_seed = self.draw.bits();
        let mut shards = Vec::new();
        for index in 0..count {
            let config = ShardConfig {
                shard: ShardIx(index),
                shards: count,
                seed: self.draw.bits(),
                interest_seed,
                settings: Settings::clone(&self.settings),
                tenancy: self.tenancy(),
            };
            shards.push(Shard::new(config, now));
        }
        self.life += 1;
        self.node = Some(Node {
            shards,
            slots: (0..count).map(|_| Vec::new()).collect(),
            told: (0..count).map(|_| (VecDeque::new(), self.now)).collect(),
            wakes: vec![u64::MAX; count as usize],
        });
        self.limits_unsettled();
        let mut records = self.store.state.records();
        for i in (1..records.len()).rev() {
            let other = self.draw.below(i as u64 + 1) as usize;
            records.swap(i, other);
        }
        let end = Restored::End { head: self.store.state.position() };
        for shard in 0..count {
            for record in &records {
                self.feed(shard, Input::Restore(record.clone()));
            }
            self.feed(shard, Input::Restore(end.clone()));
        }
    }

    /// One input, and all that follows from it at once.
    pub(super) fn feed(&mut self, shard: u16, input: Input<'_>) {
        let now = self.clock();
        let Some(node) = &mut self.node else { return };
        node.shards[shard as usize].handle(now, input);
        self.settle(shard);
        self.watch_limits();
    }

    /// Polls until idle.
    pub(super) fn settle(&mut self, shard: u16) {
        let now = self.clock();
        let mut idle_polls = 0;
        loop {
            let mut out = Outbox::default();
            let Some(node) = &mut self.node else { return };
            let step = node.shards[shard as usize].poll(now, &mut out);
            let quiet = out.effects.is_empty() && out.dirty.is_empty();
            for effect in out.effects {
                self.execute(shard, effect);
            }
            for conn in out.dirty {
                if let Some(link) = self.link_of(shard, conn) {
                    self.flush(link);
                }
            }
            match step {
                Step::More => {
                    self.marks.hit("poll ended by its budget");
                    idle_polls += 1;
                    if idle_polls > 100_000 {
                        self.fail("liveness", "poll never becomes idle");
                        return;
                    }
                }
                // Writing may have made room, and so work.
                Step::Idle { wake } => {
                    if quiet {
                        self.arm_wake(shard, wake);
                        return;
                    }
                }
            }
        }
    }

    fn arm_wake(&mut self, shard: u16, wake: Option<Mono>) {
        let (Some(node), Some(wake)) = (&mut self.node, wake) else { return };
        let at = wake.0.max(self.now + 1);
        let armed = &mut node.wakes[shard as usize];
        if at < *armed || *armed <= self.now {
            *armed = at;
            let life = self.life;
            self.add(at, Event::Wake { life, shard, at });
        }
    }

    pub(super) fn woke(&mut self, shard: u16, at: u64) {
        if let Some(node) = &mut self.node {
            let armed = &mut node.wakes[shard as usize];
            if *armed == at {
                *armed = u64::MAX;
            }
        }
        self.feed(shard, Input::Tick);
    }

    /// The link of a connection.
    pub(super) fn link_of(&self, shard: u16, conn: ConnId) -> Option<usize> {
        let slot = self.node.as_ref()?.slots[shard as usize].get(conn.idx as usize)?;
        slot.link.filter(|_| slot.generation == conn.generation)
    }

    /// A free slot for a connection.
    pub(super) fn take_slot(&mut self, shard: u16, link: usize) -> Option<ConnId> {
        let slots = &mut self.node.as_mut()?.slots[shard as usize];
        let free = slots.iter().position(|s| s.link.is_none());
        let idx = free.unwrap_or_else(|| {
            slots.push(Slot::default());
            slots.len() - 1
        });
        let slot = &mut slots[idx];
        slot.link = Some(link);
        slot.generation += 1;
        Some(ConnId { idx: idx as u32, generation: slot.generation })
    }

    /// The socket is gone: the shard is told, the slot is free.
    pub(super) fn server_closed(&mut self, link: usize) {
        let server = std::mem::replace(&mut self.links[link].server, Server::Gone);
        let Server::Shard { shard, conn } = server else { return };
        if let Some(node) = &mut self.node
            && let Some(slot) = node.slots[shard as usize].get_mut(conn.idx as usize)
        {
            slot.link = None;
        }
        self.feed(shard, Input::Closed { conn });
    }

    fn execute(&mut self, shard: u16, effect: Effect) {
        match effect {
            Effect::Close { conn, flush } => {
                if let Some(link) = self.link_of(shard, conn) {
                    self.close(link, flush);
                }
            }
            Effect::Pause { conn } => {
                if let Some(link) = self.link_of(shard, conn) {
                    self.marks.hit("socket paused");
                    self.links[link].paused = true;
                }
            }
            Effect::Resume { conn } => {
                if let Some(link) = self.link_of(shard, conn) {
                    self.links[link].paused = false;
                    let tie = self.now;
                    self.add(tie, Event::ToServer { link, n: 0 });
                }
            }
            Effect::Peer { to, msg } => self.post(shard, to.0, msg),
            Effect::Commit { op, writes, class } => {
                for write in &writes {
                    self.hash.write(write);
                }
                if self.verbose {
                    let asked: Vec<String> = writes.iter().map(asked).collect();
                    self.remark(format!("shard {shard} commits {op:?}: {}", asked.join(", ")));
                }
                self.store.submit(shard, op, writes, class);
                self.begin_batch();
            }
            Effect::Read { op, read } => {
                self.marks.read(&read);
                let at = self.now + self.draw.delay(self.scenario.world.store_delay_us);
                let life = self.life;
                self.add(at, Event::Look { life, shard, op, read: Box::new(read) });
            }
            Effect::Auth { op, conn, question } => {
                if let Some(link) = self.link_of(shard, conn) {
                    self.asked_again(shard, op, link, &question);
                }
            }
            Effect::Floor { tenant, floor } => {
                let keeps = self.scenario.world.keeps_unneeded;
                let floor = if keeps { 0 } else { floor.get(super::state::PARTITION).0 };
                if self.verbose {
                    self.remark(format!("shard {shard}: floor of {tenant:?} is {floor}"));
                }
                let shards = self.scenario.topology.shards;
                self.store.floor(shard, shards, tenant, Some(floor));
            }
            // Nobody of this world asks.
            Effect::Answer { .. } => {}
            Effect::Log(event) => self.logged(&event),
        }
    }

    fn logged(&mut self, event: &LogEvent) {
        match event {
            LogEvent::Invariant { what } => self.fail("invariant", what),
            LogEvent::BadRecord { space } => self.fail("bad record", space),
            LogEvent::TakenOver { .. } => self.marks.hit("takeover"),
            LogEvent::Violation { why, .. } => self.remark(format!("violation: {why}")),
            LogEvent::StoreTrouble { what, outcome } => {
                // Too slow for a deadline is harm too.
                self.ledger.store_harmed = true;
                self.remark(format!("store trouble: {what}: {outcome}"));
            }
        }
    }

    fn post(&mut self, from: u16, to: u16, msg: PeerMsg) {
        self.marks.peer(&msg);
        self.tell(Told { shard: to, input: Input::Peer { from: ShardIx(from), msg } });
    }

    /// Puts something into a shard's inbox.
    pub(super) fn tell(&mut self, told: Told) {
        let delay = self.draw.delay(self.scenario.world.peer_delay_us);
        let Some(node) = &mut self.node else { return };
        let (queue, last) = &mut node.told[told.shard as usize];
        queue.push_back(told.input);
        *last = (*last).max(self.now + delay);
        let (at, life, shard) = (*last, self.life, told.shard);
        self.add(at, Event::Tell { life, shard });
    }

    pub(super) fn told(&mut self, shard: u16) {
        let Some(node) = &mut self.node else { return };
        let Some(input) = node.told[shard as usize].0.pop_front() else { return };
        if let Input::CommitDone { result: CommitResult::Refused(refusal), .. } = &input {
            self.remark(format!("commit refused: {refusal:?}"));
        }
        self.feed(shard, input);
    }

    /// Begins the next batch of the store, if none is under way.
    pub(super) fn begin_batch(&mut self) {
        if self.store.can_begin() {
            self.store.busy = true;
            let at = self.now + self.draw.delay(self.scenario.world.store_delay_us);
            let life = self.life;
            self.add(at, Event::Apply { life });
        }
    }

    pub(super) fn apply_batch(&mut self) {
        let sync = self.store.apply_batch(self.now, &mut self.draw);
        let mut took = if sync { self.draw.delay(self.scenario.world.sync_us) } else { 0 };
        if sync {
            took += std::mem::take(&mut self.store.mood.slow_sync);
        }
        self.ledger.store_harmed |= self.store.harmed > 0;
        let (at, life) = (self.now + took, self.life);
        self.add(at, Event::Applied { life, synced: sync });
    }

    pub(super) fn batch_applied(&mut self, synced: bool) {
        let told = self.store.finish_batch(synced, self.scenario.topology.shards);
        for told in told {
            self.tell(told);
        }
        self.store.busy = false;
        self.begin_batch();
    }

    /// Closes a socket: once its output is written, or at once.
    fn close(&mut self, link: usize, flush: bool) {
        self.links[link].closing = true;
        if flush {
            let at = self.now + LINGER;
            self.add(at, Event::Linger { link });
            self.flush(link);
        } else {
            self.hang_up(link);
        }
    }
}

/// A write in a few words.
fn asked(write: &Write) -> String {
    let name = |key: &mast_core::store::key::Key| {
        key.split().map_or_else(String::new, |(space, tenant, rest)| {
            format!("{space:?} {tenant} {}", String::from_utf8_lossy(rest))
        })
    };
    match write {
        Write::Append(a) => {
            format!("append {} {}", a.message.topic(), String::from_utf8_lossy(a.message.payload()))
        }
        Write::Put { key, expect, .. } => format!("put {} {expect:?}", name(key)),
        Write::Delete { key, expect } => format!("delete {} {expect:?}", name(key)),
        Write::Check { key, expect } => format!("check {} {expect:?}", name(key)),
    }
}
