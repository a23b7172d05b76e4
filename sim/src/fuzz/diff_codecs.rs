//! Target `diff_codecs`: our codec against three foreign ones.

use super::build::Source;
use super::foreign::{Foreign, Verdict};
use mast_core::codec::*;

/// A packet that ours accepts for a reason although the foreign codecs don't.
pub struct Exception {
    /// What the packet is, and the clause that makes it valid or puts the check elsewhere.
    pub clause: &'static str,
    /// Is it this packet? The bytes are its body.
    pub applies: fn(&Packet<'_>, first: u8, body: &[u8], Version) -> bool,
}

/// The reviewed list.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        clause: "level with bit 0x80: Mosquitto's mark of a bridge, no clause; 3.x only",
        applies: |packet, _, _, _| matches!(packet, Packet::Connect(c) if c.bridge),
    },
    Exception {
        clause: "password without user name is valid in MQTT 5 [MQTT-3.1.2-19]",
        applies: |packet, _, _, version| {
            matches!(packet, Packet::Connect(c) if c.password.is_some() && c.username.is_none())
                && version.is_v5()
        },
    },
    Exception {
        clause: "a password is binary data (MQTT 5, 3.1.3.6); mqttbytes wants UTF-8",
        applies: |packet, _, _, _| {
            let Packet::Connect(c) = packet else { return false };
            c.password.is_some_and(|password| core::str::from_utf8(password).is_err())
        },
    },
    Exception {
        clause: "a message expiry of 0 is valid (MQTT 5, 3.3.2.3.3); rmqtt-codec refuses it",
        applies: |packet, _, _, _| match packet {
            Packet::Publish(p) => p.props.message_expiry() == Some(0),
            Packet::Connect(c) => c.will.is_some_and(|will| will.props.message_expiry() == Some(0)),
            _ => false,
        },
    },
    Exception {
        clause: "an empty client id is valid in MQTT 5, without clean start too [MQTT-3.1.3-6]; in 3.x the \
                 handshake answers it [MQTT-3.1.3-8 of 3.1.1]",
        applies: |packet, _, _, _| matches!(packet, Packet::Connect(c) if c.client_id.is_empty()),
    },
    Exception {
        clause: "a user name or password that is announced and missing is valid in 3.1 (3.1, section 3.1)",
        applies: |packet, _, body, version| {
            let Packet::Connect(c) = packet else { return false };
            let flags = body.get(9).copied().unwrap_or_default();
            let missing =
                flags & 0x80 != 0 && c.username.is_none() || flags & 0x40 != 0 && c.password.is_none();
            version == Version::V31 && missing
        },
    },
    Exception {
        clause: "DUP on PUBREL, SUBSCRIBE, UNSUBSCRIBE is valid in 3.1 (3.1, section 2.1)",
        applies: |_, first, _, version| version == Version::V31 && first & 0x0F == 0x0A,
    },
    Exception {
        clause: "an empty filter breaks [MQTT-4.7.3-1], which the topic module checks",
        applies: |packet, _, _, _| match packet {
            Packet::Subscribe(p) => p.filters.iter().any(|(filter, _)| filter.is_empty()),
            Packet::Unsubscribe(p) => p.filters.iter().any(str::is_empty),
            _ => false,
        },
    },
];

/// Accept oracle: of what ours accepts, a foreign decoder accepts some. Reject oracle: what ours alone refuses
/// breaks a numbered statement. Encode oracle: what ours writes, two foreign decoders
/// accept, and what they write back means the same to ours.
pub fn diff_codecs(data: &[u8]) {
    let [mode, rest @ ..] = data else { return };
    let version = [Version::V5, Version::V311, Version::V5, Version::V31][usize::from(mode >> 1 & 3)];
    if mode & 1 == 0 { accept(rest, version) } else { encode(rest, version) }
}

fn accept(data: &[u8], version: Version) {
    let [first, body @ ..] = data else { return };
    let frame = Frame { first: *first, body, total: data.len() + 1 };
    let (bytes, start) = whole(*first, body);
    let ask = |version| Foreign::ALL.map(|foreign| foreign.ask(&bytes, start, version));
    match decode(&frame, version) {
        Ok(packet) => {
            let version = if let Packet::Connect(connect) = &packet { connect.version } else { version };
            let verdicts = ask(version);
            let asked = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Refused(_)));
            if asked && accepted(&verdicts) == 0 && !excepted(&packet, *first, body, version) {
                panic!("only ours accepts, as {version:?}, {packet:?} from {bytes:02x?}: {verdicts:?}");
            }
        }
        Err(violation) => {
            let verdicts = ask(connect_version(&frame).unwrap_or(version));
            let all = verdicts.iter().all(|verdict| matches!(verdict, Verdict::Accepted(_)));
            if all && violation.statement.is_empty() {
                panic!("only ours refuses, {violation:?}, as {version:?}, {bytes:02x?}");
            }
        }
    }
}

fn accepted(verdicts: &[Verdict]) -> usize {
    verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Accepted(_))).count()
}

