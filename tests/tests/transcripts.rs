//! Readable transcripts of every flow of MQTT 3.1.1 and 5 between real sockets and the broker. The snapshots in
//! `tests/tests/snapshots` are the committed truth; `cargo insta review` shows what changed.

use mast_core::codec::{AckKind, PacketType, SubOptions};
use mast_tests::{
    Broker, Client, Connect, Property, Version,
    broker::DEADLINE,
    client::{Event, Out, qos},
    raw,
    transcript::Transcript,
};

/// The flows of both versions.
fn both(name: &str, flow: impl Fn(&Broker, Version, &Transcript)) {
    for version in [Version::V311, Version::V5] {
        let transcript = Transcript::default();
        flow(&Broker::start(), version, &transcript);
        let suffix = if version.is_v5() { "v5" } else { "v311" };
        insta::assert_snapshot!(format!("{name}_{suffix}"), transcript.text());
    }
}

/// A flow of one version.
fn one(name: &str, config: &str, flow: impl Fn(&Broker, &Transcript)) {
    let transcript = Transcript::default();
    flow(&Broker::with(config), &transcript);
    insta::assert_snapshot!(name, transcript.text());
}

/// Connects under a name and records from the first byte.
fn open(broker: &Broker, transcript: &Transcript, connect: &Connect, version: Version, name: &str) -> Client {
    let mut client = Client::on(broker.tcp(), version);
    client.record(transcript, name);
    client.send_bytes(&connect.bytes());
    let connack = client.expect(PacketType::ConnAck);
    client.connack = Some(connack);
    client
}

fn plain(broker: &Broker, transcript: &Transcript, version: Version, name: &str) -> Client {
    open(broker, transcript, &Connect::new(version, name), version, name)
}

fn end(mut client: Client) {
    client.send_bytes(&[0xE0, 0]);
    client.expect_closed();
}

#[test]
fn connecting_pinging_and_leaving() {
    both("connect", |broker, version, t| {
        let mut a = plain(broker, t, version, "a");
        a.ping();
        end(a);
        end(open(broker, t, &Connect::new(version, ""), version, "nameless"));
        end(open(broker, t, &Connect::new(version, "b").keep_alive(0), version, "b"));
        let session = Connect::new(version, "s").lasting();
        end(open(broker, t, &session, version, "s"));
        end(open(broker, t, &session, version, "s"));
        end(open(broker, t, &Connect::new(version, "s"), version, "s"));
        end(open(broker, t, &session, version, "s"));
    });
}

#[test]
fn a_takeover() {
    both("takeover", |broker, version, t| {
        let mut old = plain(broker, t, version, "same");
        t.note("the same client id from elsewhere");
        let new = plain(broker, t, version, "same");
        old.expect_closed();
        end(new);
    });
}

#[test]
fn refused_connects() {
    both("refused", |broker, version, t| {
        for (what, connect) in [
            ("a will to a wildcard", Connect::new(version, "c").will("a/#", "x", 0, false)),
            ("a will to $SYS", Connect::new(version, "c").will("$SYS/x", "x", 0, false)),
            ("an empty client id for a lasting session", Connect::new(version, "").lasting()),
        ] {
            t.note(what);
            let mut c = Client::on(broker.tcp(), version);
            c.record(t, "c");
            c.send_bytes(&connect.bytes());
            match c.read(DEADLINE) {
                Event::Packet(connack) if connack.reason() == 0 => end(c),
                Event::Packet(_) => drop(c.expect_closed()),
                Event::Closed => {}
                Event::Nothing => panic!("no answer"),
            }
        }
        t.note("an unknown level");
        let mut c = Client::on(broker.tcp(), Version::V311);
        c.record(t, "c");
        c.send_bytes(&raw::packet(0x10, &raw::cat(&[&raw::field("MQTT"), &[9, 2, 0, 60], &raw::field("c")])));
        c.expect_closed();
    });
    one("refused_method_v5", "", |broker, t| {
        let mut c = Client::on(broker.tcp(), Version::V5);
        c.record(t, "c");
        c.send_bytes(&Connect::v5("c").prop(Property::AuthMethod("KERBEROS")).bytes());
        c.expect_closed();
    });
}

