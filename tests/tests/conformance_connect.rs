//! CONNECT and CONNACK: what is accepted, what is refused and how (MQTT 5, 3.1 and 3.2; MQTT 3.1.1 likewise).

use mast_core::codec::PacketType;
use mast_tests::{Broker, Client, Connect, Property, Version, covers, raw};

fn refused_bytes(broker: &Broker, version: Version, bytes: &[u8], codes: &[u8]) {
    let mut client = Client::on(broker.tcp(), version);
    client.send_bytes(bytes);
    let seen = client.expect_closed();
    match &seen[..] {
        [] => {}
        [connack] => {
            assert_eq!(connack.ty(), PacketType::ConnAck, "{connack:?}");
            assert!(codes.contains(&connack.reason()), "{connack:?} for {bytes:02x?}");
            assert!(!connack.session_present(), "{connack:?}");
        }
        more => panic!("{more:?}"),
    }
}

/// A minimal CONNECT of a level: flags, then client id "c" (and empty properties before it in MQTT 5).
fn minimal(level: u8, flags: u8, tail: &[u8]) -> Vec<u8> {
    let props: &[u8] = if level == 5 { &[0] } else { &[] };
    raw::connect(level, flags, &raw::cat(&[props, &raw::field("c"), tail]))
}

#[test]
fn every_version_is_answered_with_a_connack_of_success_and_nothing_else_first() {
    covers!["MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.0-2", "MQTT-3.2.2-1", "MQTT-3.2.2-2", "MQTT-3.2.2-8"];
    covers!["v311:MQTT-3.1.4-4", "v311:MQTT-3.2.0-1", "v311:MQTT-3.2.2-1"];
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = Connect::new(version, "a").open(&broker);
        let connack = client.connack().clone();
        assert_eq!(connack.bytes[0], 0x20);
        let flags = if connack.bytes[1] < 0x80 { connack.bytes[2] } else { connack.bytes[3] };
        assert_eq!(flags, 0, "{connack:?}");
        // No second CONNACK follows.
        client.ping();
        client.assert_quiet();
        client.disconnect();
    }
}

#[test]
fn the_connack_of_mqtt_311_is_these_four_bytes() {
    covers!["v311:MQTT-3.2.0-1", "v311:MQTT-2.2.2-1", "v311:MQTT-7.0.0-2"];
    let broker = Broker::start();
    let client = Connect::v311("a").open(&broker);
    assert_eq!(client.connack().bytes, [0x20, 2, 0, 0]);
}

#[test]
fn anything_but_connect_as_the_first_packet_closes_the_connection_without_an_answer() {
    covers!["MQTT-3.1.0-1", "v311:MQTT-3.1.0-1", "MQTT-3.14.0-1", "MQTT-3.2.0-1"];
    let broker = Broker::start();
    let publish = raw::publish3(0x30, b"t", None, b"x");
    for bytes in [vec![0xC0, 0], vec![0xE0, 0], publish, raw::subscribe(0x82, 1, None, &[(b"t", 0)])] {
        let mut client = Client::on(broker.tcp(), Version::V5);
        client.send_bytes(&bytes);
        assert!(client.expect_closed().is_empty(), "{bytes:02x?}");
    }
}

#[test]
fn a_second_connect_ends_the_connection() {
    covers!["MQTT-3.1.0-2", "v311:MQTT-3.1.0-2", "v311:MQTT-4.8.0-1", "MQTT-4.13.1-1", "MQTT-4.13.2-1"];
    let broker = Broker::start();
    for version in Version::ALL {
        let connect = Connect::new(version, "a");
        let mut client = connect.open(&broker);
        client.send_bytes(&connect.bytes());
        client.expect_end(0x82);
    }
}

