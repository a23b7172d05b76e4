//! What both sides may ask of each other: packet size, receive maximum, topic aliases, problem information.

use mast_core::codec::{AckKind, PacketType, prop_id};
use mast_tests::{
    Broker, Client, Connect, Property, Version, client::Out, covers, packet::reason_is_defined, raw,
};

#[test]
fn a_packet_above_the_clients_maximum_is_not_sent_and_counts_as_delivered() {
    covers!["MQTT-3.1.2-24", "MQTT-3.1.2-25"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    let mut client = Connect::v5("c").prop(Property::MaximumPacketSize(100)).open(&broker);
    client.subscribe("t", 2);
    for q in 0..3 {
        // Two header bytes, topic 3, id 2 from QoS 1 on, property length 1.
        let frame = 2 + 3 + usize::from(q > 0) * 2 + 1;
        for size in [99, 100, 101, 5000] {
            publisher.publish("t", vec![b'x'; size - frame], q);
        }
        publisher.publish("t", "after", q);
        for size in [99, 100] {
            let got = client.expect(PacketType::Publish);
            assert_eq!(got.bytes.len(), size);
            let m = got.publish();
            client.acknowledge(&m);
        }
        assert_eq!(client.message().text(), "after");
    }
    client.assert_quiet();
}

#[test]
fn the_size_limit_holds_for_messages_from_the_log_too() {
    covers!["MQTT-3.1.2-24", "MQTT-3.1.2-25"];
    let broker = Broker::start();
    let connect =
        Connect::v5("c").lasting().prop(Property::MaximumPacketSize(100)).prop(Property::ReceiveMaximum(1));
    let mut client = connect.open(&broker);
    client.subscribe("t", 1);
    client.disconnect();
    let mut publisher = broker.client("p");
    publisher.publish("t", vec![b'x'; 500], 1);
    publisher.publish("t", "fits", 1);
    let mut client = connect.open(&broker);
    assert_eq!(client.message().text(), "fits");
    client.assert_quiet();
}

#[test]
fn every_answer_fits_a_tiny_maximum_packet_size() {
    covers!["MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3"];
    covers!["MQTT-3.6.2-2", "MQTT-3.6.2-3", "MQTT-3.7.2-2", "MQTT-3.7.2-3", "MQTT-3.9.2-1", "MQTT-3.9.2-2"];
    covers![
        "MQTT-3.11.2-1",
        "MQTT-3.11.2-2",
        "MQTT-3.14.2-3",
        "MQTT-3.14.2-4",
        "MQTT-3.15.2-2",
        "MQTT-3.15.2-3"
    ];
    let mut broker = Broker::prepared();
    broker.write("acl", "topic readwrite t\ntopic read nothing\n");
    broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
    broker.launch();
    // The CONNACK itself is larger than the answers: its limit is what its properties need.
    let plain = broker.client("size").connack().bytes.len() as u32;
    let max = plain.max(40);
    let mut client = Connect::v5("c").prop(Property::MaximumPacketSize(max)).open(&broker);
    let mut all = vec![client.connack().clone()];
    for filter in ["t", "bad/#/x", "$share//x"] {
        let id = client.fresh_id();
        client.send_bytes(&raw::subscribe(0x82, id, Some(&[]), &[(filter.as_bytes(), 2)]));
        all.push(client.recv());
        let id = client.fresh_id();
        client.send_bytes(&raw::unsubscribe(0xA2, id, Some(&[]), &[filter.as_bytes()]));
        all.push(client.recv());
    }
    for q in [1, 2] {
        let bad = Out { topic: "forbidden", payload: b"x", qos: q, ..Out::default() };
        client.send_publish(&bad);
        all.push(client.recv());
        client.send_publish(&Out { topic: "t", payload: b"x", qos: q, ..Out::default() });
        all.push(client.recv());
    }
    client.ack(AckKind::PubRel, 99);
    all.push(client.recv());
    client.ack(AckKind::PubRec, 99);
    all.push(client.recv());
    client.send_bytes(&raw::packet(0xF0, &[0x19, 0]));
    all.extend(client.expect_closed());
    assert_eq!(all.last().map(|g| g.ty()), Some(PacketType::Disconnect));
    for got in all {
        assert!(got.bytes.len() <= max as usize, "{got:?}");
    }
}

#[test]
fn a_disconnect_that_does_not_fit_is_left_out() {
    covers!["MQTT-3.1.2-24", "MQTT-3.14.2-3"];
    let broker = Broker::start();
    // A CONNACK cannot be sent to a client that takes two bytes, so nothing at all is.
    let mut client = Connect::v5("c").prop(Property::MaximumPacketSize(2)).start_on(broker.tcp());
    for got in client.expect_closed() {
        assert!(got.bytes.len() <= 2, "{got:?}");
    }
}

#[test]
fn without_problem_information_answers_carry_no_text() {
    covers!["MQTT-3.1.2-29"];
    let mut broker = Broker::prepared();
    broker.write("acl", "topic readwrite t\ntopic read nothing\n");
    broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
    broker.launch();
    let mut client = Connect::v5("c").prop(Property::RequestProblemInfo(false)).open(&broker);
    let sub = client.subscribe_all(&[("a/#/b", mast_tests::SubOptions::default())], &[]);
    assert!(!sub.has_problem_information());
    assert!(!client.unsubscribe(&["nothing", "a/#/b"]).has_problem_information());
    for q in [1, 2] {
        let bad = Out { topic: "forbidden", payload: b"x", qos: q, ..Out::default() };
        client.send_publish(&bad);
        let ack = client.recv();
        assert!(ack.reason() >= 0x80 && !ack.has_problem_information(), "{ack:?}");
        assert!(reason_is_defined(ack.ty(), ack.reason()));
    }
    client.ack(AckKind::PubRel, 99);
    assert!(!client.expect(PacketType::PubComp).has_problem_information());
    // PUBLISH may: user properties of messages are the publisher's.
    client.subscribe("t", 0);
    let props = [Property::UserProperty("a", "b")];
    client.publish_out(&Out { topic: "t", payload: b"x", props: &props, ..Out::default() });
    assert_eq!(client.message().props.user.len(), 1);
}

#[test]
fn a_packet_above_the_brokers_maximum_ends_the_connection_before_its_body_came() {
    covers!["MQTT-3.2.2-15"];
    let broker = Broker::with("[mqtt]\nmax_packet_size = \"1KiB\"\n");
    let mut client = broker.client("c");
    client.subscribe("t", 0);
    let exact = vec![b'x'; 1024 - 3 - 3 - 1];
    client.publish("t", &exact, 0);
    assert_eq!(client.message().payload.len(), exact.len());
    client.send_bytes(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]);
    client.expect_end(0x95);
    let mut old = broker.client_of(Version::V311, "old");
    old.send_bytes(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]);
    old.expect_end(0);
}

