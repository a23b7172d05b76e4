//! A foreign decoder (mqtt-protocol-core) reads every byte that the server sends to a client, beside our
//! own decoder: it cuts the stream by itself, and both must see the same packets. Ours encodes and decodes
//! by one understanding of the specification; this is another one.
//!
//! Known deviations of the foreign codec: none in what the broker sends. (That it takes a PUBLISH of MQTT 5
//! that ends before its property length, against 3.3.2.3.1, and looks at no flags of the fixed header but
//! PUBLISH's, against [MQTT-2.1.3-1], makes it laxer; what it writes back is compared byte by byte.)

use mast_core::codec::{Ack, Packet, Publish, Reason, SubAck};
use mqtt_protocol_core::mqtt::common::Cursor;
use mqtt_protocol_core::mqtt::connection::{PacketBuildResult, PacketBuilder, PacketData, RawPacket};
use mqtt_protocol_core::mqtt::packet::{Property, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::MqttError;
use std::collections::VecDeque;
use std::fmt;

/// The foreign end of one connection.
pub struct ForeignReader {
    builder: PacketBuilder,
    v5: bool,
    /// Packets that it saw and ours has not shown yet.
    seen: VecDeque<RawPacket>,
}

impl fmt::Debug for ForeignReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignReader").field("v5", &self.v5).field("seen", &self.seen.len()).finish()
    }
}

impl ForeignReader {
    /// Of a client that takes packets up to `max_packet` bytes (0 = any).
    #[must_use]
    pub fn new(v5: bool, max_packet: u32) -> ForeignReader {
        let builder = match max_packet {
            0 => PacketBuilder::new(),
            most => PacketBuilder::with_maximum_packet_size(most),
        };
        ForeignReader { builder, v5, seen: VecDeque::new() }
    }

