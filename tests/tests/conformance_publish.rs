//! PUBLISH and its acknowledgements, retained messages, properties, order (MQTT 5, 3.3 to 3.7, 4.3 to 4.6).

use mast_core::codec::{AckKind, PacketType, SubOptions};
use mast_tests::{
    Broker, Connect, Property, Version,
    client::{Out, qos},
    covers, raw,
};

const BOTH: [Version; 2] = [Version::V311, Version::V5];

fn options(max_qos: u8) -> SubOptions {
    SubOptions::new(qos(max_qos))
}

#[test]
fn a_publish_is_answered_as_its_qos_demands_with_its_own_id() {
    covers!["MQTT-3.3.4-1", "MQTT-2.2.1-5", "MQTT-4.3.2-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11", "MQTT-2.2.1-2"];
    covers![
        "v311:MQTT-3.3.4-1",
        "v311:MQTT-2.3.1-6",
        "v311:MQTT-2.3.1-5",
        "v311:MQTT-4.3.2-2",
        "v311:MQTT-4.3.3-2"
    ];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 2);
        let mut client = broker.client_of(version, "c");
        client.publish("t", "0", 0);
        client.assert_quiet();
        for id in [1, 255, 256, 65_535] {
            client.send_publish(&Out { topic: "t", payload: b"1", qos: 1, id, ..Out::default() });
            client.expect_ack(PacketType::PubAck, id, 0);
            client.send_publish(&Out { topic: "t", payload: b"2", qos: 2, id, ..Out::default() });
            client.expect_ack(PacketType::PubRec, id, 0);
            client.ack(AckKind::PubRel, id);
            client.expect_ack(PacketType::PubComp, id, 0);
        }
        assert_eq!(reader.messages(9).len(), 9);
        client.assert_quiet();
    }
}

#[test]
fn deliveries_follow_the_sender_rules_of_their_qos() {
    covers!["MQTT-4.3.1-1", "MQTT-3.3.1-2", "MQTT-2.2.1-2", "MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.2-2"];
    covers!["MQTT-4.3.3-1", "MQTT-4.3.3-2", "MQTT-4.3.3-4", "v311:MQTT-4.3.1-1", "v311:MQTT-3.3.1-2"];
    covers!["v311:MQTT-2.3.1-4", "v311:MQTT-2.3.1-5", "v311:MQTT-4.3.2-1", "v311:MQTT-4.3.3-1"];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 2);
        let mut publisher = broker.client_of(version, "publisher");
        for q in 0..3 {
            publisher.publish("t", [b'0' + q], q);
        }
        let mut got = [reader.expect_publish(), reader.expect_publish(), reader.expect_publish()];
        got.sort_by_key(|m| m.qos);
        assert!(got.iter().all(|m| !m.dup), "{got:?}");
        assert_eq!(got[0].id, 0);
        assert!(got[1].id != 0 && got[2].id != 0 && got[1].id != got[2].id);
        reader.ack(AckKind::PubAck, got[1].id);
        reader.ack(AckKind::PubRec, got[2].id);
        reader.expect_ack(PacketType::PubRel, got[2].id, 0);
        reader.ack(AckKind::PubComp, got[2].id);
    }
}

#[test]
fn an_id_means_a_new_message_once_its_exchange_is_over() {
    covers!["MQTT-4.3.2-5", "MQTT-4.3.3-12", "MQTT-2.2.1-3", "v311:MQTT-2.3.1-2", "v311:MQTT-4.3.2-2"];
    let broker = Broker::start();
    for version in BOTH {
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 2);
        let mut client = broker.client_of(version, "c");
        for n in 0..5 {
            for q in 1..3 {
                let payload = format!("{n} {q}");
                let out = Out { topic: "t", payload: payload.as_bytes(), qos: q, id: 7, ..Out::default() };
                client.publish_out(&out);
                assert_eq!(reader.message().text(), payload);
            }
        }
    }
}

