//! Building the shard's state from what the store held: sessions and their subscriptions, cursors,
//! windows, wills, retained messages. Records of one session may come in any order, so they are put
//! together at the end.

use crate::codec::SubOptions;
use crate::ids::{SessionId, SessionUid, TenantId};
use crate::session::feed::Source;
use crate::session::outflow::{Inflight, Stage};
use crate::session::record::{
    CursorRecord, FilterRecord, SessionRecord, decode_watermark, inbound_tail, parse_inbound_tail,
};
use crate::session::{Away, Session, Subscription};
use crate::shard::input::LogEvent;
use crate::shard::ops::Op;
use crate::shard::peer::{GroupJoin, InterestChange, MemberRef, PeerMsg};
use crate::shard::tenants::Retained;
use crate::shard::{EMBEDDED, Shard};
use crate::store::key::{Key, Space};
use crate::store::port::{Durability, Expect, Restored, Write};
use crate::store::position::{Position, Seq};
use crate::tenant::mount::Mount;
use crate::topic;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// What was told of one session so far.
#[derive(Debug, Default)]
struct Parts {
    record: Option<(SessionRecord, Seq)>,
    cursor: Option<CursorRecord>,
    filters: Vec<(Box<str>, FilterRecord, Seq)>,
    inbound: Vec<(u16, SessionUid)>,
    /// Everything that was found, to be removed if no session claims it.
    keys: Vec<Key>,
}

/// Records that wait for the end of restoring.
#[derive(Debug, Default)]
pub(crate) struct Restoring {
    sessions: BTreeMap<(TenantId, Box<str>), Parts>,
    watermarks: BTreeMap<(TenantId, u16), (u64, Position)>,
}

impl Shard {
    pub(crate) fn restore(&mut self, record: Restored) {
        match record {
            Restored::Key { key, value, revision } => {
                let space = key.split().map(|(space, _, _)| space);
                if self.restore_key(&key, &value, revision).is_none() {
                    let space = space.map_or("unknown", space_name);
                    self.log(LogEvent::BadRecord { space });
                }
            }
            Restored::Retained { partition, seq, message } => {
                if self.home(message.tenant) != self.me {
                    return;
                }
                let Some(tenant) = self.tenants.get_mut(message.tenant.0 as usize) else { return };
                let retained = Retained { partition, seq, message: Arc::clone(&message) };
                tenant.set_retained(message.topic(), retained);
            }
            Restored::End { head } => {
                self.plane.head = head;
                self.finish_restoring();
                let head = self.plane.head.clone();
                self.scans.head_moved(&head);
                self.answer_early_gets();
            }
        }
    }

    /// Takes one key in; `None` if it makes no sense.
    fn restore_key(&mut self, key: &Key, value: &[u8], revision: Seq) -> Option<()> {
        let (space, tenant, rest) = key.split()?;
        let Some(tenant) = self.tenancy.registry.id(tenant) else {
            // Of a tenant that this node does not serve now, or of none: left alone.
            return Some(());
        };
        match space {
            Space::Watermark => {
                let shard = u16::from_be_bytes(rest.try_into().ok()?);
                self.restored.watermarks.insert((tenant, shard), decode_watermark(value)?);
                return Some(());
            }
            Space::Group => {
                let at = rest.iter().position(|b| *b == 0)?;
                let group: Box<str> = Box::from(core::str::from_utf8(&rest[..at]).ok()?);
                let filter: Box<str> = Box::from(core::str::from_utf8(&rest[at + 1..]).ok()?);
                if self.leader_of(tenant, &group, &filter) == self.me {
                    self.groups.restored.insert((tenant, group, filter), CursorRecord::decode(value)?);
                }
                return Some(());
            }
            // They are not under a tenant's name, so this one is no record of ours.
            Space::Admin => return None,
            Space::Session | Space::Filter | Space::Cursor | Space::Window | Space::Inbound => {}
        }
        let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        let client = core::str::from_utf8(&rest[..end]).ok()?;
        let tail = rest.get(end + 1..).unwrap_or_default();
        if self.shard_for(tenant, client) != self.me {
            return Some(());
        }
        let parts = self.restored.sessions.entry((tenant, Box::from(client))).or_default();
        parts.keys.push(key.clone());
        match space {
            Space::Session => parts.record = Some((SessionRecord::decode(value)?, revision)),
            Space::Cursor => parts.cursor = Some(CursorRecord::decode(value)?),
            Space::Filter => {
                let filter = Box::from(core::str::from_utf8(tail).ok()?);
                parts.filters.push((filter, FilterRecord::decode(value)?, revision));
            }
            Space::Inbound => parts.inbound.push(parse_inbound_tail(tail)?),
            Space::Window | Space::Group | Space::Watermark | Space::Admin => {}
        }
        Some(())
    }