    /// Bytes of the server.
    ///
    /// # Errors
    /// Why they are no MQTT.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut cursor = Cursor::new(bytes);
        loop {
            match self.builder.feed(&mut cursor) {
                PacketBuildResult::Complete(packet) => self.seen.push_back(packet),
                PacketBuildResult::Incomplete => return Ok(()),
                PacketBuildResult::Error(error) => {
                    return Err(format!("a foreign decoder refuses the frame: {error:?}"));
                }
            }
        }
    }

    /// Our decoder made `ours` of the bytes `frame`.
    ///
    /// # Errors
    /// How the foreign decoder sees them.
    pub fn agrees(&mut self, frame: &[u8], ours: &Packet<'_>) -> Result<(), String> {
        let Some(raw) = self.seen.pop_front() else {
            return Err("a foreign decoder sees no packet here".to_owned());
        };
        match self.judge(&raw, frame, ours) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(what)) => Err(format!("a foreign decoder sees another {what} in {frame:02x?}")),
            Err(error) => Err(format!("a foreign decoder refuses {frame:02x?}: {error:?}")),
        }
    }

    /// Outer error: refused; inner: another view.
    fn judge(&self, raw: &RawPacket, frame: &[u8], ours: &Packet<'_>) -> Result<Seen, MqttError> {
        /// An acknowledgement, in both versions.
        macro_rules! ack {
            ($name:ident, $ack:expr) => {{
                let ack: &Ack<'_> = $ack;
                if self.v5 {
                    let theirs = raw.parse_exact(v5_0::$name::parse)?;
                    let reason = theirs.reason_code().map_or(0, |code| code as u8);
                    let count = theirs.props().as_ref().map_or(0, |props| props.len());
                    Ok(same("packet id", theirs.packet_id() == ack.packet_id)
                        .and(same("reason", reason == ack.reason.0))
                        .and(same("number of properties", count == ack.props.iter().count()))
                        .and(same("packet", theirs.to_continuous_buffer() == frame)))
                } else {
                    let theirs = raw.parse_exact(v3_1_1::$name::parse)?;
                    Ok(same("packet id", theirs.packet_id() == ack.packet_id)
                        .and(same("packet", theirs.to_continuous_buffer() == frame)))
                }
            }};
        }
        let due = ours.packet_type() as u8;
        if raw.packet_type() != due {
            return Ok(Err("packet type"));
        }
        match ours {
            Packet::Publish(publish) => self.publish(raw, frame, publish),
            Packet::PubAck(a) => ack!(Puback, a),
            Packet::PubRec(a) => ack!(Pubrec, a),
            Packet::PubRel(a) => ack!(Pubrel, a),
            Packet::PubComp(a) => ack!(Pubcomp, a),
            Packet::SubAck(a) => self.suback(raw, frame, a),
            Packet::UnsubAck(a) => self.unsuback(raw, frame, a),
            Packet::ConnAck(ack) if self.v5 => {
                let theirs = raw.parse_exact(v5_0::Connack::parse)?;
                Ok(same("session present", theirs.session_present() == ack.session_present)
                    .and(same("reason", theirs.reason_code() as u8 == ack.code.0))
                    .and(same("number of properties", theirs.props().len() == ack.props.iter().count()))
                    .and(same("packet", theirs.to_continuous_buffer() == frame)))
            }
            Packet::ConnAck(ack) => {
                let theirs = raw.parse_exact(v3_1_1::Connack::parse)?;
                let success = theirs.return_code() as u8 == 0;
                Ok(same("session present", theirs.session_present() == ack.session_present)
                    .and(same("return code", success == (ack.code == Reason::SUCCESS)))
                    .and(same("packet", theirs.to_continuous_buffer() == frame)))
            }
            Packet::PingResp if self.v5 => {
                let theirs = raw.parse_exact(v5_0::Pingresp::parse)?;
                Ok(same("packet", theirs.to_continuous_buffer() == frame))
            }
            Packet::PingResp => {
                let theirs = raw.parse_exact(v3_1_1::Pingresp::parse)?;
                Ok(same("packet", theirs.to_continuous_buffer() == frame))
            }
            Packet::Disconnect(goodbye) if self.v5 => {
                let theirs = raw.parse_exact(v5_0::Disconnect::parse)?;
                let reason = theirs.reason_code().map_or(0, |code| code as u8);
                Ok(same("reason", reason == goodbye.reason.0)
                    .and(same("packet", theirs.to_continuous_buffer() == frame)))
            }
            Packet::Auth(auth) if self.v5 => {
                let theirs = raw.parse_exact(v5_0::Auth::parse)?;
                let reason = theirs.reason_code().map_or(0, |code| code as u8);
                Ok(same("reason", reason == auth.reason.0)
                    .and(same("packet", theirs.to_continuous_buffer() == frame)))
            }
            // No server sends these, a 3.x server no DISCONNECT and AUTH; our direction check says so too.
            Packet::Disconnect(_)
            | Packet::Auth(_)
            | Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq => Err(MqttError::ProtocolError),
        }
    }

    fn publish(&self, raw: &RawPacket, frame: &[u8], ours: &Publish<'_>) -> Result<Seen, MqttError> {
        let PacketData::Publish(body) = &raw.data else { return Ok(Err("packet type")) };
        let flags = raw.flags();
        let id = (ours.packet_id != 0).then_some(ours.packet_id);
        if !self.v5 {
            let (theirs, _) = v3_1_1::Publish::parse(flags, body.clone())?;
            return Ok(same("topic", theirs.topic_name() == ours.topic)
                .and(same("packet id", theirs.packet_id() == id))
                .and(same("QoS", theirs.qos() as u8 == ours.qos as u8))
                .and(same("DUP", theirs.dup() == ours.dup))
                .and(same("RETAIN", theirs.retain() == ours.retain))
                .and(same("payload", theirs.payload().as_slice() == ours.payload))
                .and(same("packet", theirs.to_continuous_buffer() == frame)));
        }
        let (theirs, _) = v5_0::Publish::parse(flags, body.clone())?;
        let mut ids = ours.props.subscription_ids();
        let mut known = true;
        for property in theirs.props() {
            known &= match property {
                Property::TopicAlias(alias) => ours.props.topic_alias() == Some(alias.val()),
                Property::MessageExpiryInterval(secs) => ours.props.message_expiry() == Some(secs.val()),
                Property::SubscriptionIdentifier(id) => ids.next() == Some(id.val()),
                // The others are the publisher's: compared as bytes.
                _ => true,
            };
        }
        let count = ours.props.iter().count();
        Ok(same("topic", theirs.topic_name() == ours.topic)
            .and(same("packet id", theirs.packet_id() == id))
            .and(same("QoS", theirs.qos() as u8 == ours.qos as u8))
            .and(same("DUP", theirs.dup() == ours.dup))
            .and(same("RETAIN", theirs.retain() == ours.retain))
            .and(same("payload", theirs.payload().as_slice() == ours.payload))
            .and(same("property", known && ids.next().is_none() && theirs.props().len() == count))
            .and(same("packet", theirs.to_continuous_buffer() == frame)))
    }

    fn suback(&self, raw: &RawPacket, frame: &[u8], ours: &SubAck<'_>) -> Result<Seen, MqttError> {
        let (id, codes, again) = if self.v5 {
            let theirs = raw.parse_exact(v5_0::Suback::parse)?;
            let codes: Vec<u8> = theirs.reason_codes().into_iter().map(|code| code as u8).collect();
            (theirs.packet_id(), codes, theirs.to_continuous_buffer())
        } else {
            let theirs = raw.parse_exact(v3_1_1::Suback::parse)?;
            let codes = theirs.return_codes().into_iter().map(|code| code as u8).collect();
            (theirs.packet_id(), codes, theirs.to_continuous_buffer())
        };
        Ok(same("packet id", id == ours.packet_id)
            .and(same("codes", codes == ours.codes))
            .and(same("packet", again == frame)))
    }

    fn unsuback(&self, raw: &RawPacket, frame: &[u8], ours: &SubAck<'_>) -> Result<Seen, MqttError> {
        let (id, codes, again) = if self.v5 {
            let theirs = raw.parse_exact(v5_0::Unsuback::parse)?;
            let codes: Vec<u8> = theirs.reason_codes().into_iter().map(|code| code as u8).collect();
            (theirs.packet_id(), codes, theirs.to_continuous_buffer())
        } else {
            let theirs = raw.parse_exact(v3_1_1::Unsuback::parse)?;
            (theirs.packet_id(), Vec::new(), theirs.to_continuous_buffer())
        };
        Ok(same("packet id", id == ours.packet_id)
            .and(same("codes", codes == ours.codes))
            .and(same("packet", again == frame)))
    }
}