#[test]
fn publishing_at_every_qos() {
    both("publish", |broker, version, t| {
        let mut s = plain(broker, t, version, "subscriber");
        s.subscribe("t/#", 2);
        let mut p = plain(broker, t, version, "publisher");
        for q in 0..3 {
            p.publish("t/x", format!("QoS {q}"), q);
            s.message();
        }
        t.note("nobody subscribes to this");
        p.publish("elsewhere", "x", 1);
        p.publish("elsewhere", "x", 2);
        t.note("QoS 2 repeated before PUBREL");
        for dup in [false, true] {
            p.send_publish(&Out { topic: "t/y", payload: b"once", qos: 2, id: 9, dup, ..Out::default() });
            p.expect(PacketType::PubRec);
        }
        p.ack(AckKind::PubRel, 9);
        p.expect(PacketType::PubComp);
        s.message();
        t.note("acknowledgements of nothing");
        p.ack(AckKind::PubAck, 70);
        p.ack(AckKind::PubRec, 71);
        p.expect(PacketType::PubRel);
        p.ack(AckKind::PubRel, 72);
        p.expect(PacketType::PubComp);
        end(p);
        end(s);
    });
}

#[test]
fn subscribing_and_unsubscribing() {
    both("subscribe", |broker, version, t| {
        let mut c = plain(broker, t, version, "c");
        let options = |q| SubOptions::new(qos(q));
        c.subscribe_all(
            &[("a", options(0)), ("b/+", options(1)), ("c/#", options(2)), ("bad/#/x", options(1))],
            &[],
        );
        c.subscribe("$share/group/t", 1);
        c.subscribe("$share//t", 1);
        c.unsubscribe(&["a", "never", "$share/group/t"]);
        t.note("overlapping filters");
        c.subscribe("b/#", 2);
        c.publish("b/x", "one copy", 2);
        c.message();
        end(c);
    });
}

#[test]
fn retained_messages() {
    both("retained", |broker, version, t| {
        let mut p = plain(broker, t, version, "publisher");
        p.retain("t", "kept", 1);
        let mut s = plain(broker, t, version, "subscriber");
        s.subscribe("t", 1);
        s.message();
        t.note("replaced");
        p.retain("t", "newer", 1);
        s.message();
        t.note("subscribed again");
        s.subscribe("t", 1);
        s.message();
        t.note("removed");
        p.retain("t", "", 1);
        s.message();
        s.subscribe("t", 1);
        s.ping();
        end(p);
        end(s);
    });
}

#[test]
fn a_session_over_two_connections() {
    both("session", |broker, version, t| {
        let connect = Connect::new(version, "s").lasting();
        let mut s = open(broker, t, &connect, version, "s");
        s.subscribe("t", 2);
        end(s);
        let mut p = plain(broker, t, version, "p");
        p.publish("t", "while away, QoS 1", 1);
        let mut s = open(broker, t, &connect, version, "s");
        let m = s.expect_publish();
        t.note("the connection breaks before PUBACK");
        drop(s);
        let mut s = open(broker, t, &connect, version, "s");
        assert_eq!(s.expect_publish().id, m.id);
        s.ack(AckKind::PubAck, m.id);
        p.publish("t", "live, QoS 2", 2);
        let m = s.expect_publish();
        s.ack(AckKind::PubRec, m.id);
        s.expect(PacketType::PubRel);
        t.note("the connection breaks before PUBCOMP");
        drop(s);
        let mut s = open(broker, t, &connect, version, "s");
        s.expect(PacketType::PubRel);
        s.ack(AckKind::PubComp, m.id);
        s.ping();
        end(s);
        end(p);
    });
}

