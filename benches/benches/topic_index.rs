//! The topic indexes at 10k and 10^6 filters: heap per filter by a counting allocator, time to build, match,
//! cancel and scan.
//!
//! The mix: 60 % exact filters, 25 % `a/x/+/s`, 10 % `…/#`, 5 % `+/x/s`, 20 bytes on average; every topic
//! looked up matches at least one of them.

// A counting allocator cannot be written without it; it only adds to the system's.
#![allow(unsafe_code)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mast_core::rng::Rng;
use mast_core::time::Mono;
use mast_core::timer::Wheel;
use mast_core::topic::{
    Limits, RetainedCursor, RetainedIndex, ScanStep, Subscriber, TopicIndex, check_filter, check_name,
    matches,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 16 bytes, as a shard's record of a subscriber.
#[derive(Clone, Copy)]
struct Sub {
    key: u64,
    _options: u64,
}

impl Subscriber for Sub {
    type Key = u64;
    fn key(&self) -> u64 {
        self.key
    }
}

/// The nth filter and a topic that it matches.
fn pair(n: u64) -> (String, String) {
    let (site, dev) = (n % 64, n);
    match n % 20 {
        0..12 => (format!("site{site}/d{dev:06}/temp"), format!("site{site}/d{dev:06}/temp")),
        12..17 => (format!("site{site}/d{dev:06}/+/set"), format!("site{site}/d{dev:06}/valve/set")),
        17..19 => (format!("site{site}/d{dev:06}/log/#"), format!("site{site}/d{dev:06}/log/boot/1")),
        _ => (format!("+/d{dev:06}/alarm"), format!("site{site}/d{dev:06}/alarm")),
    }
}

fn build(filters: u64) -> TopicIndex<Sub> {
    let mut index = TopicIndex::new(17);
    for n in 0..filters {
        index.insert(&pair(n).0, Sub { key: n, _options: 0 });
    }
    index
}

fn shuffled_topics(filters: u64, count: u64) -> Vec<String> {
    let mut rng = Rng::new(3);
    (0..count).map(|_| pair(rng.below(filters)).1).collect()
}

fn index(c: &mut Criterion) {
    for (filters, name) in [(10_000, "10k"), (1_000_000, "1M")] {
        let before = LIVE.load(Relaxed);
        let index = build(filters);
        let heap = LIVE.load(Relaxed) - before;
        println!(
            "heap of {name} filters: {:.1} B each by the allocator, {:.1} B by the index's own estimate; text {:.1} B",
            heap as f64 / filters as f64,
            index.heap_bytes() as f64 / filters as f64,
            (0..filters).map(|n| pair(n).0.len()).sum::<usize>() as f64 / filters as f64,
        );
        println!("longest insert on the way: {:?}", longest_insert(filters));
        let topics = shuffled_topics(filters, 100_000.min(filters));
        let mut group = c.benchmark_group(format!("index_{name}"));
        group.throughput(Throughput::Elements(topics.len() as u64)).sample_size(10);
        group.bench_function("match", |b| {
            let mut out = Vec::new();
            b.iter(|| {
                for topic in &topics {
                    out.clear();
                    index.matches(topic, &mut out);
                    black_box(&out);
                }
            });
        });
        group.bench_function("miss", |b| {
            let misses: Vec<String> = topics.iter().map(|t| t.replace("site", "plant")).collect();
            let mut out = Vec::new();
            b.iter(|| {
                for topic in &misses {
                    index.matches(topic, &mut out);
                }
                black_box(&out);
                out.clear();
            });
        });
        group.throughput(Throughput::Elements(filters));
        let texts: Vec<String> = (0..filters).map(|n| pair(n).0).collect();
        group.bench_function("insert_and_remove_all", |b| {
            b.iter(|| {
                let mut index = TopicIndex::new(17);
                for (n, filter) in texts.iter().enumerate() {
                    index.insert(filter, Sub { key: n as u64, _options: 0 });
                }
                for (n, filter) in texts.iter().enumerate() {
                    black_box(index.remove(filter, n as u64));
                }
                assert!(index.is_empty());
            });
        });
    }
}

/// The longest single insert while an index grows to `filters`: tables double now and then.
fn longest_insert(filters: u64) -> std::time::Duration {
    let mut index = TopicIndex::new(17);
    let mut longest = std::time::Duration::ZERO;
    for n in 0..filters {
        let filter = pair(n).0;
        let start = now();
        index.insert(&filter, Sub { key: n, _options: 0 });
        longest = longest.max(start.elapsed());
    }
    longest
}

#[allow(clippy::disallowed_methods)] // a bench measures
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

fn big_list(c: &mut Criterion) {
    let mut group = c.benchmark_group("list_of_200k");
    let mut keys: Vec<u64> = (0..200_000).collect();
    let mut rng = Rng::new(8);
    for at in (1..keys.len()).rev() {
        keys.swap(at, rng.below(at as u64 + 1) as usize);
    }
    group.throughput(Throughput::Elements(keys.len() as u64)).sample_size(10);
    group.bench_function("insert_and_remove_in_random_order", |b| {
        b.iter(|| {
            let mut index = TopicIndex::new(17);
            for &key in &keys {
                index.insert("news", Sub { key, _options: 0 });
            }
            for &key in keys.iter().rev() {
                black_box(index.remove("news", key));
            }
        });
    });
}

fn retained(c: &mut Criterion) {
    for (topics, name) in [(100_000u64, "100k"), (1_000_000, "1M")] {
        let before = LIVE.load(Relaxed);
        let mut index = RetainedIndex::new(5);
        for n in 0..topics {
            index.set(&format!("site{}/d{:06}/s{}", n % 64, n / 8, n % 8), n);
        }
        let heap = LIVE.load(Relaxed) - before;
        println!(
            "heap of {name} retained topics: {:.1} B each, {:.1} B estimated",
            heap as f64 / topics as f64,
            index.heap_bytes() as f64 / topics as f64
        );
        let mut rng = Rng::new(3);
        let names: Vec<String> = (0..10_000)
            .map(|_| rng.below(topics))
            .map(|n| format!("site{}/d{:06}/s{}", n % 64, n / 8, n % 8))
            .collect();
        let mut group = c.benchmark_group(format!("retained_{name}"));
        group.sample_size(10).throughput(Throughput::Elements(names.len() as u64));
        group.bench_function("replace", |b| {
            b.iter(|| names.iter().for_each(|n| _ = black_box(index.set(n, 1))));
        });
        group.bench_function("remove_and_set", |b| {
            b.iter(|| {
                for n in &names {
                    black_box(index.remove(n));
                    black_box(index.set(n, 1));
                }
            });
        });
        for filter in ["#", "+/+/s3", "site7/#", "+/d000100/#"] {
            group.throughput(Throughput::Elements(1));
            group.bench_function(format!("scan {filter} by 2000"), |b| {
                b.iter(|| {
                    let mut cursor = RetainedCursor::new(filter);
                    let mut found = 0u64;
                    loop {
                        let step = index.scan_with(&mut cursor, &mut 2000, |_, v| {
                            found += v & 1;
                            ControlFlow::Continue(())
                        });
                        if step == ScanStep::Done {
                            return found;
                        }
                    }
                });
            });
        }
    }
}

fn checks(c: &mut Criterion) {
    let limits = Limits::default();
    let mut group = c.benchmark_group("check");
    for topic in ["site17/d004711/temp", "plant/north/line4/cell12/robot7/axis3/temperature/celsius"] {
        group.bench_function(format!("name of {} B", topic.len()), |b| {
            b.iter(|| check_name(black_box(topic), &limits));
        });
    }
    group.bench_function("filter", |b| b.iter(|| check_filter(black_box("site17/d004711/+/set"), &limits)));
    group.bench_function("matches", |b| {
        b.iter(|| matches(black_box("site17/+/valve/#"), black_box("site17/d004711/valve/set")));
    });
}

fn timers(c: &mut Criterion) {
    let mut group = c.benchmark_group("timer");
    group.throughput(Throughput::Elements(100_000)).sample_size(10);
    group.bench_function("100k keep-alives of 90 s, armed and fired by wake-ups", |b| {
        b.iter_batched(
            || Wheel::new(Mono(0)),
            |mut wheel| {
                for n in 0..100_000u64 {
                    wheel.insert(Mono(90_000_000 + n * 600), n);
                }
                let mut fired = Vec::new();
                while let Some(wake) = wheel.next_wake() {
                    fired.clear();
                    wheel.expire(wake, &mut fired);
                    black_box(&fired);
                }
            },
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, index, big_list, retained, checks, timers);
criterion_main!(benches);
