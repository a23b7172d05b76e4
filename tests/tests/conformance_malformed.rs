//! Malformed packets and protocol errors on an open connection (MQTT 5, 1.5, 2, 4.13; MQTT 3.1.1, 4.8).

use mast_core::codec::PacketType;
use mast_tests::{Broker, Version, covers, raw};

const BOTH: [Version; 2] = [Version::V311, Version::V5];

/// Sends bytes on a fresh connection; the broker must end it, telling MQTT 5 one of the reasons.
fn ends(broker: &Broker, version: Version, bytes: &[u8], reasons: &[u8]) {
    println!("{version:?} {bytes:02x?}");
    let mut client = broker.client_of(version, "victim");
    client.send_bytes(bytes);
    client.expect_end_any(reasons);
}

fn publish(version: Version, first: u8, topic: &[u8], id: Option<u16>, payload: &[u8]) -> Vec<u8> {
    match version {
        Version::V5 => raw::publish5(first, topic, id, &[], payload),
        Version::V31 | Version::V311 => raw::publish3(first, topic, id, payload),
    }
}

fn none(version: Version) -> Option<&'static [u8]> {
    version.is_v5().then_some(&[])
}

#[test]
fn reserved_header_flags_end_the_connection() {
    covers![
        "MQTT-2.1.3-1",
        "MQTT-3.6.1-1",
        "MQTT-3.8.1-1",
        "MQTT-3.10.1-1",
        "MQTT-3.14.1-1",
        "MQTT-3.15.1-1"
    ];
    covers![
        "v311:MQTT-2.2.2-1",
        "v311:MQTT-2.2.2-2",
        "v311:MQTT-3.6.1-1",
        "v311:MQTT-3.8.1-1",
        "v311:MQTT-3.10.1-1"
    ];
    covers!["v311:MQTT-3.14.1-1", "v311:MQTT-4.8.0-1", "MQTT-4.13.1-1"];
    let broker = Broker::start();
    for version in BOTH {
        let subscribe = raw::subscribe(0x82, 1, none(version), &[(b"t", 0)]);
        let unsubscribe = raw::unsubscribe(0xA2, 1, none(version), &[b"t"]);
        for (first, body) in [
            (0x41, &[0, 1][..]),
            (0x52, &[0, 1]),
            (0x60, &[0, 1]),
            (0x63, &[0, 1]),
            (0x71, &[0, 1]),
            (0x80, &subscribe[2..]),
            (0x83, &subscribe[2..]),
            (0xA0, &unsubscribe[2..]),
            (0xC1, &[]),
            (0xE1, &[]),
        ] {
            ends(&broker, version, &raw::packet(first, body), &[0x81]);
        }
    }
    ends(&broker, Version::V5, &raw::packet(0xF1, &[0x18, 0]), &[0x81]);
}

#[test]
fn qos_3_is_malformed() {
    covers!["MQTT-3.3.1-4", "v311:MQTT-3.3.1-4"];
    let broker = Broker::start();
    for version in BOTH {
        ends(&broker, version, &publish(version, 0x36, b"t", Some(1), b"x"), &[0x81]);
    }
}

#[test]
fn dup_on_qos_0_is_an_error() {
    covers!["MQTT-3.3.1-2", "v311:MQTT-3.3.1-2"];
    let broker = Broker::start();
    for version in BOTH {
        ends(&broker, version, &publish(version, 0x38, b"t", None, b"x"), &[0x81, 0x82]);
    }
}

#[test]
fn packet_id_0_is_an_error_wherever_an_id_is_needed() {
    covers!["MQTT-2.2.1-3", "v311:MQTT-2.3.1-1"];
    let broker = Broker::start();
    for version in BOTH {
        for first in [0x32, 0x34] {
            ends(&broker, version, &publish(version, first, b"t", Some(0), b"x"), &[0x81, 0x82]);
        }
        ends(&broker, version, &raw::subscribe(0x82, 0, none(version), &[(b"t", 0)]), &[0x81, 0x82]);
        ends(&broker, version, &raw::unsubscribe(0xA2, 0, none(version), &[b"t"]), &[0x81, 0x82]);
        for first in [0x40, 0x50, 0x62, 0x70] {
            ends(&broker, version, &raw::packet(first, &[0, 0]), &[0x81, 0x82]);
        }
    }
}

