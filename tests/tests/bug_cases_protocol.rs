//! Bugs that other brokers had, by the ids of `tests/bug-cases.tsv`: aliases, filters, strings, malformed packets,
//! packet sizes.

use std::time::{Duration, Instant};

use mast_core::codec::{PacketType, SubOptions};
use mast_tests::{
    Broker, Client, Connect, Property, Version,
    broker::DEADLINE,
    client::{Event, Out, qos},
    raw,
};

const BOTH: [Version; 2] = [Version::V311, Version::V5];

const MIB: u64 = 1 << 20;

fn options(max_qos: u8) -> SubOptions {
    SubOptions::new(qos(max_qos))
}

#[test]
fn bo_18_wrong_topic_aliases_end_the_connection_and_nothing_else() {
    let broker = Broker::start();
    let mut other = broker.client("other");
    let max = other.connack().props().topic_alias_maximum().unwrap_or(0);
    let alias = |n: u16| raw::cat(&[&[0x23], &n.to_be_bytes()]);
    for (topic, props, reason) in
        [("", alias(5), 0x82), ("", vec![], 0x82), ("t", alias(0), 0x94), ("t", alias(max + 1), 0x94)]
    {
        let mut c = broker.client("c");
        c.send_bytes(&raw::publish5(0x30, topic.as_bytes(), None, &props, b"x"));
        c.expect_end(reason);
        other.ping();
    }
}

#[test]
fn bo_22_malformed_shared_filters_match_nothing() {
    let broker = Broker::start();
    let filters = ["$share/ab", "$share/ab/", "$share//t", "$share/a+/t", "$share/a#/t", "$share"];
    let mut clients = Vec::new();
    for (n, filter) in filters.iter().enumerate() {
        let mut c = broker.client(&format!("c{n}"));
        let code = c.subscribe(filter, 1);
        // "$share" alone is an ordinary filter of one level.
        assert!(code == 0x8F || (*filter == "$share" && code == 1), "{filter}: {code:#x}");
        clients.push(c);
    }
    let mut p = broker.client("p");
    for topic in ["ab", "t", "share/ab"] {
        p.publish(topic, "x", 1);
    }
    for mut c in clients {
        c.assert_quiet();
    }
    // A topic that looks like a shared filter is refused or goes to nobody.
    p.send_publish(&Out { topic: "$share/ab", payload: b"x", qos: 1, ..Out::default() });
    match p.read(DEADLINE) {
        Event::Packet(got) => {
            assert!([PacketType::PubAck, PacketType::Disconnect].contains(&got.ty()), "{got:?}")
        }
        other => panic!("{other:?}"),
    }
    broker.client("alive").ping();
}

#[test]
fn bo_23_overlapping_subscriptions_never_lower_the_qos() {
    let broker = Broker::start();
    for version in BOTH {
        let mut s = broker.client_of(version, "s");
        for (filter, q) in [("sensor/test", 1), ("sensor/+", 2), ("#", 0)] {
            s.subscribe(filter, q);
        }
        broker.client("p").publish("sensor/test", "x", 2);
        assert_eq!(s.message().qos, 2);
        s.assert_quiet();
    }
}

#[test]
fn bo_24_subscription_identifiers_do_not_cross_clients() {
    let broker = Broker::start();
    let (mut a, mut b) = (broker.client("a"), broker.client("b"));
    a.subscribe_all(&[("foo", options(1))], &[Property::SubscriptionId(1)]);
    b.subscribe_all(&[("foo", options(1))], &[Property::SubscriptionId(2)]);
    b.subscribe_all(&[("foo/#", options(1))], &[Property::SubscriptionId(3)]);
    broker.client("p").publish("foo", "x", 1);
    assert_eq!(a.message().props.sub_ids, [1]);
    assert_eq!(b.message().props.sub_ids, [2, 3]);
}

#[test]
fn bo_25_subscription_identifiers_where_they_must_not_be() {
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("#", 0);
    for bytes in [
        raw::publish5(0x30, b"t", None, &[0x0B, 1], b"x"),
        raw::subscribe(0x82, 1, Some(&[0x0B, 0]), &[(b"t", 0)]),
        raw::subscribe(0x82, 1, Some(&[0x0B, 1, 0x0B, 2]), &[(b"t", 0)]),
    ] {
        let mut c = broker.client("c");
        c.send_bytes(&bytes);
        c.expect_end(0x82);
    }
    watcher.assert_quiet();
}

