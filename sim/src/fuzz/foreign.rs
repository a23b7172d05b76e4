//! Three foreign codecs behind one question: do you accept these bytes, and how would you write them?
//!
//! None of them checks everything, and none is right everywhere; each has one vote.

use bytes::BytesMut;
use mast_core::codec::{PacketType, Version};
use mqtt_protocol_core::mqtt::packet::{GenericPacketTrait, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::MqttError;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use tokio_util::codec::{Decoder, Encoder};

/// A foreign codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// mqttbytes 0.6, for 3.1.1 and 5.
    MqttBytes,
    /// rmqtt-codec 0.3, for 3.1, 3.1.1 and 5.
    Rmqtt,
    /// mqtt-protocol-core 0.7, for 3.1.1 and 5.
    ProtocolCore,
}

/// What a foreign codec makes of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted; with the packet as this codec writes it, where that is trusted.
    Accepted(Option<Vec<u8>>),
    /// Refused, or waiting for more bytes of a complete packet.
    Refused(String),
    /// It panicked: no vote.
    Panicked,
    /// It doesn't speak this version or packet.
    NotAsked,
}

thread_local! {
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// A fuzzer's panic hook aborts; while a foreign codec runs, its panics are only caught.
fn quiet_foreign_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !ASKING.get() {
                before(info);
            }
        }));
    });
}

impl Foreign {
    /// All of them.
    pub const ALL: [Foreign; 3] = [Foreign::MqttBytes, Foreign::Rmqtt, Foreign::ProtocolCore];

    /// Asks about one whole packet, `packet`, whose body starts at `body`.
    #[must_use]
    pub fn ask(self, packet: &[u8], body: usize, version: Version) -> Verdict {
        quiet_foreign_panics();
        ASKING.set(true);
        let verdict = catch_unwind(AssertUnwindSafe(|| match (self, version) {
            (Foreign::MqttBytes, Version::V5) => mqttbytes_v5(packet),
            (Foreign::MqttBytes, Version::V311) => mqttbytes_v4(packet),
            (Foreign::Rmqtt, Version::V5) => rmqtt(&mut rmqtt_codec::v5::Codec::default(), packet),
            (Foreign::Rmqtt, Version::V311 | Version::V31) => {
                rmqtt(&mut rmqtt_codec::v3::Codec::default(), packet)
            }
            (Foreign::ProtocolCore, Version::V5) => core_v5(packet[0], &packet[body..]),
            (Foreign::ProtocolCore, Version::V311) => core_v311(packet[0], &packet[body..]),
            (Foreign::MqttBytes | Foreign::ProtocolCore, Version::V31) => Verdict::NotAsked,
        }));
        ASKING.set(false);
        verdict.unwrap_or(Verdict::Panicked)
    }
}

