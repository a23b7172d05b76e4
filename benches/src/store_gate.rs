//! The gate of the embedded store: churn, its CPU, the bytes it writes, the longest commit, and a restart with
//! a million queued messages. Each figure stands beside its goal and beside what the disk's sync costs.
//!
//! `store_gate [directory] [messages] [window]`; the directory (default: the system's temporary one) should lie on
//! the disk to be judged.

use bytes::Bytes;
use mast::store::files::Files;
use mast::store::files::os::OsFiles;
use mast::store::{Event, Sink, Store, StoreClient, StoreOptions};
use mast_core::ids::{OpId, SessionUid, ShardIx, TenantId};
use mast_core::message::{Message, MessageParts, QoS};
use mast_core::store::key::{Key, Space};
use mast_core::store::port::{
    Append, CommitResult, Durability, Expect, LogFilter, LogRead, Read, ReadResult, Restored, Write,
};
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::tenant::registry::Registry;
use mast_core::time::Wall;
use std::io::{BufRead, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TENANT: &str = "bench";
const TOPICS: u64 = 2000;
const SESSIONS: u64 = 200;
const PAYLOAD: usize = 256;
/// Messages that stay queued during churn.
const BACKLOG: u64 = 20_000;

fn now() -> Instant {
    Instant::now()
}

fn wall() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64))
}

/// User and system CPU time of this process, from the kernel's 10 ms ticks.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

#[derive(Default)]
struct Progress {
    done: u64,
    last: u64,
    failed: u64,
    slowest: Duration,
    latencies: Vec<u32>,
    sent: Vec<Option<Instant>>,
    page: Option<(usize, u64)>,
}

#[derive(Clone, Default)]
struct Shard(Arc<(Mutex<Progress>, Condvar)>);

impl Sink for Shard {
    fn deliver(&mut self, events: Vec<Event>) {
        let mut p = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = now();
        for event in events {
            match event {
                Event::CommitDone { op, result } => {
                    p.done += 1;
                    match result {
                        CommitResult::Done { last } => p.last = last.0,
                        CommitResult::Refused(_) | CommitResult::Unknown => p.failed += 1,
                    }
                    let slot = op.idx as usize;
                    if let Some(sent) = p.sent.get_mut(slot).and_then(Option::take) {
                        let took = at - sent;
                        p.slowest = p.slowest.max(took);
                        p.latencies.push(took.as_micros() as u32);
                    }
                }
                Event::ReadDone { result, .. } => {
                    p.page = match result {
                        ReadResult::Page(page) => Some((page.entries.len(), page.upto.0)),
                        ReadResult::Bound { .. } | ReadResult::Failed(_) => Some((0, 0)),
                    };
                }
                Event::Committed(_) => {}
            }
        }
        drop(p);
        self.0.1.notify_one();
    }
}

impl Shard {
    fn wait(&self, until: impl Fn(&Progress) -> bool) -> std::sync::MutexGuard<'_, Progress> {
        let mut p = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !until(&p) {
            p = self.0.1.wait(p).unwrap_or_else(PoisonError::into_inner);
        }
        p
    }
}

fn open(dir: &Path, shard: &Shard) -> (Store, Vec<Restored>) {
    let entropy = u64::from(std::process::id()) << 32 | wall().0 & 0xFFFF_FFFF;
    let mut options = StoreOptions::new(Arc::new(wall), entropy);
    // Small enough for segments to be freed and written over while it runs.
    options.trim.retention_bytes = 256 << 20;
    let files = OsFiles::new(dir).expect("the directory can be used");
    let registry = Registry::new(&[TENANT]).expect("a good name");
    Store::open(options, Arc::new(files), registry, vec![Box::new(shard.clone())]).expect("the store opens")
}

fn append(i: u64, payload: &[u8], topics: &[String]) -> Write {
    let message = Message::new(&MessageParts {
        tenant: TenantId(0),
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: None,
        publisher: SessionUid(i % 128),
        topic: &topics[(i * 7919 % TOPICS) as usize],
        props: &[],
        payload,
    });
    Write::Append(Append { message, partition: Partition(0), log: true, retain: false, spill: None })
}

fn topics() -> Vec<String> {
    (0..TOPICS).map(|n| format!("site/{}/device-{n}/state", n % 20)).collect()
}

