//! Tenants and topics of the index: for each topic the sequences of its logged messages.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mast_core::ids::{SessionUid, TenantId};
use mast_core::tenant::limits::Limit;
use mast_core::tenant::registry::Registry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// How far a shard still needs a tenant's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// It has not told yet, since the store was opened: everything counts as needed.
    Unknown,
    /// Nothing is needed.
    Nothing,
    /// What lies above is needed.
    Above(u64),
}

/// A topic with at least one message.
#[derive(Debug)]
pub struct Topic {
    /// Slot of its tenant.
    pub tenant: u32,
    /// Its name.
    pub name: Arc<str>,
    /// Grows each time the slot is reused.
    pub generation: u32,
    /// Sequences of its messages, ascending.
    pub seqs: VecDeque<u64>,
    unsorted: bool,
}

/// A tenant.
#[derive(Debug)]
pub struct Tenant {
    /// Its name.
    pub name: Box<str>,
    /// Its number in this process; `None` if it is on disk but not in the registry.
    pub id: Option<TenantId>,
    by_name: HashMap<Arc<str>, u32, FixedState>,
    /// The same, in order, for filters with a literal beginning.
    in_order: BTreeMap<Arc<str>, u32>,
    /// Spilled messages of each session.
    pub spills: BTreeMap<SessionUid, VecDeque<u64>>,
    /// All spilled messages.
    pub spilled: VecDeque<u64>,
    /// What each shard needs.
    pub floors: Vec<Floor>,
    /// Everything up to here is gone from the log.
    pub trimmed: u64,
    /// It was deleted: nothing of its log is needed.
    pub ended: bool,
    /// Bytes of its messages.
    pub bytes: u64,
    /// Number of its messages.
    pub count: u64,
    /// Most bytes that it may have, if that is not what holds for all.
    pub limit: Option<Limit>,
    /// How often its limit was met: messages went, or would have.
    pub hits: (u64, u64),
    /// It is over a limit that only counts.
    pub over: bool,
}

/// All tenants and topics.
#[derive(Debug)]
pub struct Tenants {
    seed: u64,
    shards: usize,
    tenants: Vec<Tenant>,
    slots: HashMap<Box<str>, u32, FixedState>,
    by_id: Vec<u32>,
    topics: Vec<Topic>,
    free: Vec<u32>,
    /// Sequences that all lists of topics have room for.
    room: usize,
}

impl Tenants {
    /// None yet.
    #[must_use]
    pub fn new(seed: u64, shards: usize) -> Tenants {
        Tenants {
            seed,
            shards,
            tenants: Vec::new(),
            slots: HashMap::with_hasher(FixedState::with_seed(seed)),
            by_id: Vec::new(),
            topics: Vec::new(),
            free: Vec::new(),
            room: 0,
        }
    }

    /// Takes in the node's tenants; those that are not among them are unknown from now on.
    pub fn register(&mut self, registry: &Registry) {
        for tenant in &mut self.tenants {
            tenant.id = tenant.id.filter(|id| registry.name(*id) == Some(&*tenant.name));
        }
        self.by_id.fill(u32::MAX);
        for id in registry.ids() {
            let Some(name) = registry.name(id) else { continue };
            let slot = self.slot(name);
            let tenant = &mut self.tenants[slot as usize];
            if tenant.id.replace(id) != Some(id) {
                tenant.floors.fill(Floor::Unknown);
                tenant.ended = false;
            }
            let ix = id.0 as usize;
            if self.by_id.len() <= ix {
                self.by_id.resize(ix + 1, u32::MAX);
            }
            self.by_id[ix] = slot;
        }
    }

    /// The slot of the tenant called `name`, made if needed.
    pub fn slot(&mut self, name: &str) -> u32 {
        if let Some(&slot) = self.slots.get(name) {
            return slot;
        }
        let slot = self.tenants.len() as u32;
        self.tenants.push(Tenant {
            name: name.into(),
            id: None,
            by_name: HashMap::with_hasher(FixedState::with_seed(self.seed)),
            in_order: BTreeMap::new(),
            spills: BTreeMap::new(),
            spilled: VecDeque::new(),
            floors: vec![Floor::Unknown; self.shards],
            trimmed: 0,
            ended: false,
            bytes: 0,
            count: 0,
            limit: None,
            hits: (0, 0),
            over: false,
        });
        self.slots.insert(name.into(), slot);
        slot
    }

    /// The slot of a registered tenant.
    #[must_use]
    pub fn slot_of(&self, id: TenantId) -> Option<u32> {
        self.by_id.get(id.0 as usize).copied().filter(|&s| s != u32::MAX)
    }

    /// A tenant by slot. Slots come from this table and are never reused.
    #[must_use]
    pub fn get(&self, slot: u32) -> &Tenant {
        &self.tenants[slot as usize]
    }

    /// The same, to change.
    pub fn get_mut(&mut self, slot: u32) -> &mut Tenant {
        &mut self.tenants[slot as usize]
    }