#[test]
fn a_wrong_protocol_name_is_not_processed_as_mqtt() {
    covers!["MQTT-3.1.2-1", "v311:MQTT-3.1.2-1"];
    let broker = Broker::start();
    for name in ["MQTX", "mqtt", "MQIsdX", ""] {
        for level in [3, 4, 5] {
            let body = raw::cat(&[&raw::field(name), &[level, 2, 0, 60], &raw::field("c")]);
            // Nothing, or "unacceptable protocol version" in the form of 3.1.1.
            refused_bytes(&broker, Version::V311, &raw::packet(0x10, &body), &[1]);
        }
    }
    broker.client("still alive").ping();
}

#[test]
fn an_unknown_level_is_told_so_before_the_close() {
    covers!["MQTT-3.1.2-2", "v311:MQTT-3.1.2-2", "v311:MQTT-3.2.2-4", "v311:MQTT-3.2.2-5", "MQTT-3.2.2-7"];
    let broker = Broker::start();
    for level in [0u8, 1, 2, 6, 127] {
        let mut client = Client::on(broker.tcp(), Version::V311);
        let body = raw::cat(&[&raw::field("MQTT"), &[level, 2, 0, 60], &raw::field("c")]);
        client.send_bytes(&raw::packet(0x10, &body));
        let seen = client.expect_closed();
        // What a client of an unknown level understands is unknown: 0x01 is the must of 3.1.1, 0x84 the MQTT 5 form.
        let bytes: Vec<u8> = seen.iter().flat_map(|g| g.bytes.clone()).collect();
        assert!(bytes == [0x20, 2, 0, 1] || bytes == [0x20, 3, 0, 0x84, 0], "level {level}: {bytes:02x?}");
    }
}

#[test]
fn versions_that_the_operator_turned_off_are_refused_as_unsupported() {
    covers!["MQTT-3.1.2-2", "v311:MQTT-3.1.2-2"];
    let broker = Broker::with("[mqtt]\naccept_v3 = false\n");
    Connect::v311("c").expect_refusal(&broker, 1);
    Connect::v31("c").expect_refusal(&broker, 1);
    broker.client("c").ping();
    let broker = Broker::with("[mqtt]\naccept_v5 = false\n");
    Connect::v5("c").expect_refusal(&broker, 0x84);
    Connect::v311("c").open(&broker).ping();
}

#[test]
fn the_reserved_connect_flag_closes_the_connection() {
    covers!["MQTT-3.1.2-3", "v311:MQTT-3.1.2-3", "MQTT-3.1.4-1", "v311:MQTT-3.1.4-1"];
    let broker = Broker::start();
    for (version, level) in [(Version::V31, 3), (Version::V311, 4), (Version::V5, 5)] {
        refused_bytes(&broker, version, &minimal(level, 0b11, &[]), &[0x81]);
    }
}

#[test]
fn will_flags_that_contradict_each_other_are_malformed() {
    covers!["MQTT-3.1.2-9", "MQTT-3.1.2-11", "MQTT-3.1.2-12", "MQTT-3.1.2-13"];
    covers![
        "v311:MQTT-3.1.2-9",
        "v311:MQTT-3.1.2-11",
        "v311:MQTT-3.1.2-13",
        "v311:MQTT-3.1.2-14",
        "v311:MQTT-3.1.2-15"
    ];
    let broker = Broker::start();
    for (version, level) in [(Version::V311, 4), (Version::V5, 5)] {
        let props: &[u8] = if level == 5 { &[0] } else { &[] };
        let will = raw::cat(&[props, &raw::field("w"), &raw::field("gone")]);
        for (flags, tail, what) in [
            (0b0000_1010, &[][..], "will QoS without a will"),
            (0b0010_0010, &[][..], "will retain without a will"),
            (0b0001_1110, &will[..], "will QoS 3"),
            (0b0000_0110, &[][..], "will flag without a will"),
            (0b0000_0010, &will[..], "a will without its flag"),
        ] {
            println!("{what}");
            refused_bytes(&broker, version, &minimal(level, flags, tail), &[0x81, 0x82]);
        }
    }
}