#[test]
fn ill_formed_strings_end_the_connection() {
    covers!["MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-3.3.2-1", "MQTT-3.8.3-1", "MQTT-3.10.3-1", "MQTT-4.7.3-2"];
    covers![
        "v311:MQTT-1.5.3-1",
        "v311:MQTT-1.5.3-2",
        "v311:MQTT-3.3.2-1",
        "v311:MQTT-3.8.3-1",
        "v311:MQTT-3.10.3-1"
    ];
    covers!["v311:MQTT-4.7.3-2"];
    let broker = Broker::start();
    for bad in [&b"a\0"[..], b"\xC3", b"\xED\xBF\xBF", b"\xF4\x90\x80\x80", b"\xC0\x80", b"a\xFFb"] {
        for version in BOTH {
            ends(&broker, version, &publish(version, 0x30, bad, None, b"x"), &[0x81]);
            ends(&broker, version, &raw::subscribe(0x82, 1, none(version), &[(bad, 0)]), &[0x81]);
            ends(&broker, version, &raw::unsubscribe(0xA2, 1, none(version), &[bad]), &[0x81]);
        }
        // In properties: content type, response topic, both halves of a user property, reason string.
        let text = raw::field(bad);
        let good = raw::field("a");
        for props in [
            raw::cat(&[&[0x03], &text]),
            raw::cat(&[&[0x08], &text]),
            raw::cat(&[&[0x26], &text, &good]),
            raw::cat(&[&[0x26], &good, &text]),
        ] {
            ends(&broker, Version::V5, &raw::publish5(0x30, b"t", None, &props, b"x"), &[0x81]);
        }
    }
}

#[test]
fn properties_that_are_strings_must_be_valid() {
    covers!["MQTT-3.3.2-13", "MQTT-3.3.2-19", "MQTT-1.5.7-1"];
    let broker = Broker::start();
    for id in [0x03, 0x08] {
        let props = raw::cat(&[&[id], &raw::field(b"\xFE")]);
        ends(&broker, Version::V5, &raw::publish5(0x30, b"t", None, &props, b"x"), &[0x81]);
    }
    let props = raw::cat(&[&[0x26], &raw::field("k"), &raw::field(b"v\0")]);
    ends(&broker, Version::V5, &raw::publish5(0x30, b"t", None, &props, b"x"), &[0x81]);
}

#[test]
fn wildcards_and_emptiness_are_refused_in_topic_names() {
    covers!["MQTT-3.3.2-2", "MQTT-4.7.0-1", "MQTT-4.7.3-1", "MQTT-3.3.2-14"];
    covers!["v311:MQTT-3.3.2-2", "v311:MQTT-4.7.1-1", "v311:MQTT-4.7.3-1"];
    let broker = Broker::start();
    for version in BOTH {
        for topic in [&b"a/+"[..], b"#", b"a#b", b"+/a"] {
            ends(&broker, version, &publish(version, 0x30, topic, None, b"x"), &[0x90, 0x81, 0x82]);
        }
    }
    ends(&broker, Version::V311, &publish(Version::V311, 0x30, b"", None, b"x"), &[]);
    ends(&broker, Version::V5, &publish(Version::V5, 0x30, b"", None, b"x"), &[0x82, 0x90]);
    for topic in ["r/+", "#", ""] {
        let props = raw::cat(&[&[0x08], &raw::field(topic)]);
        ends(&broker, Version::V5, &raw::publish5(0x30, b"t", None, &props, b"x"), &[0x82, 0x81, 0x90]);
    }
}

