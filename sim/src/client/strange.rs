//! A stranger: a client that sends the bytes it is told. Of its connections it
//! knows the version alone, to read what the broker answers.

use super::{Client, Ctx, Wire};
use crate::facts::parse_payload;
use crate::oracles::wire::LinkWire;
use crate::scenario::Role;
use mast_core::codec::{self, Packet, Version};
use std::collections::BTreeMap;

/// What a stranger has told of itself.
#[derive(Clone, Debug, Default)]
pub struct Strange {
    /// Bytes sent on the present connection until its first packet was whole.
    first: Vec<u8>,
    /// What that packet named.
    version: Option<Version>,
}

impl Client {
    /// Whether it is one.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.spec.role == Role::Stranger
    }

    /// Begins a connection on `link`.
    pub fn begin_strange(&mut self, link: usize) {
        self.lost();
        self.strange.first.clear();
        self.strange.version = None;
        self.wire = Some(Wire {
            link,
            online: false,
            buf: Vec::new(),
            judge: LinkWire::new(&self.spec),
            // Whatever version its CONNECT turns out to have.
            foreign: None,
            aliases_in: BTreeMap::new(),
            aliases_out: BTreeMap::new(),
            alias_maximum: 0,
            receive_maximum: 0,
            exchange: None,
        });
    }

    /// Looks at what it is about to send, for the version.
    pub fn observe_strange(&mut self, bytes: &[u8]) {
        let strange = &mut self.strange;
        if strange.version.is_some() {
            return;
        }
        strange.first.extend_from_slice(bytes);
        let Ok(Some(frame)) = codec::cut(&strange.first, u32::MAX) else { return };
        strange.version = codec::connect_version(&frame);
    }

    /// Takes bytes in: they must be packets of a server, and nothing of another tenant.
    pub(super) fn receive_as_stranger(&mut self, ctx: &mut Ctx<'_>, bytes: &[u8]) {
        let Some(wire) = &mut self.wire else { return };
        wire.buf.extend_from_slice(bytes);
        let buf = std::mem::take(&mut wire.buf);
        let mut at = 0;
        while ctx.broken.is_none() {
            match codec::cut(&buf[at..], u32::MAX) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    at += frame.total;
                    self.strange_frame(ctx, &frame);
                }
                Err(violation) => ctx.broken = Some(format!("frame is refused: {violation}")),
            }
        }
        if let Some(wire) = &mut self.wire {
            wire.buf = buf[at..].to_vec();
        }
    }

    fn strange_frame(&mut self, ctx: &mut Ctx<'_>, frame: &codec::Frame<'_>) {
        // Who names no version that there is gets an answer in one that there is.
        let versions = self.strange.version.map_or_else(|| Version::ALL.to_vec(), |version| vec![version]);
        let decoded = versions.iter().find_map(|v| codec::decode(frame, *v).ok().map(|p| (*v, p)));
        let Some((version, packet)) = decoded else {
            ctx.broken = Some(format!("packet does not decode: {frame:?}"));
            return;
        };
        if let Err(violation) = codec::check_from_server(&packet, version) {
            ctx.broken = Some(format!("{violation}"));
            return;
        }
        match &packet {
            Packet::Publish(publish) => {
                if let Some((tenant, _, uid)) = parse_payload(publish.payload)
                    && tenant != self.spec.tenant
                {
                    ctx.broken = Some(format!("CANARY: {uid} of tenant {tenant} reached a stranger"));
                }
            }
            Packet::ConnAck(_)
            | Packet::PubAck(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Disconnect(_)
            | Packet::Auth(_) => {}
            Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::PingReq => {
                ctx.broken = Some(format!("server sent {packet:?}"));
            }
        }
    }
}