#[test]
fn user_name_and_password_follow_their_flags() {
    covers!["MQTT-3.1.2-16", "MQTT-3.1.2-17", "MQTT-3.1.2-18", "MQTT-3.1.2-19", "MQTT-3.1.3-1"];
    covers!["v311:MQTT-3.1.2-18", "v311:MQTT-3.1.2-19", "v311:MQTT-3.1.2-20", "v311:MQTT-3.1.2-21"];
    covers!["v311:MQTT-3.1.2-22", "v311:MQTT-3.1.3-1"];
    let broker = Broker::start();
    let (name, password) = (raw::field("u"), raw::field("p"));
    for (version, level) in [(Version::V31, 3), (Version::V311, 4), (Version::V5, 5)] {
        for (flags, tail, what) in [
            (0b0000_0010, name.clone(), "a user name without its flag"),
            (0b1100_0010, name.clone(), "a password flag without the field"),
            (0b1000_0010, raw::cat(&[&name, &password]), "a password without its flag"),
            (0b1100_0010, raw::cat(&[&name, &password, b"x"]), "bytes behind the last field"),
        ] {
            println!("{version:?}: {what}");
            // MQTT 3.1 asks servers to let a client pass whose flags announce fields that are not there.
            if version != Version::V31 || !what.ends_with("without the field") {
                refused_bytes(&broker, version, &minimal(level, flags, &tail), &[0x81]);
            }
        }
    }
    refused_bytes(&broker, Version::V5, &minimal(5, 0b1000_0010, &[]), &[0x81]);
    // A password needs a user name before MQTT 5 and not in it.
    refused_bytes(&broker, Version::V311, &minimal(4, 0b0100_0010, &password), &[]);
    // In MQTT 5 it is well-formed; whether it is enough is the authenticator's business.
    let (_, connack) = Connect::v5("pw").password(b"secret").attempt(&broker);
    assert!([0, 0x87].contains(&connack.reason()), "{connack:?}");
    Connect::v311("up").login("u", "p").open(&broker).ping();
}

#[test]
fn the_client_id_comes_first_and_is_always_there() {
    covers!["MQTT-3.1.3-1", "MQTT-3.1.3-3", "v311:MQTT-3.1.3-3", "v311:MQTT-3.1.3-1"];
    let broker = Broker::start();
    refused_bytes(&broker, Version::V311, &raw::connect(4, 2, &[]), &[]);
    refused_bytes(&broker, Version::V5, &raw::connect(5, 2, &[0]), &[0x81]);
}

#[test]
fn strings_of_connect_must_be_valid_utf8_without_nul() {
    covers!["MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12", "MQTT-1.5.4-1", "MQTT-1.5.4-2"];
    covers![
        "v311:MQTT-3.1.3-4",
        "v311:MQTT-3.1.3-10",
        "v311:MQTT-3.1.3-11",
        "v311:MQTT-1.5.3-1",
        "v311:MQTT-1.5.3-2"
    ];
    let broker = Broker::start();
    for bad in [&b"a\0b"[..], b"\xED\xA0\x80", b"\xC0\xAF", b"\xFF", b"\xE2\x82"] {
        for (version, level) in [(Version::V311, 4), (Version::V5, 5)] {
            let props: &[u8] = if level == 5 { &[0] } else { &[] };
            let bad = raw::field(bad);
            let id = raw::field("c");
            let client_id = raw::connect(level, 2, &raw::cat(&[props, &bad]));
            let user = raw::connect(level, 0x82, &raw::cat(&[props, &id, &bad]));
            let will = raw::connect(level, 6, &raw::cat(&[props, &id, props, &bad, &raw::field("x")]));
            for bytes in [client_id, user, will] {
                refused_bytes(&broker, version, &bytes, &[0x81, 0x85, 0x90]);
            }
        }
    }
}

#[test]
fn client_ids_of_1_to_23_letters_and_digits_are_accepted_and_longer_ones_too() {
    covers!["MQTT-3.1.3-5", "v311:MQTT-3.1.3-5"];
    let broker = Broker::start();
    for version in Version::ALL {
        for id in ["0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "xyzXYZ0123456789"] {
            Connect::new(version, id).open(&broker).ping();
        }
    }
    Connect::v5(&"long".repeat(30)).open(&broker).ping();
}