#[test]
fn wills() {
    both("will", |broker, version, t| {
        let mut w = plain(broker, t, version, "watcher");
        w.subscribe("w", 1);
        t.note("a connection that breaks");
        drop(open(broker, t, &Connect::new(version, "c").will("w", "gone", 1, true), version, "c"));
        w.message();
        t.note("a normal end");
        end(open(broker, t, &Connect::new(version, "c").will("w", "gone", 1, false), version, "c"));
        w.ping();
        if version.is_v5() {
            t.note("DISCONNECT with will");
            let mut c = open(broker, t, &Connect::v5("c").will("w", "asked for", 1, false), version, "c");
            c.send_bytes(&[0xE0, 1, 4]);
            c.expect_closed();
            w.message();
        }
        end(w);
    });
}

#[test]
fn protocol_errors() {
    both("errors", |broker, version, t| {
        let props: Option<&[u8]> = if version.is_v5() { Some(&[]) } else { None };
        let publish = |first, topic: &[u8]| match version {
            Version::V5 => raw::publish5(first, topic, Some(1), &[], b"x"),
            Version::V31 | Version::V311 => raw::publish3(first, topic, Some(1), b"x"),
        };
        for (what, bytes) in [
            ("a second CONNECT", Connect::new(version, "c").bytes()),
            ("QoS 3", publish(0x36, b"t")),
            ("a wildcard in a topic", publish(0x32, b"a/+")),
            ("U+0000 in a topic", publish(0x32, b"a\0")),
            ("SUBSCRIBE with wrong flags", raw::subscribe(0x80, 1, props, &[(b"t", 0)])),
            ("SUBSCRIBE without a filter", raw::subscribe(0x82, 1, props, &[])),
            ("SUBSCRIBE with packet id 0", raw::subscribe(0x82, 0, props, &[(b"t", 0)])),
            (
                "SUBACK from a client",
                raw::packet(0x90, if version.is_v5() { &[0, 1, 0, 0] } else { &[0, 1, 0] }),
            ),
            ("a packet over the limit", vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F]),
        ] {
            t.note(what);
            let mut c = plain(broker, t, version, "c");
            c.send_bytes(&bytes);
            c.expect_closed();
        }
    });
}

#[test]
fn options_and_identifiers_of_mqtt_5() {
    one("options_v5", "", |broker, t| {
        let mut p = plain(broker, t, Version::V5, "p");
        p.retain("t", "kept", 1);
        let mut s = plain(broker, t, Version::V5, "s");
        let options = SubOptions {
            no_local: true,
            retain_as_published: true,
            retain_handling: 1,
            ..SubOptions::new(qos(2))
        };
        s.subscribe_all(&[("t", options)], &[Property::SubscriptionId(5)]);
        s.message();
        t.note("retain handling 1: not for an existing subscription");
        s.subscribe_all(&[("t", options)], &[Property::SubscriptionId(6)]);
        s.ping();
        t.note("no local");
        s.publish("t", "own", 1);
        s.ping();
        t.note("retain as published, the second identifier");
        p.retain("t", "newer", 2);
        s.message();
        end(p);
        end(s);
    });
}

#[test]
fn request_and_response_with_properties() {
    one("request_response_v5", "", |broker, t| {
        let mut server = plain(broker, t, Version::V5, "server");
        server.subscribe("ask", 1);
        let mut client = plain(broker, t, Version::V5, "client");
        client.subscribe("answers/client", 1);
        let props = [
            Property::ResponseTopic("answers/client"),
            Property::CorrelationData(b"17"),
            Property::ContentType("text/plain"),
            Property::PayloadFormat(1),
            Property::UserProperty("b", "2"),
            Property::UserProperty("a", "1"),
        ];
        client.publish_out(&Out { topic: "ask", payload: b"what?", qos: 1, props: &props, ..Out::default() });
        let m = server.message();
        let correlation = m.props.correlation.expect("it was sent");
        let props = [Property::CorrelationData(&correlation)];
        let topic = m.props.response_topic.expect("it was sent");
        server.publish_out(&Out { topic: &topic, payload: b"that", qos: 1, props: &props, ..Out::default() });
        client.message();
        end(client);
        end(server);
    });
}