#[test]
fn bo_26_wildcards_do_not_reach_dollar_topics() {
    let broker = Broker::with("[mqtt]\nsys_interval = \"1s\"\n");
    let mut first = broker.client("first");
    for filter in ["#", "+/x", "+/#"] {
        first.subscribe(filter, 0);
    }
    let mut second = broker.client("second");
    second.subscribe("$SYS/#", 0);
    assert!(second.message().topic.starts_with("$SYS/"));
    let mut p = broker.client("p");
    p.send_publish(&Out { topic: "$foo/x", payload: b"x", qos: 1, ..Out::default() });
    match p.read(DEADLINE) {
        Event::Packet(got) => {
            assert!([PacketType::PubAck, PacketType::Disconnect].contains(&got.ty()), "{got:?}")
        }
        other => panic!("{other:?}"),
    }
    first.assert_quiet();
}

#[test]
fn bo_27_wildcards_in_topics_and_malformed_filters_and_wills() {
    let broker = Broker::start();
    for version in BOTH {
        for topic in ["a/+", "a/#"] {
            let mut c = broker.client_of(version, "c");
            c.send_publish(&Out { topic, payload: b"x", ..Out::default() });
            c.expect_end(0x90);
        }
        for filter in ["a+", "#a", "a/#/b", "a/b#"] {
            let mut c = broker.client_of(version, "c");
            assert!(c.subscribe(filter, 1) >= 0x80);
            let id = c.fresh_id();
            let props: Option<&[u8]> = if version.is_v5() { Some(&[]) } else { None };
            c.send_bytes(&raw::unsubscribe(0xA2, id, props, &[filter.as_bytes()]));
            match c.read(DEADLINE) {
                Event::Packet(got) if got.ty() == PacketType::UnsubAck => {
                    assert!(!version.is_v5() || [0x11, 0x8F].contains(&got.codes()[0]), "{got:?}");
                }
                Event::Packet(got) => assert_eq!(got.ty(), PacketType::Disconnect),
                Event::Closed => {}
                Event::Nothing => panic!("no answer"),
            }
        }
    }
    Connect::v5("w").will("a/+", "x", 0, false).expect_refusal(&broker, 0x90);
    let (mut old, connack) = (Connect::v311("w").will("a/+", "x", 0, false).start_on(broker.tcp()), ());
    let seen = old.expect_closed();
    assert!(seen.iter().all(|g| g.reason() != 0), "{seen:?} {connack:?}");
}

#[test]
fn bo_28_nul_in_every_string_closes_the_connection() {
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("#", 0);
    let nul = raw::field("a\0b");
    let (id, empty) = (raw::field("c"), [0u8]);
    for connect in [
        raw::connect(5, 2, &raw::cat(&[&empty, &nul])),
        raw::connect(5, 0x82, &raw::cat(&[&empty, &id, &nul])),
        raw::connect(5, 6, &raw::cat(&[&empty, &id, &empty, &nul, &id])),
        raw::connect(4, 2, &nul),
    ] {
        let mut c = Client::on(broker.tcp(), Version::V5);
        c.send_bytes(&connect);
        for got in c.expect_closed() {
            assert!(got.reason() >= 0x80, "{got:?}");
        }
    }
    for bytes in [
        raw::publish5(0x30, b"a\0b", None, &[], b"x"),
        raw::publish5(0x30, b"t", None, &raw::cat(&[&[0x26], &nul, &id]), b"x"),
        raw::publish5(0x30, b"t", None, &raw::cat(&[&[0x08], &nul]), b"x"),
        raw::subscribe(0x82, 1, Some(&[]), &[(b"a\0b", 0)]),
    ] {
        let mut c = broker.client("c");
        c.send_bytes(&bytes);
        c.expect_end(0x81);
    }
    watcher.assert_quiet();
}

