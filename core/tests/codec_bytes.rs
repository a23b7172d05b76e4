//! Every packet in exact bytes, decoded and encoded.

mod codec_support;

use codec_support::{hex, one};
use mast_core::codec::*;
use mast_core::message::QoS;

/// `bytes` decode to `packet`, and `packet` encodes to `bytes`.
#[track_caller]
fn both_ways(bytes: &str, version: Version, packet: &Packet<'_>) {
    let bytes = hex(bytes);
    assert_eq!(one(&bytes, version).as_ref(), Ok(packet));
    let mut out = vec![0xEE];
    packet.encode(version, &mut out).unwrap();
    assert_eq!(out[1..], bytes);
    assert_eq!(packet.encoded_len(version), bytes.len());
}

/// `bytes` decode to `packet`, which has a shorter form.
#[track_caller]
fn decodes(bytes: &str, version: Version, packet: &Packet<'_>) {
    assert_eq!(one(&hex(bytes), version).as_ref(), Ok(packet));
}

fn props(list: &[Property<'_>]) -> PropsBuf {
    let mut buf = PropsBuf::new();
    for property in list {
        buf.push(property).unwrap();
    }
    buf
}

fn plain_connect(version: Version) -> Connect<'static> {
    Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        props: Props::EMPTY,
        client_id: "ab",
        will: None,
        username: None,
        password: None,
    }
}

#[test]
fn a_minimal_connect_of_each_version() {
    both_ways(
        "10 10 0006 'MQIsdp' 03 02 003c 0002 'ab'",
        Version::V5,
        &Packet::Connect(plain_connect(Version::V31)),
    );
    both_ways(
        "10 0e 0004 'MQTT' 04 02 003c 0002 'ab'",
        Version::V5,
        &Packet::Connect(plain_connect(Version::V311)),
    );
    both_ways(
        "10 0f 0004 'MQTT' 05 02 003c 00 0002 'ab'",
        Version::V31,
        &Packet::Connect(plain_connect(Version::V5)),
    );
}

#[test]
fn a_bridge_bit_is_known_in_3_x_and_refused_in_5() {
    let bridge = |version| Packet::Connect(Connect { bridge: true, ..plain_connect(version) });
    both_ways("10 10 0006 'MQIsdp' 83 02 003c 0002 'ab'", Version::V5, &bridge(Version::V31));
    both_ways("10 0e 0004 'MQTT' 84 02 003c 0002 'ab'", Version::V5, &bridge(Version::V311));
    let v5 = hex("10 0f 0004 'MQTT' 85 02 003c 00 0002 'ab'");
    assert_eq!(one(&v5, Version::V5).unwrap_err().reason, Reason::UNSUPPORTED_PROTOCOL_VERSION);
}

#[test]
fn a_connect_with_everything() {
    let list = props(&[
        Property::SessionExpiry(16),
        Property::AuthMethod("m"),
        Property::AuthData(b"\0d"),
        Property::RequestProblemInfo(false),
        Property::RequestResponseInfo(true),
        Property::ReceiveMaximum(20),
        Property::TopicAliasMaximum(0),
        Property::UserProperty("k", "v"),
        Property::UserProperty("k", ""),
        Property::MaximumPacketSize(256),
    ]);
    let will_props = props(&[
        Property::WillDelay(5),
        Property::PayloadFormat(1),
        Property::MessageExpiry(7),
        Property::ContentType("c"),
        Property::ResponseTopic("r"),
        Property::CorrelationData(b"x"),
        Property::UserProperty("a", "b"),
    ]);
    let packet = Packet::Connect(Connect {
        clean_start: false,
        props: list.as_props(),
        will: Some(Will {
            qos: QoS::ExactlyOnce,
            retain: true,
            props: will_props.as_props(),
            topic: "w",
            payload: b"\xff",
        }),
        username: Some("u"),
        password: Some(b"\0p"),
        ..plain_connect(Version::V5)
    });
    both_ways(
        "10 66 0004 'MQTT' 05 f4 003c \
         2a 11 00000010 15 0001 'm' 16 0002 00 'd' 17 00 19 01 21 0014 22 0000 26 0001 'k' 0001 'v' \
         26 0001 'k' 0000 27 00000100 \
         0002 'ab' \
         1f 18 00000005 01 01 02 00000007 03 0001 'c' 08 0001 'r' 09 0001 'x' 26 0001 'a' 0001 'b' \
         0001 'w' 0001 ff 0001 'u' 0002 00 'p'",
        Version::V5,
        &packet,
    );
}

