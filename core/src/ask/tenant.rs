//! The end of a tenant, in pieces: its clients are told, its sessions end without their wills, its retained messages
//! are removed, and then nothing of it is held.

use crate::ask::{Answer, Asked};
use crate::codec::Reason;
use crate::ids::{SessionId, SessionUid, TenantId};
use crate::message::{Message, MessageParts, QoS};
use crate::shard::tenants::TenantState;
use crate::shard::{EMBEDDED, Shard};
use crate::store::port::{Append, Write};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Sessions that one piece ends.
const SESSIONS: usize = 256;
/// Retained messages that one piece removes.
const TOPICS: usize = 1024;

/// The append that removes a retained message [MQTT-3.3.1-6].
pub(super) fn burial(tenant: TenantId, topic: &str) -> Append {
    let message = Message::new(&MessageParts {
        tenant,
        qos: QoS::AtMostOnce,
        retain: true,
        expires: None,
        publisher: SessionUid(0),
        topic,
        props: &[],
        payload: &[],
    });
    Append { message, partition: EMBEDDED, log: false, retain: true, spill: None }
}

impl Shard {
    pub(super) fn end_tenant(&mut self, token: u64, tenant: TenantId) -> Option<Answer> {
        let mut writes = self.end_sessions(tenant);
        writes.extend(self.end_retained(tenant));
        if writes.is_empty() {
            return Some(Answer::Left { count: self.left_of_tenant(tenant) });
        }
        self.commit_asked(token, Asked::Tenant(tenant), writes);
        None
    }

    fn end_sessions(&mut self, tenant: TenantId) -> Vec<Write> {
        let of = self.plane.sessions.iter().filter(|(_, _, s)| s.mount.tenant() == tenant);
        let ids: Vec<SessionId> =
            of.map(|(idx, generation, _)| SessionId { idx, generation }).take(SESSIONS).collect();
        let mut writes = Vec::new();
        for id in ids {
            let Some(session) = self.plane.session(id) else { continue };
            // A will of a tenant that is no more is nobody's.
            session.will = None;
            let (conn, waiting) = (session.conn, session.waiting.take());
            if let Some((waiting, _)) = waiting {
                self.refuse_admission(waiting, Reason::ADMINISTRATIVE_ACTION);
            }
            if let Some(conn) = conn {
                self.disconnect(conn, Reason::ADMINISTRATIVE_ACTION);
            }
            // It may have ended with its connection; or its record is being written, and the next piece ends it.
            if self.plane.session(id).is_some_and(|s| !s.busy && s.conn.is_none()) {
                writes.extend(self.end_session_writes(id));
            }
        }
        writes.retain(|write| !matches!(write, Write::Append(_)));
        writes
    }

    fn end_retained(&mut self, tenant: TenantId) -> Vec<Write> {
        if self.home(tenant) != self.me {
            return Vec::new();
        }
        let Some(state) = self.tenant(tenant) else { return Vec::new() };
        let topics: Vec<Box<str>> = state.retained.iter().take(TOPICS).map(|(t, _)| Box::from(t)).collect();
        let mut writes = Vec::new();
        for topic in topics {
            if topic.starts_with('$') {
                // The broker's own are in no store.
                state.retained.remove(&topic);
            } else {
                writes.push(Write::Append(burial(tenant, &topic)));
            }
        }
        writes
    }

    pub(super) fn left_of_tenant(&mut self, tenant: TenantId) -> u64 {
        let sessions = self.plane.sessions.iter().filter(|(_, _, s)| s.mount.tenant() == tenant).count();
        let retained = self.tenant(tenant).map_or(0, |t| t.retained.len());
        (sessions + retained) as u64
    }

    pub(super) fn forget_tenant(&mut self, tenant: TenantId) {
        let groups: Vec<(u32, u32)> = self
            .groups
            .slab
            .iter()
            .filter(|(_, _, group)| group.tenant == tenant)
            .map(|(idx, generation, _)| (idx, generation))
            .collect();
        for (idx, generation) in groups {
            self.groups.slab.remove(idx, generation);
        }
        self.groups.by_name.retain(|(owner, ..), _| *owner != tenant);
        self.groups.restored.retain(|(owner, ..), _| *owner != tenant);
        let seeds = (self.hash_seed, self.interest_seed);
        let shards = self.shards;
        if let Some(state) = self.tenant(tenant) {
            *state = TenantState::new("", seeds.0, seeds.1, shards);
        }
    }
}
