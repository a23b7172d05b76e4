//! What is refused, in exact bytes, with its reason code and statement.

mod codec_support;

use codec_support::{hex, one};
use mast_core::codec::*;

const V31: &[Version] = &[Version::V31];
const V311: &[Version] = &[Version::V311];
const V3: &[Version] = &[Version::V31, Version::V311];
const V5: &[Version] = &[Version::V5];
const ALL: &[Version] = &Version::ALL;

/// Versions, bytes, reason code, statement.
type Case = (&'static [Version], &'static str, u8, &'static str);

#[track_caller]
fn refused(cases: &[Case]) {
    for (versions, text, reason, statement) in cases {
        for &version in *versions {
            match one(&hex(text), version) {
                Ok(packet) => panic!("{version:?} {text}: accepted as {packet:?}"),
                Err(violation) => {
                    assert_eq!(violation.reason, Reason(*reason), "{version:?} {text}: {violation}");
                    assert_eq!(violation.statement, *statement, "{version:?} {text}: {violation}");
                    assert!(!violation.why.is_empty());
                }
            }
        }
    }
}

#[test]
fn fixed_header_flags_have_their_fixed_value() {
    for (packet_type, versions) in [
        (PacketType::Connect, ALL),
        (PacketType::ConnAck, ALL),
        (PacketType::PubAck, ALL),
        (PacketType::PubRec, ALL),
        (PacketType::PubRel, ALL),
        (PacketType::PubComp, ALL),
        (PacketType::Subscribe, ALL),
        (PacketType::SubAck, ALL),
        (PacketType::Unsubscribe, ALL),
        (PacketType::UnsubAck, ALL),
        (PacketType::PingReq, ALL),
        (PacketType::PingResp, ALL),
        (PacketType::Disconnect, ALL),
        (PacketType::Auth, V5),
    ] {
        let right = packet_type.first_byte();
        for flags in 0..16 {
            let first = right & 0xF0 | flags;
            for &version in versions {
                let old_dup = version == Version::V31 && right & 2 == 2 && flags == 10;
                if first == right || old_dup {
                    continue;
                }
                let violation = decode(&Frame { first, body: &[], total: 2 }, version).unwrap_err();
                assert_eq!(violation.statement, "MQTT-2.1.3-1", "{packet_type:?} with flags {flags:#x}");
                assert_eq!(violation.reason, Reason::MALFORMED_PACKET);
            }
        }
    }
}

#[test]
fn reserved_packet_types() {
    assert_eq!(cut(&hex("00 00"), 100).unwrap_err().reason, Reason::MALFORMED_PACKET);
    assert_eq!(cut(&hex("0f"), 100).unwrap_err().reason, Reason::MALFORMED_PACKET);
    let zero = Frame { first: 3, body: &[], total: 2 };
    assert_eq!(decode(&zero, Version::V5).unwrap_err().reason, Reason::MALFORMED_PACKET);
    refused(&[(V3, "f0 00", 0x81, "")]);
}

#[test]
fn remaining_length_is_minimal_and_at_most_four_bytes() {
    let reason = |text| cut(&hex(text), u32::MAX).map(|frame| frame.is_some()).map_err(|v| v.reason);
    assert_eq!(reason("c0"), Ok(false));
    assert_eq!(reason("c0 80"), Ok(false));
    assert_eq!(reason("c0 ff ff ff"), Ok(false));
    assert_eq!(reason("c0 80 00"), Err(Reason::MALFORMED_PACKET));
    assert_eq!(reason("c0 82 80 00"), Err(Reason::MALFORMED_PACKET));
    assert_eq!(reason("c0 ff ff ff 80"), Err(Reason::MALFORMED_PACKET));
    assert_eq!(reason("c0 80 80 80 80"), Err(Reason::MALFORMED_PACKET));
    assert_eq!(reason("c0 ff ff ff 7f"), Ok(false));
    assert_eq!(cut(&hex("c0 80 00"), 9).unwrap_err().statement, "MQTT-1.5.5-1");
}

#[test]
fn a_packet_above_the_maximum_is_refused_before_its_body_comes() {
    let head = hex("30 62"); // 100 bytes in all
    assert_eq!(cut(&head, 100), Ok(None));
    let violation = cut(&head, 99).unwrap_err();
    assert_eq!(violation.reason, Reason::PACKET_TOO_LARGE);
    assert_eq!(cut(&hex("30 ff ff ff 7f"), 1 << 20).unwrap_err().reason, Reason::PACKET_TOO_LARGE);
    assert_eq!(needed(&hex("30 ff ff ff 7f")), Some(MAX_REMAINING + 5));
    assert_eq!(needed(&hex("30")), None);
    assert_eq!(needed(&hex("30 80 00")), None);
}

#[test]
fn connect_name_and_level() {
    refused(&[
        (ALL, "10 0e 0004 'MQTT' 03 02 003c 0002 'ab'", 0x84, "MQTT-3.1.2-2"),
        (ALL, "10 10 0006 'MQIsdp' 04 02 003c 0002 'ab'", 0x84, "MQTT-3.1.2-2"),
        (ALL, "10 0f 0004 'MQTT' 06 02 003c 00 0002 'ab'", 0x84, "MQTT-3.1.2-2"),
        (ALL, "10 0f 0004 'mqtt' 05 02 003c 00 0002 'ab'", 0x84, "MQTT-3.1.2-2"),
        (ALL, "10 0f 0005 'MQTT' 05 02 003c 00 0002 'ab'", 0x84, "MQTT-3.1.2-2"),
        (ALL, "10 0e 0004 'MQTT' 00 02 003c 0002 'ab'", 0x84, "MQTT-3.1.2-2"),
        (ALL, "10 06 0004 'MQTT'", 0x81, ""),
        (ALL, "10 01 00", 0x81, ""),
        (ALL, "10 00", 0x81, ""),
    ]);
}

#[test]
fn connect_flags() {
    refused(&[
        (ALL, "10 0e 0004 'MQTT' 04 03 003c 0002 'ab'", 0x81, "MQTT-3.1.2-3"),
        (ALL, "10 10 0006 'MQIsdp' 03 03 003c 0002 'ab'", 0x81, "MQTT-3.1.2-3"),
        (ALL, "10 0f 0004 'MQTT' 05 03 003c 00 0002 'ab'", 0x81, "MQTT-3.1.2-3"),
        (ALL, "10 0f 0004 'MQTT' 05 0a 003c 00 0002 'ab'", 0x81, "MQTT-3.1.2-11"),
        (ALL, "10 0f 0004 'MQTT' 05 12 003c 00 0002 'ab'", 0x81, "MQTT-3.1.2-11"),
        (ALL, "10 0f 0004 'MQTT' 05 22 003c 00 0002 'ab'", 0x81, "MQTT-3.1.2-13"),
        (ALL, "10 16 0004 'MQTT' 05 1e 003c 00 0002 'ab' 00 0001 'w' 0001 'p'", 0x81, "MQTT-3.1.2-12"),
        (ALL, "10 11 0004 'MQTT' 04 42 003c 0002 'ab' 0001 'p'", 0x81, "MQTT-3.1.2-22"),
        (ALL, "10 13 0006 'MQIsdp' 03 42 003c 0002 'ab' 0001 'p'", 0x81, "MQTT-3.1.2-22"),
    ]);
}

#[test]
fn connect_fields() {
    refused(&[
        // A flag announces a field that is not there.
        (ALL, "10 0e 0004 'MQTT' 04 82 003c 0002 'ab'", 0x81, ""),
        (ALL, "10 0f 0004 'MQTT' 05 42 003c 00 0002 'ab'", 0x81, ""),
        (ALL, "10 0e 0004 'MQTT' 04 06 003c 0002 'ab'", 0x81, ""),
        // A field is cut, or follows the last one.
        (ALL, "10 0d 0004 'MQTT' 04 02 003c 0002 'a'", 0x81, ""),
        (ALL, "10 0f 0004 'MQTT' 04 02 003c 0002 'ab' 00", 0x81, ""),
        (ALL, "10 11 0006 'MQIsdp' 03 02 003c 0002 'ab' 00", 0x81, ""),
        (ALL, "10 0b 0004 'MQTT' 04 02 003c 00", 0x81, ""),
        // Strings.
        (ALL, "10 0e 0004 'MQTT' 04 02 003c 0002 'a' 00", 0x81, "MQTT-1.5.4-2"),
        (ALL, "10 0e 0004 'MQTT' 04 02 003c 0002 c0 80", 0x81, "MQTT-1.5.4-1"),
        (ALL, "10 0f 0004 'MQTT' 04 02 003c 0003 ed a0 80", 0x81, "MQTT-1.5.4-1"),
        (ALL, "10 12 0004 'MQTT' 05 82 003c 00 0002 'ab' 0001 00", 0x81, "MQTT-1.5.4-2"),
        (ALL, "10 12 0004 'MQTT' 05 82 003c 00 0002 'ab' 0001 ff", 0x81, "MQTT-1.5.4-1"),
        (ALL, "10 14 0004 'MQTT' 04 06 003c 0002 'ab' 0001 00 0001 'p'", 0x81, "MQTT-1.5.4-2"),
    ]);
}

#[test]
fn connect_properties() {
    refused(&[
        // Length cut, past the end, not minimal, over four bytes.
        (ALL, "10 0a 0004 'MQTT' 05 02 003c", 0x81, ""),
        (ALL, "10 0f 0004 'MQTT' 05 02 003c 7f 0002 'ab'", 0x81, ""),
        (ALL, "10 10 0004 'MQTT' 05 02 003c 8000 0002 'ab'", 0x81, "MQTT-1.5.5-1"),
        (ALL, "10 13 0004 'MQTT' 05 02 003c ffffffff7f 0002 'ab'", 0x81, ""),
        // Unknown, foreign, identifier in a longer form.
        (ALL, "10 11 0004 'MQTT' 05 02 003c 02 7f00 0002 'ab'", 0x81, ""),
        (ALL, "10 11 0004 'MQTT' 05 02 003c 02 0000 0002 'ab'", 0x81, ""),
        (ALL, "10 11 0004 'MQTT' 05 02 003c 02 0101 0002 'ab'", 0x81, ""),
        (ALL, "10 13 0004 'MQTT' 05 02 003c 04 a100 0001 0002 'ab'", 0x81, ""),
        (ALL, "10 14 0004 'MQTT' 05 02 003c 05 18 00000001 0002 'ab'", 0x81, ""),
        // Twice.
        (ALL, "10 15 0004 'MQTT' 05 02 003c 06 21 0001 21 0001 0002 'ab'", 0x82, ""),
        (ALL, "10 13 0004 'MQTT' 05 02 003c 04 17 00 17 00 0002 'ab'", 0x82, ""),
        // Values.
        (ALL, "10 12 0004 'MQTT' 05 02 003c 03 21 0000 0002 'ab'", 0x82, ""),
        (ALL, "10 14 0004 'MQTT' 05 02 003c 05 27 00000000 0002 'ab'", 0x82, ""),
        (ALL, "10 11 0004 'MQTT' 05 02 003c 02 17 02 0002 'ab'", 0x82, ""),
        (ALL, "10 11 0004 'MQTT' 05 02 003c 02 19 ff 0002 'ab'", 0x82, ""),
        (ALL, "10 12 0004 'MQTT' 05 02 003c 03 16 0000 0002 'ab'", 0x82, ""),
        // A value runs past the property length.
        (ALL, "10 11 0004 'MQTT' 05 02 003c 02 21 00 0002 'ab'", 0x81, ""),
        (ALL, "10 16 0004 'MQTT' 05 02 003c 07 26 0001 'k' 0002 'v' 0002 'ab'", 0x81, ""),
        (ALL, "10 16 0004 'MQTT' 05 02 003c 07 26 0001 00 0001 'v' 0002 'ab'", 0x81, "MQTT-1.5.4-2"),
        (ALL, "10 16 0004 'MQTT' 05 02 003c 07 26 0001 'k' 0001 ff 0002 'ab'", 0x81, "MQTT-1.5.4-1"),
    ]);
}

#[test]
fn will_properties_are_not_connect_properties() {
    refused(&[
        (ALL, "10 1a 0004 'MQTT' 05 06 003c 00 0002 'ab' 05 11 00000001 0001 'w' 0000", 0x81, ""),
        (ALL, "10 17 0004 'MQTT' 05 06 003c 00 0002 'ab' 02 01 02 0001 'w' 0000", 0x82, ""),
        (ALL, "10 18 0004 'MQTT' 05 06 003c 00 0002 'ab' 03 23 0001 0001 'w' 0000", 0x81, ""),
        (ALL, "10 17 0004 'MQTT' 05 06 003c 00 0002 'ab' 02 0b 01 0001 'w' 0000", 0x81, ""),
    ]);
}

#[test]
fn connack() {
    refused(&[
        (ALL, "20 00", 0x81, ""),
        (ALL, "20 01 00", 0x81, ""),
        (V3, "20 02 02 00", 0x81, "MQTT-3.2.2-1"),
        (V31, "20 02 01 00", 0x81, "MQTT-3.2.2-1"),
        (V5, "20 03 80 00 00", 0x81, "MQTT-3.2.2-1"),
        (V311, "20 02 01 05", 0x82, "MQTT-3.2.2-6"),
        (V5, "20 03 01 87 00", 0x82, "MQTT-3.2.2-6"),
        (V3, "20 02 00 06", 0x82, "MQTT-3.2.2-8"),
        (V5, "20 03 00 05 00", 0x82, "MQTT-3.2.2-8"),
        (V5, "20 03 00 8e 00", 0x82, "MQTT-3.2.2-8"),
        (V5, "20 02 00 00", 0x81, ""),
        (V3, "20 03 00 00 00", 0x81, ""),
        (V5, "20 04 00 00 00 00", 0x81, ""),
        (V5, "20 05 00 00 02 24 02", 0x82, ""),
        (V5, "20 05 00 00 02 25 02", 0x82, ""),
        (V5, "20 05 00 00 02 2a 03", 0x82, ""),
        (V5, "20 05 00 00 02 17 01", 0x81, ""),
        (V5, "20 09 00 00 06 12 0000 12 0000", 0x82, ""),
        (V5, "20 06 00 00 03 16 0000", 0x82, ""),
    ]);
}

#[test]
fn publish() {
    refused(&[
        (ALL, "36 06 0001 'a' 0001 00", 0x81, "MQTT-3.3.1-4"),
        (ALL, "38 04 0001 'a' 00", 0x81, "MQTT-3.3.1-2"),
        (ALL, "32 06 0001 'a' 0000 00", 0x82, "MQTT-2.2.1-3"),
        (ALL, "34 06 0001 'a' 0000 00", 0x82, "MQTT-2.2.1-3"),
        (ALL, "30 00", 0x81, ""),
        (ALL, "30 01 00", 0x81, ""),
        (ALL, "30 03 0002 'a'", 0x81, ""),
        (ALL, "30 03 ffff 'a'", 0x81, ""),
        (ALL, "32 03 0001 'a'", 0x81, ""),
        (ALL, "32 04 0001 'a' 00", 0x81, ""),
        (V5, "32 05 0001 'a' 0001", 0x81, ""),
        (V5, "30 03 0001 'a'", 0x81, ""),
        (ALL, "30 04 0001 00 00", 0x81, "MQTT-1.5.4-2"),
        (ALL, "30 0f 000c 'abcdefgh' 00 'ijk' 00", 0x81, "MQTT-1.5.4-2"),
        (ALL, "30 05 0002 c3 28 00", 0x81, "MQTT-1.5.4-1"),
        (ALL, "30 07 0004 f4 90 80 80 00", 0x81, "MQTT-1.5.4-1"),
        (ALL, "30 03 0000 00", 0x82, "MQTT-4.7.3-1"),
    ]);
}

#[test]
fn publish_properties() {
    refused(&[
        (V5, "30 04 0001 'a' 05", 0x81, ""),
        (V5, "30 05 0001 'a' 8000", 0x81, "MQTT-1.5.5-1"),
        (V5, "30 07 0001 'a' 03 23 0000", 0x94, "MQTT-3.3.2-8"),
        (V5, "30 06 0001 'a' 02 0b 00", 0x82, ""),
        (V5, "30 07 0001 'a' 03 0b 8100", 0x81, "MQTT-1.5.5-1"),
        (V5, "30 06 0001 'a' 02 01 02", 0x82, ""),
        (V5, "30 0a 0001 'a' 06 23 0001 23 0001", 0x82, ""),
        (V5, "30 0e 0001 'a' 0a 02 00000001 02 00000001", 0x82, ""),
        (V5, "30 09 0001 'a' 05 11 00000001", 0x81, ""),
        (V5, "30 07 0001 'a' 03 1f 0000", 0x81, ""),
        (V5, "30 08 0001 'a' 04 08 0001 00", 0x81, "MQTT-1.5.4-2"),
        (V5, "30 08 0001 'a' 04 03 0001 80", 0x81, "MQTT-1.5.4-1"),
        (V5, "30 05 0000 02 01 00", 0x82, "MQTT-4.7.3-1"),
    ]);
}

#[test]
fn acknowledgements() {
    for (first, bad_code, statement) in [
        ("40", "92", "MQTT-3.4.2-1"),
        ("50", "11", "MQTT-3.5.2-1"),
        ("62", "10", "MQTT-3.6.2-1"),
        ("70", "80", "MQTT-3.7.2-1"),
    ] {
        let text = |rest: &str| hex(&format!("{first} {rest}"));
        for version in Version::ALL {
            let reason = |rest: &str| one(&text(rest), version).unwrap_err().reason;
            assert_eq!(reason("02 0000"), Reason::PROTOCOL_ERROR);
            assert_eq!(reason("00"), Reason::MALFORMED_PACKET);
            assert_eq!(reason("01 00"), Reason::MALFORMED_PACKET);
        }
        for version in [Version::V31, Version::V311] {
            assert_eq!(one(&text("03 0001 00"), version).unwrap_err().reason, Reason::MALFORMED_PACKET);
            assert_eq!(one(&text("04 0001 00 00"), version).unwrap_err().reason, Reason::MALFORMED_PACKET);
        }
        let v5 = |rest: &str| one(&text(rest), Version::V5).unwrap_err();
        assert_eq!(v5(&format!("03 0001 {bad_code}")).statement, statement);
        assert_eq!(v5("04 0001 00 01").reason, Reason::MALFORMED_PACKET);
        assert_eq!(v5("05 0001 00 00 00").reason, Reason::MALFORMED_PACKET);
        assert_eq!(v5("09 0001 00 05 11 00000001").reason, Reason::MALFORMED_PACKET);
        assert_eq!(v5("0a 0001 00 06 1f 0000 1f 0000").reason, Reason::PROTOCOL_ERROR);
    }
}

#[test]
fn subscribe() {
    refused(&[
        (V3, "82 06 0000 0001 'a' 00", 0x82, "MQTT-2.2.1-3"),
        (V5, "82 07 0000 00 0001 'a' 00", 0x82, "MQTT-2.2.1-3"),
        (V3, "82 02 0001", 0x82, "MQTT-3.8.3-2"),
        (V5, "82 03 0001 00", 0x82, "MQTT-3.8.3-2"),
        (V5, "82 02 0001", 0x81, ""),
        (ALL, "82 00", 0x81, ""),
        (V3, "82 05 0001 0001 'a'", 0x81, ""),
        (V5, "82 06 0001 00 0001 'a'", 0x81, ""),
        (V3, "82 06 0001 0001 'a' 03", 0x82, ""),
        (V5, "82 07 0001 00 0001 'a' 03", 0x82, ""),
        (V3, "82 06 0001 0001 'a' 04", 0x81, "MQTT-3.8.3-5"),
        (V5, "82 07 0001 00 0001 'a' 40", 0x81, "MQTT-3.8.3-5"),
        (V5, "82 07 0001 00 0001 'a' 80", 0x81, "MQTT-3.8.3-5"),
        (V5, "82 07 0001 00 0001 'a' 30", 0x82, ""),
        (V5, "82 10 0001 00 000a '$share/g/t' 04", 0x82, "MQTT-3.8.3-4"),
        (V5, "82 07 0001 00 0001 00 00", 0x81, "MQTT-1.5.4-2"),
        (V3, "82 06 0001 0001 ff 00", 0x81, "MQTT-1.5.4-1"),
        (V3, "82 08 0001 0001 'a' 00 00 01", 0x81, ""),
        (V5, "82 09 0001 02 0b 00 0001 'a' 00", 0x82, ""),
        (V5, "82 0b 0001 04 0b 01 0b 02 0001 'a' 00", 0x82, ""),
        (V5, "82 0a 0001 03 1f 0000 0001 'a' 00", 0x81, ""),
    ]);
}

#[test]
fn unsubscribe() {
    refused(&[
        (V3, "a2 05 0000 0001 'a'", 0x82, "MQTT-2.2.1-3"),
        (V3, "a2 02 0001", 0x82, "MQTT-3.10.3-2"),
        (V5, "a2 03 0001 00", 0x82, "MQTT-3.10.3-2"),
        (V3, "a2 04 0001 0001", 0x81, ""),
        (V3, "a2 06 0001 0001 'a' 00", 0x81, ""),
        (V5, "a2 06 0001 00 0001 00", 0x81, "MQTT-1.5.4-2"),
        (V5, "a2 08 0001 02 0b 01 0001 'a'", 0x81, ""),
    ]);
}

#[test]
fn suback_and_unsuback() {
    refused(&[
        (V3, "90 03 0000 00", 0x82, "MQTT-2.2.1-3"),
        (V3, "90 02 0001", 0x82, "MQTT-3.9.3-1"),
        (V5, "90 03 0001 00", 0x82, "MQTT-3.9.3-1"),
        (V3, "90 03 0001 03", 0x82, "MQTT-3.9.3-2"),
        (V3, "90 03 0001 87", 0x82, "MQTT-3.9.3-2"),
        (V5, "90 04 0001 00 11", 0x82, "MQTT-3.9.3-2"),
        (V3, "b0 03 0001 00", 0x81, ""),
        (V3, "b0 02 0000", 0x82, "MQTT-2.2.1-3"),
        (V5, "b0 02 0001", 0x81, ""),
        (V5, "b0 03 0001 00", 0x82, "MQTT-3.9.3-1"),
        (V5, "b0 04 0001 00 01", 0x82, "MQTT-3.11.3-2"),
    ]);
}

#[test]
fn pings_disconnect_and_auth() {
    refused(&[
        (ALL, "c0 01 00", 0x81, ""),
        (ALL, "d0 01 00", 0x81, ""),
        (V3, "e0 01 00", 0x81, ""),
        (V5, "e0 01 01", 0x82, "MQTT-3.14.2-1"),
        (V5, "e0 02 00 01", 0x81, ""),
        (V5, "e0 03 00 00 00", 0x81, ""),
        (V5, "e0 07 00 05 21 0001 0000", 0x81, ""),
        (V5, "e0 0c 00 0a 11 00000001 11 00000001", 0x82, ""),
        (V5, "f0 01 00", 0x81, ""),
        (V5, "f0 05 00 03 1f 0000", 0x82, ""),
        (V5, "f0 02 18 00", 0x82, ""),
        (V5, "f0 06 01 04 15 0001 'm'", 0x82, "MQTT-3.15.2-1"),
        (V5, "f0 06 18 04 16 0001 'd'", 0x82, ""),
        (V5, "f0 07 18 04 15 0001 'm' 00", 0x81, ""),
    ]);
}

#[test]
fn the_sender_decides_what_may_be_sent() {
    let client = |text: &str| check_from_client(&one(&hex(text), Version::V5).unwrap()).map_err(|v| v.reason);
    let server = |text: &str, version| check_from_server(&one(&hex(text), version).unwrap(), version).is_ok();
    for server_only in ["20 03 00 00 00", "90 04 0001 00 00", "b0 04 0001 00 00", "d0 00", "f0 00"] {
        assert_eq!(client(server_only), Err(Reason::PROTOCOL_ERROR), "{server_only}");
        assert!(server(server_only, Version::V5), "{server_only}");
    }
    assert_eq!(client("30 06 0001 'a' 02 0b 01"), Err(Reason::PROTOCOL_ERROR));
    assert_eq!(client("e0 01 8e"), Err(Reason::PROTOCOL_ERROR));
    assert_eq!(client("e0 05 00 03 1c 0000"), Err(Reason::PROTOCOL_ERROR));
    for both in ["30 04 0001 'a' 00", "40 02 0001", "50 02 0001", "62 02 0001", "70 02 0001", "e0 01 82"] {
        assert_eq!(client(both), Ok(()), "{both}");
        assert!(server(both, Version::V5), "{both}");
    }
    let connect = "10 0f 0004 'MQTT' 05 02 003c 00 0002 'ab'";
    for client_only in [
        connect,
        "82 07 0001 00 0001 'a' 00",
        "a2 06 0001 00 0001 'a'",
        "c0 00",
        "e0 01 04",
        "f0 06 19 04 15 0001 'm'",
    ] {
        assert_eq!(client(client_only), Ok(()), "{client_only}");
        assert!(!server(client_only, Version::V5), "{client_only}");
    }
    assert!(!server("e0 07 00 05 11 00000001", Version::V5));
    assert!(!server("e0 00", Version::V311));
    assert!(server("e0 00", Version::V5));
}
