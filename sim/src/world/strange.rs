//! Strangers in the world: connections that carry whatever bytes, and the clearing up behind them.

use super::World;
use super::event::Event;
use crate::facts::End;
use crate::scenario::Op;
use mast_core::codec::{Connect, Disconnect, Packet, Props, Reason, Version};
use mast_core::store::key::Space;

impl World {
    /// Whether a tenant is a stranger's: nobody knows what is kept there.
    pub(super) fn is_strange(&self, tenant: u8) -> bool {
        self.clients.iter().any(|c| c.is_stranger() && c.spec.tenant == tenant)
    }

    /// A stranger does what it is told; what only others can do it leaves.
    pub(super) fn strange_op(&mut self, client: usize, op: &Op) {
        match op {
            Op::Raw { bytes, anew } => {
                let link = match self.clients[client].wire.as_ref().map(|w| w.link) {
                    Some(link) if !anew => link,
                    Some(_) | None => {
                        let link = self.open(client);
                        self.clients[client].begin_strange(link);
                        link
                    }
                };
                self.marks.hit("a stranger sent bytes");
                self.clients[client].observe_strange(bytes);
                self.send(link, bytes);
            }
            Op::Cut | Op::Disconnect { .. } => {
                if let Some(link) = self.clients[client].wire.as_ref().map(|w| w.link) {
                    self.leave(client, link, End::Cut);
                }
            }
            Op::StopReading { ms } => {
                self.clients[client].deaf_until = self.now + ms * 1000;
                self.add(self.now + ms * 1000, Event::Listen { client });
            }
            Op::Connect { .. }
            | Op::Reauthenticate
            | Op::Subscribe { .. }
            | Op::Unsubscribe { .. }
            | Op::Publish { .. }
            | Op::Vanish
            | Op::StopAcking { .. }
            | Op::Garbage { .. }
            | Op::Ping => {}
        }
    }

    /// All its connections end.
    pub(super) fn strangers_hang_up(&mut self, client: usize) {
        for link in 0..self.links.len() {
            if self.links[link].client == client {
                self.leave(client, link, End::Cut);
            }
        }
    }

    /// Takes over every session that the store has of it and ends it.
    pub(super) fn forget_stranger(&mut self, client: usize) {
        let username = format!("t{}/{}", self.clients[client].spec.tenant, self.clients[client].spec.name);
        let tenant = format!("tenant{}", self.clients[client].spec.tenant);
        let ids: Vec<String> = self
            .store
            .state
            .keys
            .keys()
            .filter_map(|key| key.split())
            .filter(|(space, of, _)| *space == Space::Session && *of == tenant)
            .map(|(_, _, id)| String::from_utf8_lossy(id).into_owned())
            .collect();
        for id in ids {
            let connect = Packet::Connect(Connect {
                version: Version::V5,
                bridge: false,
                clean_start: true,
                keep_alive: 0,
                props: Props::EMPTY,
                client_id: &id,
                will: None,
                username: Some(&username),
                password: Some(b"right"),
            });
            let goodbye = Packet::Disconnect(Disconnect { reason: Reason::SUCCESS, props: Props::EMPTY });
            let mut bytes = Vec::new();
            let encoded =
                connect.encode(Version::V5, &mut bytes).and(goodbye.encode(Version::V5, &mut bytes));
            if let Err(error) = encoded {
                self.fail("stranger", &format!("could not be taken over: {error:?}"));
            }
            let link = self.open(client);
            self.clients[client].begin_strange(link);
            self.send(link, &bytes);
        }
    }
}
