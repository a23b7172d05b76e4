//! Random histories against a model of the log that scans a list.

use super::{ACME, Bench, SHARDS, StoreUnderTest, TENANTS, ZETA, log_read, put};
use mast_core::ids::{SessionUid, ShardIx, TenantId};
use mast_core::message::{Message, MessageParts, QoS};
use mast_core::rng::Rng;
use mast_core::store::port::{Append, Expect, LogFilter, LogRead, Write};
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::time::Wall;
use mast_core::topic::naive::naive_matches;
use std::sync::Arc;

/// The log as a list.
#[derive(Default)]
pub struct NaiveLog {
    entries: Vec<(u64, Append)>,
    head: u64,
    floors: [u64; TENANTS.len()],
}

impl NaiveLog {
    /// What a read wants, without limits.
    #[must_use]
    pub fn wanted(&self, read: &LogRead) -> Vec<(u64, Arc<Message>)> {
        let floor = self.floors[read.tenant.0 as usize];
        let hits = self.entries.iter().filter(|(seq, append)| {
            let m = &append.message;
            let spilled = append.spill.is_some();
            let for_me =
                append.spill.as_ref().is_some_and(|s| read.spill_of.is_some_and(|uid| s.contains(&uid)));
            let by_filter = !spilled
                && append.log
                && read
                    .filters
                    .iter()
                    .any(|f| naive_matches(&f.filter, m.topic()) && !f.start.covers(Partition(0), Seq(*seq)));
            m.tenant == read.tenant
                && *seq > read.after.0.max(floor)
                && (for_me || by_filter)
                && !m.is_expired(read.now)
        });
        hits.map(|(seq, append)| (*seq, append.message.clone())).collect()
    }

    /// The entries and `upto` of the page that answers a read.
    #[must_use]
    pub fn page(&self, read: &LogRead) -> (Vec<(u64, Arc<Message>)>, u64) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (seq, message) in self.wanted(read) {
            bytes += message.size() as u64;
            page.push((seq, message));
            if page.len() >= read.max_entries.max(1) as usize || bytes > u64::from(read.max_bytes) {
                return (page, seq);
            }
        }
        (page, self.head.max(read.after.0))
    }

    /// The answer to a bound.
    #[must_use]
    pub fn bound(&self, read: &LogRead, max_count: u64, max_bytes: u64) -> (u64, u64, u64) {
        let wanted = self.wanted(read);
        let (mut kept, mut kept_bytes) = (0, 0);
        let mut rest = wanted.len();
        for (_, message) in wanted.iter().rev() {
            if kept + 1 > max_count || kept_bytes + message.size() as u64 > max_bytes {
                break;
            }
            kept += 1;
            kept_bytes += message.size() as u64;
            rest -= 1;
        }
        let gone = &wanted[..rest];
        let bytes = gone.iter().map(|(_, m)| m.size() as u64).sum();
        (gone.last().map_or(0, |g| g.0), rest as u64, bytes)
    }
}

struct History {
    rng: Rng,
    log: NaiveLog,
}

impl History {
    fn topic(&mut self) -> String {
        let level = |rng: &mut Rng| ["a", "b", "dev1", "dev2", "", "$x"][rng.below(6) as usize];
        let depth = 1 + self.rng.below(3);
        let levels: Vec<&str> = (0..depth).map(|_| level(&mut self.rng)).collect();
        let topic = levels.join("/");
        if topic.is_empty() { "a".to_owned() } else { topic }
    }

    fn filter(&mut self) -> String {
        let topic = self.topic();
        let mut levels: Vec<&str> = topic.split('/').collect();
        for level in &mut levels {
            if self.rng.below(4) == 0 {
                *level = "+";
            }
        }
        if self.rng.below(3) == 0 {
            levels.push("#");
        }
        if self.rng.below(8) == 0 { "#".to_owned() } else { levels.join("/") }
    }