fn encode(data: &[u8], version: Version) {
    Source::new(data).packet(version, |packet| {
        let mut bytes = Vec::new();
        assert_eq!(packet.encode(version, &mut bytes), Ok(()));
        let start = header(&bytes).ok().flatten().expect("our header is readable").len;
        let verdicts = Foreign::ALL.map(|foreign| foreign.ask(&bytes, start, version));
        let accepted = accepted(&verdicts);
        let silent = verdicts
            .iter()
            .filter(|verdict| matches!(verdict, Verdict::NotAsked | Verdict::Panicked))
            .count();
        let wanted = if silent == 0 { 2 } else { 1 };
        if accepted < wanted && silent < 3 && !excepted(packet, bytes[0], &bytes[start..], version) {
            panic!("{accepted} of {wanted} foreign decoders accept {packet:?}, {bytes:02x?}: {verdicts:?}");
        }
        for (foreign, verdict) in Foreign::ALL.iter().zip(&verdicts) {
            if let Verdict::Accepted(Some(again)) = verdict {
                same_again(packet, again, *foreign, version);
            }
        }
    });
}

/// `first` and `body` as one packet, and where its body starts.
fn whole(first: u8, body: &[u8]) -> (Vec<u8>, usize) {
    let mut bytes = vec![first];
    let mut rest = body.len();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    let start = bytes.len();
    bytes.extend_from_slice(body);
    (bytes, start)
}

fn excepted(packet: &Packet<'_>, first: u8, body: &[u8], version: Version) -> bool {
    EXCEPTIONS.iter().any(|exception| (exception.applies)(packet, first, body, version))
}

/// A foreign codec read our packet and wrote it; that must mean the same, up to the order of properties.
fn same_again(packet: &Packet<'_>, again: &[u8], foreign: Foreign, version: Version) {
    if foreign == Foreign::Rmqtt && version == Version::V31 && matches!(packet, Packet::Connect(_)) {
        return; // it writes a 3.1 CONNECT with level 4
    }
    let frame = cut(again, u32::MAX).ok().flatten();
    let Some(Ok(theirs)) = frame.map(|frame| decode(&frame, version)) else {
        panic!("{foreign:?} writes {packet:?} as {again:02x?}, which is not valid");
    };
    let (ours, theirs) = (canonical(packet), canonical(&theirs));
    assert!(ours == theirs, "{foreign:?} changed\n{ours}\ninto\n{theirs}");
}

/// A property whose value is that of its absence: rmqtt-codec leaves some of them out. (In a CONNACK, session
/// expiry 0 is not such a value, but left out there too.)
fn is_default(property: &Property<'_>) -> bool {
    matches!(
        property,
        Property::PayloadFormat(0)
            | Property::SessionExpiry(0)
            | Property::RequestResponseInfo(false)
            | Property::RequestProblemInfo(true)
            | Property::TopicAliasMaximum(0)
            | Property::ReceiveMaximum(u16::MAX)
            | Property::WillDelay(0)
            | Property::RetainAvailable(true)
            | Property::WildcardAvailable(true)
            | Property::SubscriptionIdAvailable(true)
            | Property::SharedAvailable(true)
    )
}

/// The packet as text, its properties sorted by identifier, without those that say nothing.
fn canonical(packet: &Packet<'_>) -> String {
    let (mut a, mut b) = (PropsBuf::new(), PropsBuf::new());
    let mut packet = *packet;
    match &mut packet {
        Packet::Connect(p) => {
            p.props = sorted(&p.props, &mut a);
            if let Some(will) = &mut p.will {
                will.props = sorted(&will.props, &mut b);
            }
            format!("{p:?}")
        }
        Packet::ConnAck(p) => format!("{:?}", ConnAck { props: sorted(&p.props, &mut a), ..*p }),
        Packet::Publish(p) => format!("{:?}", Publish { props: sorted(&p.props, &mut a), ..*p }),
        Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => {
            format!("{:?}", Ack { props: sorted(&p.props, &mut a), ..*p })
        }
        Packet::Subscribe(p) => format!("{:?}", Subscribe { props: sorted(&p.props, &mut a), ..*p }),
        Packet::Unsubscribe(p) => format!("{:?}", Unsubscribe { props: sorted(&p.props, &mut a), ..*p }),
        Packet::SubAck(p) | Packet::UnsubAck(p) => {
            format!("{:?}", SubAck { props: sorted(&p.props, &mut a), ..*p })
        }
        Packet::PingReq | Packet::PingResp => format!("{packet:?}"),
        Packet::Disconnect(p) => format!("{:?}", Disconnect { props: sorted(&p.props, &mut a), ..*p }),
        Packet::Auth(p) => format!("{:?}", Auth { props: sorted(&p.props, &mut a), ..*p }),
    }
}

fn sorted<'b>(props: &Props<'_>, buf: &'b mut PropsBuf) -> Props<'b> {
    let mut list: Vec<_> = props.iter().filter(|property| !is_default(property)).collect();
    list.sort_by_key(Property::id);
    for property in &list {
        buf.push(property).expect("it was encoded before");
    }
    buf.as_props()
}
