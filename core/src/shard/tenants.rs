//! What a shard holds of one tenant: indexes, interest, clients. Each tenant has its own, so no look-up
//! can cross over.

use crate::authz::Denials;
use crate::ids::{SessionId, ShardIx, TenantId};
use crate::message::Message;
use crate::quota::Quota;
use crate::session::Sub;
use crate::session::offline::FullSession;
use crate::shard::Shard;
use crate::shard::peer::{InterestChange, InterestKind};
use crate::store::position::{Partition, Seq};
use crate::sys::{TenantCounters, Usage};
use crate::tenant::Tenancy;
use crate::tenant::mount::TenantTopic;
use crate::topic::{Interest, RetainedIndex, Subscriber, TopicIndex};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// A retained message and its place in the order of all.
#[derive(Clone, Debug)]
pub(crate) struct Retained {
    pub partition: Partition,
    pub seq: Seq,
    pub message: Arc<Message>,
}

/// How many durable subscriptions share a filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refs(pub u32);

impl Subscriber for Refs {
    type Key = ();

    fn key(&self) {}
}

/// What another shard wants to hear.
#[derive(Debug)]
pub(crate) struct RemoteInterest {
    pub live: Interest,
    pub durable: Interest,
}

/// One tenant on one shard.
#[derive(Debug)]
pub(crate) struct TenantState {
    /// Empty: removed.
    pub name: Box<str>,
    /// Live subscribers: connected sessions and groups led here.
    pub index: TopicIndex<Sub>,
    /// Filters of persistent sessions and durable groups, connected or not: what matches is logged.
    pub durable: TopicIndex<Refs>,
    /// Filters of absent sessions whose backlog is counted.
    pub away: TopicIndex<Sub>,
    /// Filters of sessions, on any shard, for which nothing more may be kept.
    pub full: TopicIndex<FullSession>,
    pub own_live: Interest,
    pub own_durable: Interest,
    /// By shard; this shard's own entry stays empty.
    pub remote: Vec<RemoteInterest>,
    pub clients: HashMap<Box<str>, SessionId, foldhash::fast::FixedState>,
    /// On the tenant's home shard: its retained messages.
    pub retained: RetainedIndex<Retained>,
    pub counters: TenantCounters,
    /// What its clients were denied; made with the first.
    pub denials: Option<Box<Denials>>,
    /// On the home shard: what every shard last reported.
    pub reports: BTreeMap<ShardIx, TenantCounters>,
    /// It uses all shards; else it sits on one. Fixed for the life of the process.
    pub spread: bool,
    /// What its clients have here of what may be limited.
    pub usage: Usage,
    /// Its limits; `None` = it never had any.
    pub quota: Option<Box<Quota>>,
}

impl TenantState {
    pub fn new(name: &str, seed: u64, interest_seed: u64, shards: u16) -> TenantState {
        let interest = || Interest::new(interest_seed);
        TenantState {
            name: Box::from(name),
            index: TopicIndex::new(seed),
            durable: TopicIndex::new(seed),
            away: TopicIndex::new(seed),
            full: TopicIndex::new(seed),
            own_live: interest(),
            own_durable: interest(),
            remote: (0..shards).map(|_| RemoteInterest { live: interest(), durable: interest() }).collect(),
            clients: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
            retained: RetainedIndex::new(seed),
            counters: TenantCounters::default(),
            denials: None,
            reports: BTreeMap::new(),
            spread: true,
            usage: Usage::default(),
            quota: None,
        }
    }

    /// Adds a durable subscription to the filter; true if it is the first of its coarse key.
    pub fn add_durable(&mut self, filter: &str) -> Option<InterestChange> {
        let refs = self.durable.get(filter, ()).map_or(0, |r| r.0);
        self.durable.insert(filter, Refs(refs + 1));
        let key = self.own_durable.key_of_filter(filter);
        self.own_durable.add(key).then_some(InterestChange {
            tenant: TenantId(0),
            kind: InterestKind::Durable,
            key,
            on: true,
        })
    }