#[test]
fn an_empty_client_id_gets_a_unique_one_which_mqtt5_is_told() {
    covers!["MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16", "v311:MQTT-3.1.3-6"];
    let broker = Broker::start();
    let first = Connect::v5("").lasting().open(&broker);
    let second = Connect::v5("").open(&broker);
    let id = |c: &Client| c.connack().props().assigned_client_id().expect("an assigned id").to_owned();
    let (a, b) = (id(&first), id(&second));
    assert!(!a.is_empty() && a != b, "{a:?} {b:?}");
    first.disconnect();
    // It is a client id like any other.
    let again = Connect::v5(&a).resume().open(&broker);
    assert!(again.connack().session_present());
    let mut x = Connect::v311("").open(&broker);
    let mut y = Connect::v311("").open(&broker);
    x.ping();
    y.ping();
}

#[test]
fn an_empty_client_id_with_clean_session_0_is_refused_in_mqtt311() {
    covers![
        "v311:MQTT-3.1.3-7",
        "v311:MQTT-3.1.3-8",
        "v311:MQTT-3.1.3-9",
        "v311:MQTT-3.2.2-4",
        "v311:MQTT-3.2.2-5"
    ];
    let broker = Broker::start();
    Connect::v311("").resume().expect_refusal(&broker, 2);
}

#[test]
fn a_client_id_that_is_not_accepted_is_refused_by_name() {
    covers!["MQTT-3.1.3-8", "v311:MQTT-3.1.3-9", "MQTT-3.2.2-6", "MQTT-3.2.2-7"];
    let broker = Broker::with("[mqtt]\nassign_client_id = false\n");
    Connect::v5("").expect_refusal(&broker, 0x85);
    Connect::v311("").expect_refusal(&broker, 2);
    Connect::v31("").expect_refusal(&broker, 2);
}

#[test]
fn wrong_credentials_are_refused_and_nothing_behind_them_is_processed() {
    covers!["MQTT-3.1.4-2", "MQTT-3.1.4-6", "MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-3.14.0-1", "MQTT-4.13.2-1"];
    covers!["v311:MQTT-3.1.4-5", "v311:MQTT-3.2.2-4", "v311:MQTT-3.2.2-5"];
    let mut broker = Broker::prepared();
    // $7$: PBKDF2 of "right", made with mosquitto_passwd's scheme, is tested elsewhere; here no login succeeds but the listener's.
    broker.write("users", "");
    broker.configure(
        "[auth]\npassword_file = \"{dir}/users\"\n[listener.open]\nbind = [\"{ip}\"]\nport = 1884\n\
         allow_anonymous = true\n[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n",
    );
    broker.spawn();
    broker.wait_ready();
    let mut watcher = Connect::v5("watcher").open_on(mast_tests::ws::tcp(broker.at(1884)));
    watcher.subscribe("#", 0);
    for (version, code) in [(Version::V311, &[4u8, 5][..]), (Version::V5, &[0x86, 0x87])] {
        let mut client = Client::on(broker.tcp(), version);
        let mut bytes =
            Connect::new(version, "c").login("nobody", "wrong").will("w", "gone", 0, false).bytes();
        bytes.extend(match version {
            Version::V5 => raw::publish5(0x30, b"t", None, &[], b"x"),
            Version::V31 | Version::V311 => raw::publish3(0x30, b"t", None, b"x"),
        });
        bytes.extend([0xC0, 0]);
        client.send_bytes(&bytes);
        let seen = client.expect_closed();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert!(code.contains(&seen[0].reason()), "{seen:?}");
        assert!(!seen[0].session_present());
    }
    watcher.assert_quiet();
}

#[test]
fn packets_sent_right_behind_connect_are_processed_after_the_connack() {
    covers!["MQTT-3.2.0-1", "v311:MQTT-3.2.0-1"];
    let broker = Broker::start();
    for version in [Version::V311, Version::V5] {
        let mut bytes = Connect::new(version, "early").bytes();
        bytes.extend([0xC0, 0]);
        let mut client = Client::on(broker.tcp(), version);
        client.send_bytes(&bytes);
        assert_eq!(client.recv().ty(), PacketType::ConnAck);
        assert_eq!(client.recv().ty(), PacketType::PingResp);
    }
}

