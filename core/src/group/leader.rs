//! The leader's side: membership, and who gets what.

use crate::codec::SubOptions;
use crate::group::{Finished, Group, Member, Waiting};
use crate::ids::{SessionUid, ShardIx, TenantId};
use crate::message::QoS;
use crate::session::feed::{Feed, Queued, Source};
use crate::session::plane::Outgoing;
use crate::session::{Sub, SubKey};
use crate::shard::Shard;
use crate::shard::peer::{GroupJoin, GroupRef, MemberRef, PeerMsg, Settled};
use crate::shard::timers::Timer;
use crate::store::key::Space;
use crate::store::port::{Durability, Expect, Write};
use crate::sys::Drop;
use crate::tenant::limits::Row;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::SmallVec;

impl Shard {
    /// The shard that leads a group.
    pub(crate) fn leader_of(&self, tenant: TenantId, group: &str, filter: &str) -> ShardIx {
        let mut name = alloc::string::String::with_capacity(group.len() + filter.len() + 1);
        name.push_str(group);
        name.push('/');
        name.push_str(filter);
        self.shard_for(tenant, &name)
    }

    fn group_ref(&self, id: (u32, u32)) -> GroupRef {
        GroupRef { leader: self.me, idx: id.0, generation: id.1 }
    }

    /// A session wants to be in a group. A group that is there already in the store was counted when it was made.
    pub(crate) fn group_join(&mut self, from: ShardIx, join: GroupJoin) {
        let key = (join.tenant, join.group.clone(), join.filter.clone());
        let new = !self.groups.by_name.contains_key(&key) && join.start.is_none();
        if new && self.limit(join.tenant, Row::SharedGroups).is_some() {
            if self.is_ledgered(join.tenant) {
                self.ask_group(from, join);
                return;
            }
            if !self.take_own(join.tenant, Row::SharedGroups) {
                self.refuse_join(from, &join);
                return;
            }
        }
        self.group_take(from, join);
    }

    fn refuse_join(&mut self, from: ShardIx, join: &GroupJoin) {
        let group = self.group_ref((u32::MAX, u32::MAX));
        let (token, member) = (join.token, join.member.session);
        self.send(from, PeerMsg::Joined { token, member, group, ok: false });
    }

    /// The home shard answered whether there may be one more group.
    pub(crate) fn group_answered(&mut self, from: ShardIx, join: GroupJoin, granted: bool, current: bool) {
        let key = (join.tenant, join.group.clone(), join.filter.clone());
        if !current {
            self.group_join(from, join);
        } else if self.groups.by_name.contains_key(&key) {
            // Somebody else made it meanwhile.
            self.give(join.tenant, Row::SharedGroups, u64::from(granted));
            self.group_take(from, join);
        } else if granted {
            self.group_take(from, join);
        } else {
            self.refuse_join(from, &join);
        }
    }

    fn group_take(&mut self, from: ShardIx, join: GroupJoin) {
        let max = self.plane.settings.max_group_members as usize;
        let key = (join.tenant, join.group.clone(), join.filter.clone());
        let known = self.groups.by_name.get(&key).copied();
        let id = known.unwrap_or_else(|| self.new_group(&join));
        let mut changes = Vec::new();
        if known.is_none()
            && let Some(tenant) = self.tenant(join.tenant)
        {
            let options = SubOptions {
                qos: QoS::ExactlyOnce,
                no_local: false,
                retain_as_published: true,
                retain_handling: 2,
            };
            tenant.index.insert(&join.filter, Sub::new(SubKey::group(id.0, id.1), options, 0));
            changes.extend(tenant.add_live(&join.filter));
        }
        let Some(group) = self.groups.get(id) else { return };
        let member = Member {
            at: join.member,
            qos: join.qos,
            persistent: join.persistent,
            window: join.window,
            held: 0,
            away_since: None,
        };
        let (has, stored) = (group.members.len(), join.start.is_some());
        let is_member = group.members.iter().any(|m| m.at.uid == join.member.uid);
        // Who was in it before a restart is in it again.
        let room =
            stored || has < max && (is_member || !self.over(join.tenant, Row::GroupMembers, has as u64 + 1));
        let Some(group) = self.groups.get(id) else { return };
        let ok = match group.members.iter_mut().find(|m| m.at.uid == join.member.uid) {
            Some(present) => {
                *present = Member { held: present.held, ..member };
                true
            }
            None if room => {
                group.members.push(member);
                true
            }
            None => false,
        };
        changes.extend(self.refresh_durable(id));
        let group = self.group_ref(id);
        let reply = PeerMsg::Joined { token: join.token, member: join.member.session, group, ok };
        match self.announce(join.tenant, changes) {
            Some(token) => {
                let left = u32::from(self.shards) - 1;
                self.groups.waiting.insert(token, Waiting { left, to: from, reply });
            }
            None => self.send(from, reply),
        }
        self.group_assign(id);
    }