#[test]
fn a_password_stands_alone_in_mqtt_5() {
    let packet = Packet::Connect(Connect { password: Some(b"p"), ..plain_connect(Version::V5) });
    both_ways("10 12 0004 'MQTT' 05 42 003c 00 0002 'ab' 0001 'p'", Version::V5, &packet);
}

#[test]
fn a_password_without_user_name_cannot_be_written_before_mqtt_5() {
    let mut out = Vec::new();
    let packet = Packet::Connect(Connect { password: Some(b"p"), ..plain_connect(Version::V311) });
    assert_eq!(packet.encode(Version::V311, &mut out), Err(EncodeError::NotInVersion));
    assert!(out.is_empty());
}

#[test]
fn a_3_1_connect_may_announce_a_user_name_that_is_not_there() {
    decodes(
        "10 10 0006 'MQIsdp' 03 c2 003c 0002 'ab'",
        Version::V31,
        &Packet::Connect(plain_connect(Version::V31)),
    );
    let named = Packet::Connect(Connect { username: Some("u"), ..plain_connect(Version::V31) });
    decodes("10 13 0006 'MQIsdp' 03 c2 003c 0002 'ab' 0001 'u'", Version::V31, &named);
}

#[test]
fn the_version_of_a_broken_connect_is_still_known() {
    let broken = hex("10 0f 0004 'MQTT' 05 03 003c 00 0002 'ab'");
    let frame = cut(&broken, 100).unwrap().unwrap();
    assert!(decode(&frame, Version::V5).is_err());
    assert_eq!(connect_version(&frame), Some(Version::V5));
    let other = hex("10 0f 0004 'MQTT' 06 02 003c 00 0002 'ab'");
    assert_eq!(connect_version(&cut(&other, 100).unwrap().unwrap()), None);
    assert_eq!(connect_version(&cut(&hex("c000"), 100).unwrap().unwrap()), None);
}

#[test]
fn connack_of_each_version() {
    let ack = |session_present, code| Packet::ConnAck(ConnAck { session_present, code, props: Props::EMPTY });
    both_ways("20 02 00 00", Version::V31, &ack(false, Reason::SUCCESS));
    both_ways("20 02 01 00", Version::V311, &ack(true, Reason::SUCCESS));
    both_ways("20 02 00 05", Version::V311, &ack(false, Reason(5)));
    both_ways("20 03 01 00 00", Version::V5, &ack(true, Reason::SUCCESS));
    both_ways("20 03 00 87 00", Version::V5, &ack(false, Reason::NOT_AUTHORIZED));
}

#[test]
fn connack_translates_reasons_for_3_x() {
    for (reason, code) in [
        (Reason::UNSUPPORTED_PROTOCOL_VERSION, 1),
        (Reason::CLIENT_IDENTIFIER_NOT_VALID, 2),
        (Reason::QUOTA_EXCEEDED, 3),
        (Reason::BAD_USER_NAME_OR_PASSWORD, 4),
        (Reason::NOT_AUTHORIZED, 5),
        (Reason::PACKET_TOO_LARGE, 3),
    ] {
        let mut out = Vec::new();
        let packet = Packet::ConnAck(ConnAck { session_present: true, code: reason, props: Props::EMPTY });
        packet.encode(Version::V311, &mut out).unwrap();
        assert_eq!(out, [0x20, 2, 0, code], "{reason}");
    }
}

