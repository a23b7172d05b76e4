//! Every packet of the server respects what the client announced and what the specification asks of one
//! connection: receive maximum, aliases, packet ids, order of acknowledgements, no DUP without a cause.

use crate::scenario::ClientSpec;
use mast_core::codec::{Packet, Reason};
use mast_core::message::QoS;
use std::collections::{BTreeMap, VecDeque};

/// Judges the two directions of one connection.
#[derive(Debug)]
pub struct LinkWire {
    connack: bool,
    present: bool,
    receive_maximum: usize,
    alias_maximum: u16,
    /// Ids of the server's unfinished publishes on this connection: QoS 2?
    open: BTreeMap<u16, bool>,
    /// Our QoS 1 publishes in order.
    pubacks: VecDeque<u16>,
    /// Our QoS 2 publishes in order.
    pubrecs: VecDeque<u16>,
    /// Our PUBRELs in order.
    pubcomps: VecDeque<u16>,
    pings: u32,
}

impl LinkWire {
    /// Of a client that announced what `spec` says.
    #[must_use]
    pub fn new(spec: &ClientSpec) -> LinkWire {
        let window = if spec.v5 && spec.receive_maximum > 0 { spec.receive_maximum } else { u16::MAX };
        LinkWire {
            connack: false,
            present: false,
            receive_maximum: window as usize,
            alias_maximum: if spec.v5 { spec.alias_maximum } else { 0 },
            open: BTreeMap::new(),
            pubacks: VecDeque::new(),
            pubrecs: VecDeque::new(),
            pubcomps: VecDeque::new(),
            pings: 0,
        }
    }

    /// The client sent `packet`.
    pub fn sent(&mut self, packet: &Packet<'_>) {
        match packet {
            Packet::Publish(p) => match p.qos {
                QoS::AtMostOnce => {}
                QoS::AtLeastOnce => self.pubacks.push_back(p.packet_id),
                QoS::ExactlyOnce => self.pubrecs.push_back(p.packet_id),
            },
            Packet::PubAck(a) | Packet::PubComp(a) => {
                self.open.remove(&a.packet_id);
            }
            Packet::PubRel(a) => self.pubcomps.push_back(a.packet_id),
            Packet::PingReq => self.pings += 1,
            Packet::Connect(_)
            | Packet::ConnAck(_)
            | Packet::PubRec(_)
            | Packet::Subscribe(_)
            | Packet::SubAck(_)
            | Packet::Unsubscribe(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Disconnect(_)
            | Packet::Auth(_) => {}
        }
    }

    /// The server sent `packet`.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn received(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        match packet {
            Packet::ConnAck(ack) => {
                if self.connack {
                    return Err("second CONNACK".to_owned());
                }
                self.connack = true;
                self.present = ack.session_present;
                if ack.session_present && ack.code != Reason::SUCCESS {
                    return Err("[MQTT-3.2.2-6] session present in a refusal".to_owned());
                }
                return Ok(());
            }
            Packet::Auth(_) if !self.connack => return Ok(()),
            _ if !self.connack => return Err("packet before CONNACK".to_owned()),
            _ => {}
        }
        match packet {
            Packet::Publish(p) => self.publish(p),
            Packet::PubAck(a) => in_order(&mut self.pubacks, a.packet_id, "PUBACK"),
            Packet::PubRec(a) => in_order(&mut self.pubrecs, a.packet_id, "PUBREC"),
            Packet::PubComp(a) => {
                // PUBCOMPs of different ids may pass each other while the store is asked.
                let at = self.pubcomps.iter().position(|id| *id == a.packet_id);
                at.map(|at| self.pubcomps.remove(at))
                    .map_or_else(|| Err("PUBCOMP without PUBREL".to_owned()), |_| Ok(()))
            }
            Packet::PubRel(a) => {
                self.open.insert(a.packet_id, true);
                self.window()
            }
            Packet::PingResp => {
                self.pings =
                    self.pings.checked_sub(1).ok_or_else(|| "PINGRESP without PINGREQ".to_owned())?;
                Ok(())
            }
            Packet::ConnAck(_)
            | Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::SubAck(_)
            | Packet::Unsubscribe(_)
            | Packet::UnsubAck(_)
            | Packet::PingReq
            | Packet::Disconnect(_)
            | Packet::Auth(_) => Ok(()),
        }
    }

    fn publish(&mut self, p: &mast_core::codec::Publish<'_>) -> Result<(), String> {
        if let Some(alias) = p.props.topic_alias()
            && alias > self.alias_maximum
        {
            return Err(format!("[MQTT-3.1.2-26] alias above {}", self.alias_maximum));
        }
        if p.qos == QoS::AtMostOnce {
            return Ok(());
        }
        if p.dup && !self.present {
            return Err("DUP on a session that is new".to_owned());
        }
        if self.open.insert(p.packet_id, p.qos == QoS::ExactlyOnce).is_some() {
            return Err("[MQTT-2.2.1-4] packet id in use, or a resend within a connection".to_owned());
        }
        self.window()
    }

    fn window(&self) -> Result<(), String> {
        if self.open.len() > self.receive_maximum {
            return Err(format!("[MQTT-3.3.4-9] more than {} unacknowledged", self.receive_maximum));
        }
        Ok(())
    }
}

fn in_order(due: &mut VecDeque<u16>, id: u16, what: &str) -> Result<(), String> {
    match due.pop_front() {
        Some(first) if first == id => Ok(()),
        first => Err(format!("[MQTT-4.6.0-2] {what} {id}, due was {first:?}")),
    }
}