    fn new_group(&mut self, join: &GroupJoin) -> (u32, u32) {
        let key = (join.tenant, join.group.clone(), join.filter.clone());
        let mut feed = Feed::default();
        let mut finished = Finished::default();
        if let Some(record) = self.groups.restored.remove(&key) {
            // Everything that was handed out and not acknowledged is handed out again.
            let mut at = record.base.clone();
            for entry in &record.inflight {
                at.lower(entry.pos.0, crate::store::position::Seq(entry.pos.1.0.saturating_sub(1)));
            }
            feed.behind = true;
            feed.read_pos = at;
            finished =
                Finished { base: record.base, unfinished: record.inflight.iter().map(|e| e.pos.1).collect() };
        } else if let Some(start) = &join.start {
            feed.behind = true;
            feed.read_pos = start.clone();
        }
        let group = Group {
            tenant: join.tenant,
            name: join.group.clone(),
            filter: join.filter.clone(),
            uid: SessionUid(self.rng.next_u64() | 1),
            members: Vec::new(),
            feed,
            outstanding: BTreeMap::new(),
            next_delivery: 1,
            turn: 0,
            durable: false,
            finished,
            moved: false,
        };
        let id = self.groups.slab.insert(group);
        self.groups.by_name.insert(key, id);
        if let Some(tenant) = self.tenant(join.tenant) {
            tenant.usage.shared_groups += 1;
        }
        if join.start.is_some() {
            self.took(join.tenant, Row::SharedGroups);
        }
        id
    }

    /// A group is durable while a persistent member wants QoS 1 or 2.
    fn refresh_durable(&mut self, id: (u32, u32)) -> Option<crate::shard::peer::InterestChange> {
        let group = self.groups.get(id)?;
        let durable = group.members.iter().any(|m| m.persistent && m.qos > QoS::AtMostOnce);
        if durable == group.durable {
            return None;
        }
        group.durable = durable;
        group.moved = durable;
        let (tenant, filter) = (group.tenant, group.filter.clone());
        if durable {
            self.arm_flush();
        }
        let tenant = self.tenant(tenant)?;
        if durable { tenant.add_durable(&filter) } else { tenant.remove_durable(&filter) }
    }

    /// An interest change is in effect on one more shard; true if a join waited for it.
    pub(crate) fn group_token(&mut self, token: u64) -> bool {
        let Some(waiting) = self.groups.waiting.get_mut(&token) else { return false };
        waiting.left -= 1;
        if waiting.left == 0
            && let Some(waiting) = self.groups.waiting.remove(&token)
        {
            self.send(waiting.to, waiting.reply);
        }
        true
    }

    pub(crate) fn group_leave(&mut self, at: GroupRef, member: MemberRef) {
        let id = (at.idx, at.generation);
        let Some(group) = self.groups.get(id) else { return };
        // By its handle: a session that ended before its join was answered has no uid to give any more.
        let is_it = |at: &MemberRef| at.shard == member.shard && at.session == member.session;
        let uid = group.members.iter().find(|m| is_it(&m.at)).map_or(member.uid, |m| m.at.uid);
        // It settled what it had before it left; what is outstanding still had not reached it, and comes back.
        group.members.retain(|m| m.at.uid != uid);
        group.moved = true;
        let tenant = group.tenant;
        let mut changes: Vec<_> = self.refresh_durable(id).into_iter().collect();
        let Some(group) = self.groups.get(id) else { return };
        if group.members.is_empty() {
            let (name, filter) = (group.name.clone(), group.filter.clone());
            self.groups.slab.remove(id.0, id.1);
            self.groups.by_name.remove(&(tenant, name.clone(), filter.clone()));
            self.give(tenant, Row::SharedGroups, 1);
            if let Some(state) = self.tenant(tenant) {
                state.usage.shared_groups = state.usage.shared_groups.saturating_sub(1);
                state.index.remove(&filter, SubKey::group(id.0, id.1));
                changes.extend(state.remove_live(&filter));
            }
            let key = self.key(tenant, Space::Group, &[name.as_bytes(), filter.as_bytes()]);
            let delete = Write::Delete { key, expect: Expect::Any };
            self.commit(
                crate::shard::ops::Op::GroupCursor { idx: id.0, generation: id.1 },
                alloc::vec![delete],
                Durability::Stored,
            );
        }
        self.announce(tenant, changes);
        self.group_assign(id);
    }

    pub(crate) fn group_presence(&mut self, at: GroupRef, member: MemberRef, window: u16) {
        let id = (at.idx, at.generation);
        let now = self.plane.now.mono;
        let absence = self.plane.settings.share_absence_ms;
        let Some(group) = self.groups.get(id) else { return };
        let Some(known) = group.members.iter_mut().find(|m| m.at.uid == member.uid) else { return };
        known.at = member;
        known.window = window;
        if window == 0 {
            known.away_since = Some(now);
            let uid = member.uid.0;
            self.at(now.after_millis(absence), Timer::Absence { group: id, member: uid });
        } else {
            known.away_since = None;
        }
        self.group_assign(id);
    }