#[test]
fn a_refused_qos2_message_frees_its_id() {
    covers!["MQTT-4.3.3-9", "MQTT-3.5.2-1"];
    let mut broker = Broker::prepared();
    broker.write("acl", "topic readwrite t\n");
    broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
    broker.launch();
    let mut reader = broker.client("reader");
    reader.subscribe("t", 2);
    let mut client = broker.client("c");
    let bad = Out { topic: "forbidden", payload: b"x", qos: 2, id: 3, ..Out::default() };
    assert_eq!(client.publish_out(&bad), 0x87);
    let good = Out { topic: "t", payload: b"fine", qos: 2, id: 3, ..Out::default() };
    assert_eq!(client.publish_out(&good), 0);
    assert_eq!(reader.message().text(), "fine");
    reader.assert_quiet();
}

#[test]
fn a_repeated_qos2_publish_is_acknowledged_and_not_delivered_again() {
    covers!["MQTT-4.3.3-10", "MQTT-4.3.3-11", "v311:MQTT-4.3.3-2", "MQTT-3.3.1-3", "v311:MQTT-3.3.1-3"];
    let broker = Broker::start();
    for version in BOTH {
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 2);
        let mut client = broker.client_of(version, "c");
        for dup in [false, true, true] {
            client.send_publish(&Out { topic: "t", payload: b"x", qos: 2, id: 5, dup, ..Out::default() });
            assert!(client.expect(PacketType::PubRec).reason() < 0x80);
        }
        client.ack(AckKind::PubRel, 5);
        client.expect_ack(PacketType::PubComp, 5, 0);
        assert!(!reader.message().dup);
        reader.assert_quiet();
    }
}

#[test]
fn dup_from_the_publisher_is_not_passed_on() {
    covers!["MQTT-3.3.1-3", "v311:MQTT-3.3.1-3"];
    let broker = Broker::start();
    for version in BOTH {
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 2);
        let mut client = broker.client_of(version, "c");
        for q in 1..3 {
            client.publish_out(&Out { topic: "t", payload: b"x", qos: q, dup: true, ..Out::default() });
            assert!(!reader.message().dup);
        }
    }
}

#[test]
fn acknowledgements_of_unknown_ids_are_answered_or_ignored_and_close_nothing() {
    covers!["MQTT-3.6.2-1", "MQTT-3.7.2-1", "MQTT-4.3.3-4", "MQTT-4.3.3-11"];
    let broker = Broker::start();
    for version in BOTH {
        let mut client = broker.client_of(version, "c");
        client.ack(AckKind::PubAck, 77);
        client.ack(AckKind::PubComp, 77);
        client.assert_quiet();
        client.ack(AckKind::PubRec, 77);
        let rel = client.expect(PacketType::PubRel);
        assert_eq!(rel.id(), 77);
        client.ack(AckKind::PubRel, 78);
        let comp = client.expect(PacketType::PubComp);
        assert_eq!(comp.id(), 78);
        if version.is_v5() {
            assert!([0, 0x92].contains(&rel.reason()) && [0, 0x92].contains(&comp.reason()));
        }
        client.ping();
    }
}

#[test]
fn every_acknowledgement_has_a_code_that_is_defined_for_it() {
    covers!["MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.6.2-1", "MQTT-3.7.2-1", "MQTT-3.14.2-1"];
    let broker = Broker::start();
    let mut client = broker.client("c");
    // With nobody subscribed 0x10 is as good as 0x00.
    for q in [1, 2] {
        assert!([0, 0x10].contains(&client.publish("nobody/here", "x", q)));
    }
    for (ty, code) in [(0x40, 0x55), (0x50, 0x55), (0x62, 0x10), (0x70, 0x10)] {
        // The codec of a receiver refuses codes that the packet does not have.
        let mut client = broker.client("wrong");
        client.send_bytes(&raw::packet(ty, &[0, 1, code]));
        client.expect_end_any(&[0x81, 0x82]);
    }
}