#[test]
fn connack_with_every_property() {
    let list = props(&[
        Property::SessionExpiry(1),
        Property::AssignedClientId("i"),
        Property::ServerKeepAlive(9),
        Property::AuthMethod("m"),
        Property::AuthData(b""),
        Property::ResponseInfo("r"),
        Property::ServerReference("s"),
        Property::ReasonString("y"),
        Property::ReceiveMaximum(1),
        Property::TopicAliasMaximum(2),
        Property::MaximumQos(1),
        Property::RetainAvailable(false),
        Property::MaximumPacketSize(3),
        Property::WildcardAvailable(true),
        Property::SubscriptionIdAvailable(false),
        Property::SharedAvailable(true),
    ]);
    let packet =
        Packet::ConnAck(ConnAck { session_present: false, code: Reason::SUCCESS, props: list.as_props() });
    both_ways(
        "20 37 00 00 34 11 00000001 12 0001 'i' 13 0009 15 0001 'm' 16 0000 1a 0001 'r' 1c 0001 's' 1f 0001 'y' \
         21 0001 22 0002 24 01 25 00 27 00000003 28 01 29 00 2a 01",
        Version::V5,
        &packet,
    );
    let p = list.as_props();
    assert_eq!(p.session_expiry(), Some(1));
    assert_eq!(p.assigned_client_id(), Some("i"));
    assert_eq!(p.server_keep_alive(), Some(9));
    assert_eq!(p.auth_method(), Some("m"));
    assert_eq!(p.auth_data(), Some(&b""[..]));
    assert_eq!(p.response_info(), Some("r"));
    assert_eq!(p.server_reference(), Some("s"));
    assert_eq!(p.reason_string(), Some("y"));
    assert_eq!(p.receive_maximum(), Some(1));
    assert_eq!(p.topic_alias_maximum(), Some(2));
    assert_eq!(p.maximum_qos(), Some(1));
    assert_eq!(p.retain_available(), Some(false));
    assert_eq!(p.maximum_packet_size(), Some(3));
    assert_eq!(p.wildcard_available(), Some(true));
    assert_eq!(p.subscription_id_available(), Some(false));
    assert_eq!(p.shared_available(), Some(true));
    assert_eq!(p.message_expiry(), None);
}

#[test]
fn publish_of_each_quality() {
    let publish = |dup, qos, retain, packet_id| {
        Packet::Publish(Publish {
            dup,
            qos,
            retain,
            topic: "a/b",
            packet_id,
            props: Props::EMPTY,
            payload: b"hi",
        })
    };
    both_ways("30 07 0003 'a/b' 'hi'", Version::V311, &publish(false, QoS::AtMostOnce, false, 0));
    both_ways("31 08 0003 'a/b' 00 'hi'", Version::V5, &publish(false, QoS::AtMostOnce, true, 0));
    both_ways("3a 09 0003 'a/b' 1234 'hi'", Version::V31, &publish(true, QoS::AtLeastOnce, false, 0x1234));
    both_ways("34 0a 0003 'a/b' 0001 00 'hi'", Version::V5, &publish(false, QoS::ExactlyOnce, false, 1));
}

#[test]
fn publish_with_properties_and_an_alias_for_the_topic() {
    let list = props(&[
        Property::TopicAlias(7),
        Property::SubscriptionId(1),
        Property::SubscriptionId(268_435_455),
        Property::MessageExpiry(0),
    ]);
    let packet = Packet::Publish(Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: "",
        packet_id: 0,
        props: list.as_props(),
        payload: b"",
    });
    both_ways("30 12 0000 0f 23 0007 0b 01 0b ffffff7f 02 00000000", Version::V5, &packet);
    assert_eq!(list.as_props().topic_alias(), Some(7));
    assert_eq!(list.as_props().subscription_id(), Some(1));
    assert_eq!(list.as_props().subscription_ids().collect::<Vec<_>>(), [1, 268_435_455]);
    assert_eq!(list.as_props().message_expiry(), Some(0));
}