#[test]
fn the_broker_keeps_within_the_clients_receive_maximum() {
    covers!["MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    for maximum in [1usize, 3] {
        let mut client = Connect::v5("c").prop(Property::ReceiveMaximum(maximum as u16)).open(&broker);
        client.subscribe("t", 2);
        for n in 0..10u8 {
            publisher.publish("t", [n], 1 + n % 2);
        }
        let mut open: Vec<_> = (0..maximum).map(|_| client.expect_publish()).collect();
        client.assert_quiet();
        let mut seen = Vec::new();
        while let Some(m) = open.pop() {
            seen.push(m.payload[0]);
            client.acknowledge(&m);
            if seen.len() + open.len() < 10 {
                open.push(client.expect_publish());
            }
            client.assert_quiet();
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<u8>>());
    }
}

#[test]
fn a_full_window_delays_nothing_but_publish() {
    covers!["MQTT-3.3.4-10", "MQTT-3.3.4-8", "MQTT-4.9.0-3"];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    let mut client = Connect::v5("c").prop(Property::ReceiveMaximum(1)).open(&broker);
    client.subscribe("t", 2);
    publisher.publish("t", "one", 2);
    publisher.publish("t", "two", 2);
    let one = client.expect_publish();
    client.ping();
    assert_eq!(client.subscribe("u", 1), 1);
    client.unsubscribe(&["u"]);
    assert_eq!(client.publish("v", "x", 1), 0x10);
    // QoS 0 needs no window.
    publisher.publish("t", "zero", 0);
    assert_eq!(client.expect_publish().text(), "zero");
    // PUBREC does not free the window, PUBCOMP does.
    client.ack(AckKind::PubRec, one.id);
    client.expect(PacketType::PubRel);
    client.assert_quiet();
    client.ack(AckKind::PubComp, one.id);
    assert_eq!(client.message().text(), "two");
}