    fn finish_restoring(&mut self) {
        self.restoring = false;
        let Restoring { sessions, watermarks } = core::mem::take(&mut self.restored);
        let mut orphans = Vec::new();
        let mut changes: BTreeMap<TenantId, Vec<InterestChange>> = BTreeMap::new();
        for ((tenant, client_id), mut parts) in sessions {
            match parts.record {
                Some((record, revision)) => {
                    // What an earlier session of the client left behind, its deletes having failed, is nobody's.
                    let uid = record.uid;
                    let client = client_id.clone();
                    let mut stale = |space, parts: &[&[u8]]| {
                        orphans.push(self.key(tenant, space, parts));
                    };
                    for (filter, ..) in parts.filters.iter().filter(|(_, f, _)| f.owner != uid) {
                        stale(Space::Filter, &[client.as_bytes(), filter.as_bytes()]);
                    }
                    for (id, owner) in parts.inbound.iter().filter(|(_, owner)| *owner != uid) {
                        stale(Space::Inbound, &[client.as_bytes(), &inbound_tail(*owner, *id)]);
                    }
                    parts.filters.retain(|(_, f, _)| f.owner == uid);
                    parts.inbound.retain(|(_, owner)| *owner == uid);
                    let cursor = parts.cursor.filter(|c| c.owner == uid).unwrap_or_default();
                    let watermark = watermarks.get(&(tenant, record.owner));
                    let id = self.rebuild(tenant, client_id, record, revision, watermark, &cursor);
                    if let Some(session) = self.plane.session(id) {
                        session.inbound = parts.inbound.into_iter().map(|(id, _)| id).collect();
                    }
                    for (filter, record, revision) in parts.filters {
                        let number = record.replay;
                        self.restore_filter(id, filter.clone(), record, changes.entry(tenant).or_default());
                        self.restore_replay(id, &filter, number, &cursor, revision);
                    }
                }
                None => orphans.extend(parts.keys),
            }
        }
        for (tenant, changes) in changes {
            self.announce(tenant, changes);
        }
        let tenants: Vec<TenantId> = self.tenancy.registry.ids().collect();
        for tenant in tenants {
            self.report_use(tenant);
        }
        // An empty announcement behind them: this is all that was restored here.
        let token = self.new_token();
        for peer in self.peers() {
            self.send(peer, PeerMsg::Interest { token, changes: Vec::new() });
        }
        if !orphans.is_empty() {
            let writes = orphans.into_iter().map(|key| Write::Delete { key, expect: Expect::Any }).collect();
            self.commit(Op::End { will: false }, writes, Durability::Stored);
        }
        self.answer_early_asks();
        let ids: Vec<SessionId> =
            self.plane.sessions.iter().map(|(idx, generation, _)| SessionId { idx, generation }).collect();
        for id in ids {
            self.after_restart(id);
        }
    }