#[test]
fn topics_of_the_greatest_length_are_carried_where_the_operator_allows_them() {
    covers!["MQTT-4.7.3-3", "v311:MQTT-4.7.3-3"];
    let broker = Broker::with("[mqtt]\nmax_topic_bytes = \"65535B\"\n");
    let topic = "x".repeat(65_535);
    for version in BOTH {
        let mut client = broker.client_of(version, "c");
        assert_eq!(client.subscribe(&topic, 1), 1);
        client.publish(&topic, "far", 1);
        let m = client.message();
        assert_eq!((m.topic.len(), m.text()), (65_535, "far"));
    }
}

#[test]
fn a_list_without_a_filter_is_a_protocol_error() {
    covers!["MQTT-3.8.3-2", "MQTT-3.10.3-2", "v311:MQTT-3.8.3-3", "v311:MQTT-3.10.3-2"];
    let broker = Broker::start();
    for version in BOTH {
        ends(&broker, version, &raw::subscribe(0x82, 1, none(version), &[]), &[0x82, 0x81]);
        ends(&broker, version, &raw::unsubscribe(0xA2, 1, none(version), &[]), &[0x82, 0x81]);
    }
}

#[test]
fn reserved_subscription_options_are_malformed() {
    covers!["MQTT-3.8.3-5", "v311:MQTT-3.8.3-4"];
    let broker = Broker::start();
    for bits in [0x03, 0x04, 0x08, 0x10, 0x40, 0x80] {
        ends(&broker, Version::V311, &raw::subscribe(0x82, 1, None, &[(b"t", bits)]), &[]);
    }
    for bits in [0x03, 0x30, 0x40, 0x80] {
        ends(&broker, Version::V5, &raw::subscribe(0x82, 1, Some(&[]), &[(b"t", bits)]), &[0x81, 0x82]);
    }
}

#[test]
fn variable_byte_integers_have_their_shortest_form_and_four_bytes_at_most() {
    covers!["MQTT-1.5.5-1"];
    let broker = Broker::start();
    for version in BOTH {
        ends(&broker, version, &[0xC0, 0x80, 0x00], &[0x81]);
        ends(&broker, version, &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], &[0x81, 0x95]);
    }
    // Property length 0 in two bytes; a subscription identifier in two where one is enough.
    let body = raw::cat(&[&raw::field("t"), &[0x80, 0x00], b"x"]);
    ends(&broker, Version::V5, &raw::packet(0x30, &body), &[0x81]);
    let sub = raw::cat(&[&[0, 1, 3, 0x0B, 0x81, 0x00], &raw::field("t"), &[0]]);
    ends(&broker, Version::V5, &raw::packet(0x82, &sub), &[0x81]);
}

#[test]
fn packets_shorter_or_longer_than_their_content_are_malformed() {
    covers!["MQTT-4.13.1-1", "v311:MQTT-4.8.0-1"];
    let broker = Broker::start();
    for version in BOTH {
        for (first, body) in [
            (0x30, &[0, 9, b't'][..]), // topic longer than the packet
            (0x32, &[0, 1, b't']),     // no packet id
            (0x30, &[]),               // nothing
            (0x40, &[0]),              // half an id
            (0x82, &[0, 1]),           // nothing but an id
            (0xC0, &[0]),              // PINGREQ with a body
        ] {
            ends(&broker, version, &raw::packet(first, body), &[0x81, 0x82]);
        }
    }
    ends(&broker, Version::V311, &raw::packet(0x40, &[0, 1, 0]), &[]);
    ends(&broker, Version::V5, &raw::packet(0x30, &[0, 1, b't', 5, 1]), &[0x81]);
    ends(&broker, Version::V5, &raw::packet(0xE0, &[0, 1]), &[0x81]);
}

