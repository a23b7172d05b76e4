//! Sessions, takeover and Wills (MQTT 5, 3.1.2.4 to 3.1.2.11, 3.1.3.2, 3.1.4, 4.1; MQTT 3.1.1 likewise).

use std::time::Duration;

use mast_core::codec::{AckKind, PacketType};
use mast_tests::{Broker, Client, Connect, Property, Version, client::Event, client::Out, covers, raw};

const BOTH: [Version; 2] = [Version::V311, Version::V5];

#[test]
fn a_clean_start_drops_the_old_session_with_all_that_was_in_it() {
    covers![
        "MQTT-3.1.2-4",
        "MQTT-3.1.4-4",
        "MQTT-3.2.2-2",
        "v311:MQTT-3.1.2-6",
        "v311:MQTT-3.1.4-3",
        "v311:MQTT-3.2.2-1"
    ];
    let broker = Broker::start();
    let mut publisher = broker.client("publisher");
    for version in Version::ALL {
        let lasting = Connect::new(version, "s").lasting();
        let mut session = lasting.open(&broker);
        session.subscribe("t", 1);
        session.disconnect();
        publisher.publish("t", "old", 1);
        let clean = Connect::new(version, "s").open(&broker);
        assert!(!clean.connack().session_present());
        clean.disconnect();
        let mut again = lasting.open(&broker);
        assert!(!again.connack().session_present(), "{version:?}: nothing survives a clean session");
        publisher.publish("t", "new", 1);
        again.assert_quiet();
        again.disconnect();
        Connect::new(version, "s").open(&broker).disconnect();
    }
}

#[test]
fn without_clean_start_a_session_is_made_and_found_again_with_subscriptions_and_messages() {
    covers!["MQTT-3.1.2-5", "MQTT-3.1.2-6", "MQTT-3.1.2-23", "MQTT-3.2.2-3", "MQTT-4.1.0-1", "MQTT-4.5.0-1"];
    covers!["MQTT-3.1.3-2", "MQTT-3.2.2-4", "MQTT-3.2.2-5"];
    covers![
        "v311:MQTT-3.1.2-4",
        "v311:MQTT-3.1.2-5",
        "v311:MQTT-3.2.2-2",
        "v311:MQTT-3.2.2-3",
        "v311:MQTT-4.1.0-1"
    ];
    covers!["v311:MQTT-4.1.0-2", "v311:MQTT-4.5.0-1", "v311:MQTT-3.1.3-2"];
    let broker = Broker::start();
    let mut publisher = broker.client("publisher");
    for version in BOTH {
        let lasting = Connect::new(version, "s").lasting();
        let mut session = lasting.open(&broker);
        assert!(!session.connack().session_present());
        session.subscribe("one", 1);
        session.subscribe("two", 2);
        session.disconnect();
        publisher.publish("one", "a", 1);
        publisher.publish("two", "b", 2);
        publisher.publish("one", "c", 1);
        let mut session = lasting.open(&broker);
        assert!(session.connack().session_present());
        let mut got: Vec<_> = session.messages(3).into_iter().map(|m| (m.topic, m.payload, m.qos)).collect();
        got.sort();
        let expected = [("one", "a", 1), ("one", "c", 1), ("two", "b", 2)];
        assert_eq!(got, expected.map(|(t, p, q)| (t.to_owned(), p.as_bytes().to_vec(), q)));
        publisher.publish("one", "live", 1);
        assert_eq!(session.message().text(), "live");
        session.disconnect();
        Connect::new(version, "s").open(&broker).disconnect();
    }
}

#[test]
fn a_session_without_expiry_ends_with_its_connection() {
    covers!["MQTT-4.1.0-2", "MQTT-3.2.2-3"];
    let broker = Broker::start();
    let mut session = Connect::v5("s").resume().open(&broker);
    session.subscribe("t", 1);
    session.disconnect();
    let mut again = Connect::v5("s").lasting().open(&broker);
    assert!(!again.connack().session_present());
    broker.client("publisher").publish("t", "x", 1);
    again.assert_quiet();
}