/// Publishes `count` messages with `window` commits outstanding; with `churn`, sessions acknowledge.
fn publish(client: &StoreClient, shard: &Shard, count: u64, window: u64, churn: bool) {
    let (payload, topics) = (vec![0x5A; PAYLOAD], topics());
    let base = shard.wait(|_| true).done;
    let mut asked = 0;
    shard.wait(|_| true).sent = vec![None; window as usize * 2];
    let mut slot = 0u32;
    let mut send = |writes: Vec<Write>, asked: &mut u64| {
        slot = (slot + 1) % (window as u32 * 2);
        shard.wait(|_| true).sent[slot as usize] = Some(now());
        let op = OpId { idx: slot, generation: 0 };
        client.commit(ShardIx(0), op, writes, Durability::Synced).expect("the queue has room");
        *asked += 1;
    };
    let mut i = 0;
    while i < count {
        let p = shard.wait(|p| asked < window || base + asked - p.done <= window / 2);
        let room = window - (base + asked - p.done);
        let last = p.last;
        drop(p);
        for _ in 0..room.min(count - i) {
            send(vec![append(i, &payload, &topics)], &mut asked);
            i += 1;
            if churn && i.is_multiple_of(100) {
                let name = format!("client-{:06}", i / 100 % SESSIONS);
                let key = Key::new(Space::Cursor, TENANT, &[name.as_bytes()]);
                let value = Bytes::from(vec![0u8; 40]);
                send(vec![Write::Put { key, value, expect: Expect::Any }], &mut asked);
            }
        }
        if churn && last > BACKLOG {
            let floor = Position::at(Partition(0), Seq(last - BACKLOG));
            client.set_floor(ShardIx(0), TenantId(0), Some(floor));
        }
    }
    let p = shard.wait(|p| p.done >= base + asked);
    assert_eq!(p.failed, 0, "commits failed");
}

/// Median of syncing 32 KiB that were written over an earlier segment, in microseconds.
fn sync_median(dir: &Path) -> u64 {
    let files = OsFiles::new(dir).expect("the directory can be used");
    let file = files.create("probe").expect("a file");
    let block = vec![1u8; 32 << 10];
    let mut times = Vec::new();
    for round in 0..2 {
        for i in 0..300u64 {
            file.write_at(&block, i * block.len() as u64).expect("a write");
            let start = now();
            file.sync_data().expect("a sync");
            if round == 1 {
                times.push(start.elapsed().as_micros() as u64);
            }
        }
    }
    files.remove("probe").expect("a removal");
    times.sort_unstable();
    times[times.len() / 2]
}

fn line(name: &str, value: String, goal: &str, good: bool) {
    println!("{name:<44} {value:>16}   goal {goal:<14} {}", if good { "ok" } else { "MISSED" });
}

fn churn(dir: &Path, count: u64, window: u64) {
    let shard = Shard::default();
    let (store, _) = open(dir, &shard);
    let client = store.client();
    // Warm up: segments to recycle, pages of the file cached.
    publish(&client, &shard, count / 10, window, true);
    let before = client.stats();
    {
        let mut p = shard.wait(|_| true);
        p.latencies.clear();
        p.slowest = Duration::ZERO;
    }
    let (start, cpu) = (now(), cpu_seconds());
    publish(&client, &shard, count, window, true);
    let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let stats = client.stats();
    let mut p = shard.wait(|_| true);
    p.latencies.sort_unstable();
    let at = |q: f64| p.latencies[((p.latencies.len() - 1) as f64 * q) as usize];
    let written = stats.journal_bytes + stats.state_bytes - before.journal_bytes - before.state_bytes;
    let payload = count * (PAYLOAD as u64 + topics()[0].len() as u64);
    let rate = count as f64 / took;
    let per_message = cpu / count as f64 * 1e6;
    let ratio = written as f64 / payload as f64;
    println!("churn: {count} messages of {PAYLOAD} B, {window} commits outstanding");
    line("messages/s", format!("{rate:.0}"), ">= 100,000", rate >= 100_000.0);
    line("CPU µs/message, publisher included", format!("{per_message:.2}"), "<= 4", per_message <= 4.0);
    line("bytes written / bytes published", format!("{ratio:.2}"), "<= 2", ratio <= 2.0);
    let slowest = p.slowest.as_secs_f64() * 1e3;
    line("longest commit, ms", format!("{slowest:.1}"), "<= 100", slowest <= 100.0);
    println!("  commit p50 {} µs, p99 {} µs, p99.9 {} µs", at(0.5), at(0.99), at(0.999));
    let syncs = (stats.syncs - before.syncs).max(1);
    println!(
        "  {} syncs of {:.1} messages, mean {} µs; fdatasync of 32 KiB alone: p50 {} µs",
        syncs,
        count as f64 / syncs as f64,
        (stats.sync_micros - before.sync_micros) / syncs,
        sync_median(dir)
    );
    println!(
        "  {} segments now, {} freed, {} checkpoints ({} ms), moved {} MB, index {} KB for {} messages",
        stats.segments,
        stats.segments_freed,
        stats.checkpoints,
        stats.checkpoint_micros / 1000,
        stats.moved_bytes >> 20,
        stats.index_bytes >> 10,
        stats.log_entries
    );
    drop(p);
    store.shutdown();
}