    /// All tenants.
    pub fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter()
    }

    /// Number of tenants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tenants.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Everything up to here is gone from a tenant's log.
    #[must_use]
    pub fn trimmed(&self, slot: u32) -> u64 {
        self.tenants[slot as usize].trimmed
    }

    /// Changes a tenant's totals.
    pub fn account(&mut self, slot: u32, bytes: i64, count: i64) {
        let tenant = &mut self.tenants[slot as usize];
        tenant.bytes = tenant.bytes.saturating_add_signed(bytes);
        tenant.count = tenant.count.saturating_add_signed(count);
    }

    /// The number of a topic, made if needed.
    pub fn topic(&mut self, slot: u32, name: &str) -> u32 {
        let tenant = &mut self.tenants[slot as usize];
        if let Some(&topic) = tenant.by_name.get(name) {
            return topic;
        }
        let name: Arc<str> = name.into();
        let ix = match self.free.pop() {
            Some(ix) => {
                let topic = &mut self.topics[ix as usize];
                topic.tenant = slot;
                topic.name = name.clone();
                ix
            }
            None => {
                let topic = Topic {
                    tenant: slot,
                    name: name.clone(),
                    generation: 0,
                    seqs: VecDeque::new(),
                    unsorted: false,
                };
                self.topics.push(topic);
                (self.topics.len() - 1) as u32
            }
        };
        tenant.by_name.insert(name.clone(), ix);
        tenant.in_order.insert(name, ix);
        ix
    }

    /// Enters a message above all others.
    pub fn push(&mut self, slot: u32, name: &str, seq: u64) -> u32 {
        let ix = self.topic(slot, name);
        self.room += push_lean(&mut self.topics[ix as usize].seqs, seq);
        ix
    }

    /// Enters a message while loading, in any order.
    pub fn load(&mut self, topic: u32, seq: u64) {
        let topic = &mut self.topics[topic as usize];
        topic.unsorted |= topic.seqs.back().is_some_and(|&last| last > seq);
        self.room += push_lean(&mut topic.seqs, seq);
    }

    /// Ends loading.
    pub fn settle(&mut self) {
        for topic in self.topics.iter_mut().filter(|t| t.unsorted) {
            topic.seqs.make_contiguous().sort_unstable();
            topic.unsorted = false;
        }
        for ix in 0..self.topics.len() as u32 {
            self.release_if_empty(ix);
        }
    }

    /// Enters a spilled message.
    pub fn spill(&mut self, slot: u32, seq: u64, uids: &[SessionUid]) {
        let tenant = &mut self.tenants[slot as usize];
        tenant.spilled.push_back(seq);
        for &uid in uids {
            let list = tenant.spills.entry(uid).or_default();
            if list.back() != Some(&seq) {
                push_lean(list, seq);
            }
        }
    }

    /// A topic by number.
    #[must_use]
    pub fn topic_at(&self, ix: u32) -> Option<&Topic> {
        self.topics.get(ix as usize)
    }

    /// The number of a topic that has messages.
    #[must_use]
    pub fn find(&self, slot: u32, name: &str) -> Option<u32> {
        self.tenants[slot as usize].by_name.get(name).copied()
    }

    /// Topics of a tenant whose names begin with `prefix`, in order.
    pub fn with_prefix<'a>(&'a self, slot: u32, prefix: &'a str) -> impl Iterator<Item = (&'a str, u32)> {
        let tenant = &self.tenants[slot as usize];
        let range = tenant.in_order.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        range.map(|(name, &ix)| (&**name, ix)).take_while(move |(name, _)| name.starts_with(prefix))
    }

    /// Number of topic slots.
    #[must_use]
    pub fn topic_slots(&self) -> u32 {
        self.topics.len() as u32
    }

    /// Takes the oldest message of a topic if it is not above `floor`.
    pub fn pop(&mut self, ix: u32, floor: u64) -> Option<u64> {
        let seqs = &mut self.topics[ix as usize].seqs;
        if seqs.front().is_some_and(|&s| s <= floor) { seqs.pop_front() } else { None }
    }

    /// Frees a topic without messages, and the spare memory of one that shrank.
    pub fn release_if_empty(&mut self, ix: u32) {
        let topic = &mut self.topics[ix as usize];
        if !topic.seqs.is_empty() {
            let room = topic.seqs.capacity();
            if room > 64 && topic.seqs.len() < room / 4 {
                topic.seqs.shrink_to(topic.seqs.len() * 2);
                self.room -= room - topic.seqs.capacity();
            }
            return;
        }
        let tenant = &mut self.tenants[topic.tenant as usize];
        if tenant.by_name.get(&*topic.name) != Some(&ix) {
            return;
        }
        tenant.by_name.remove(&*topic.name);
        tenant.in_order.remove(&*topic.name);
        topic.generation = topic.generation.wrapping_add(1);
        self.room -= topic.seqs.capacity();
        topic.seqs = VecDeque::new();
        topic.name = Arc::from("");
        self.free.push(ix);
    }

    /// Bytes of memory that the lists of sequences take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.room * size_of::<u64>()
    }
}

/// Pushes with growth by a quarter instead of doubling, which keeps the memory per message low. Returns by how
/// many sequences the list's room grew.
fn push_lean(list: &mut VecDeque<u64>, seq: u64) -> usize {
    let room = list.capacity();
    if list.len() == room && list.len() >= 64 {
        list.reserve_exact(list.len() / 4);
    }
    list.push_back(seq);
    list.capacity() - room
}
