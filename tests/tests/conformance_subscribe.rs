//! SUBSCRIBE, UNSUBSCRIBE, filters, shared subscriptions (MQTT 5, 3.8 to 3.11, 4.7, 4.8; MQTT 3.1.1 likewise).

use std::collections::BTreeSet;

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
fn a_suback_answers_each_filter_in_order_under_the_same_id() {
    covers![
        "MQTT-3.8.4-1",
        "MQTT-3.8.4-2",
        "MQTT-3.8.4-5",
        "MQTT-3.8.4-6",
        "MQTT-3.8.4-7",
        "MQTT-3.9.3-1",
        "MQTT-3.9.3-2"
    ];
    covers![
        "MQTT-2.2.1-6",
        "v311:MQTT-2.3.1-7",
        "v311:MQTT-3.8.4-1",
        "v311:MQTT-3.8.4-2",
        "v311:MQTT-3.8.4-4"
    ];
    covers!["v311:MQTT-3.8.4-5", "v311:MQTT-3.9.3-1", "v311:MQTT-3.9.3-2"];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.client_of(version, "c");
        for id in [1u16, 300, 65_535] {
            let props: Option<&[u8]> = if version.is_v5() { Some(&[]) } else { None };
            let filters: &[(&[u8], u8)] = &[(b"a", 2), (b"b/#", 0), (b"c/+", 1), (b"bad/#/x", 1), (b"d", 2)];
            client.send_bytes(&raw::subscribe(0x82, id, props, filters));
            let ack = client.expect(PacketType::SubAck);
            assert_eq!(ack.id(), id);
            let failure = if version.is_v5() { 0x8F } else { 0x80 };
            assert_eq!(ack.codes(), [2, 0, 1, failure, 2]);
        }
    }
}

#[test]
fn an_unsuback_answers_each_filter_in_order_under_the_same_id_also_without_a_match() {
    covers![
        "MQTT-3.10.4-4",
        "MQTT-3.10.4-5",
        "MQTT-3.10.4-6",
        "MQTT-3.11.3-1",
        "MQTT-3.11.3-2",
        "MQTT-2.2.1-6"
    ];
    covers!["v311:MQTT-3.10.4-4", "v311:MQTT-3.10.4-5", "v311:MQTT-3.10.4-6", "v311:MQTT-2.3.1-7"];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.client_of(version, "c");
        client.subscribe("a", 1);
        client.subscribe("b", 1);
        let ack = client.unsubscribe(&["a", "never", "b"]);
        if version.is_v5() {
            assert_eq!(ack.codes(), [0, 0x11, 0]);
        } else {
            assert_eq!(ack.bytes.len(), 4);
        }
        client.unsubscribe(&["never"]);
        let mut publisher = broker.client("p");
        publisher.publish("a", "x", 1);
        publisher.publish("b", "x", 1);
        client.assert_quiet();
    }
}

#[test]
fn unsubscribe_needs_the_same_characters() {
    covers!["MQTT-3.10.4-1", "MQTT-3.10.4-2", "v311:MQTT-3.10.4-1", "v311:MQTT-3.10.4-2"];
    let broker = Broker::start();
    for version in BOTH {
        let mut client = broker.client_of(version, "c");
        client.subscribe("a/+", 1);
        for other in ["a/#", "a/b", "A/+", "a/+/", "+/+"] {
            client.unsubscribe(&[other]);
        }
        let mut publisher = broker.client("p");
        publisher.publish("a/b", "still", 1);
        assert_eq!(client.message().text(), "still");
        client.unsubscribe(&["a/+"]);
        publisher.publish("a/b", "not", 1);
        client.assert_quiet();
    }
}