#[test]
fn an_authentication_method_that_is_not_offered_is_refused_as_such() {
    covers!["MQTT-4.12.0-1", "MQTT-4.12.0-4", "MQTT-3.1.2-30", "MQTT-3.2.2-7"];
    let broker = Broker::start();
    Connect::v5("c")
        .prop(Property::AuthMethod("SCRAM-SHA-1"))
        .prop(Property::AuthData(b"x"))
        .expect_refusal(&broker, 0x8C);
}

#[test]
fn without_an_authentication_method_the_broker_speaks_of_none_and_takes_no_auth() {
    covers!["MQTT-4.12.0-6", "MQTT-4.12.0-7"];
    let broker = Broker::start();
    let mut client = broker.client("c");
    let props = client.connack().clone();
    assert_eq!(props.props().auth_method(), None);
    client.send_bytes(&raw::packet(0xF0, &[0x19, 0]));
    client.expect_end(0x82);
}

#[test]
fn authentication_data_without_a_method_is_a_protocol_error() {
    covers!["MQTT-3.1.4-1", "MQTT-4.13.1-1"];
    let broker = Broker::start();
    let props = [0x16, 0, 1, b'x'];
    let bytes = raw::connect(5, 2, &raw::cat(&[&[4], &props, &raw::field("c")]));
    refused_bytes(&broker, Version::V5, &bytes, &[0x82]);
}

#[test]
fn a_property_that_stands_twice_or_in_the_wrong_packet_is_refused() {
    covers!["MQTT-3.1.4-1", "MQTT-4.13.1-1", "MQTT-2.2.2-1"];
    let broker = Broker::start();
    for props in [
        &[0x11, 0, 0, 0, 1, 0x11, 0, 0, 0, 1][..], // session expiry twice
        &[0x21, 0, 0],                             // receive maximum 0
        &[0x27, 0, 0, 0, 0],                       // maximum packet size 0
        &[0x17, 2],                                // request problem information 2
        &[0x23, 0, 1],                             // topic alias in CONNECT
        &[0x7F, 0],                                // no such property
        &[0x11, 0, 0],                             // cut off
    ] {
        let length = [props.len() as u8];
        let bytes = raw::connect(5, 2, &raw::cat(&[&length, props, &raw::field("c")]));
        refused_bytes(&broker, Version::V5, &bytes, &[0x81, 0x82]);
    }
}

#[test]
fn the_connack_announces_the_limits_that_the_operator_set() {
    covers!["MQTT-3.2.2-9", "MQTT-3.2.2-14", "MQTT-3.2.2-15", "MQTT-3.2.2-17"];
    let broker = Broker::with(
        "[mqtt]\nmax_qos = 1\nretain_available = false\nreceive_maximum = 7\nmax_packet_size = \"4KiB\"\n\
         topic_alias_max = 3\nwildcard_available = false\nshared_available = false\n\
         subscription_id_available = false\nkeep_alive_max = \"20s\"\nsession_expiry_max = \"100s\"\n",
    );
    let client = Connect::v5("c").prop(Property::SessionExpiry(1000)).keep_alive(60).open(&broker);
    let connack = client.connack().clone();
    let p = connack.props();
    assert_eq!(p.maximum_qos(), Some(1));
    assert_eq!(p.retain_available(), Some(false));
    assert_eq!(p.receive_maximum(), Some(7));
    assert_eq!(p.maximum_packet_size(), Some(4096));
    assert_eq!(p.topic_alias_maximum(), Some(3));
    assert_eq!(p.wildcard_available(), Some(false));
    assert_eq!(p.shared_available(), Some(false));
    assert_eq!(p.subscription_id_available(), Some(false));
    assert_eq!(p.server_keep_alive(), Some(20));
    assert_eq!(p.session_expiry(), Some(100));
}

