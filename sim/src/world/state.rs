//! What the model store holds: keys, the log, retained messages. Everything in the most obvious form;
//! reads go through the whole log and match by the reference matcher.

use bytes::Bytes;
use mast_core::ids::TenantId;
use mast_core::message::Message;
use mast_core::store::key::Key;
use mast_core::store::port::{
    Append, Committed, CommittedEntry, Expect, LogEntry, LogPage, LogRead, ReadResult, Refusal, Restored,
    Write,
};
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::topic::naive::naive_matches;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The one partition.
pub const PARTITION: Partition = Partition(0);

/// Keys, log and retained messages after some prefix of all commits.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Last sequence given.
    pub head: u64,
    /// Value and revision by key.
    pub keys: BTreeMap<Key, (Bytes, u64)>,
    /// Appends with `log`, by sequence.
    pub log: BTreeMap<u64, Append>,
    /// By tenant and topic.
    pub retained: BTreeMap<(TenantId, String), (u64, Arc<Message>)>,
    /// By tenant: everything up to here was trimmed.
    pub trimmed: BTreeMap<TenantId, u64>,
}

/// What a commit did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Sequence of its last part.
    pub last: u64,
    /// Its appends.
    pub entries: Vec<CommittedEntry>,
}

impl State {
    /// Checks all conditions of a commit.
    ///
    /// # Errors
    /// The first one that fails.
    pub fn check(&self, writes: &[Write]) -> Result<(), Refusal> {
        // Parts apply in order, so a condition sees what stands before it in its commit.
        let mut within: BTreeMap<&Key, Option<u64>> = BTreeMap::new();
        let mut seq = self.head;
        for (part, write) in writes.iter().enumerate() {
            let (key, expect) = match write {
                Write::Append(_) => {
                    seq += 1;
                    continue;
                }
                Write::Put { key, expect, .. }
                | Write::Delete { key, expect }
                | Write::Check { key, expect } => (key, *expect),
            };
            let current = within.get(key).copied().unwrap_or_else(|| self.keys.get(key).map(|(_, r)| *r));
            let holds = match expect {
                Expect::Any => true,
                Expect::Absent => current.is_none(),
                Expect::Revision(seq) => current == Some(seq.0),
            };
            if !holds {
                return Err(Refusal::Conflict { part: part as u32, current: current.map(Seq) });
            }
            match write {
                Write::Put { .. } => {
                    seq += 1;
                    within.insert(key, Some(seq));
                }
                Write::Delete { .. } => {
                    seq += 1;
                    within.insert(key, None);
                }
                Write::Append(_) | Write::Check { .. } => {}
            }
        }
        Ok(())
    }

    /// Applies a commit whose conditions hold.
    pub fn apply(&mut self, writes: &[Write]) -> Applied {
        let mut entries = Vec::new();
        for write in writes {
            match write {
                Write::Append(append) => {
                    self.head += 1;
                    self.append(append);
                    entries.push(CommittedEntry { seq: Seq(self.head), append: append.clone() });
                }
                Write::Put { key, value, .. } => {
                    self.head += 1;
                    self.keys.insert(key.clone(), (value.clone(), self.head));
                }
                Write::Delete { key, .. } => {
                    self.head += 1;
                    self.keys.remove(key);
                }
                Write::Check { .. } => {}
            }
        }
        Applied { last: self.head, entries }
    }

    fn append(&mut self, append: &Append) {
        let trimmed = self.trimmed.get(&append.message.tenant).copied().unwrap_or(0);
        if append.log && self.head > trimmed {
            self.log.insert(self.head, append.clone());
        }
        if append.retain {
            let key = (append.message.tenant, append.message.topic().to_owned());
            if append.message.payload().is_empty() {
                self.retained.remove(&key);
            } else {
                self.retained.insert(key, (self.head, Arc::clone(&append.message)));
            }
        }
    }

    /// Cuts a tenant's log.
    pub fn trim(&mut self, tenant: TenantId, floor: u64) {
        let trimmed = self.trimmed.entry(tenant).or_default();
        if floor <= *trimmed {
            return;
        }
        *trimmed = floor;
        self.log.retain(|seq, append| *seq > floor || append.message.tenant != tenant);
    }