#[test]
fn bo_29_topics_are_neither_normalised_nor_stripped() {
    let broker = Broker::start();
    let topics = ["\u{FEFF}a", "a", "\u{e9}", "e\u{301}", "x/😀/y", "with space", " "];
    for version in BOTH {
        let mut clients: Vec<Client> = Vec::new();
        for (n, topic) in topics.iter().enumerate() {
            let mut c = broker.client_of(version, &format!("c{n}"));
            assert_eq!(c.subscribe(topic, 1), 1);
            clients.push(c);
        }
        let mut p = broker.client_of(version, "p");
        for topic in topics {
            p.publish(topic, topic, 1);
        }
        for (topic, c) in topics.iter().zip(&mut clients) {
            let m = c.message();
            assert_eq!((m.topic.as_str(), m.text()), (*topic, *topic));
            c.assert_quiet();
        }
    }
    // Control characters and U+FFFF: the same answer for both ways.
    for odd in ["a\u{1}b", "a\u{7f}", "a\u{FFFF}"] {
        let mut c = broker.client("odd");
        let accepted = c.subscribe(odd, 1) < 0x80;
        c.send_publish(&Out { topic: odd, payload: b"x", ..Out::default() });
        if accepted {
            assert_eq!(c.message().topic, odd);
        } else {
            c.expect_end_any(&[0x90, 0x81]);
        }
    }
}

#[test]
fn bo_30_cut_packets_are_malformed_and_cost_no_memory() {
    let broker = Broker::start();
    let cases = |version: Version| {
        let v5 = version.is_v5();
        let sub: &[u8] = if v5 { &[0, 1, 0, 0, 1, b't'] } else { &[0, 1, 0, 1, b't'] };
        let mut padded = vec![0x32];
        padded.extend(raw::varint(1024));
        padded.extend(raw::field(vec![b't'; 1022]));
        vec![
            raw::packet(0x32, &raw::field("t")),
            raw::packet(0x82, sub),
            padded,
            raw::packet(0x30, &[0, 200, b't']),
        ]
    };
    let rounds: usize = std::env::var("MAST_BO30_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let mut before = 0;
    for round in 0..rounds {
        if round == rounds / 4 {
            before = broker.rss();
        }
        for version in BOTH {
            for bytes in cases(version) {
                let mut c = broker.client_of(version, "c");
                c.send_bytes(&bytes);
                c.expect_end(0x81);
            }
        }
    }
    let after = broker.rss();
    assert!(after < before + 8 * MIB, "{before} -> {after}");
}

#[test]
fn bo_31_nothing_but_connect_opens_a_connection() {
    let broker = Broker::start();
    let sub = raw::subscribe(0x82, 1, None, &[(b"t", 0)]);
    let unsub = raw::unsubscribe(0xA2, 1, None, &[b"t"]);
    let publish = raw::publish3(0x30, b"t", None, b"x");
    let mut packets =
        vec![sub, unsub, publish, vec![0x00, 0], vec![0xC0, 0], vec![0xD0, 0], vec![0xE0, 0], vec![0xF0, 0]];
    packets.extend([0x40u8, 0x50, 0x62, 0x70, 0xB0].map(|first| vec![first, 2, 0, 1]));
    packets.extend([vec![0x20, 2, 0, 0], vec![0x90, 3, 0, 1, 0]]);
    for bytes in packets {
        let mut c = Client::on(broker.tcp(), Version::V311);
        c.send_bytes(&bytes);
        assert!(c.expect_closed().is_empty(), "{bytes:02x?}");
    }
    let before = broker.rss();
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut c = Client::on(broker.tcp(), Version::V311);
        c.send_bytes(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]);
        c.send_bytes(&[7; 1024]);
        held.push(c);
    }
    for c in &mut held {
        assert!(c.expect_closed().is_empty());
    }
    assert!(broker.rss() < before + 50 * MIB);
}

#[test]
fn bo_32_malformed_subscribes_and_unsubscribes() {
    let broker = Broker::start();
    for version in BOTH {
        let props: Option<&[u8]> = if version.is_v5() { Some(&[]) } else { None };
        let filter: &[(&[u8], u8)] = &[(b"t", 1)];
        for bytes in [
            raw::subscribe(0x82, 1, props, &[]),
            raw::subscribe(0x82, 0, props, filter),
            raw::subscribe(0x82, 1, props, &[(b"t", 3)]),
            raw::subscribe(0x82, 1, props, &[(b"t", 0x40)]),
            raw::subscribe(0x82, 1, props, &[(b"t", 0x80)]),
            raw::subscribe(0x82, 1, props, &[(b"t", 0x30)]),
            raw::subscribe(0x80, 1, props, filter),
            raw::unsubscribe(0xA2, 1, props, &[]),
            raw::unsubscribe(0xA0, 1, props, &[b"t"]),
        ] {
            let mut c = broker.client_of(version, "c");
            c.send_bytes(&bytes);
            c.expect_end_any(&[0x81, 0x82]);
        }
        let mut c = broker.client_of(version, "c");
        assert!(c.subscribe("", 1) >= 0x80);
        broker.client("p").publish("t", "x", 1);
        c.assert_quiet();
    }
}