    /// A member may have been away for long enough: what it holds of QoS 1 is called back.
    pub(crate) fn absence_due(&mut self, id: (u32, u32), uid: u64) {
        let absence = self.plane.settings.share_absence_ms * 1000;
        let now = self.plane.now.mono;
        let at = self.group_ref(id);
        let Some(group) = self.groups.get(id) else { return };
        let Some(member) = group.members.iter().find(|m| m.at.uid.0 == uid) else { return };
        let Some(since) = member.away_since else { return };
        if now.micros_since(since) >= absence && member.held > 0 {
            let member = member.at;
            self.send(member.shard, PeerMsg::GroupRecall { group: at, member });
        }
    }

    /// A message matched the group's filter.
    pub(crate) fn group_offer(&mut self, id: (u32, u32), item: &mut Outgoing<'_>) {
        let settings = &self.plane.settings;
        let (max_messages, max_bytes) = (settings.queue_messages, settings.queue_bytes);
        let head = &self.plane.head;
        let Some(group) = self.groups.slab.get_mut(id.0, id.1) else { return };
        if group.tenant != item.parts.tenant {
            self.plane.counters.canary += 1;
            return;
        }
        let source = if item.pos.is_some() { Source::Log } else { Source::Live };
        let live_only = item.parts.qos == QoS::AtMostOnce && item.pos.is_none();
        if live_only {
            // Unlogged and never kept: to somebody who is there, or to nobody.
            if group.members.iter().all(|m| m.window == 0) {
                self.plane.counters.drop(Drop::GroupUnavailable);
                return;
            }
        } else if let Some((partition, seq)) = item.pos
            && (group.feed.read_pos.covers(partition, seq) || group.feed.behind)
        {
            group.feed.leave_to_log((partition, seq));
            return;
        }
        let logged = item.pos.is_some();
        if group.feed.behind || group.feed.is_full(max_messages, max_bytes) {
            if live_only {
                self.plane.counters.drop(Drop::SlowConsumerQos0);
                return;
            }
            group.feed.fall_behind(head);
            if !logged {
                group.feed.spills += 1;
                let message = item.message();
                self.spill_group(id, message);
            }
            return;
        }
        if logged {
            group.feed.offered = item.pos;
            if group.durable && !group.moved {
                group.moved = true;
                self.arm_flush();
            }
        }
        let queued = Queued {
            message: item.message(),
            pos: item.pos,
            source,
            qos: item.parts.qos,
            retain: item.parts.retain,
            sub_ids: SmallVec::new(),
        };
        if let Some(group) = self.groups.get(id) {
            group.feed.push(queued);
        }
        self.group_assign(id);
    }

    /// Hands out what waits to members with a free window.
    pub(crate) fn group_assign(&mut self, id: (u32, u32)) {
        let at = self.group_ref(id);
        let strategy = self.plane.settings.share_strategy;
        let wall = self.plane.now.wall;
        loop {
            let random =
                if strategy == crate::settings::ShareStrategy::Random { self.rng.next_u64() } else { 0 };
            let Some(group) = self.groups.slab.get_mut(id.0, id.1) else { return };
            let Some(next) = group.feed.pop() else { break };
            if next.message.is_expired(wall) {
                self.plane.counters.drop(Drop::Expired);
                continue;
            }
            let Some(chosen) = group.choose(strategy, &next, random) else {
                group.feed.push_front(next);
                return;
            };
            let delivery = group.next_delivery;
            group.next_delivery += 1;
            let member = &mut group.members[chosen];
            let qos = next.qos.min(member.qos);
            let to = member.at;
            let (message, seq) = (Arc::clone(&next.message), next.pos);
            if qos > QoS::AtMostOnce {
                member.held += 1;
                group.outstanding.insert(delivery, next);
            }
            self.send(to.shard, PeerMsg::GroupDeliver { group: at, delivery, member: to, message, seq, qos });
        }
        self.group_read_on(id);
    }

    pub(crate) fn group_settled(&mut self, at: GroupRef, delivery: u64, member: MemberRef, outcome: Settled) {
        let id = (at.idx, at.generation);
        let Some(group) = self.groups.get(id) else { return };
        let Some(outstanding) = group.outstanding.remove(&delivery) else { return };
        if let Some(member) = group.members.iter_mut().find(|m| m.at.uid == member.uid) {
            member.held = member.held.saturating_sub(1);
            if outcome == Settled::Returned {
                // It is not there, or leaving: it tells when it takes messages again. To offer it the same
                // message at once could go on for ever.
                member.window = 0;
            }
        }
        if outcome == Settled::Returned {
            group.put_back(outstanding);
        }
        if group.durable && !group.moved {
            group.moved = true;
            self.arm_flush();
        }
        self.group_assign(id);
    }

    /// Name of a group's key.
    pub(crate) fn group_key(&mut self, id: (u32, u32)) -> Option<crate::store::key::Key> {
        let group = self.groups.get(id)?;
        let (tenant, name, filter): (TenantId, Box<str>, Box<str>) =
            (group.tenant, group.name.clone(), group.filter.clone());
        Some(self.key(tenant, Space::Group, &[name.as_bytes(), filter.as_bytes()]))
    }
}