#[test]
fn unsubscribe_finishes_what_was_begun() {
    covers!["MQTT-3.10.4-3", "v311:MQTT-3.10.4-3"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    for version in BOTH {
        let connect = Connect::new(version, "s").lasting();
        let mut client = connect.open(&broker);
        client.subscribe("t", 2);
        publisher.publish("t", "one", 1);
        publisher.publish("t", "two", 2);
        let one = client.expect_publish();
        let two = client.expect_publish();
        client.unsubscribe(&["t"]);
        publisher.publish("t", "three", 1);
        client.reset();
        let mut client = connect.open(&broker);
        let again = [client.message(), client.message()];
        assert_eq!([again[0].id, again[1].id], [one.id, two.id]);
        client.assert_quiet();
        client.disconnect();
        Connect::new(version, "s").open(&broker).disconnect();
    }
}

#[test]
fn the_same_filter_again_replaces_the_subscription_and_sends_retained_again() {
    covers!["MQTT-3.8.4-3", "MQTT-3.8.4-4", "v311:MQTT-3.8.4-3"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    publisher.retain("t", "kept", 2);
    for version in BOTH {
        let mut client = broker.client_of(version, "c");
        for q in [2, 0, 1] {
            assert_eq!(client.subscribe("t", q), q);
            let kept = client.message();
            assert_eq!((kept.retain, kept.qos), (true, q));
        }
        // One subscription at QoS 1: one copy.
        publisher.publish("t", "live", 2);
        let live = client.message();
        assert_eq!((live.text(), live.qos, live.retain), ("live", 1, false));
        client.assert_quiet();
    }
}

#[test]
fn replacing_a_subscription_loses_no_message() {
    covers!["MQTT-3.8.4-4", "v311:MQTT-3.8.4-3"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    let mut client = broker.client("c");
    client.subscribe("t", 1);
    let mut ids = Vec::new();
    for n in 0..60u32 {
        let payload = n.to_string();
        ids.push(publisher.send_publish(&Out {
            topic: "t",
            payload: payload.as_bytes(),
            qos: 1,
            ..Out::default()
        }));
        if n % 6 == 0 {
            client.subscribe_opt("t", SubOptions { retain_handling: 2, ..options(1) });
        }
    }
    for id in ids {
        publisher.expect_ack(PacketType::PubAck, id, 0);
    }
    for n in 0..60 {
        assert_eq!(client.message().text(), n.to_string());
    }
}

#[test]
fn delivery_has_the_lower_of_published_and_granted_qos() {
    covers!["MQTT-3.8.4-8", "MQTT-3.8.4-7", "v311:MQTT-3.8.4-6"];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut publisher = broker.client_of(version, "p");
        for granted in 0..3 {
            let mut client = broker.client_of(version, "c");
            assert_eq!(client.subscribe("t", granted), granted);
            for published in 0..3 {
                publisher.publish("t", "x", published);
                assert_eq!(client.message().qos, published.min(granted));
            }
        }
    }
}

#[test]
fn overlapping_filters_deliver_once_at_the_highest_qos_with_all_identifiers() {
    covers!["MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4", "MQTT-3.3.4-5", "v311:MQTT-3.3.5-1"];
    let broker = Broker::start();
    let mut client = broker.client("c");
    for (filter, q, id) in
        [("a/b", 0, Some(1)), ("a/+", 2, Some(268_435_455)), ("a/#", 1, Some(7)), ("#", 1, None)]
    {
        let props: Vec<Property<'_>> = id.map(Property::SubscriptionId).into_iter().collect();
        client.subscribe_all(&[(filter, options(q))], &props);
    }
    let mut old = broker.client_of(Version::V311, "old");
    for (filter, q) in [("a/b", 0), ("a/+", 2), ("#", 1)] {
        old.subscribe(filter, q);
    }
    let mut publisher = broker.client("p");
    publisher.publish("a/b", "x", 2);
    let m = client.message();
    assert_eq!((m.qos, m.props.sub_ids), (2, vec![1, 7, 268_435_455]));
    client.assert_quiet();
    assert_eq!(old.message().qos, 2);
    old.assert_quiet();
    publisher.publish("z", "x", 2);
    assert!(client.message().props.sub_ids.is_empty());
}

#[test]
fn no_local_keeps_a_clients_own_messages_away() {
    covers!["MQTT-3.8.3-3"];
    let broker = Broker::start();
    let mut client = Connect::v5("c").open(&broker);
    client.subscribe_opt("t", SubOptions { no_local: true, ..options(1) });
    let mut other = broker.client("other");
    other.subscribe_opt("t", options(1));
    client.publish("t", "mine", 1);
    other.publish("t", "theirs", 1);
    assert_eq!(client.message().text(), "theirs");
    client.assert_quiet();
    assert_eq!([other.message().text(), other.message().text()], ["mine", "theirs"]);
}

#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    covers!["MQTT-3.8.3-4"];
    let broker = Broker::start();
    let mut client = broker.client("c");
    client.send_bytes(&raw::subscribe(0x82, 1, Some(&[]), &[(b"$share/g/t", 0b101)]));
    client.expect_end_any(&[0x82]);
}

#[test]
fn filters_match_as_the_specification_says() {
    covers!["MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.2-1", "MQTT-4.7.3-4", "MQTT-3.3.2-3", "MQTT-4.7.0-1"];
    covers![
        "v311:MQTT-4.7.1-1",
        "v311:MQTT-4.7.1-2",
        "v311:MQTT-4.7.1-3",
        "v311:MQTT-4.7.2-1",
        "v311:MQTT-4.7.3-4"
    ];
    let broker = Broker::with("[mqtt]\nsys_interval = \"0s\"\n");
    let topics = ["a", "a/b", "a/b/c", "/a", "/", "a/", "a//b", "b", "A", "$x/a", "$x", "ab"];
    let cases: &[(&str, &[&str])] = &[
        ("#", &["a", "a/b", "a/b/c", "/a", "/", "a/", "a//b", "b", "A", "ab"]),
        ("+", &["a", "b", "A", "ab"]),
        ("+/+", &["a/b", "/a", "/", "a/"]),
        ("/+", &["/a", "/"]),
        ("a/#", &["a", "a/b", "a/b/c", "a/", "a//b"]),
        ("a/+", &["a/b", "a/"]),
        ("a/+/c", &["a/b/c"]),
        ("a/+/b", &["a//b"]),
        ("+/b/#", &["a/b", "a/b/c"]),
        ("$x/#", &["$x/a", "$x"]),
        ("$x/+", &["$x/a"]),
        ("+/a", &["/a"]),
        ("a", &["a"]),
    ];
    for version in BOTH {
        let mut publisher = broker.client_of(version, "p");
        for (filter, matching) in cases {
            let mut client = broker.client_of(version, "c");
            client.subscribe(filter, 0);
            client.subscribe("end/of/round", 0);
            for topic in topics {
                publisher.publish(topic, "x", 0);
            }
            publisher.publish("end/of/round", "x", 0);
            let mut got = BTreeSet::new();
            loop {
                let m = client.message();
                if m.topic == "end/of/round" {
                    break;
                }
                assert!(got.insert(m.topic.clone()), "{filter} got {} twice", m.topic);
            }
            let expected: BTreeSet<String> = matching.iter().map(|t| (*t).to_owned()).collect();
            assert_eq!(got, expected, "{filter}");
        }
    }
}

#[test]
fn malformed_filters_are_refused_one_by_one() {
    covers![
        "MQTT-4.7.1-1",
        "MQTT-4.7.1-2",
        "MQTT-4.7.3-1",
        "MQTT-3.9.3-2",
        "v311:MQTT-4.7.1-2",
        "v311:MQTT-4.7.1-3"
    ];
    covers!["v311:MQTT-4.7.3-1", "v311:MQTT-3.9.3-2"];
    let broker = Broker::start();
    for version in BOTH {
        let mut client = broker.client_of(version, "c");
        for filter in ["", "a+", "+a", "a/b+", "#/a", "a#", "a/#/b", "a/b#", "##", "++"] {
            let code = client.subscribe(filter, 1);
            assert_eq!(code, if version.is_v5() { 0x8F } else { 0x80 }, "{filter:?}");
        }
        client.ping();
    }
}

#[test]
fn shared_filters_need_a_name_and_a_filter() {
    covers!["MQTT-4.8.2-1", "MQTT-4.8.2-2"];
    let broker = Broker::start();
    let mut client = broker.client("c");
    for filter in [
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//t",
        "$share/g+/t",
        "$share/g#/t",
        "$share/+/t",
        "$share/#",
    ] {
        assert_eq!(client.subscribe(filter, 1), 0x8F, "{filter}");
    }
    assert_eq!(client.subscribe("$share/g/t/#", 1), 1);
    assert_eq!(client.subscribe("$share/g//", 1), 1);
    assert_eq!(client.unsubscribe(&["$share/g/t/#", "$share/g//", "$share/g/t"]).codes(), [0, 0, 0x11]);
}

#[test]
fn each_message_goes_to_one_member_of_a_group_at_its_own_qos() {
    covers!["MQTT-4.8.2-3"];
    let broker = Broker::start();
    let mut one = broker.client("one");
    one.subscribe("$share/g/t", 0);
    let mut two = broker.client_of(Version::V311, "two");
    two.subscribe("$share/g/t", 1);
    let mut plain = broker.client("plain");
    plain.subscribe("t", 2);
    let mut publisher = broker.client("p");
    for n in 0..40 {
        publisher.publish("t", n.to_string(), 2);
    }
    let all: Vec<String> = plain.messages(40).iter().map(|m| m.text().to_owned()).collect();
    one.assert_quiet_but_publishes();
    two.assert_quiet_but_publishes();
    let mut seen = BTreeSet::new();
    for (client, q) in [(&mut one, 0), (&mut two, 1)] {
        for m in client.waiting() {
            assert_eq!(m.qos, q);
            client.acknowledge(&m);
            assert!(seen.insert(m.text().to_owned()), "{m:?} twice");
        }
    }
    assert_eq!(seen, all.into_iter().collect());
}

#[test]
fn a_shared_qos2_message_in_flight_is_finished_after_the_members_reconnect() {
    covers!["MQTT-4.8.2-4"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    let connect = Connect::v5("one").lasting();
    let mut one = connect.open(&broker);
    one.subscribe("$share/g/t", 2);
    publisher.publish("t", "x", 2);
    let begun = one.expect_publish();
    one.reset();
    let mut two = broker.client("two");
    two.subscribe("$share/g/t", 2);
    let mut one = connect.open(&broker);
    let again = one.message();
    assert_eq!((again.id, again.dup, again.text()), (begun.id, true, "x"));
    two.assert_quiet();
}

#[test]
fn a_shared_qos2_message_in_flight_goes_to_nobody_else_when_its_session_ends() {
    covers!["MQTT-4.8.2-5"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    let mut one = broker.client("one");
    one.subscribe("$share/g/t", 2);
    publisher.publish("t", "x", 2);
    let begun = one.expect_publish();
    one.ack(AckKind::PubRec, begun.id);
    one.expect(PacketType::PubRel);
    let mut two = broker.client("two");
    two.subscribe("$share/g/t", 2);
    one.reset();
    two.assert_quiet();
    publisher.publish("t", "y", 2);
    assert_eq!(two.message().text(), "y");
}

#[test]
fn what_a_member_refuses_is_discarded() {
    covers!["MQTT-4.8.2-6"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    let mut one = broker.client("one");
    one.subscribe("$share/g/t", 2);
    publisher.publish("t", "a", 1);
    publisher.publish("t", "b", 2);
    let (a, b) = (one.expect_publish(), one.expect_publish());
    let mut two = broker.client("two");
    two.subscribe("$share/g/t", 2);
    one.ack_with(AckKind::PubAck, a.id, 0x80);
    one.ack_with(AckKind::PubRec, b.id, 0x97);
    one.assert_quiet();
    two.assert_quiet();
}

#[test]
fn shared_subscriptions_get_no_retained_messages() {
    covers!["MQTT-4.8.2-1"];
    let broker = Broker::start();
    broker.client("p").retain("t", "kept", 1);
    let mut client = broker.client("c");
    assert_eq!(client.subscribe("$share/g/t", 1), 1);
    client.assert_quiet();
}

#[test]
fn what_the_operator_turned_off_is_refused_at_subscribe() {
    covers!["MQTT-3.9.3-2", "v311:MQTT-3.8.3-2"];
    let broker = Broker::with(
        "[mqtt]\nwildcard_available = false\nshared_available = false\nsubscription_id_available = false\n",
    );
    let mut client = broker.client("c");
    assert_eq!(client.subscribe("a/#", 1), 0xA2);
    assert_eq!(client.subscribe("a/+", 1), 0xA2);
    assert_eq!(client.subscribe("$share/g/a", 1), 0x9E);
    assert_eq!(client.subscribe("a", 1), 1);
    let mut old = broker.client_of(Version::V311, "old");
    assert_eq!(old.subscribe("a/#", 1), 0x80);
    client.send_subscribe(&[("b", options(1))], &[Property::SubscriptionId(1)]);
    client.expect_end_or_codes(0xA1);
}

#[test]
fn subscriptions_at_any_qos_are_accepted_though_the_maximum_is_lower() {
    covers!["MQTT-3.2.2-10", "MQTT-3.2.2-9", "MQTT-3.2.2-11", "MQTT-3.2.2-14"];
    let broker = Broker::with("[mqtt]\nmax_qos = 0\nretain_available = false\n");
    let mut client = broker.client("c");
    assert_eq!(client.connack().props().maximum_qos(), Some(0));
    for q in 0..3 {
        assert!(client.subscribe("t", q) <= q);
    }
    client.publish("t", "x", 0);
    assert_eq!(client.message().text(), "x");
    for q in [1, 2] {
        let mut client = broker.client("c2");
        client.send_publish(&Out { topic: "t", payload: b"x", qos: q, ..Out::default() });
        client.expect_end(0x9B);
    }
    let mut client = broker.client("c3");
    client.send_publish(&Out { topic: "t", payload: b"x", retain: true, ..Out::default() });
    client.expect_end(0x9A);
}

#[test]
fn topics_that_begin_with_a_dollar_are_hidden_from_leading_wildcards() {
    covers!["MQTT-4.7.2-1", "v311:MQTT-4.7.2-1"];
    let broker = Broker::with("[mqtt]\nsys_interval = \"1s\"\n");
    let mut all = broker.client("all");
    for filter in ["#", "+/broker/#", "+/broker/clients/total"] {
        all.subscribe(filter, 0);
    }
    let mut sys = broker.client("sys");
    sys.subscribe("$SYS/#", 0);
    assert!(sys.message().topic.starts_with("$SYS/broker/"));
    all.assert_quiet();
}