    fn append(&mut self) -> Append {
        let topic = self.topic();
        let most = if self.rng.below(20) == 0 { 3000 } else { 60 };
        let size = self.rng.below(most);
        let payload: Vec<u8> = (0..size).map(|_| self.rng.next_u64() as u8).collect();
        let expires = (self.rng.below(3) == 0).then(|| Wall(self.rng.below(2000)));
        let message = Message::new(&MessageParts {
            tenant: TenantId(self.rng.below(2) as u32),
            qos: if self.rng.below(2) == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce },
            retain: self.rng.below(2) == 0,
            expires,
            publisher: SessionUid(self.rng.next_u64()),
            topic: &topic,
            props: &[3, 0, 1, b'x'][..self.rng.below(5) as usize],
            payload: &payload,
        });
        let kind = self.rng.below(10);
        let spill =
            (kind < 2).then(|| (0..=self.rng.below(2)).map(|_| SessionUid(self.rng.below(3))).collect());
        Append { message, partition: Partition(0), log: kind != 9, retain: kind >= 8, spill }
    }

    fn read(&mut self) -> LogRead {
        let count = self.rng.below(4);
        let filters = (0..count).map(|_| {
            let start = self.rng.below(self.log.head + 2);
            let start = if self.rng.below(2) == 0 { 0 } else { start };
            LogFilter { filter: self.filter().into(), start: Position::at(Partition(0), Seq(start)) }
        });
        let filters = filters.collect();
        LogRead {
            tenant: if self.rng.below(2) == 0 { ACME } else { ZETA },
            filters,
            spill_of: (self.rng.below(3) == 0).then(|| SessionUid(self.rng.below(3))),
            after: Seq(self.rng.below(self.log.head + 1)),
            max_entries: 1 + self.rng.below(20) as u32,
            max_bytes: self.rng.below(2000) as u32,
            now: Wall(self.rng.below(2000)),
            ..log_read(&[], 0)
        }
    }
}

fn write_some<S: StoreUnderTest>(b: &mut Bench<S>, h: &mut History) {
    let count = 1 + h.rng.below(4);
    let appends: Vec<Append> = (0..count).map(|_| h.append()).collect();
    let mut writes: Vec<Write> = appends.iter().cloned().map(Write::Append).collect();
    if h.rng.below(2) == 0 {
        writes.push(put("cursor", "x", Expect::Any));
    }
    let parts = writes.len() as u64;
    let last = b.done(writes);
    for (i, append) in appends.into_iter().enumerate() {
        if append.log || append.spill.is_some() {
            h.log.entries.push((last + 1 - parts + i as u64, append));
        }
    }
    h.log.head = last;
}

fn compare<S: StoreUnderTest>(b: &mut Bench<S>, h: &mut History) {
    let read = h.read();
    let (entries, upto) = h.log.page(&read);
    let page = b.log(read.clone());
    let got: Vec<_> = page.entries.iter().map(|e| (e.seq.0, e.message.clone())).collect();
    assert_eq!(got, entries, "{read:?}");
    assert_eq!(page.upto.0, upto, "{read:?}");
    let (count, bytes) = (h.rng.below(10), h.rng.below(500));
    assert_eq!(b.bound(read.clone(), count, bytes), h.log.bound(&read, count, bytes), "{read:?}");
}

/// Rule.
pub fn random_histories_read_like_a_naive_model<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    let mut h = History { rng: Rng::new(0x5EED), log: NaiveLog::default() };
    for step in 0..1500 {
        match h.rng.below(100) {
            0..50 => write_some(&mut b, &mut h),
            50..97 => compare(&mut b, &mut h),
            97 => {
                b.store.reopen();
                // The sessions that messages were spilled for end with the process.
                h.log.entries.retain(|(_, a)| a.spill.is_none());
            }
            _ => {
                let tenant = TenantId(h.rng.below(2) as u32);
                let floor = h.rng.below(h.log.head + 1);
                for shard in 0..SHARDS {
                    let position = Position::at(Partition(0), Seq(floor));
                    b.store.set_floor(ShardIx(shard), tenant, Some(position));
                }
                b.store.trim();
                let mark = &mut h.log.floors[tenant.0 as usize];
                *mark = (*mark).max(floor);
            }
        }
        assert!(h.log.entries.len() < 100_000, "step {step}");
    }
}
