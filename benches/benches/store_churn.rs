//! Sessions that come and go in the embedded store, in a temporary directory: records and a filter are put, a
//! message is appended, the cursor moves, all keys are deleted. Many sessions are under way at once, as group
//! commit expects it; class synced pays for the disk's sync, class stored does not.

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mast::store::files::os::OsFiles;
use mast::store::{Event, Sink, Store, StoreClient, StoreOptions};
use mast_core::ids::{OpId, SessionUid, ShardIx, TenantId};
use mast_core::message::{Message, MessageParts, QoS};
use mast_core::store::key::{Key, Space};
use mast_core::store::port::{Append, CommitResult, Durability, Expect, Write};
use mast_core::store::position::Partition;
use mast_core::tenant::registry::Registry;
use mast_core::time::Wall;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

const TENANT: &str = "bench";
/// Sessions that are under way at once.
const SESSIONS: u64 = 256;

/// Commits done and commits failed.
#[derive(Clone, Default)]
struct Answers(Arc<(Mutex<(u64, u64)>, Condvar)>);

impl Sink for Answers {
    fn deliver(&mut self, events: Vec<Event>) {
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            match event {
                Event::CommitDone { result: CommitResult::Done { .. }, .. } => counts.0 += 1,
                Event::CommitDone { .. } => counts.1 += 1,
                Event::ReadDone { .. } | Event::Committed(_) => {}
            }
        }
        drop(counts);
        self.0.1.notify_one();
    }
}

impl Answers {
    /// Waits for so many answers and forgets them.
    fn take(&self, count: u64) {
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        while counts.0 + counts.1 < count {
            counts = self.0.1.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        assert_eq!(*counts, (count, 0), "commits failed");
        *counts = (0, 0);
    }
}

/// A store in a directory of its own, which goes with it.
struct Place {
    dir: PathBuf,
    store: Option<Store>,
    client: StoreClient,
    answers: Answers,
}

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("mast-store-churn-{name}-{}", std::process::id()));
        let answers = Answers::default();
        let mut options = StoreOptions::new(Arc::new(|| Wall(1)), 1);
        // Segments are freed and written over while it runs.
        options.trim.retention_bytes = 64 << 20;
        let files = OsFiles::new(&dir).expect("the directory can be used");
        let registry = Registry::new(&[TENANT]).expect("a good name");
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(answers.clone())];
        let (store, _) = Store::open(options, Arc::new(files), registry, sinks).expect("the store opens");
        let client = store.client();
        Place { dir, store: Some(store), client, answers }
    }

    fn commit(&self, session: u64, writes: Vec<Write>, class: Durability) {
        let op = OpId { idx: session as u32, generation: 0 };
        self.client.commit(ShardIx(0), op, writes, class).expect("the queue has room");
    }

    /// Every session does one step, then all wait for all.
    fn step(&self, class: Durability, writes: impl Fn(u64) -> Vec<Write>) {
        for session in 0..SESSIONS {
            self.commit(session, writes(session), class);
        }
        self.answers.take(SESSIONS);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.shutdown();
        }
        std::fs::remove_dir_all(&self.dir).expect("the directory can be removed");
    }
}

fn key(space: Space, session: u64, rest: &[&[u8]]) -> Key {
    let name = format!("client-{session:06}");
    let parts: Vec<&[u8]> = std::iter::once(name.as_bytes()).chain(rest.iter().copied()).collect();
    Key::new(space, TENANT, &parts)
}

fn put(key: Key, len: usize) -> Write {
    Write::Put { key, value: Bytes::from(vec![0; len]), expect: Expect::Any }
}

fn append(session: u64) -> Write {
    let message = Message::new(&MessageParts {
        tenant: TenantId(0),
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: None,
        publisher: SessionUid(session + 1),
        topic: "site/7/line/3/state",
        props: &[],
        payload: &[0x5A; 64],
    });
    Write::Append(Append { message, partition: Partition(0), log: true, retain: false, spill: None })
}

fn lives(place: &Place, class: Durability) {
    let filter: &[&[u8]] = &[b"site/+/line/#"];
    place
        .step(class, |s| vec![put(key(Space::Session, s, &[]), 100), put(key(Space::Filter, s, filter), 16)]);
    place.step(class, |s| vec![append(s)]);
    place.step(class, |s| vec![put(key(Space::Cursor, s, &[]), 40)]);
    place.step(class, |s| {
        [key(Space::Filter, s, filter), key(Space::Cursor, s, &[]), key(Space::Session, s, &[])]
            .map(|key| Write::Delete { key, expect: Expect::Any })
            .to_vec()
    });
}

fn churn(c: &mut Criterion) {
    let mut group = c.benchmark_group("store_churn");
    group.throughput(Throughput::Elements(SESSIONS)).sample_size(20);
    for (name, class) in [("stored", Durability::Stored), ("synced", Durability::Synced)] {
        group.bench_function(BenchmarkId::new("256_sessions_open_commit_end", name), |b| {
            let place = Place::new(name);
            b.iter(|| lives(&place, class));
        });
    }
    group.finish();
}

criterion_group!(benches, churn);
criterion_main!(benches);
