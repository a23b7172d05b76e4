//! What a client does with the bytes of the server.

use super::{Client, Ctx, HeldAck, OutStage};
use crate::facts::{Delivery, Fact, parse_payload};
use mast_core::codec::{self, Ack, ConnAck, Packet, Props, Publish, Reason, SubAck};
use mast_core::message::QoS;

/// An acknowledgement of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the names of the packets")]
pub(super) enum AckPacket {
    PubAck,
    PubRec,
    PubRel,
    PubComp,
}

impl Client {
    /// Takes bytes in.
    pub fn receive(&mut self, ctx: &mut Ctx<'_>, bytes: &[u8]) {
        if self.is_stranger() {
            self.receive_as_stranger(ctx, bytes);
            return;
        }
        let Some(wire) = &mut self.wire else { return };
        wire.buf.extend_from_slice(bytes);
        if let Some(Err(how)) = wire.foreign.as_mut().map(|foreign| foreign.feed(bytes)) {
            ctx.broken = Some(how);
        }
        let buf = std::mem::take(&mut wire.buf);
        let mut at = 0;
        let limit = if self.spec.max_packet > 0 { self.spec.max_packet } else { u32::MAX };
        while ctx.broken.is_none() && !ctx.close {
            match codec::cut(&buf[at..], limit) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    let whole = &buf[at..at + frame.total];
                    at += frame.total;
                    match codec::decode(&frame, self.version()) {
                        Ok(packet) => {
                            self.compare(ctx, whole, &packet);
                            if ctx.broken.is_none() {
                                self.packet(ctx, &packet);
                            }
                        }
                        Err(violation) => {
                            ctx.broken = Some(format!("packet does not decode: {violation}: {frame:?}"));
                        }
                    }
                }
                Err(violation) => ctx.broken = Some(format!("frame is refused: {violation}")),
            }
        }
        if let Some(wire) = &mut self.wire {
            wire.buf = buf[at..].to_vec();
        }
    }

    /// The foreign decoder must see the same packet.
    fn compare(&mut self, ctx: &mut Ctx<'_>, frame: &[u8], packet: &Packet<'_>) {
        let foreign = self.wire.as_mut().and_then(|wire| wire.foreign.as_mut());
        if let Some(Err(how)) = foreign.map(|foreign| foreign.agrees(frame, packet)) {
            ctx.broken = Some(how);
        }
    }

    fn packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let version = self.version();
        if let Err(violation) = codec::check_from_server(packet, version) {
            ctx.broken = Some(format!("{violation}"));
            return;
        }
        let Some(wire) = &mut self.wire else { return };
        if let Err(rule) = wire.judge.received(packet) {
            ctx.broken = Some(format!("{rule}: {packet:?}"));
            return;
        }
        match packet {
            Packet::ConnAck(ack) => self.connack(ctx, ack),
            Packet::Publish(publish) => self.published(ctx, publish),
            Packet::PubAck(ack) => self.acked(ctx, ack, 1),
            Packet::PubRec(ack) => self.acked(ctx, ack, 2),
            Packet::PubRel(ack) => {
                self.inbound.remove(&ack.packet_id);
                self.acknowledge(ctx, HeldAck::PubComp(ack.packet_id));
            }
            Packet::PubComp(ack) => self.completed(ctx, ack),
            Packet::SubAck(ack) => self.suback(ctx, ack, true),
            Packet::UnsubAck(ack) => self.suback(ctx, ack, false),
            Packet::Disconnect(goodbye) => {
                ctx.note(Fact::Goodbye { client: self.index, reason: goodbye.reason.0 });
                ctx.close = true;
            }
            Packet::PingResp => {}
            Packet::Auth(auth) => self.challenged(ctx, auth),
            Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::PingReq => {
                ctx.broken = Some(format!("server sent {packet:?}"));
            }
        }
    }

    fn connack(&mut self, ctx: &mut Ctx<'_>, ack: &ConnAck<'_>) {
        let Some(wire) = &mut self.wire else { return };
        let link = wire.link;
        if ack.code != Reason::SUCCESS {
            ctx.note(Fact::Refused { client: self.index, link, reason: ack.code.0 });
            ctx.close = true;
            return;
        }
        wire.online = true;
        if self.spec.v5 {
            wire.alias_maximum = ack.props.topic_alias_maximum().unwrap_or(0);
            wire.receive_maximum = ack.props.receive_maximum().unwrap_or(u16::MAX);
        }
        ctx.note(Fact::Connected { client: self.index, link, present: ack.session_present });
        if ack.session_present {
            self.resend(ctx);
        } else {
            self.forget(ctx);
        }
    }

    fn published(&mut self, ctx: &mut Ctx<'_>, publish: &Publish<'_>) {
        let Some(wire) = &mut self.wire else { return };
        let alias = publish.props.topic_alias();
        ctx.ledger.aliased += u64::from(alias.is_some());
        let topic = match alias {
            Some(alias) if publish.topic.is_empty() => wire.aliases_in.get(&alias).cloned(),
            Some(alias) => {
                wire.aliases_in.insert(alias, publish.topic.to_owned());
                Some(publish.topic.to_owned())
            }
            None => Some(publish.topic.to_owned()),
        };
        let Some(topic) = topic else {
            ctx.broken = Some(format!("alias {alias:?} was never set"));
            return;
        };
        let link = wire.link;
        let parsed = parse_payload(publish.payload);
        if !publish.payload.is_empty() && !topic.starts_with("$SYS/") {
            match &parsed {
                None => ctx.broken = Some(format!("payload was not published: {publish:?}")),
                Some((tenant, _, uid)) if *tenant != self.spec.tenant => {
                    ctx.broken =
                        Some(format!("CANARY: {uid} of tenant {tenant} reached {}", self.spec.tenant));
                }
                Some((_, original, uid)) if *original != topic => {
                    ctx.broken = Some(format!("{uid} of topic {original} came as {topic}"));
                }
                Some(_) => {}
            }
            if ctx.broken.is_some() {
                return;
            }
        }
        let qos = publish.qos as u8;
        let repeated = publish.qos == QoS::ExactlyOnce && self.inbound.contains(&publish.packet_id);
        ctx.note(Fact::Delivered(Delivery {
            client: self.index,
            link,
            uid: parsed.map(|(_, _, uid)| uid),
            topic,
            qos,
            dup: publish.dup,
            retain: publish.retain,
            packet_id: publish.packet_id,
            ids: publish.props.subscription_ids().collect(),
            expiry: publish.props.message_expiry(),
            repeated,
        }));
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => self.acknowledge(ctx, HeldAck::PubAck(publish.packet_id)),
            QoS::ExactlyOnce => {
                self.inbound.insert(publish.packet_id);
                self.acknowledge(ctx, HeldAck::PubRec(publish.packet_id));
            }
        }
    }

    fn acknowledge(&mut self, ctx: &mut Ctx<'_>, ack: HeldAck) {
        if ctx.ledger.now < self.mute_until || !self.held.is_empty() {
            self.held.push(ack);
        } else {
            self.put_held(ctx, ack);
        }
    }

    fn put_held(&mut self, ctx: &mut Ctx<'_>, ack: HeldAck) {
        match ack {
            HeldAck::PubAck(id) => self.put_ack(ctx, AckPacket::PubAck, id),
            HeldAck::PubRec(id) => self.put_ack(ctx, AckPacket::PubRec, id),
            HeldAck::PubComp(id) => self.put_ack(ctx, AckPacket::PubComp, id),
        }
    }

    /// Sends all acknowledgements that were held back.
    pub fn unmute(&mut self, ctx: &mut Ctx<'_>) {
        if ctx.ledger.now < self.mute_until {
            return;
        }
        for ack in std::mem::take(&mut self.held) {
            self.put_held(ctx, ack);
        }
    }

    pub(super) fn put_ack(&mut self, ctx: &mut Ctx<'_>, kind: AckPacket, packet_id: u16) {
        let ack = Ack { packet_id, reason: Reason::SUCCESS, props: Props::EMPTY };
        let packet = match kind {
            AckPacket::PubAck => Packet::PubAck(ack),
            AckPacket::PubRec => Packet::PubRec(ack),
            AckPacket::PubRel => Packet::PubRel(ack),
            AckPacket::PubComp => Packet::PubComp(ack),
        };
        self.put(ctx, &packet);
    }

    /// PUBACK (`qos` 1) or PUBREC (2).
    fn acked(&mut self, ctx: &mut Ctx<'_>, ack: &Ack<'_>, qos: u8) {
        let found = self
            .out
            .iter()
            .position(|o| o.packet_id == ack.packet_id && ctx.ledger.publications[o.uid as usize].qos == qos);
        let Some(at) = found else {
            ctx.broken = Some(format!("acknowledgement of nothing: {ack:?}"));
            return;
        };
        let uid = self.out[at].uid;
        let reason = ack.reason.0;
        ctx.note(Fact::PublishAcked { client: self.index, uid, packet_id: ack.packet_id, reason });
        if qos == 1 || ack.reason.is_error() {
            self.out.remove(at);
            self.send_queued(ctx);
        } else {
            self.out[at].stage = OutStage::Released;
            self.put_ack(ctx, AckPacket::PubRel, ack.packet_id);
        }
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, ack: &Ack<'_>) {
        let found =
            self.out.iter().position(|o| o.packet_id == ack.packet_id && o.stage == OutStage::Released);
        let Some(at) = found else {
            ctx.broken = Some(format!("PUBCOMP of nothing: {ack:?}"));
            return;
        };
        let uid = self.out.remove(at).uid;
        ctx.note(Fact::PublishDone { client: self.index, uid });
        self.send_queued(ctx);
    }

    fn suback(&mut self, ctx: &mut Ctx<'_>, ack: &SubAck<'_>, subscribe: bool) {
        let Some(filters) = self.pending.remove(&ack.packet_id) else {
            ctx.broken = Some(format!("SUBACK or UNSUBACK of nothing: {ack:?}"));
            return;
        };
        let codes = ack.codes.to_vec();
        let due = if subscribe || self.spec.v5 { filters } else { 0 };
        if codes.len() != due {
            ctx.broken = Some(format!("{} codes for {due} filters", codes.len()));
            return;
        }
        let (client, packet_id) = (self.index, ack.packet_id);
        ctx.note(if subscribe {
            Fact::Subscribed { client, packet_id, codes }
        } else {
            Fact::Unsubscribed { client, packet_id, codes }
        });
    }
}