#[test]
fn bo_33_ten_thousand_user_properties_are_refused_quickly() {
    let broker = Broker::start();
    let mut other = broker.client("other");
    let many: Vec<u8> = (0..10_000)
        .flat_map(|n| raw::cat(&[&[0x26], &raw::field(format!("k{n}")), &raw::field("v")]))
        .collect();
    let same: Vec<u8> =
        (0..10_000).flat_map(|_| raw::cat(&[&[0x26], &raw::field("k"), &raw::field("v")])).collect();
    for round in 0..20 {
        for props in [&many, &same] {
            let mut c = broker.client(&format!("c{round}"));
            c.send_bytes(&raw::publish5(0x32, b"t", Some(1), props, b"x"));
            let start = Instant::now();
            other.ping();
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
            match c.read(DEADLINE) {
                Event::Packet(got) => assert!([0x95, 0x97, 0x82].contains(&got.reason()), "{got:?}"),
                other => panic!("{other:?}"),
            }
            let connect =
                raw::connect(5, 2, &raw::cat(&[&raw::varint(props.len()), props, &raw::field("d")]));
            let mut c = Client::on(broker.tcp(), Version::V5);
            c.send_bytes(&connect);
            for got in c.expect_closed() {
                assert!(got.reason() >= 0x80, "{got:?}");
            }
        }
    }
    // Within the limit they pass in order.
    let mut s = broker.client("s");
    s.subscribe("t", 1);
    let names: Vec<String> = (0..60).map(|n| format!("k{}", n % 7)).collect();
    let props: Vec<Property<'_>> = names.iter().map(|n| Property::UserProperty(n, "v")).collect();
    other.publish_out(&Out { topic: "t", payload: b"x", qos: 1, props: &props, ..Out::default() });
    let got: Vec<String> = s.message().props.user.into_iter().map(|(k, _)| k).collect();
    assert_eq!(got, names);
}

#[test]
fn bo_40_packets_at_the_clients_maximum_size() {
    let broker = Broker::start();
    let mut p = broker.client("p");
    for max in [100usize, 129] {
        let mut c = Connect::v5("c").prop(Property::MaximumPacketSize(max as u32)).open(&broker);
        c.subscribe("t", 2);
        for q in 0..3 {
            let id = usize::from(q > 0) * 2;
            // A header has 2 bytes up to 129 in all and 3 from 131 on; no packet has 130.
            let above = if max == 129 { 131 } else { max + 1 };
            for total in [max - 1, max, above] {
                let header = if total < 130 { 2 } else { 3 };
                p.publish("t", vec![b'x'; total - header - 3 - id - 1], q);
            }
            p.publish("t", "end", q);
            for total in [max - 1, max] {
                let got = c.expect(PacketType::Publish);
                assert_eq!(got.bytes.len(), total);
                c.acknowledge(&got.publish());
            }
            assert_eq!(c.message().text(), "end");
        }
        c.disconnect();
    }
}

#[test]
fn bo_53_topics_with_characters_that_mean_something_elsewhere() {
    let broker = Broker::start();
    let long = "x/".repeat(120) + "end";
    let topics = [
        "a.b",
        "a/b",
        ".a",
        "a.",
        "..",
        "*",
        ">",
        "a/*/b",
        "a/>",
        "a b",
        "$",
        "$x",
        "%2E",
        "%",
        "//",
        "/",
        "a//b",
        "!\"&'()*,-.:;<=>?@[\\]^_`{|}~",
        "\u{e4}.\u{f6}",
        &long,
    ];
    for version in BOTH {
        let mut clients: Vec<Client> = Vec::new();
        for (n, topic) in topics.iter().enumerate() {
            let mut c = Connect::new(version, &format!("c{n}")).lasting().open(&broker);
            assert_eq!(c.subscribe(topic, 1), 1, "{topic}");
            clients.push(c);
        }
        let mut p = broker.client_of(version, "p");
        for topic in topics {
            assert_eq!(p.publish(topic, topic, 1), 0, "{topic}");
        }
        for (topic, mut c) in topics.iter().zip(clients) {
            let m = c.message();
            assert_eq!((m.topic.as_str(), m.text()), (*topic, *topic));
            c.assert_quiet();
            c.disconnect();
        }
        for n in 0..topics.len() {
            Connect::new(version, &format!("c{n}")).open(&broker).disconnect();
        }
    }
}
