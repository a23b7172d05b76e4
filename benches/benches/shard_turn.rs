//! What a shard costs per delivery, without sockets: whole turns (bytes in, poll, bytes out, acknowledgements)
//! of the three shapes that decide a broker's CPU.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mast_core::codec::{
    AckKind, Connect, FiltersBuf, Packet, Props, PublishHead, SubOptions, Subscribe, Version, cut, put_ack,
    put_publish_head,
};
use mast_core::conn::handshake::{AuthAnswer, Handshake, HandshakeConfig, Identity, Progress};
use mast_core::ids::{ConnId, ShardIx, TenantId};
use mast_core::message::QoS;
use mast_core::rng::Rng;
use mast_core::settings::Settings;
use mast_core::shard::input::{Input, Outbox, Step};
use mast_core::shard::{Shard, ShardConfig};
use mast_core::store::port::Restored;
use mast_core::store::position::Position;
use mast_core::tenant::registry::Registry;
use mast_core::time::Now;
use std::hint::black_box;
use std::sync::Arc;

const NOW: Now = Now { mono: mast_core::time::Mono(1), wall: mast_core::time::Wall(1) };
/// Messages that one publisher sends in one read.
const BATCH: usize = 20;

struct Bench {
    shard: Shard,
    outbox: Outbox,
    handshake: Arc<HandshakeConfig>,
    next: u32,
}

impl Bench {
    fn new() -> Bench {
        let registry = Registry::new(&["default"]).expect("a good name");
        let settings = Settings { sys_interval_ms: 0, ..Settings::default() };
        let handshake = Arc::new(HandshakeConfig {
            settings: Arc::new(settings.clone()),
            max_connect_packet: 1024,
            connect_deadline_ms: 1000,
            auth_methods: Arc::from([]),
        });
        let config = ShardConfig {
            shard: ShardIx(0),
            shards: 1,
            seed: 1,
            interest_seed: 1,
            registry,
            settings,
            acl: None,
        };
        let mut shard = Shard::new(config, NOW);
        shard.handle(NOW, Input::Restore(Restored::End { head: Position::start() }));
        Bench { shard, outbox: Outbox::default(), handshake, next: 0 }
    }

    fn run(&mut self) {
        while self.shard.poll(NOW, &mut self.outbox) == Step::More {}
        self.outbox.effects.clear();
    }

    /// Takes all output, as the sockets would.
    fn drain(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(id) = self.outbox.dirty.pop() {
            let n = self.shard.output(id).map_or(0, |out| out.len());
            bytes += n;
            self.shard.wrote(NOW, id, n);
        }
        bytes
    }

    fn connect(&mut self, filter: Option<(&str, QoS)>) -> ConnId {
        let id = ConnId { idx: self.next, generation: 0 };
        self.next += 1;
        let name = format!("c{}", id.idx);
        let connect = Packet::Connect(Connect {
            version: Version::V5,
            bridge: false,
            clean_start: true,
            keep_alive: 0,
            props: Props::EMPTY,
            client_id: &name,
            will: None,
            username: None,
            password: None,
        });
        let mut bytes = Vec::new();
        connect.encode(Version::V5, &mut bytes).expect("encodes");
        let mut machine = Handshake::new(Arc::clone(&self.handshake), NOW.mono);
        let mut out = Vec::new();
        let mut rng = Rng::new(1);
        let Progress::Ask(_) = machine.receive(&bytes, &mut rng, &mut out) else { panic!("asks") };
        let identity = Identity { tenant: TenantId(0), principal: None };
        let Progress::Admit(admission) =
            machine.authenticated(AuthAnswer::Accept { identity, data: None }, &mut out)
        else {
            panic!("admits")
        };
        self.shard.handle(NOW, Input::Admit { conn: id, admission });
        if let Some((filter, qos)) = filter {
            let mut filters = FiltersBuf::new();
            filters.push(filter, SubOptions::new(qos)).expect("fits");
            let subscribe = Packet::Subscribe(Subscribe {
                packet_id: 1,
                props: Props::EMPTY,
                filters: filters.as_filters(),
            });
            let mut bytes = Vec::new();
            subscribe.encode(Version::V5, &mut bytes).expect("encodes");
            self.shard.handle(NOW, Input::Received { conn: id, bytes: &bytes });
        }
        self.run();
        self.drain();
        id
    }
}

fn publishes(topic: &str, qos: QoS) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..BATCH {
        let head = PublishHead {
            dup: false,
            qos,
            retain: false,
            topic,
            packet_id: if qos == QoS::AtMostOnce { 0 } else { i as u16 + 1 },
            alias: None,
            expiry: None,
            sub_ids: &[],
            props: &[],
            payload_len: 64,
        };
        put_publish_head(&head, Version::V5, &mut bytes).expect("fits");
        bytes.extend_from_slice(&[7; 64]);
    }
    bytes
}

/// The subscriber's acknowledgements of what waits for it.
fn acknowledge(bench: &mut Bench, id: ConnId, acks: &mut Vec<u8>) {
    acks.clear();
    if let Some(out) = bench.shard.output(id) {
        out.for_chunks(64, |chunk| {
            let mut at = 0;
            while let Ok(Some(frame)) = cut(&chunk[at..], u32::MAX) {
                at += frame.total;
                if frame.first & 0x06 != 0 {
                    let topic = usize::from(u16::from_be_bytes([frame.body[0], frame.body[1]]));
                    let id = u16::from_be_bytes([frame.body[2 + topic], frame.body[3 + topic]]);
                    put_ack(AckKind::PubAck, id, mast_core::codec::Reason::SUCCESS, Version::V5, acks);
                }
            }
        });
    }
}

fn point_to_point(c: &mut Criterion) {
    let mut group = c.benchmark_group("shard_turn");
    group.throughput(Throughput::Elements((50 * BATCH) as u64));
    group.bench_function("p2p_qos1_50_pairs", |b| {
        let mut bench = Bench::new();
        let pairs: Vec<(ConnId, ConnId, Vec<u8>)> = (0..50)
            .map(|i| {
                let topic = format!("p/{i}/data");
                let subscriber = bench.connect(Some((&topic, QoS::AtLeastOnce)));
                (bench.connect(None), subscriber, publishes(&topic, QoS::AtLeastOnce))
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
    group.throughput(Throughput::Elements((50 * BATCH) as u64));
    group.bench_function("fan_in_qos0_50_to_1", |b| {
        let mut bench = Bench::new();
        bench.connect(Some(("f/#", QoS::AtMostOnce)));
        let publishers: Vec<(ConnId, Vec<u8>)> =
            (0..50).map(|i| (bench.connect(None), publishes(&format!("f/{i}/x"), QoS::AtMostOnce))).collect();
        b.iter(|| {
            for (publisher, bytes) in &publishers {
                bench.shard.handle(NOW, Input::Received { conn: *publisher, bytes });
                bench.run();
            }
            black_box(bench.drain())
        });
    });
    group.throughput(Throughput::Elements((100 * BATCH) as u64));
    group.bench_function("fan_out_qos0_1_to_100", |b| {
        let mut bench = Bench::new();
        for _ in 0..100 {
            bench.connect(Some(("o/data", QoS::AtMostOnce)));
        }
        let publisher = bench.connect(None);
        let bytes = publishes("o/data", QoS::AtMostOnce);
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
