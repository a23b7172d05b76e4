//! One publish to 1, 100 and 1000 sessions of a shard: the route, the queues, the encoding, and for QoS 1 the
//! acknowledgements of all. Time per delivery is what should stay level.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mast_benches::{Bench, NOW, acknowledge, publishes};
use mast_core::ids::ConnId;
use mast_core::message::QoS;
use mast_core::shard::input::Input;
use std::hint::black_box;

const TOPIC: &str = "site/7/line/3/state";

/// A publisher and so many subscribers, half of them by a wildcard.
fn crowd(sessions: u64, qos: QoS) -> (Bench, ConnId, Vec<ConnId>) {
    let mut bench = Bench::default();
    let subscribers = (0..sessions)
        .map(|n| bench.connect(Some((if n % 2 == 0 { TOPIC } else { "site/+/line/#" }, qos))))
        .collect();
    let publisher = bench.connect(None);
    (bench, publisher, subscribers)
}

fn fan_out(c: &mut Criterion) {
    let mut group = c.benchmark_group("fan_out");
    for sessions in [1, 100, 1000] {
        group.throughput(Throughput::Elements(sessions));
        group.bench_function(BenchmarkId::new("qos0", sessions), |b| {
            let (mut bench, publisher, _) = crowd(sessions, QoS::AtMostOnce);
            let bytes = publishes(TOPIC, QoS::AtMostOnce, 1);
            b.iter(|| {
                bench.shard.handle(NOW, Input::Received { conn: publisher, bytes: &bytes });
                bench.run();
                black_box(bench.drain())
            });
        });
        group.bench_function(BenchmarkId::new("qos1_acknowledged", sessions), |b| {
            let (mut bench, publisher, subscribers) = crowd(sessions, QoS::AtLeastOnce);
            let bytes = publishes(TOPIC, QoS::AtLeastOnce, 1);
            let mut acks = Vec::new();
            b.iter(|| {
                bench.shard.handle(NOW, Input::Received { conn: publisher, bytes: &bytes });
                bench.run();
                for subscriber in &subscribers {
                    acknowledge(&mut bench, *subscriber, &mut acks);
                    assert!(!acks.is_empty(), "a subscriber got nothing");
                    bench.shard.handle(NOW, Input::Received { conn: *subscriber, bytes: &acks });
                }
                bench.run();
                black_box(bench.drain())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, fan_out);
criterion_main!(benches);