    fn rebuild(
        &mut self,
        tenant: TenantId,
        client_id: Box<str>,
        record: SessionRecord,
        revision: Seq,
        watermark: Option<&(u64, Position)>,
        cursor: &CursorRecord,
    ) -> SessionId {
        let now = self.plane.now;
        let rights = self.rights_of(tenant, record.principal.as_deref(), &client_id, &record.claims);
        let mut session = Session::new(Mount::new(tenant), record.uid, client_id, record.principal);
        session.rights = rights;
        session.claims = record.claims;
        session.persistent = record.persistent;
        session.expiry_secs = record.expiry_secs;
        session.epoch = record.epoch;
        session.stored.revision = Some(revision);
        session.will = record.will.map(Box::new);
        let was_online = record.away_since.is_none();
        session.away = Some(Away::restored(record.away_since.unwrap_or(now.wall), now));
        let mut base = cursor.base.clone();
        if let (true, Some((run, watermark))) = (was_online, watermark)
            && cursor.live == *run
        {
            // It was at the live edge, and whatever it had not finished by the watermark is in its record.
            for (partition, seq) in watermark.iter() {
                base.raise(partition, seq);
            }
        }
        session.feed.behind = true;
        session.feed.read_pos = base;
        for entry in &cursor.inflight {
            let (packet_id, serial) = (entry.packet_id, 0);
            let mut source = if entry.apart { Source::Live } else { Source::Log };
            if let Some(name) = &entry.name {
                source = Source::Retained { replay: 0 };
                session.replays.get_or_insert_default().names.insert(packet_id, name.clone());
            }
            session.out.inflight.push_back(Inflight {
                packet_id,
                serial,
                message: None,
                pos: Some(entry.pos),
                source,
                qos: entry.qos,
                retain: entry.retain,
                sub_ids: SmallVec::from_slice(&entry.sub_ids),
                stage: if entry.released { Stage::Released } else { Stage::Sent },
                sent: false,
                needs: 0,
            });
        }
        if cursor.replays_upto > 0 {
            session.replays.get_or_insert_default().last = cursor.replays_upto;
        }
        session.out.resume_ids();
        self.add_session(session)
    }

    /// What is owed of a restored filter's retained messages.
    fn restore_replay(
        &mut self,
        id: SessionId,
        filter: &str,
        number: u64,
        cursor: &CursorRecord,
        revision: Seq,
    ) {
        let Some(session) = self.plane.session(id) else { return };
        let Some(subscription) = session.subscriptions.get(filter).cloned() else { return };
        session.restore_replay(filter, number, cursor, (EMBEDDED, revision), &subscription);
    }

    fn restore_filter(
        &mut self,
        id: SessionId,
        filter: Box<str>,
        record: FilterRecord,
        changes: &mut Vec<InterestChange>,
    ) {
        let me = self.me;
        let Some(session) = self.plane.session(id) else { return };
        let (tenant_id, persistent, uid) = (session.mount.tenant(), session.persistent, session.uid);
        let options: SubOptions = record.options;
        let start = record.start.clone();
        let subscription = Subscription {
            options,
            id: record.id,
            start: record.start,
            group: None,
            serial: 0,
            confirmed: true,
            leaving: false,
            doubtful: false,
        };
        let durable = subscription.is_durable();
        session.subscriptions.insert(filter.clone(), subscription);
        let shared = topic::split_share(&filter).ok().flatten();
        let Some(tenant) = self.tenant(tenant_id) else { return };
        tenant.counters.subscriptions += 1;
        match shared {
            None => {
                changes.extend(tenant.add_live(&filter));
                if persistent && durable {
                    changes.extend(tenant.add_durable(&filter));
                }
            }
            Some(shared) => {
                let token = self.new_token();
                self.rejoining.insert(token, filter.clone());
                let join = GroupJoin {
                    tenant: tenant_id,
                    group: Box::from(shared.group),
                    filter: Box::from(shared.filter),
                    member: MemberRef { shard: me, session: id, uid },
                    qos: options.qos,
                    persistent,
                    window: 0,
                    start: Some(start),
                    token,
                };
                let leader = self.leader_of(tenant_id, shared.group, shared.filter);
                self.send(leader, PeerMsg::GroupJoin(Box::new(join)));
            }
        }
    }

    /// A session that was connected when the node died lost its connection then; wills and expiry run
    /// from the restart, because nobody could come back before it.
    fn after_restart(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        if !session.persistent || session.expiry_secs == 0 {
            let writes = self.end_session_writes(id);
            self.commit_end(writes);
            return;
        }
        self.arm_away(id);
        self.expiry_due_soon(id);
        self.watch_backlog(id);
    }
}

fn space_name(space: Space) -> &'static str {
    match space {
        Space::Session => "session",
        Space::Filter => "filter",
        Space::Cursor => "cursor",
        Space::Window => "window",
        Space::Inbound => "inbound",
        Space::Group => "group",
        Space::Watermark => "watermark",
        Space::Admin => "admin",
    }
}