#[test]
fn retain_stores_replaces_and_removes() {
    covers!["MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8", "MQTT-3.3.1-12"];
    covers![
        "v311:MQTT-3.3.1-5",
        "v311:MQTT-3.3.1-6",
        "v311:MQTT-3.3.1-7",
        "v311:MQTT-3.3.1-8",
        "v311:MQTT-3.3.1-9"
    ];
    covers!["v311:MQTT-3.3.1-10", "v311:MQTT-3.3.1-11", "v311:MQTT-3.3.1-12"];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 2);
        let mut publisher = broker.client_of(version, "publisher");
        let late = |expected: Option<(&str, u8)>| {
            let mut late = broker.client_of(version, "late");
            late.subscribe("t", 2);
            match expected {
                Some((payload, q)) => {
                    let m = late.message();
                    assert_eq!((m.text(), m.qos, m.retain, m.dup), (payload, q, true, false));
                }
                None => late.assert_quiet(),
            }
        };
        let mut live = |payload: &str, q: u8| {
            let m = reader.message();
            assert_eq!((m.text(), m.qos, m.retain), (payload, q, false));
        };
        publisher.retain("t", "first", 1);
        live("first", 1);
        late(Some(("first", 1)));
        publisher.retain("t", "second", 2);
        live("second", 2);
        late(Some(("second", 2)));
        publisher.publish("t", "passing", 1);
        live("passing", 1);
        late(Some(("second", 2)));
        publisher.retain("t", "third", 0);
        live("third", 0);
        late(Some(("third", 0)));
        publisher.retain("t", "", 1);
        live("", 1);
        late(None);
        // Removing what is not there stores nothing either.
        publisher.retain("t", "", 0);
        live("", 0);
        late(None);
    }
}

#[test]
fn retained_delivery_has_the_lower_of_both_qos() {
    covers!["MQTT-3.8.4-8", "v311:MQTT-3.8.4-6"];
    let broker = Broker::start();
    for version in BOTH {
        let mut watcher = broker.client_of(version, "watcher");
        watcher.subscribe("t", 2);
        let mut publisher = broker.client_of(version, "publisher");
        for (published, granted) in [(0, 2), (1, 0), (1, 1), (2, 1), (2, 2)] {
            publisher.retain("t", "x", published);
            // QoS 0 is not acknowledged: that it was heard says that it is stored.
            while watcher.message().qos != published {}
            let mut late = broker.client_of(version, "late");
            late.subscribe("t", granted);
            assert_eq!(late.message().qos, published.min(granted));
        }
    }
}

#[test]
fn retain_as_published_decides_about_the_flag_of_forwarded_messages() {
    covers!["MQTT-3.3.1-12", "MQTT-3.3.1-13"];
    let broker = Broker::start();
    let mut publisher = broker.client("publisher");
    let mut off = broker.client("off");
    off.subscribe("t", 1);
    let mut on = broker.client("on");
    on.subscribe_opt("t", SubOptions { retain_as_published: true, ..options(1) });
    for retain in [true, false] {
        publisher.publish_out(&Out { topic: "t", payload: b"x", qos: 1, retain, ..Out::default() });
        assert!(!off.message().retain);
        assert_eq!(on.message().retain, retain);
    }
}

#[test]
fn retain_handling_decides_about_retained_messages_at_subscribe() {
    covers!["MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.8.4-3", "MQTT-3.8.4-4"];
    let broker = Broker::start();
    broker.client("publisher").retain("t", "kept", 1);
    let mut reader = broker.client("reader");
    let mut subscribe = |handling: u8, expected: bool| {
        reader.subscribe_opt("t", SubOptions { retain_handling: handling, ..options(1) });
        if expected {
            assert!(reader.message().retain);
        }
        reader.assert_quiet();
    };
    subscribe(2, false);
    subscribe(0, true);
    subscribe(0, true);
    subscribe(1, false);
    reader.unsubscribe(&["t"]);
    let mut subscribe = |handling: u8, expected: bool| {
        reader.subscribe_opt("t", SubOptions { retain_handling: handling, ..options(1) });
        if expected {
            assert!(reader.message().retain);
        }
        reader.assert_quiet();
    };
    subscribe(1, true);
    subscribe(1, false);
}

