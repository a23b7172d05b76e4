//! The codec alone: the packets of a broker's day, encoded into a buffer that is kept and decoded from it, for
//! MQTT 3.1.1 and 5.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mast_core::codec::{
    Connect, FiltersBuf, Packet, Property, Props, PropsBuf, Publish, SubOptions, Subscribe, Version, Will,
    check_from_client, cut, decode,
};
use mast_core::message::QoS;
use std::hint::black_box;

const VERSIONS: [(Version, &str); 2] = [(Version::V311, "v311"), (Version::V5, "v5")];

fn both_ways(c: &mut Criterion, name: &str, version: (Version, &str), packet: &Packet<'_>) {
    let (version, label) = version;
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes).expect("encodes");
    let mut group = c.benchmark_group(format!("codec_{name}"));
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function(BenchmarkId::new("encode", label), |b| {
        let mut out = Vec::with_capacity(bytes.len());
        b.iter(|| {
            out.clear();
            black_box(packet).encode(version, &mut out).expect("encodes");
            black_box(&out);
        });
    });
    // As a shard does with what a client sends.
    group.bench_function(BenchmarkId::new("cut_decode_check", label), |b| {
        b.iter(|| {
            let frame = cut(black_box(&bytes), u32::MAX).expect("well-formed").expect("whole");
            let packet = decode(&frame, version).expect("well-formed");
            check_from_client(&packet).expect("a client may send it");
            black_box(&packet);
        });
    });
    group.finish();
}

/// Properties in MQTT 5, none before.
fn props(version: Version, list: &[Property<'_>]) -> PropsBuf {
    let mut buf = PropsBuf::new();
    for property in list.iter().filter(|_| version.is_v5()) {
        buf.push(property).expect("fits");
    }
    buf
}

fn connect(c: &mut Criterion) {
    for version in VERSIONS {
        let connect = props(
            version.0,
            &[Property::SessionExpiry(3600), Property::ReceiveMaximum(100), Property::TopicAliasMaximum(10)],
        );
        let will = props(version.0, &[Property::WillDelay(5), Property::ContentType("text/plain")]);
        let packet = Packet::Connect(Connect {
            version: version.0,
            bridge: false,
            clean_start: false,
            keep_alive: 60,
            props: connect.as_props(),
            client_id: "device-004711",
            will: Some(Will {
                qos: QoS::AtLeastOnce,
                retain: true,
                props: will.as_props(),
                topic: "site17/d004711/state",
                payload: b"offline",
            }),
            username: Some("device-004711"),
            password: Some(b"a password of usual length"),
        });
        both_ways(c, "connect", version, &packet);
    }
}

fn publish(c: &mut Criterion) {
    for (name, len) in [("publish_64", 64), ("publish_1k", 1024)] {
        let payload = vec![0x5A; len];
        for version in VERSIONS {
            let packet = |props| {
                Packet::Publish(Publish {
                    dup: false,
                    qos: QoS::AtLeastOnce,
                    retain: false,
                    topic: "site17/d004711/temp",
                    packet_id: 17,
                    props,
                    payload: &payload,
                })
            };
            both_ways(c, name, version, &packet(Props::EMPTY));
        }
        let rich = props(
            Version::V5,
            &[
                Property::MessageExpiry(60),
                Property::ContentType("application/json"),
                Property::UserProperty("trace", "0af7651916cd43dd8448eb211c80319c"),
            ],
        );
        let packet = Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: "site17/d004711/temp",
            packet_id: 17,
            props: rich.as_props(),
            payload: &payload,
        });
        both_ways(c, name, (Version::V5, "v5_three_properties"), &packet);
    }
}

fn subscribe(c: &mut Criterion) {
    for version in VERSIONS {
        let id = props(version.0, &[Property::SubscriptionId(7)]);
        let mut filters = FiltersBuf::new();
        for filter in ["site17/d004711/+/set", "site17/all/#", "$share/workers/jobs/+"] {
            filters.push(filter, SubOptions::new(QoS::AtLeastOnce)).expect("fits");
        }
        let packet = Packet::Subscribe(Subscribe {
            packet_id: 17,
            props: id.as_props(),
            filters: filters.as_filters(),
        });
        both_ways(c, "subscribe_3_filters", version, &packet);
    }
}

criterion_group!(benches, connect, publish, subscribe);
criterion_main!(benches);