fn fill(dir: &Path, count: u64) -> Store {
    let shard = Shard::default();
    let (store, _) = open(dir, &shard);
    publish(&store.client(), &shard, count, 1024, false);
    let stats = store.client().stats();
    println!("filled: index {:.1} B/message", stats.index_bytes as f64 / stats.log_entries as f64);
    store
}

/// Reads the whole log in pages, and returns the number of messages.
fn drain(client: &StoreClient, shard: &Shard) -> u64 {
    let (mut after, mut total) = (0, 0);
    loop {
        shard.wait(|_| true).page = None;
        let filters = [LogFilter { filter: "site/#".into(), start: Position::start() }];
        let read = LogRead {
            tenant: TenantId(0),
            filters: filters.into(),
            spill_of: None,
            partition: Partition(0),
            after: Seq(after),
            max_entries: 1000,
            max_bytes: 1 << 20,
            now: wall(),
        };
        client.read(ShardIx(0), OpId { idx: 0, generation: 1 }, Read::Log(read)).expect("the store runs");
        let (entries, upto) = shard.wait(|p| p.page.is_some()).page.unwrap_or_default();
        total += entries as u64;
        if entries == 0 || upto == after {
            return total;
        }
        after = upto;
    }
}

fn restart(dir: &Path, count: u64, how: &str) {
    let shard = Shard::default();
    let (start, cpu) = (now(), cpu_seconds());
    let (store, restored) = open(dir, &shard);
    let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    line(&format!("restart after {how}, s"), format!("{took:.2}"), "< 2", took < 2.0);
    let Some(Restored::End { head }) = restored.last() else { panic!("no end was told") };
    println!("  CPU {cpu:.2} s, head {}", head.get(Partition(0)).0);
    let (start, cpu) = (now(), cpu_seconds());
    let total = drain(&store.client(), &shard);
    let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let per_message = cpu / total.max(1) as f64 * 1e6;
    println!("  drained {total} messages in {took:.2} s, {per_message:.2} µs CPU each");
    assert!(total >= count, "messages are missing");
    store.shutdown();
}

/// Fills in a process of its own, which is killed once it says that it is done.
fn fill_and_kill(dir: &Path, count: u64) {
    let program = std::env::current_exe().expect("a program");
    let mut command = std::process::Command::new(program);
    command.arg("--fill").arg(dir).arg(count.to_string()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("a child");
    let mut text = String::new();
    if let Some(out) = child.stdout.take() {
        std::io::BufReader::new(out).read_line(&mut text).expect("a line");
    }
    child.kill().expect("a kill");
    child.wait().expect("an end");
    print!("  {text}");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some("--fill") {
        let dir = PathBuf::from(args.next().unwrap_or_default());
        let store = fill(&dir, args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000));
        std::io::stdout().flush().expect("a pipe");
        std::thread::park();
        drop(store);
        return;
    }
    let parent = first.map_or_else(std::env::temp_dir, PathBuf::from);
    let count = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let window = args.next().and_then(|n| n.parse().ok()).unwrap_or(512);
    let dir = parent.join(format!("mast-store-gate-{}", std::process::id()));
    // Long enough for several checkpoints.
    churn(&dir.join("churn"), 6 * count, window);
    println!("restart with {count} queued messages");
    fill(&dir.join("clean"), count).shutdown();
    restart(&dir.join("clean"), count, "shutdown");
    fill_and_kill(&dir.join("killed"), count);
    restart(&dir.join("killed"), count, "kill");
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
}