    pub fn remove_durable(&mut self, filter: &str) -> Option<InterestChange> {
        match self.durable.get(filter, ()).map_or(0, |r| r.0) {
            0 => return None,
            1 => {
                self.durable.remove(filter, ());
            }
            n => {
                self.durable.insert(filter, Refs(n - 1));
            }
        }
        let key = self.own_durable.key_of_filter(filter);
        self.own_durable.remove(key).then_some(InterestChange {
            tenant: TenantId(0),
            kind: InterestKind::Durable,
            key,
            on: false,
        })
    }

    pub fn add_live(&mut self, filter: &str) -> Option<InterestChange> {
        let key = self.own_live.key_of_filter(filter);
        self.own_live.add(key).then_some(InterestChange {
            tenant: TenantId(0),
            kind: InterestKind::Live,
            key,
            on: true,
        })
    }

    pub fn remove_live(&mut self, filter: &str) -> Option<InterestChange> {
        let key = self.own_live.key_of_filter(filter);
        self.own_live.remove(key).then_some(InterestChange {
            tenant: TenantId(0),
            kind: InterestKind::Live,
            key,
            on: false,
        })
    }
}

impl Shard {
    /// Puts tenants and what holds for them in force, and makes the state of new ones. Clients of removed ones are let
    /// in no more; what is held of them goes with [`crate::ask::Ask::EndTenant`].
    pub(crate) fn take_tenancy(&mut self, tenancy: Tenancy) {
        let seeds = (self.hash_seed, self.interest_seed);
        for number in self.tenants.len() as u32..tenancy.registry.numbers() {
            let name = tenancy.registry.name(TenantId(number)).unwrap_or_default();
            let mut state = TenantState::new(name, seeds.0, seeds.1, self.shards);
            state.spread = tenancy.registry.is_spread(TenantId(number));
            self.tenants.push(state);
        }
        self.tenancy = tenancy;
        self.take_limits();
    }

    /// The state of a mounted topic's tenant: the only way to an index is through the topic itself.
    #[inline]
    pub(crate) fn of_topic(&mut self, topic: &TenantTopic<'_>) -> Option<&mut TenantState> {
        self.tenants.get_mut(topic.tenant().0 as usize)
    }

    #[inline]
    pub(crate) fn tenant(&mut self, id: TenantId) -> Option<&mut TenantState> {
        self.tenants.get_mut(id.0 as usize)
    }

    /// Whether the node serves this tenant: clients of others are not let in.
    pub(crate) fn serves(&self, id: TenantId) -> bool {
        self.tenancy.registry.name(id).is_some()
    }

    /// The shard that holds the tenant's retained messages and publishes its `$SYS`.
    pub(crate) fn home(&self, id: TenantId) -> ShardIx {
        crate::conn::handshake::shard_of(id, "", self.shards, false)
    }

    /// The shard of a tenant's client, or group, by its name.
    pub(crate) fn shard_for(&self, id: TenantId, name: &str) -> ShardIx {
        let spread = self.tenants.get(id.0 as usize).is_none_or(|t| t.spread);
        crate::conn::handshake::shard_of(id, name, self.shards, spread)
    }

    /// Tells the other shards of changed interest. `Some(token)` if answers will come.
    pub(crate) fn announce(&mut self, tenant: TenantId, mut changes: Vec<InterestChange>) -> Option<u64> {
        if changes.is_empty() || self.shards == 1 {
            return None;
        }
        for change in &mut changes {
            change.tenant = tenant;
        }
        let token = self.new_token();
        for peer in self.peers() {
            self.send(peer, crate::shard::peer::PeerMsg::Interest { token, changes: changes.clone() });
        }
        Some(token)
    }

    pub(crate) fn new_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Another shard's interest changed.
    pub(crate) fn interest(&mut self, from: ShardIx, token: u64, changes: Vec<InterestChange>) {
        if changes.is_empty() {
            self.unheard.remove(&from);
            self.answer_early_asks();
        }
        for change in changes {
            let Some(tenant) = self.tenants.get_mut(change.tenant.0 as usize) else { continue };
            let Some(remote) = tenant.remote.get_mut(from.0 as usize) else { continue };
            let counters = match change.kind {
                InterestKind::Live => &mut remote.live,
                InterestKind::Durable => &mut remote.durable,
            };
            if change.on {
                counters.add(change.key);
            } else {
                counters.remove(change.key);
            }
        }
        self.send(from, crate::shard::peer::PeerMsg::InterestSeen { token });
    }
}