#[test]
fn a_client_above_the_brokers_receive_maximum_is_disconnected() {
    covers!["MQTT-3.3.4-7", "MQTT-4.9.0-1", "MQTT-4.9.0-2"];
    let broker = Broker::with("[mqtt]\nreceive_maximum = 3\n");
    let mut client = broker.client("c");
    assert_eq!(client.connack().props().receive_maximum(), Some(3));
    for _ in 0..3 {
        client.send_publish(&Out { topic: "t", payload: b"x", qos: 2, ..Out::default() });
        assert!(client.expect(PacketType::PubRec).reason() < 0x80);
    }
    client.publish("t", "QoS 0 is free", 0);
    client.ping();
    client.send_publish(&Out { topic: "t", payload: b"x", qos: 2, ..Out::default() });
    client.expect_end(0x93);
}

#[test]
fn a_client_may_use_every_alias_up_to_the_announced_maximum() {
    covers!["MQTT-3.3.2-12", "MQTT-3.3.2-7"];
    let broker = Broker::start();
    let mut reader = broker.client("reader");
    reader.subscribe("#", 1);
    let mut client = broker.client("c");
    let max = client.connack().props().topic_alias_maximum().expect("aliases are offered");
    for alias in 1..=max {
        let topic = format!("t/{alias}");
        let props = [Property::TopicAlias(alias)];
        client.publish_out(&Out { topic: &topic, payload: b"x", qos: 1, props: &props, ..Out::default() });
        assert_eq!(reader.message().topic, topic);
    }
    for alias in (1..=max).rev() {
        let props = [Property::TopicAlias(alias)];
        client.publish_out(&Out { topic: "", payload: b"x", qos: 1, props: &props, ..Out::default() });
        let m = reader.message();
        assert_eq!(m.topic, format!("t/{alias}"));
    }
}

#[test]
fn wrong_aliases_end_the_connection() {
    covers!["MQTT-3.3.2-8", "MQTT-3.3.2-9", "MQTT-3.2.2-17", "MQTT-3.2.2-18", "MQTT-3.3.2-7"];
    let broker = Broker::start();
    let max = broker.client("max").connack().props().topic_alias_maximum().expect("aliases are offered");
    for (topic, alias, reasons) in
        [("t", 0, &[0x94][..]), ("t", max + 1, &[0x94]), ("", max, &[0x82]), ("t", 65_535, &[0x94])]
    {
        let mut client = broker.client("c");
        let [high, low] = alias.to_be_bytes();
        client.send_bytes(&raw::publish5(0x30, topic.as_bytes(), None, &[0x23, high, low], b"x"));
        client.expect_end_any(reasons);
    }
    let broker = Broker::with("[mqtt]\ntopic_alias_max = 0\n");
    let mut client = broker.client("c");
    assert_eq!(client.connack().props().topic_alias_maximum().unwrap_or(0), 0);
    client.send_bytes(&raw::publish5(0x30, b"t", None, &[0x23, 0, 1], b"x"));
    client.expect_end(0x94);
}

#[test]
fn the_brokers_own_aliases_keep_within_what_the_client_allows() {
    covers![
        "MQTT-3.1.2-26",
        "MQTT-3.1.2-27",
        "MQTT-3.3.2-8",
        "MQTT-3.3.2-10",
        "MQTT-3.3.2-11",
        "MQTT-3.3.2-7"
    ];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    for maximum in [None, Some(0), Some(2)] {
        let mut connect = Connect::v5("c");
        if let Some(n) = maximum {
            connect = connect.prop(Property::TopicAliasMaximum(n));
        }
        let mut client: Client = connect.open(&broker);
        client.subscribe("#", 1);
        let mut known = vec![String::new(); usize::from(maximum.unwrap_or(0)) + 1];
        for round in 0..4 {
            for n in 0..4 {
                let topic = format!("topic/number/{n}");
                publisher.publish(&topic, [round], 1);
                let m = client.message();
                let name = match m.props.alias {
                    None => m.topic,
                    Some(alias) => {
                        assert!(alias >= 1 && alias <= maximum.unwrap_or(0), "{alias}");
                        if !m.topic.is_empty() {
                            known[usize::from(alias)] = m.topic;
                        }
                        known[usize::from(alias)].clone()
                    }
                };
                assert_eq!(name, topic);
            }
        }
        client.disconnect();
    }
}

#[test]
fn the_brokers_disconnect_has_no_session_expiry_and_a_defined_reason() {
    covers!["MQTT-3.14.2-2", "MQTT-3.14.2-1"];
    let broker = Broker::start();
    let mut client = Connect::v5("c").lasting().open(&broker);
    client.send_bytes(&raw::packet(0x30, &[]));
    let last = client.expect_closed().pop().expect("a DISCONNECT");
    assert!(reason_is_defined(last.ty(), last.reason()) && !last.props().has(prop_id::SESSION_EXPIRY));
}