#[test]
fn acknowledgements_in_all_their_lengths() {
    let list = props(&[Property::ReasonString("no")]);
    let ack = |reason, props| Ack { packet_id: 0x0102, reason, props };
    for version in Version::ALL {
        both_ways("40 02 0102", version, &Packet::PubAck(ack(Reason::SUCCESS, Props::EMPTY)));
        both_ways("50 02 0102", version, &Packet::PubRec(ack(Reason::SUCCESS, Props::EMPTY)));
        both_ways("62 02 0102", version, &Packet::PubRel(ack(Reason::SUCCESS, Props::EMPTY)));
        both_ways("70 02 0102", version, &Packet::PubComp(ack(Reason::SUCCESS, Props::EMPTY)));
    }
    decodes("40 03 0102 00", Version::V5, &Packet::PubAck(ack(Reason::SUCCESS, Props::EMPTY)));
    decodes("40 04 0102 00 00", Version::V5, &Packet::PubAck(ack(Reason::SUCCESS, Props::EMPTY)));
    both_ways(
        "40 03 0102 10",
        Version::V5,
        &Packet::PubAck(ack(Reason::NO_MATCHING_SUBSCRIBERS, Props::EMPTY)),
    );
    both_ways(
        "62 03 0102 92",
        Version::V5,
        &Packet::PubRel(ack(Reason::PACKET_IDENTIFIER_NOT_FOUND, Props::EMPTY)),
    );
    both_ways(
        "50 09 0102 97 05 1f 0002 'no'",
        Version::V5,
        &Packet::PubRec(ack(Reason::QUOTA_EXCEEDED, list.as_props())),
    );
    both_ways(
        "70 09 0102 00 05 1f 0002 'no'",
        Version::V5,
        &Packet::PubComp(ack(Reason::SUCCESS, list.as_props())),
    );
}

#[test]
fn in_3_1_a_pubrel_subscribe_or_unsubscribe_may_carry_dup() {
    for (bytes, id) in [("6a 02 0001", 0x60), ("8a 06 0001 0001 'a' 01", 0x80), ("aa 05 0001 0001 'a'", 0xA0)]
    {
        let bytes = hex(bytes);
        assert_eq!(one(&bytes, Version::V31).map(|p| p.packet_type().first_byte() & 0xF0), Ok(id));
        assert_eq!(one(&bytes, Version::V311).unwrap_err().statement, "MQTT-2.1.3-1");
        assert!(one(&bytes, Version::V5).is_err());
    }
}

#[test]
fn subscribe_and_its_options() {
    let mut filters = FiltersBuf::new();
    filters.push("a/+", SubOptions::new(QoS::AtLeastOnce)).unwrap();
    let odd =
        SubOptions { qos: QoS::ExactlyOnce, no_local: true, retain_as_published: true, retain_handling: 2 };
    filters.push("#", odd).unwrap();
    let list = props(&[Property::SubscriptionId(300)]);
    let packet =
        Packet::Subscribe(Subscribe { packet_id: 9, props: list.as_props(), filters: filters.as_filters() });
    both_ways("82 10 0009 03 0b ac02 0003 'a/+' 01 0001 '#' 2e", Version::V5, &packet);
    // The same for 3.x: without properties, QoS alone.
    let mut out = Vec::new();
    packet.encode(Version::V311, &mut out).unwrap();
    assert_eq!(out, hex("82 0c 0009 0003 'a/+' 01 0001 '#' 02"));
    let Ok(Packet::Subscribe(s)) = one(&out, Version::V311) else { panic!("not a SUBSCRIBE") };
    assert_eq!(
        s.filters.iter().collect::<Vec<_>>(),
        [("a/+", SubOptions::new(QoS::AtLeastOnce)), ("#", SubOptions::new(QoS::ExactlyOnce))]
    );
    assert_eq!(s.filters.len(), 2);
}

#[test]
fn subscription_options_have_one_byte_form() {
    for bits in 0..=255 {
        match SubOptions::from_bits(bits) {
            Some(options) => assert_eq!(options.to_bits(), bits),
            None => assert!(bits & 0xC0 != 0 || bits & 3 == 3 || bits & 0x30 == 0x30, "{bits:#x}"),
        }
    }
}