#[test]
fn the_clients_keep_alive_counts_unless_the_broker_names_its_own() {
    covers!["MQTT-3.2.2-21", "MQTT-3.2.2-22", "MQTT-3.1.2-20", "MQTT-3.1.2-21", "MQTT-3.1.2-22"];
    covers!["v311:MQTT-3.1.2-23", "v311:MQTT-3.1.2-24"];
    let broker = Broker::with("[mqtt]\nkeep_alive_max = \"5s\"\n");
    let mut watcher = broker.client_of(Version::V311, "watcher");
    watcher.subscribe("w/+", 0);
    let connect = Connect::v5("own").keep_alive(1).will("w/own", "gone", 0, false);
    let mut own = connect.open(&broker);
    assert_eq!(own.connack().props().server_keep_alive(), None);
    // 3.1.1 has no way to tell, so the client's own value holds, however long.
    let mut long = Connect::v311("long").keep_alive(300).open(&broker);
    let mut server = Connect::v5("server").keep_alive(0).will("w/server", "gone", 0, false).open(&broker);
    assert_eq!(server.connack().props().server_keep_alive(), Some(5));
    let mut old = Connect::v311("old").keep_alive(1).will("w/old", "gone", 0, false).open(&broker);
    own.expect_end(0x8D);
    old.expect_end(0);
    let wills = [watcher.message().topic, watcher.message().topic];
    assert!(wills.contains(&"w/own".to_owned()) && wills.contains(&"w/old".to_owned()), "{wills:?}");
    server.expect_end(0x8D);
    assert_eq!(watcher.message().topic, "w/server");
    long.ping();
}

#[test]
fn a_pinging_client_is_never_cut() {
    covers!["MQTT-3.12.4-1", "v311:MQTT-3.12.4-1", "MQTT-3.1.2-20", "v311:MQTT-3.1.2-23"];
    let broker = Broker::start();
    for version in [Version::V311, Version::V5] {
        let mut client = Connect::new(version, "c").keep_alive(2).open(&broker);
        for _ in 0..8 {
            client.ping();
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        client.ping();
    }
}

#[test]
fn response_information_is_returned_only_when_asked_for() {
    covers!["MQTT-3.1.2-28"];
    let broker = Broker::start();
    for connect in [Connect::v5("c"), Connect::v5("c").prop(Property::RequestResponseInfo(false))] {
        let client = connect.open(&broker);
        assert_eq!(client.connack().props().response_info(), None);
    }
}

#[test]
fn a_will_of_a_qos_or_retain_that_is_not_offered_is_refused() {
    covers!["MQTT-3.2.2-12", "MQTT-3.2.2-13"];
    let broker = Broker::with("[mqtt]\nmax_qos = 1\nretain_available = false\n");
    Connect::v5("c").will("w", "x", 2, false).expect_refusal(&broker, 0x9B);
    Connect::v5("c").will("w", "x", 1, true).expect_refusal(&broker, 0x9A);
    Connect::v5("c").will("w", "x", 1, false).open(&broker).ping();
}

#[test]
fn the_same_client_id_again_takes_over_and_the_old_connection_is_told() {
    covers!["MQTT-3.1.4-3", "v311:MQTT-3.1.4-2", "MQTT-3.1.3-2", "v311:MQTT-3.1.3-2"];
    let broker = Broker::start();
    for old in Version::ALL {
        for new in Version::ALL {
            let mut first = Connect::new(old, "same").open(&broker);
            let mut second = Connect::new(new, "same").open(&broker);
            first.expect_end(0x8E);
            second.ping();
        }
    }
}

#[test]
fn a_refusal_for_which_mqtt311_has_no_code_is_a_close_without_connack() {
    covers!["v311:MQTT-3.2.2-6"];
    let broker = Broker::start();
    for version in [Version::V31, Version::V311] {
        let mut client = Connect::new(version, "c").will("a/#", "x", 0, false).start_on(broker.tcp());
        assert!(client.expect_closed().is_empty());
    }
}
