//! Shared subscriptions. A group has one leader: the shard that owns (tenant, group, filter). It holds
//! the group's cursor, reads like a session, gives each message to one member with a free window, and
//! gives it to another if that one hands it back.

pub(crate) mod leader;
pub(crate) mod log;
pub(crate) mod member;

use crate::ids::{SessionUid, ShardIx, TenantId};
use crate::message::QoS;
use crate::session::feed::{Feed, Queued, Source};
use crate::session::record::CursorRecord;
use crate::settings::ShareStrategy;
use crate::shard::peer::{MemberRef, PeerMsg};
use crate::shard::slab::Slab;
use crate::store::position::{Position, Seq};
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A session in a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub at: MemberRef,
    pub qos: QoS,
    pub persistent: bool,
    /// Messages that it may hold; 0 = away.
    pub window: u16,
    /// Messages that it holds.
    pub held: u32,
    pub away_since: Option<Mono>,
}

impl Member {
    fn is_free(&self) -> bool {
        self.held < u32::from(self.window)
    }
}

/// What a restored group has finished: all up to `base` but `unfinished`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finished {
    pub base: Position,
    pub unfinished: Vec<Seq>,
}

/// A group, at its leader.
#[derive(Debug)]
pub(crate) struct Group {
    pub tenant: TenantId,
    pub name: Box<str>,
    pub filter: Box<str>,
    pub uid: SessionUid,
    pub members: Vec<Member>,
    pub feed: Feed,
    pub outstanding: BTreeMap<u64, Queued>,
    pub next_delivery: u64,
    /// Where round robin stands, or the member that sticky keeps.
    pub turn: usize,
    pub durable: bool,
    pub finished: Finished,
    /// The cursor moved since it was stored.
    pub moved: bool,
}

impl Group {
    /// Up to where the group needs nothing from the log.
    pub fn floor(&self, head: &Position) -> Position {
        let mut floor = self.feed.floor(head);
        for outstanding in self.outstanding.values() {
            if let Some((partition, seq)) = outstanding.pos {
                floor.lower(partition, Seq(seq.0.saturating_sub(1)));
            }
        }
        floor
    }

    /// The member that gets the next message, if one has room.
    pub fn choose(&mut self, strategy: ShareStrategy, queued: &Queued, random: u64) -> Option<usize> {
        let n = self.members.len();
        if n == 0 {
            return None;
        }
        let first = match strategy {
            ShareStrategy::RoundRobin => self.turn.wrapping_add(1),
            ShareStrategy::Sticky => self.turn,
            ShareStrategy::Random => random as usize,
            ShareStrategy::HashClient => spread(queued.message.publisher.0),
            ShareStrategy::HashTopic => spread(hash(queued.message.topic().as_bytes())),
        };
        // From the first choice on, the next one that has room: a full or absent member is passed over.
        let found = (0..n).map(|i| first.wrapping_add(i) % n).find(|i| self.members[*i].is_free())?;
        self.turn = found;
        Some(found)
    }

    /// Puts a message that came back where its order wants it.
    pub fn put_back(&mut self, queued: Queued) {
        let feed = &mut self.feed;
        feed.pending_bytes += queued.message.size();
        feed.pending_qos0 += usize::from(queued.qos == QoS::AtMostOnce);
        let at = match (queued.source, queued.pos) {
            (Source::Log, Some((_, seq))) => feed
                .pending
                .iter()
                .position(|q| q.pos.is_some_and(|(_, s)| s > seq))
                .unwrap_or(feed.pending.len()),
            _ => 0,
        };
        feed.pending.insert(at, queued);
    }
}

fn spread(hash: u64) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// A join whose interest is on its way to the other shards.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub left: u32,
    pub to: ShardIx,
    pub reply: PeerMsg,
}

/// Tenant, group and filter.
pub(crate) type GroupName = (TenantId, Box<str>, Box<str>);

/// The groups that a shard leads.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub slab: Slab<Group>,
    pub by_name: BTreeMap<GroupName, (u32, u32)>,
    pub waiting: BTreeMap<u64, Waiting>,
    /// Cursors of groups that no member has joined since the start.
    pub restored: BTreeMap<GroupName, CursorRecord>,
}

impl Groups {
    pub fn get(&mut self, id: (u32, u32)) -> Option<&mut Group> {
        self.slab.get_mut(id.0, id.1)
    }

    /// Lowers the floors of tenants by what their durable or lagging groups still need.
    pub fn lower_floors(&self, head: &Position, floors: &mut [Position]) {
        let mut lower = |tenant: TenantId, own: Position| {
            if let Some(floor) = floors.get_mut(tenant.0 as usize) {
                floor.lower_to(&own);
            }
        };
        for (_, _, group) in self.slab.iter() {
            if group.durable || group.feed.behind {
                lower(group.tenant, group.floor(head));
            }
        }
        for ((tenant, _, _), record) in &self.restored {
            let mut own = record.base.clone();
            for entry in &record.inflight {
                own.lower(entry.pos.0, Seq(entry.pos.1.0.saturating_sub(1)));
            }
            lower(*tenant, own);
        }
    }
}