fn mqttbytes_v5(packet: &[u8]) -> Verdict {
    // No AUTH there, and a debug print to stderr on UNSUBSCRIBE.
    if matches!(PacketType::of_first_byte(packet[0]), Some(PacketType::Auth | PacketType::Unsubscribe)) {
        return Verdict::NotAsked;
    }
    match mqttbytes::v5::read(&mut BytesMut::from(packet), usize::MAX) {
        Ok(_) => Verdict::Accepted(None),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

fn mqttbytes_v4(packet: &[u8]) -> Verdict {
    match mqttbytes::v4::read(&mut BytesMut::from(packet), usize::MAX) {
        Ok(_) => Verdict::Accepted(None),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

fn rmqtt<C, P>(codec: &mut C, packet: &[u8]) -> Verdict
where
    C: Decoder<Item = (P, u32), Error = rmqtt_codec::error::DecodeError>
        + Encoder<P, Error = rmqtt_codec::error::EncodeError>,
{
    match codec.decode(&mut BytesMut::from(packet)) {
        Ok(Some((decoded, _))) => {
            let mut again = BytesMut::new();
            Verdict::Accepted(codec.encode(decoded, &mut again).ok().map(|()| again.to_vec()))
        }
        Ok(None) => Verdict::Refused(String::from("waits for more")),
        Err(error) => Verdict::Refused(format!("{error:?}")),
    }
}

fn core_verdict<P: GenericPacketTrait>(parsed: Result<(P, usize), MqttError>, len: usize) -> Verdict {
    match parsed {
        Ok((packet, used)) if used == len => Verdict::Accepted(Some(packet.to_continuous_buffer())),
        Ok(_) => Verdict::Refused(String::from("bytes are left over")),
        Err(error) => Verdict::Refused(format!("{error:?}")),
    }
}

fn core_v5(first: u8, body: &[u8]) -> Verdict {
    let Some(packet_type) = PacketType::of_first_byte(first) else { return Verdict::NotAsked };
    let n = body.len();
    match packet_type {
        PacketType::Connect => core_verdict(v5_0::Connect::parse(body), n),
        PacketType::ConnAck => core_verdict(v5_0::Connack::parse(body), n),
        PacketType::Publish => core_verdict(v5_0::Publish::parse(first & 15, body.into()), n),
        PacketType::PubAck => core_verdict(v5_0::Puback::parse(body), n),
        PacketType::PubRec => core_verdict(v5_0::Pubrec::parse(body), n),
        PacketType::PubRel => core_verdict(v5_0::Pubrel::parse(body), n),
        PacketType::PubComp => core_verdict(v5_0::Pubcomp::parse(body), n),
        PacketType::Subscribe => core_verdict(v5_0::Subscribe::parse(body), n),
        PacketType::SubAck => core_verdict(v5_0::Suback::parse(body), n),
        PacketType::Unsubscribe => core_verdict(v5_0::Unsubscribe::parse(body), n),
        PacketType::UnsubAck => core_verdict(v5_0::Unsuback::parse(body), n),
        PacketType::PingReq => core_verdict(v5_0::Pingreq::parse(body), n),
        PacketType::PingResp => core_verdict(v5_0::Pingresp::parse(body), n),
        PacketType::Disconnect => core_verdict(v5_0::Disconnect::parse(body), n),
        PacketType::Auth => core_verdict(v5_0::Auth::parse(body), n),
    }
}

fn core_v311(first: u8, body: &[u8]) -> Verdict {
    let Some(packet_type) = PacketType::of_first_byte(first) else { return Verdict::NotAsked };
    let n = body.len();
    match packet_type {
        PacketType::Connect => core_verdict(v3_1_1::Connect::parse(body), n),
        PacketType::ConnAck => core_verdict(v3_1_1::Connack::parse(body), n),
        PacketType::Publish => core_verdict(v3_1_1::Publish::parse(first & 15, body.into()), n),
        PacketType::PubAck => core_verdict(v3_1_1::Puback::parse(body), n),
        PacketType::PubRec => core_verdict(v3_1_1::Pubrec::parse(body), n),
        PacketType::PubRel => core_verdict(v3_1_1::Pubrel::parse(body), n),
        PacketType::PubComp => core_verdict(v3_1_1::Pubcomp::parse(body), n),
        PacketType::Subscribe => core_verdict(v3_1_1::Subscribe::parse(body), n),
        PacketType::SubAck => core_verdict(v3_1_1::Suback::parse(body), n),
        PacketType::Unsubscribe => core_verdict(v3_1_1::Unsubscribe::parse(body), n),
        PacketType::UnsubAck => core_verdict(v3_1_1::Unsuback::parse(body), n),
        PacketType::PingReq => core_verdict(v3_1_1::Pingreq::parse(body), n),
        PacketType::PingResp => core_verdict(v3_1_1::Pingresp::parse(body), n),
        PacketType::Disconnect => core_verdict(v3_1_1::Disconnect::parse(body), n),
        PacketType::Auth => Verdict::NotAsked,
    }
}