#[test]
fn a_session_is_discarded_when_its_expiry_has_passed_and_not_while_it_is_connected() {
    covers!["MQTT-4.1.0-1", "MQTT-4.1.0-2", "v311:MQTT-4.1.0-2"];
    let broker = Broker::start();
    let connect = Connect::v5("s").resume().prop(Property::SessionExpiry(1));
    let mut session = connect.open(&broker);
    session.subscribe("t", 1);
    std::thread::sleep(Duration::from_millis(2500));
    // Connected for longer than its expiry: still there.
    broker.client("publisher").publish("t", "live", 1);
    assert_eq!(session.message().text(), "live");
    session.disconnect();
    std::thread::sleep(Duration::from_millis(3500));
    assert!(!connect.open(&broker).connack().session_present());
}

#[test]
fn disconnect_may_change_the_session_expiry_but_not_raise_it_from_zero() {
    covers!["MQTT-3.1.2-23", "MQTT-4.1.0-2", "MQTT-4.13.1-1"];
    let broker = Broker::start();
    Connect::v5("s").lasting().open(&broker).disconnect_with(0, &[Property::SessionExpiry(0)]);
    assert!(!Connect::v5("s").lasting().open(&broker).connack().session_present());

    let mut clean = Connect::v5("z").open(&broker);
    clean.send_bytes(&raw::packet(0xE0, &[0, 5, 0x11, 0, 0, 0, 60]));
    clean.expect_end(0x82);
}

#[test]
fn the_state_of_a_session_survives_an_unclean_end_too() {
    covers!["MQTT-3.1.2-23", "v311:MQTT-3.1.2-4", "MQTT-4.1.0-1"];
    let broker = Broker::start();
    for version in BOTH {
        let connect = Connect::new(version, "s").lasting();
        let mut session = connect.open(&broker);
        session.subscribe("t", 1);
        session.reset();
        broker.client("publisher").publish("t", "x", 1);
        let mut session = connect.open(&broker);
        assert!(session.connack().session_present());
        assert_eq!(session.message().text(), "x");
        session.disconnect();
    }
}

#[test]
fn retained_messages_outlive_the_session_that_published_them() {
    covers!["v311:MQTT-3.1.2-7", "MQTT-3.3.1-5", "v311:MQTT-3.3.1-5"];
    let broker = Broker::start();
    for version in BOTH {
        let mut publisher = broker.client_of(version, "publisher");
        publisher.retain("t", "kept", 1);
        publisher.disconnect();
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 1);
        let message = reader.message();
        assert_eq!((message.text(), message.retain), ("kept", true));
    }
}