#[test]
fn forwarded_properties_are_unchanged_and_in_order() {
    covers![
        "MQTT-3.3.2-4",
        "MQTT-3.3.2-13",
        "MQTT-3.3.2-15",
        "MQTT-3.3.2-16",
        "MQTT-3.3.2-17",
        "MQTT-3.3.2-18"
    ];
    covers!["MQTT-3.3.2-19", "MQTT-3.3.2-20", "MQTT-1.5.7-1"];
    let broker = Broker::start();
    let mut reader = broker.client("reader");
    let mut lasting = Connect::v5("lasting").lasting().open(&broker);
    let mut publisher = broker.client("publisher");
    let props = [
        Property::UserProperty("z", "1"),
        Property::ContentType("application/json"),
        Property::UserProperty("a", ""),
        Property::ResponseTopic("reply/to/me"),
        Property::PayloadFormat(1),
        Property::UserProperty("z", "1"),
        Property::CorrelationData(b"\0\xFF\x80"),
        Property::UserProperty("", "ключ"),
    ];
    for q in 0..3 {
        for client in [&mut reader, &mut lasting] {
            client.subscribe("t", 2);
        }
        publisher.publish_out(&Out {
            topic: "t",
            payload: "ü".as_bytes(),
            qos: q,
            props: &props,
            ..Out::default()
        });
        for client in [&mut reader, &mut lasting] {
            let m = client.message();
            assert_eq!(m.text(), "ü");
            let p = m.props;
            assert_eq!(p.format, Some(1));
            assert_eq!(p.content_type.as_deref(), Some("application/json"));
            assert_eq!(p.response_topic.as_deref(), Some("reply/to/me"));
            assert_eq!(p.correlation.as_deref(), Some(&b"\0\xFF\x80"[..]));
            let user: Vec<(&str, &str)> = p.user.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(user, [("z", "1"), ("a", ""), ("z", "1"), ("", "ключ")]);
            assert_eq!(p.expiry, None);
        }
    }
}

#[test]
fn properties_do_not_reach_clients_of_older_versions() {
    covers!["v311:MQTT-3.3.2-3", "v311:MQTT-7.0.0-2", "MQTT-3.3.2-3"];
    let broker = Broker::start();
    let mut old = broker.client_of(Version::V311, "old");
    old.subscribe("t", 1);
    let mut new = broker.client("new");
    new.subscribe("t", 1);
    let props = [Property::UserProperty("a", "b"), Property::MessageExpiry(100)];
    broker.client("p").publish_out(&Out {
        topic: "t",
        payload: b"x",
        qos: 1,
        props: &props,
        ..Out::default()
    });
    assert_eq!((old.message().text(), new.message().props.user.len()), ("x", 1));
    // And a message from an old client carries none.
    broker.client_of(Version::V311, "q").publish("t", "y", 1);
    assert_eq!(new.message().props, Default::default());
    assert_eq!(old.message().text(), "y");
}