#[test]
fn topic_aliases_in_both_directions() {
    one("alias_v5", "", |broker, t| {
        let connect = Connect::v5("s").prop(Property::TopicAliasMaximum(2));
        let mut s = open(broker, t, &connect, Version::V5, "s");
        s.subscribe("t/#", 0);
        let mut p = plain(broker, t, Version::V5, "p");
        let set = [Property::TopicAlias(1)];
        p.publish_out(&Out { topic: "t/a", payload: b"1", props: &set, ..Out::default() });
        s.message();
        p.publish_out(&Out { topic: "", payload: b"2", props: &set, ..Out::default() });
        s.message();
        t.note("an alias that was never set");
        p.publish_out(&Out { topic: "", payload: b"3", props: &[Property::TopicAlias(9)], ..Out::default() });
        p.expect_closed();
        end(s);
    });
}

#[test]
fn flow_control_by_receive_maximum() {
    one("receive_maximum_v5", "[mqtt]\nreceive_maximum = 2\n", |broker, t| {
        let connect = Connect::v5("s").prop(Property::ReceiveMaximum(1));
        let mut s = open(broker, t, &connect, Version::V5, "s");
        s.subscribe("t", 1);
        let mut p = plain(broker, t, Version::V5, "p");
        p.publish("t", "one", 1);
        let first = s.expect_publish();
        p.publish("t", "two", 1);
        s.ping();
        t.note("PUBACK frees the window");
        s.ack(AckKind::PubAck, first.id);
        s.message();
        t.note("more than the broker's window");
        for id in 1..=3 {
            p.send_publish(&Out { topic: "u", payload: b"x", qos: 2, id: 100 + id, ..Out::default() });
            if id < 3 {
                p.expect(PacketType::PubRec);
            }
        }
        p.expect_closed();
        end(s);
    });
}

#[test]
fn what_is_not_offered() {
    let config = "[mqtt]\nmax_qos = 0\nretain_available = false\nwildcard_available = false\n\
                  shared_available = false\nsubscription_id_available = false\n";
    one("not_offered_v5", config, |broker, t| {
        let mut c = plain(broker, t, Version::V5, "c");
        c.subscribe("a/#", 1);
        c.subscribe("$share/g/a", 1);
        c.subscribe("a", 2);
        c.send_publish(&Out { topic: "a", payload: b"x", qos: 1, ..Out::default() });
        c.expect_closed();
        let mut c = plain(broker, t, Version::V5, "c");
        c.send_publish(&Out { topic: "a", payload: b"x", retain: true, ..Out::default() });
        c.expect_closed();
        for (will, what) in [((1, false), "a will of QoS 1"), ((0, true), "a retained will")] {
            t.note(what);
            let mut c = Client::on(broker.tcp(), Version::V5);
            c.record(t, "c");
            c.send_bytes(&Connect::v5("c").will("w", "x", will.0, will.1).bytes());
            c.expect_closed();
        }
    });
}

#[test]
fn forbidden_by_the_rules() {
    both("forbidden", |_, version, t| {
        let mut broker = Broker::prepared();
        broker.write("acl", "topic readwrite ok/#\n");
        broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
        broker.launch();
        let mut c = plain(&broker, t, version, "c");
        for q in 0..3 {
            c.publish("secret", "x", q);
        }
        c.subscribe("secret/#", 1);
        c.subscribe("ok/#", 1);
        c.publish("ok/x", "x", 1);
        c.message();
        end(c);
        t.note("a will where the client may not write");
        let mut c = Client::on(broker.tcp(), version);
        c.record(t, "c");
        c.send_bytes(&Connect::new(version, "c").will("secret", "x", 0, false).bytes());
        if c.recv().reason() == 0 {
            end(c);
        } else {
            c.expect_closed();
        }
    });
}

#[test]
fn the_broker_drains() {
    for version in [Version::V311, Version::V5] {
        let transcript = Transcript::default();
        let mut broker = Broker::start();
        let mut c = plain(&broker, &transcript, version, "c");
        assert!(broker.terminate().success());
        c.expect_closed();
        let suffix = if version.is_v5() { "v5" } else { "v311" };
        insta::assert_snapshot!(format!("drain_{suffix}"), transcript.text());
    }
}