#[test]
fn packets_that_only_a_server_sends_end_the_connection() {
    covers!["MQTT-4.13.1-1", "v311:MQTT-4.8.0-1"];
    let broker = Broker::start();
    for version in BOTH {
        for packet in [&[0x20u8, 3, 0, 0, 0][..], &[0x90, 4, 0, 1, 0, 0], &[0xB0, 4, 0, 1, 0, 0], &[0xD0, 0]]
        {
            ends(&broker, version, packet, &[0x81, 0x82]);
        }
        ends(&broker, version, &[0x00, 0], &[0x81]);
    }
    ends(&broker, Version::V311, &[0xF0, 0], &[]);
}

#[test]
fn a_clients_publish_may_not_carry_a_subscription_identifier() {
    covers!["MQTT-3.3.4-6"];
    let broker = Broker::start();
    ends(&broker, Version::V5, &raw::publish5(0x30, b"t", None, &[0x0B, 1], b"x"), &[0x82]);
}

#[test]
fn properties_of_other_packets_and_repeated_ones_are_refused() {
    covers!["MQTT-4.13.1-1", "MQTT-2.2.2-1"];
    let broker = Broker::start();
    for props in [
        &[0x11u8, 0, 0, 0, 1][..], // session expiry
        &[0x01, 1, 0x01, 1],       // payload format twice
        &[0x01, 2],                // payload format 2
        &[0x02, 0, 0, 0, 1, 0x02, 0, 0, 0, 1],
        &[0x7E],
    ] {
        ends(&broker, Version::V5, &raw::publish5(0x30, b"t", None, props, b"x"), &[0x81, 0x82]);
    }
    for props in [&[0x0Bu8, 0][..], &[0x0B, 1, 0x0B, 2], &[0x01, 0]] {
        ends(&broker, Version::V5, &raw::subscribe(0x82, 1, Some(props), &[(b"t", 0)]), &[0x81, 0x82]);
    }
}

#[test]
fn reason_codes_of_disconnect_and_auth_are_checked() {
    covers!["MQTT-3.14.2-1", "MQTT-3.15.2-1", "MQTT-4.12.0-7", "MQTT-4.12.0-3"];
    let broker = Broker::start();
    for code in [0x01, 0x55, 0x8B, 0x8D, 0x8E, 0xFF] {
        ends(&broker, Version::V5, &raw::packet(0xE0, &[code, 0]), &[0x81, 0x82]);
    }
    for code in [0x00, 0x18, 0x19, 0x01] {
        ends(&broker, Version::V5, &raw::packet(0xF0, &[code, 0]), &[0x81, 0x82]);
    }
}

#[test]
fn an_acknowledgement_without_a_reason_means_success() {
    covers![
        "MQTT-2.2.2-1",
        "MQTT-3.4.2-1",
        "MQTT-4.2-1",
        "v311:MQTT-7.1.1-1",
        "v311:MQTT-7.1.2-1",
        "v311:MQTT-7.0.0-1"
    ];
    let broker = Broker::start();
    let mut publisher = broker.client("p");
    let mut client = broker.client("c");
    client.subscribe("t", 1);
    // Long and short forms, one byte at a time: the stream has no borders.
    for ack in [&[][..], &[0x00], &[0x00, 0x00], &[0x10, 0x00]] {
        publisher.publish("t", "x", 1);
        let id = client.expect_publish().id.to_be_bytes();
        for byte in raw::packet(0x40, &raw::cat(&[&id, ack])) {
            client.send_bytes(&[byte]);
        }
    }
    client.ping();
}

#[test]
fn the_brokers_empty_properties_are_one_zero_byte() {
    covers!["MQTT-2.2.2-1", "MQTT-1.5.5-1"];
    let broker = Broker::start();
    let mut client = broker.client("c");
    client.subscribe("t", 0);
    client.publish("t", "x", 0);
    let got = client.expect(PacketType::Publish);
    assert_eq!(got.bytes, raw::publish5(0x30, b"t", None, &[], b"x"));
}