#[test]
fn a_message_expires_while_it_waits_and_its_interval_counts_down() {
    covers!["MQTT-3.3.2-5", "MQTT-3.3.2-6"];
    let broker = Broker::start();
    let connect = Connect::v5("s").lasting();
    let mut session = connect.open(&broker);
    session.subscribe("t/#", 1);
    session.disconnect();
    let mut publisher = broker.client("publisher");
    for (topic, expiry) in [("t/short", 1), ("t/long", 100)] {
        for retain in [false, true] {
            let props = [Property::MessageExpiry(expiry)];
            publisher.publish_out(&Out {
                topic,
                payload: b"x",
                qos: 1,
                retain,
                props: &props,
                ..Out::default()
            });
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(3200));
    let mut session = connect.open(&broker);
    for message in session.messages(2) {
        assert_eq!(message.topic, "t/long");
        let left = message.props.expiry.expect("an expiry");
        assert!((60..=97).contains(&left), "{left}");
    }
    session.assert_quiet();
    let mut late = broker.client("late");
    late.subscribe("t/#", 1);
    let kept = late.message();
    assert_eq!((kept.topic.as_str(), kept.retain), ("t/long", true));
    assert!(kept.props.expiry.is_some_and(|left| (60..=97).contains(&left)));
    late.assert_quiet();
}

#[test]
fn a_begun_qos2_exchange_is_finished_though_the_message_expired() {
    covers!["MQTT-4.3.3-7", "MQTT-4.3.3-13"];
    let broker = Broker::start();
    let connect = Connect::v5("s").lasting();
    let mut session = connect.open(&broker);
    session.subscribe("t", 2);
    let props = [Property::MessageExpiry(1)];
    let mut publisher = broker.client("publisher");
    publisher.send_publish(&Out {
        topic: "t",
        payload: b"x",
        qos: 2,
        id: 4,
        props: &props,
        ..Out::default()
    });
    publisher.expect_ack(PacketType::PubRec, 4, 0);
    let begun = session.expect_publish();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    // Inbound: PUBREL is answered though the message is old; outbound: the exchange goes on, also on resume.
    publisher.ack(AckKind::PubRel, 4);
    publisher.expect_ack(PacketType::PubComp, 4, 0);
    session.reset();
    let mut session = connect.open(&broker);
    let again = session.expect_publish();
    assert_eq!((again.id, again.dup), (begun.id, true));
    session.acknowledge(&again);
    session.assert_quiet();
}

#[test]
fn topics_reach_their_subscribers_byte_for_byte() {
    covers![
        "MQTT-3.3.2-1",
        "MQTT-3.3.2-3",
        "MQTT-4.7.3-4",
        "MQTT-1.5.4-3",
        "v311:MQTT-3.3.2-1",
        "v311:MQTT-3.3.2-3"
    ];
    covers!["v311:MQTT-4.7.3-4", "v311:MQTT-1.5.3-3"];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut reader = broker.client_of(version, "reader");
        let mut publisher = broker.client_of(version, "publisher");
        let topics =
            ["\u{FEFF}a", "a", "é", "e\u{301}", "A", "a/", "/a", "/", "//", "a b", "😀/x", "a.b", ">"];
        for topic in topics {
            assert_eq!(reader.subscribe(topic, 1), 1, "{topic:?}");
        }
        for topic in topics {
            publisher.publish(topic, topic, 1);
            let m = reader.message();
            assert_eq!((m.topic.as_str(), m.text()), (topic, topic));
        }
        reader.assert_quiet();
    }
}

#[test]
fn order_is_kept_per_publisher_topic_and_qos() {
    covers!["MQTT-4.6.0-5", "MQTT-4.6.0-6", "v311:MQTT-4.6.0-5", "v311:MQTT-4.6.0-6"];
    covers!["MQTT-4.6.0-1", "MQTT-4.6.0-2", "MQTT-4.6.0-3", "MQTT-4.6.0-4", "MQTT-4.5.0-2"];
    covers![
        "v311:MQTT-4.6.0-1",
        "v311:MQTT-4.6.0-2",
        "v311:MQTT-4.6.0-3",
        "v311:MQTT-4.6.0-4",
        "v311:MQTT-4.5.0-2"
    ];
    let broker = Broker::start();
    for version in BOTH {
        for q in 0..3 {
            let mut reader = broker.client_of(version, "reader");
            reader.subscribe("t", 2);
            let mut publisher = broker.client_of(version, "publisher");
            for burst in 0..4u32 {
                let ids: Vec<u16> = (0..50)
                    .map(|n| {
                        let payload = (burst * 50 + n).to_string();
                        let out = Out { topic: "t", payload: payload.as_bytes(), qos: q, ..Out::default() };
                        publisher.send_publish(&out)
                    })
                    .collect();
                // Answers come in the order of the PUBLISHes, PUBCOMPs in the order of the PUBRELs.
                for &id in ids.iter().filter(|_| q == 1) {
                    publisher.expect_ack(PacketType::PubAck, id, 0);
                }
                for &id in ids.iter().filter(|_| q == 2) {
                    publisher.expect_ack(PacketType::PubRec, id, 0);
                    publisher.ack(AckKind::PubRel, id);
                }
                for &id in ids.iter().filter(|_| q == 2) {
                    publisher.expect_ack(PacketType::PubComp, id, 0);
                }
            }
            for n in 0..200 {
                assert_eq!(reader.message().text(), n.to_string());
            }
        }
    }
}

