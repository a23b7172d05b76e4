//! What a shard costs per delivery, without sockets: whole turns (bytes in, poll, bytes out, acknowledgements)
//! of the three shapes that decide a broker's CPU.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mast_benches::{Bench, NOW, acknowledge, publishes};
use mast_core::ids::ConnId;
use mast_core::message::QoS;
use mast_core::shard::input::Input;
use std::hint::black_box;

/// Messages that one publisher sends in one read.
const BATCH: u16 = 20;

fn point_to_point(c: &mut Criterion) {
    let mut group = c.benchmark_group("shard_turn");
    group.throughput(Throughput::Elements(50 * u64::from(BATCH)));
    group.bench_function("p2p_qos1_50_pairs", |b| {
        let mut bench = Bench::default();
        let pairs: Vec<(ConnId, ConnId, Vec<u8>)> = (0..50)
            .map(|i| {
                let topic = format!("p/{i}/data");
                let subscriber = bench.connect(Some((&topic, QoS::AtLeastOnce)));
                (bench.connect(None), subscriber, publishes(&topic, QoS::AtLeastOnce, BATCH))
            })
            .collect();
        let mut acks = Vec::new();
        b.iter_batched(
            || (),
            |()| {
                for (publisher, subscriber, bytes) in &pairs {
                    bench.shard.handle(NOW, Input::Received { conn: *publisher, bytes });
                    bench.run();
                    acknowledge(&mut bench, *subscriber, &mut acks);
                    bench.shard.handle(NOW, Input::Received { conn: *subscriber, bytes: &acks });
                    bench.run();
                }
                black_box(bench.drain())
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn fan(c: &mut Criterion) {
    let mut group = c.benchmark_group("shard_turn");
    group.throughput(Throughput::Elements(50 * u64::from(BATCH)));
    group.bench_function("fan_in_qos0_50_to_1", |b| {
        let mut bench = Bench::default();
        bench.connect(Some(("f/#", QoS::AtMostOnce)));
        let publishers: Vec<(ConnId, Vec<u8>)> = (0..50)
            .map(|i| (bench.connect(None), publishes(&format!("f/{i}/x"), QoS::AtMostOnce, BATCH)))
            .collect();
        b.iter(|| {
            for (publisher, bytes) in &publishers {
                bench.shard.handle(NOW, Input::Received { conn: *publisher, bytes });
                bench.run();
            }
            black_box(bench.drain())
        });
    });
    group.throughput(Throughput::Elements(100 * u64::from(BATCH)));
    group.bench_function("fan_out_qos0_1_to_100", |b| {
        let mut bench = Bench::default();
        for _ in 0..100 {
            bench.connect(Some(("o/data", QoS::AtMostOnce)));
        }
        let publisher = bench.connect(None);
        let bytes = publishes("o/data", QoS::AtMostOnce, BATCH);
        b.iter(|| {
            bench.shard.handle(NOW, Input::Received { conn: publisher, bytes: &bytes });
            bench.run();
            black_box(bench.drain())
        });
    });
    group.finish();
}

criterion_group!(benches, point_to_point, fan);
criterion_main!(benches);