#[test]
fn unsubscribe_and_the_acknowledgements_of_both() {
    let mut names = NamesBuf::new();
    names.push("a").unwrap();
    names.push("").unwrap();
    let unsubscribe = Unsubscribe { packet_id: 1, props: Props::EMPTY, filters: names.as_names() };
    both_ways("a2 07 0001 0001 'a' 0000", Version::V311, &Packet::Unsubscribe(unsubscribe));
    both_ways("a2 08 0001 00 0001 'a' 0000", Version::V5, &Packet::Unsubscribe(unsubscribe));
    let ack = |codes| SubAck { packet_id: 1, props: Props::EMPTY, codes };
    both_ways("90 05 0001 01 02 80", Version::V311, &Packet::SubAck(ack(&[1, 2, 0x80])));
    both_ways("90 06 0001 00 01 02 97", Version::V5, &Packet::SubAck(ack(&[1, 2, 0x97])));
    both_ways("b0 02 0001", Version::V311, &Packet::UnsubAck(ack(&[])));
    both_ways("b0 05 0001 00 00 11", Version::V5, &Packet::UnsubAck(ack(&[0, 0x11])));
    let mut out = Vec::new();
    Packet::SubAck(ack(&[2, 0x97])).encode(Version::V311, &mut out).unwrap();
    assert_eq!(out, hex("90 04 0001 02 80"));
}

#[test]
fn pings_disconnect_and_auth() {
    for version in Version::ALL {
        both_ways("c0 00", version, &Packet::PingReq);
        both_ways("d0 00", version, &Packet::PingResp);
        let normal = Disconnect { reason: Reason::NORMAL_DISCONNECTION, props: Props::EMPTY };
        both_ways("e0 00", version, &Packet::Disconnect(normal));
    }
    let list = props(&[Property::SessionExpiry(1)]);
    let with = |reason, props| Packet::Disconnect(Disconnect { reason, props });
    both_ways("e0 01 04", Version::V5, &with(Reason::DISCONNECT_WITH_WILL, Props::EMPTY));
    decodes("e0 01 00", Version::V5, &with(Reason::SUCCESS, Props::EMPTY));
    decodes("e0 02 04 00", Version::V5, &with(Reason::DISCONNECT_WITH_WILL, Props::EMPTY));
    both_ways("e0 07 00 05 11 00000001", Version::V5, &with(Reason::SUCCESS, list.as_props()));
    let list = props(&[Property::AuthMethod("m"), Property::AuthData(b"d")]);
    both_ways("f0 00", Version::V5, &Packet::Auth(Auth { reason: Reason::SUCCESS, props: Props::EMPTY }));
    decodes("f0 02 00 00", Version::V5, &Packet::Auth(Auth { reason: Reason::SUCCESS, props: Props::EMPTY }));
    both_ways(
        "f0 0a 18 08 15 0001 'm' 16 0001 'd'",
        Version::V5,
        &Packet::Auth(Auth { reason: Reason::CONTINUE_AUTHENTICATION, props: list.as_props() }),
    );
    let mut out = Vec::new();
    let auth = Packet::Auth(Auth { reason: Reason::SUCCESS, props: Props::EMPTY });
    assert_eq!(auth.encode(Version::V311, &mut out), Err(EncodeError::NotInVersion));
}

#[test]
fn strings_keep_bom_and_noncharacters() {
    let topic = "\u{FEFF}a\u{FFFF}é\u{1F600}\u{1}";
    for version in Version::ALL {
        let packet = Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic,
            packet_id: 0,
            props: Props::EMPTY,
            payload: &[],
        });
        let mut out = Vec::new();
        packet.encode(version, &mut out).unwrap();
        assert_eq!(one(&out, version), Ok(packet));
    }
}

#[test]
fn what_is_too_long_is_refused_and_nothing_is_written() {
    let long = "x".repeat(65_536);
    let mut out = vec![1];
    let publish = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: &long,
        packet_id: 0,
        props: Props::EMPTY,
        payload: &[],
    };
    assert_eq!(Packet::Publish(publish).encode(Version::V5, &mut out), Err(EncodeError::TooLong));
    let connect = Connect { username: Some(&long), ..plain_connect(Version::V311) };
    assert_eq!(Packet::Connect(connect).encode(Version::V311, &mut out), Err(EncodeError::TooLong));
    let head = PublishHead { topic: &long, ..head() };
    assert_eq!(put_publish_head(&head, Version::V5, &mut out), Err(EncodeError::TooLong));
    let head = PublishHead { payload_len: MAX_REMAINING - 2, topic: "abc", ..self::head() };
    assert_eq!(put_publish_head(&head, Version::V5, &mut out), Err(EncodeError::TooLong));
    assert_eq!(FiltersBuf::new().push(&long, SubOptions::default()), Err(EncodeError::TooLong));
    assert_eq!(NamesBuf::new().push(&long), Err(EncodeError::TooLong));
    let mut props = PropsBuf::new();
    assert_eq!(props.push(&Property::UserProperty("k", &long)), Err(EncodeError::TooLong));
    assert!(props.as_props().is_empty());
    assert_eq!(out, [1]);
    assert!(props.push(&Property::ReasonString(&long[1..])).is_ok());
}