    /// Reads by filters; nothing above `upto` is looked at.
    pub fn read(&self, read: &LogRead, upto: u64) -> LogPage {
        let first = Seq(self.trimmed.get(&read.tenant).copied().unwrap_or(0) + 1);
        let mut page =
            LogPage { entries: Vec::new(), lost: Vec::new(), upto: Seq(upto.max(read.after.0)), first };
        let mut bytes = 0u64;
        if upto <= read.after.0 {
            return page;
        }
        for (seq, append) in self.log.range(read.after.0 + 1..=upto) {
            let Some(spilled) = wanted(read, *seq, append) else { continue };
            bytes += append.message.size() as u64;
            page.entries.push(LogEntry { seq: Seq(*seq), message: Arc::clone(&append.message), spilled });
            if page.entries.len() >= read.max_entries.max(1) as usize || bytes > u64::from(read.max_bytes) {
                page.upto = Seq(*seq);
                break;
            }
        }
        page
    }

    /// Messages by their sequences.
    pub fn at(&self, seqs: &[Seq], upto: u64) -> LogPage {
        let entries = seqs
            .iter()
            .filter(|seq| seq.0 <= upto)
            .filter_map(|seq| {
                let append = self.log.get(&seq.0)?;
                Some(LogEntry {
                    seq: *seq,
                    message: Arc::clone(&append.message),
                    spilled: append.spill.is_some(),
                })
            })
            .collect();
        LogPage { entries, lost: Vec::new(), upto: Seq(upto), first: Seq(1) }
    }

    /// How far a start must move so that the limits hold: (floor, messages, bytes dropped).
    pub fn bound(&self, read: &LogRead, upto: u64, max_count: u64, max_bytes: u64) -> ReadResult {
        let matching: Vec<(u64, u64)> = self
            .log
            .range((Bound::Excluded(read.after.0.min(upto)), Bound::Included(upto)))
            .filter(|(seq, append)| wanted(read, **seq, append).is_some())
            .map(|(seq, append)| (*seq, append.message.size() as u64))
            .collect();
        let (mut kept, mut kept_bytes) = (0, 0);
        let newest = matching.iter().rev().take_while(|(_, size)| {
            let fits = kept < max_count && kept_bytes + size <= max_bytes;
            if fits {
                kept += 1;
                kept_bytes += size;
            }
            fits
        });
        let old = matching.len() - newest.count();
        let dropped_bytes = matching[..old].iter().map(|(_, size)| size).sum();
        ReadResult::Bound {
            floor: Seq(old.checked_sub(1).map_or(0, |last| matching[last].0)),
            dropped: old as u64,
            dropped_bytes,
            kept,
            kept_bytes,
            upto: Seq(upto),
        }
    }

    /// What a starting node is told, without the end.
    pub fn records(&self) -> Vec<Restored> {
        let keys = self.keys.iter().map(|(key, (value, revision))| Restored::Key {
            key: key.clone(),
            value: value.clone(),
            revision: Seq(*revision),
        });
        let retained = self.retained.values().map(|(seq, message)| Restored::Retained {
            partition: PARTITION,
            seq: Seq(*seq),
            message: Arc::clone(message),
        });
        keys.chain(retained).collect()
    }

    /// Where a starting node begins.
    pub fn position(&self) -> Position {
        Position::at(PARTITION, Seq(self.head))
    }
}

/// `Some(spilled)` if the reader wants this entry.
fn wanted(read: &LogRead, seq: u64, append: &Append) -> Option<bool> {
    let message = &append.message;
    if message.tenant != read.tenant || message.is_expired(read.now) {
        return None;
    }
    if let Some(owners) = &append.spill {
        return read.spill_of.filter(|uid| owners.contains(uid)).map(|_| true);
    }
    read.filters
        .iter()
        .any(|f| !f.start.covers(PARTITION, Seq(seq)) && naive_matches(&f.filter, message.topic()))
        .then_some(false)
}

/// The announcement of a commit's appends.
pub fn announcement(applied: &Applied) -> Arc<Committed> {
    Arc::new(Committed { partition: PARTITION, entries: applied.entries.clone(), upto: Seq(applied.last) })
}