#[test]
fn a_will_is_published_after_an_unclean_end_with_its_qos_and_retain_flag() {
    covers!["MQTT-3.1.2-7", "MQTT-3.1.2-8", "MQTT-3.1.2-14", "MQTT-3.1.2-15"];
    covers!["v311:MQTT-3.1.2-8", "v311:MQTT-3.1.2-16", "v311:MQTT-3.1.2-17"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("w/#", 2);
    for version in Version::ALL {
        for qos in 0..3 {
            for retain in [false, true] {
                let topic = format!("w/{version:?}/{qos}/{retain}");
                Connect::new(version, "dies").will(&topic, "gone", qos, retain).open(&broker).reset();
                let will = watcher.message();
                assert_eq!((will.topic.as_str(), will.text(), will.qos), (topic.as_str(), "gone", qos));
                assert!(!will.retain, "forwarded to an existing subscription");
                let mut late = broker.client("late");
                late.subscribe(&topic, 2);
                if retain {
                    let stored = late.message();
                    assert_eq!((stored.text(), stored.retain, stored.qos), ("gone", true, qos));
                } else {
                    late.assert_quiet();
                }
            }
        }
    }
}

#[test]
fn a_normal_disconnect_discards_the_will() {
    covers!["MQTT-3.1.2-10", "MQTT-3.14.4-3", "v311:MQTT-3.1.2-10", "v311:MQTT-3.14.4-3"];
    covers![
        "MQTT-3.14.4-1",
        "MQTT-3.14.4-2",
        "v311:MQTT-3.14.4-1",
        "v311:MQTT-3.14.4-2",
        "v311:MQTT-3.1.2-12"
    ];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("#", 0);
    for version in Version::ALL {
        Connect::new(version, "leaves").will("w", "gone", 0, false).open(&broker).disconnect();
        // Without a will there is none to publish.
        Connect::new(version, "plain").open(&broker).reset();
    }
    watcher.assert_quiet();
}

#[test]
fn what_comes_behind_disconnect_is_not_processed() {
    covers!["MQTT-3.14.4-1", "MQTT-3.14.4-2", "v311:MQTT-3.14.4-1", "v311:MQTT-3.14.4-2"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("#", 0);
    for version in BOTH {
        let mut client = broker.client_of(version, "c");
        let mut bytes = vec![0xE0, 0];
        bytes.extend(match version {
            Version::V5 => raw::publish5(0x30, b"t", None, &[], b"x"),
            Version::V31 | Version::V311 => raw::publish3(0x30, b"t", None, b"x"),
        });
        bytes.extend([0xC0, 0]);
        client.send_bytes(&bytes);
        assert!(client.expect_closed().is_empty());
    }
    watcher.assert_quiet();
}

#[test]
fn disconnect_with_will_publishes_it_and_so_does_every_error_reason() {
    covers!["MQTT-3.1.2-8", "MQTT-3.14.2-1"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("w", 0);
    for reason in [0x04, 0x80, 0x81, 0x97] {
        let client = Connect::v5("c").will("w", "gone", 0, false).open(&broker);
        client.disconnect_with(reason, &[]);
        assert_eq!(watcher.message().text(), "gone", "{reason:#x}");
    }
}

#[test]
fn a_protocol_error_publishes_the_will() {
    covers!["MQTT-3.1.2-8", "v311:MQTT-3.1.2-8"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("w", 0);
    for version in Version::ALL {
        let mut client = Connect::new(version, "c").will("w", "gone", 0, false).open(&broker);
        client.send_bytes(&raw::packet(0x90, &[0, 1, 0]));
        client.expect_closed();
        assert_eq!(watcher.message().text(), "gone");
    }
}

#[test]
fn a_will_is_published_once_only() {
    covers!["MQTT-3.1.2-10", "v311:MQTT-3.1.2-10"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("w", 0);
    for version in BOTH {
        let connect = Connect::new(version, "c").lasting();
        connect.clone().will("w", "gone", 0, false).open(&broker).reset();
        assert_eq!(watcher.message().text(), "gone");
        // The session has no will now, so its next end has none to publish.
        connect.open(&broker).reset();
        watcher.assert_quiet();
    }
}

#[test]
fn a_reconnect_within_the_will_delay_cancels_the_will() {
    covers!["MQTT-3.1.3-9", "MQTT-3.1.2-8"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("w", 0);
    let connect = Connect::v5("c").lasting();
    let will = connect.clone().will_with("w", "gone", 0, false, &[Property::WillDelay(3)]);
    will.open(&broker).reset();
    let back = connect.open(&broker);
    assert!(back.connack().session_present());
    std::thread::sleep(Duration::from_secs(5));
    watcher.assert_quiet();
    drop(back);
}

#[test]
fn a_delayed_will_comes_when_the_delay_has_passed_or_the_session_ends() {
    covers!["MQTT-3.1.2-8"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("w/#", 0);
    let delayed = |id: &str, delay, expiry| {
        Connect::v5(id).resume().prop(Property::SessionExpiry(expiry)).will_with(
            &format!("w/{id}"),
            "gone",
            0,
            false,
            &[Property::WillDelay(delay)],
        )
    };
    let start = std::time::Instant::now();
    delayed("delay", 2, 1000).open(&broker).reset();
    delayed("session", 1000, 1).open(&broker).reset();
    watcher.assert_quiet();
    assert!(start.elapsed() > Duration::from_secs(1) || watcher.waiting().is_empty());
    let topics = [watcher.message().topic, watcher.message().topic];
    assert!(start.elapsed() >= Duration::from_millis(900));
    assert_eq!(topics, ["w/session", "w/delay"]);
}

#[test]
fn will_properties_travel_with_the_will_in_their_order() {
    covers!["MQTT-3.1.3-10", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-18", "MQTT-3.3.2-20"];
    let broker = Broker::start();
    let mut watcher = broker.client("watcher");
    watcher.subscribe("w", 1);
    let props = [
        Property::PayloadFormat(1),
        Property::MessageExpiry(600),
        Property::ContentType("text/plain"),
        Property::ResponseTopic("r/t"),
        Property::CorrelationData(&[0, 1, 2]),
        Property::UserProperty("b", "2"),
        Property::UserProperty("a", "1"),
        Property::UserProperty("b", "1"),
    ];
    Connect::v5("c").will_with("w", "gone", 1, false, &props).open(&broker).reset();
    let p = watcher.message().props;
    assert_eq!((p.format, p.content_type.as_deref()), (Some(1), Some("text/plain")));
    assert_eq!((p.response_topic.as_deref(), p.correlation.as_deref()), (Some("r/t"), Some(&[0, 1, 2][..])));
    assert!(p.expiry.is_some_and(|e| (590..=600).contains(&e)), "{:?}", p.expiry);
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert_eq!(p.user, [pair("b", "2"), pair("a", "1"), pair("b", "1")]);
}

#[test]
fn unacknowledged_messages_are_sent_again_on_resume_with_dup_and_the_same_id_and_only_then() {
    covers!["MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-2.2.1-4"];
    covers!["v311:MQTT-4.4.0-1", "v311:MQTT-3.3.1-1", "v311:MQTT-2.3.1-3", "v311:MQTT-2.3.1-4"];
    let broker = Broker::start();
    let mut publisher = broker.client("publisher");
    for version in BOTH {
        for qos in [1, 2] {
            let connect = Connect::new(version, "s").lasting();
            let mut session = connect.open(&broker);
            session.subscribe("t", 2);
            publisher.publish("t", "x", qos);
            let first = session.expect_publish();
            assert!(!first.dup && first.id != 0);
            session.assert_quiet();
            session.reset();
            let mut session = connect.open(&broker);
            let again = session.expect_publish();
            assert!(again.dup, "{again:?}");
            assert_eq!((again.id, again.text(), again.qos, again.retain), (first.id, "x", qos, false));
            session.acknowledge(&again);
            session.assert_quiet();
            session.disconnect();
            let mut session = connect.open(&broker);
            session.assert_quiet();
            session.disconnect();
            Connect::new(version, "s").open(&broker).disconnect();
        }
    }
}

#[test]
fn after_pubrec_only_pubrel_is_sent_again() {
    covers!["MQTT-4.3.3-5", "MQTT-4.3.3-6", "MQTT-4.4.0-1", "v311:MQTT-4.3.3-1", "v311:MQTT-4.4.0-1"];
    let broker = Broker::start();
    let mut publisher = broker.client("publisher");
    for version in BOTH {
        let connect = Connect::new(version, "s").lasting();
        let mut session = connect.open(&broker);
        session.subscribe("t", 2);
        publisher.publish("t", "x", 2);
        let message = session.expect_publish();
        session.ack(AckKind::PubRec, message.id);
        session.expect_ack(PacketType::PubRel, message.id, 0);
        session.reset();
        let mut session = connect.open(&broker);
        let first = session.recv();
        assert_eq!((first.ty(), first.id()), (PacketType::PubRel, message.id));
        session.ack(AckKind::PubComp, message.id);
        session.assert_quiet();
        session.disconnect();
        Connect::new(version, "s").open(&broker).disconnect();
    }
}

#[test]
fn what_the_client_refused_with_an_error_is_not_sent_again() {
    covers!["MQTT-4.4.0-2", "MQTT-4.3.3-9"];
    let broker = Broker::start();
    let mut publisher = broker.client("publisher");
    let connect = Connect::v5("s").lasting().prop(Property::ReceiveMaximum(2));
    let mut session = connect.open(&broker);
    session.subscribe("t", 2);
    publisher.publish("t", "one", 1);
    publisher.publish("t", "two", 2);
    let one = session.expect_publish();
    let two = session.expect_publish();
    session.ack_with(AckKind::PubAck, one.id, 0x83);
    session.ack_with(AckKind::PubRec, two.id, 0x83);
    session.assert_quiet();
    session.reset();
    let mut session = connect.open(&broker);
    session.assert_quiet();
    // The window is whole again and ids are free.
    for n in 0..4 {
        publisher.publish("t", n.to_string(), 2);
        assert_eq!(session.message().text(), n.to_string());
    }
}

#[test]
fn a_qos2_exchange_of_a_client_goes_on_after_its_reconnect() {
    covers!["MQTT-4.3.3-10", "MQTT-4.3.3-11", "MQTT-4.3.3-12", "v311:MQTT-4.3.3-2", "v311:MQTT-2.3.1-3"];
    let broker = Broker::start();
    for version in BOTH {
        let mut reader = broker.client_of(version, "reader");
        reader.subscribe("t", 2);
        let connect = Connect::new(version, "p").lasting();
        let mut publisher = connect.open(&broker);
        publisher.send_publish(&Out { topic: "t", payload: b"x", qos: 2, id: 9, ..Out::default() });
        publisher.expect_ack(PacketType::PubRec, 9, 0);
        publisher.reset();
        let mut publisher = connect.open(&broker);
        publisher.send_publish(&Out {
            topic: "t",
            payload: b"x",
            qos: 2,
            id: 9,
            dup: true,
            ..Out::default()
        });
        assert!(publisher.expect(PacketType::PubRec).reason() < 0x80);
        publisher.ack(AckKind::PubRel, 9);
        publisher.expect_ack(PacketType::PubComp, 9, 0);
        assert_eq!(reader.message().text(), "x");
        // The id is free for a new message.
        publisher.send_publish(&Out { topic: "t", payload: b"y", qos: 2, id: 9, ..Out::default() });
        publisher.expect_ack(PacketType::PubRec, 9, 0);
        publisher.ack(AckKind::PubRel, 9);
        publisher.expect_ack(PacketType::PubComp, 9, 0);
        assert_eq!(reader.message().text(), "y");
        reader.assert_quiet();
        publisher.disconnect();
        Connect::new(version, "p").open(&broker).disconnect();
    }
}

#[test]
fn sessions_and_their_messages_survive_kill_9_and_a_restart() {
    covers!["MQTT-4.1.0-1", "v311:MQTT-4.1.0-1", "MQTT-4.5.0-1", "MQTT-4.3.2-4", "MQTT-4.3.3-8"];
    let mut broker = Broker::start();
    let connect = Connect::v5("s").lasting();
    let mut session = connect.open(&broker);
    session.subscribe("t/#", 2);
    session.disconnect();
    let mut publisher = broker.client("publisher");
    for n in 0..10 {
        assert_eq!(publisher.publish("t/a", n.to_string(), 1 + n % 2), 0);
    }
    publisher.retain("t/r", "kept", 1);
    broker.crash();
    broker.restart();
    let mut session = connect.open(&broker);
    assert!(session.connack().session_present());
    let got = session.messages(11);
    for parity in [0, 1] {
        let numbers: Vec<u8> = got
            .iter()
            .filter(|m| m.topic == "t/a" && m.qos == 1 + parity)
            .map(|m| m.text().parse().expect("a number"))
            .collect();
        assert_eq!(numbers, (0..10).filter(|n| n % 2 == parity).collect::<Vec<_>>());
    }
    let mut late = broker.client("late");
    late.subscribe("t/r", 0);
    assert_eq!(late.message().text(), "kept");
}

#[test]
fn a_drained_client_is_told_that_the_broker_shuts_down() {
    covers!["MQTT-3.14.2-1", "MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2", "v311:MQTT-4.8.0-2"];
    let mut broker = Broker::start();
    let mut v5 = broker.client("v5");
    let mut v311 = broker.client_of(Version::V311, "v311");
    assert!(broker.terminate().success());
    let seen = v5.expect_closed();
    let last = seen.last().expect("a DISCONNECT");
    assert!([0x8B, 0x9C].contains(&last.reason()), "{last:?}");
    assert_eq!(last.props().session_expiry(), None);
    assert!(v311.expect_closed().is_empty());
}

#[test]
fn the_connection_is_closed_with_fin_so_that_the_reason_arrives() {
    covers!["MQTT-4.13.2-1", "MQTT-4.13.1-1"];
    let broker = Broker::start();
    for _ in 0..20 {
        let mut client: Client = broker.client("c");
        // Much follows the error; unread bytes must not turn the close into a reset that eats the DISCONNECT.
        let mut bytes = raw::packet(0x90, &[0, 1, 0]);
        bytes.extend(raw::publish5(0x30, b"t", None, &[], &[7; 60_000]).repeat(3));
        client.send_bytes(&bytes);
        match client.read(mast_tests::broker::DEADLINE) {
            Event::Packet(got) => assert_eq!((got.ty(), got.reason()), (PacketType::Disconnect, 0x82)),
            other => panic!("{other:?}"),
        }
    }
}