#[test]
fn resent_messages_come_in_their_original_order_before_newer_ones() {
    covers!["MQTT-4.6.0-5", "v311:MQTT-4.6.0-6", "MQTT-4.4.0-1"];
    let broker = Broker::start();
    for version in BOTH {
        let connect = Connect::new(version, "s").lasting();
        let mut session = connect.open(&broker);
        session.subscribe("t", 2);
        let mut publisher = broker.client("publisher");
        for n in 0..10 {
            publisher.publish("t", n.to_string(), 1);
        }
        let first: Vec<u16> = (0..10).map(|_| session.expect_publish().id).collect();
        session.reset();
        for n in 10..20 {
            publisher.publish("t", n.to_string(), 1);
        }
        let mut session = connect.open(&broker);
        for n in 0..20 {
            let m = session.message();
            assert_eq!((m.text(), m.dup), (n.to_string().as_str(), n < 10));
            if let Some(id) = first.get(n) {
                assert_eq!(m.id, *id);
            }
        }
        session.disconnect();
        Connect::new(version, "s").open(&broker).disconnect();
    }
}

#[test]
fn a_payload_that_is_not_the_utf8_it_claims_to_be_is_refused() {
    covers!["MQTT-3.14.2-1", "MQTT-4.13.1-1"];
    let broker = Broker::start();
    for q in 0..3 {
        let mut client = broker.client("c");
        let props = [Property::PayloadFormat(1)];
        client.send_publish(&Out {
            topic: "t",
            payload: b"\xC3\x28",
            qos: q,
            props: &props,
            ..Out::default()
        });
        client.expect_end(0x99);
    }
    let lenient = Broker::with("[mqtt]\npayload_format_check = false\n");
    let mut client = lenient.client("c");
    let props = [Property::PayloadFormat(1)];
    let out = Out { topic: "t", payload: b"\xC3\x28", qos: 1, props: &props, ..Out::default() };
    assert!(client.publish_out(&out) < 0x80);
}

#[test]
fn a_publish_that_the_rules_forbid_is_answered_and_forwarded_to_nobody() {
    covers!["v311:MQTT-3.3.5-2", "MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.8.4-7", "v311:MQTT-3.9.3-2"];
    let mut broker = Broker::prepared();
    broker.write("acl", "topic readwrite ok/#\ntopic read secret/#\n");
    broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
    broker.launch();
    let mut reader = broker.client("reader");
    assert_eq!(reader.subscribe("secret/#", 1), 1);
    for version in BOTH {
        let mut client = broker.client_of(version, "c");
        for q in [1, 2] {
            let code = client.publish("secret/x", "no", q);
            assert_eq!(code, if version.is_v5() { 0x87 } else { 0 });
        }
        assert_eq!(client.subscribe("other/#", 1), if version.is_v5() { 0x87 } else { 0x80 });
        assert_eq!(client.subscribe("ok/#", 1), 1);
        client.publish("ok/x", "yes", 1);
        assert_eq!(client.message().text(), "yes");
    }
    reader.assert_quiet();
}