/// What is seen otherwise, if something is.
type Seen = Result<(), &'static str>;

fn same(what: &'static str, holds: bool) -> Seen {
    if holds { Ok(()) } else { Err(what) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mast_core::codec::{self, Version};

    fn verdict(v5: bool, bytes: &[u8], shown: &[u8]) -> Result<(), String> {
        let version = if v5 { Version::V5 } else { Version::V311 };
        let mut foreign = ForeignReader::new(v5, 0);
        for byte in bytes {
            foreign.feed(std::slice::from_ref(byte))?;
        }
        let frame = codec::cut(shown, u32::MAX).expect("a frame").expect("a whole one");
        let packet = codec::decode(&frame, version).expect("a packet");
        foreign.agrees(shown, &packet)
    }

    #[test]
    fn what_both_decoders_read_alike_is_agreed_upon() {
        // PUBLISH with a subscription identifier, PUBACK, SUBACK.
        let publish = [0x32, 0x0A, 0, 1, b'a', 0, 7, 2, 0x0B, 5, b'h', b'i'];
        assert_eq!(verdict(true, &publish, &publish), Ok(()));
        for (v5, bytes) in [
            (false, &[0x40, 2, 0, 9][..]),
            (true, &[0x40, 2, 0, 9]),
            (true, &[0x40, 3, 0, 9, 0x10]),
            (false, &[0x90, 3, 0, 9, 0x80]),
            (true, &[0x90, 4, 0, 9, 0, 0x97]),
            (true, &[0xE0, 2, 0x8E, 0]),
            (false, &[0x20, 2, 1, 0]),
            (false, &[0xD0, 0]),
        ] {
            assert_eq!(verdict(v5, bytes, bytes), Ok(()), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_packet_that_ours_reads_otherwise_is_told() {
        let sent = [0x32, 0x0A, 0, 1, b'a', 0, 7, 2, 0x0B, 5, b'h', b'i'];
        for (at, other, what) in [
            (4, b'b', "topic"),
            (6, 8, "packet id"),
            (9, 6, "property"),
            (11, b'o', "payload"),
            (0, 0x33, "RETAIN"),
        ] {
            let mut shown = sent;
            shown[at] = other;
            let how = verdict(true, &sent, &shown).expect_err(what);
            assert!(how.contains(what), "{how}");
        }
    }

    #[test]
    fn what_only_ours_takes_is_told() {
        // A subscription identifier of 0 [MQTT-3.8.3-6] in a PUBLISH, a frame above the client's maximum.
        let mut foreign = ForeignReader::new(true, 4);
        assert!(foreign.feed(&[0x30, 9, 0, 1, b'a', 0]).is_err());
        assert!(verdict(true, &[], &[0x40, 2, 0, 9]).is_err());
    }
}