fn head() -> PublishHead<'static> {
    PublishHead {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: "t",
        packet_id: 0,
        alias: None,
        expiry: None,
        sub_ids: &[],
        props: &[],
        payload_len: 0,
    }
}

#[test]
fn a_delivery_is_written_head_first() {
    let forwarded = props(&[Property::ContentType("c"), Property::UserProperty("k", "v")]);
    let head = PublishHead {
        dup: true,
        qos: QoS::AtLeastOnce,
        retain: true,
        topic: "a/b",
        packet_id: 0x0203,
        alias: Some(4),
        expiry: Some(5),
        sub_ids: &[6, 200],
        props: forwarded.as_props().raw(),
        payload_len: 2,
    };
    let expected = hex(
        "3b 22 0003 'a/b' 0203 18 23 0004 02 00000005 0b 06 0b c801 03 0001 'c' 26 0001 'k' 0001 'v' 'hi'",
    );
    let mut out = Vec::new();
    put_publish_head(&head, Version::V5, &mut out).unwrap();
    out.extend_from_slice(b"hi");
    assert_eq!(out, expected);
    assert_eq!(publish_len(&head, Version::V5), expected.len());
    let mut out = Vec::new();
    put_publish_head(&head, Version::V311, &mut out).unwrap();
    out.extend_from_slice(b"hi");
    assert_eq!(out, hex("3b 09 0003 'a/b' 0203 'hi'"));
    assert_eq!(publish_len(&head, Version::V311), out.len());
}

#[test]
fn an_acknowledgement_is_four_bytes_or_five() {
    let put = |kind, reason, version| {
        let mut out = Vec::new();
        put_ack(kind, 0x0102, reason, version, &mut out);
        out
    };
    assert_eq!(put(AckKind::PubAck, Reason::SUCCESS, Version::V5), hex("40 02 0102"));
    assert_eq!(put(AckKind::PubRec, Reason::QUOTA_EXCEEDED, Version::V5), hex("50 03 0102 97"));
    assert_eq!(put(AckKind::PubRel, Reason::SUCCESS, Version::V311), hex("62 02 0102"));
    assert_eq!(put(AckKind::PubComp, Reason::PACKET_IDENTIFIER_NOT_FOUND, Version::V311), hex("70 02 0102"));
}

#[test]
fn forwarding_keeps_what_travels_and_drops_what_belongs_to_the_hop() {
    let list = props(&[
        Property::UserProperty("1", "a"),
        Property::TopicAlias(3),
        Property::PayloadFormat(1),
        Property::MessageExpiry(9),
        Property::ResponseTopic("r"),
        Property::SubscriptionId(4),
        Property::CorrelationData(b"\0"),
        Property::UserProperty("1", "b"),
        Property::ContentType("c"),
    ]);
    assert!(!list.as_props().forwardable_is_all());
    let mut out = vec![7];
    list.as_props().forwardable(&mut out);
    let kept = Props::parse(&out[1..], Place::Publish).unwrap();
    assert!(kept.forwardable_is_all());
    assert_eq!(
        kept.iter().collect::<Vec<_>>(),
        [
            Property::UserProperty("1", "a"),
            Property::PayloadFormat(1),
            Property::ResponseTopic("r"),
            Property::CorrelationData(b"\0"),
            Property::UserProperty("1", "b"),
            Property::ContentType("c"),
        ]
    );
    assert!(Props::EMPTY.forwardable_is_all());
}
