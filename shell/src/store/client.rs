//! The shards' handle to the store.

use super::index::tenants::Floor;
use super::shared::{CommitRequest, ReadRequest, Request, Shared, StoreHealth};
use super::stats::StoreStats;
use mast_core::ids::{OpId, ShardIx, TenantId};
use mast_core::store::key::Key;
use mast_core::store::port::{Durability, Read, Refusal, Write};
use mast_core::store::position::{Partition, Position};
use mast_core::tenant::limits::{Limits, Row};
use mast_core::tenant::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a request costs beside its bytes, about.
const REQUEST_OVERHEAD: usize = 128;

/// What a tenant has in the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogUse {
    /// Bytes of its messages.
    pub bytes: u64,
    /// Times that its oldest messages went because of its limit.
    pub enforced: u64,
    /// Times that they would have gone.
    pub observed: u64,
}

/// The shards' handle to a store. No call blocks on the disk.
#[derive(Clone)]
pub struct StoreClient {
    shared: Arc<Shared>,
}

fn bytes_of(writes: &[Write]) -> usize {
    let each = writes.iter().map(|write| match write {
        Write::Append(append) => append.message.size(),
        Write::Put { key, value, .. } => key.as_bytes().len() + value.len(),
        Write::Delete { key, .. } | Write::Check { key, .. } => key.as_bytes().len(),
    });
    each.sum::<usize>() + REQUEST_OVERHEAD
}

impl StoreClient {
    pub(super) fn new(shared: Arc<Shared>) -> StoreClient {
        StoreClient { shared }
    }

    /// Asks for a commit; its end is told to the sink of `shard`, under `op`.
    ///
    /// # Errors
    /// The queue is full (callers heed [`StoreClient::is_congested`] long before) or the store is shut
    /// down: the commit is refused, and no event will come.
    pub fn commit(
        &self,
        shard: ShardIx,
        op: OpId,
        writes: Vec<Write>,
        class: Durability,
    ) -> Result<(), Refusal> {
        let bytes = bytes_of(&writes);
        self.shared.queue.push(CommitRequest { shard, op, writes, class, bytes })
    }

    /// Asks for a read; the answer goes to the sink of `shard`, under `op`.
    ///
    /// # Errors
    /// The store is shut down: no event will come.
    pub fn read(&self, shard: ShardIx, op: OpId, read: Read) -> Result<(), Refusal> {
        let queued = self.shared.reads.push(ReadRequest { shard, op, read });
        if queued { Ok(()) } else { Err(Refusal::Unavailable) }
    }

    /// Tells how far a shard still needs a tenant's log: the lowest cursor of all its sessions that read
    /// it, those with spilled messages included; `None` if there are none. Until every shard has told for the first
    /// time, nothing of the tenant's log is trimmed by need.
    pub fn set_floor(&self, shard: ShardIx, tenant: TenantId, floor: Option<Position>) {
        let mut index = self.shared.index();
        let Some(slot) = index.tenants.slot_of(tenant) else { return };
        if let Some(entry) = index.tenants.get_mut(slot).floors.get_mut(shard.0 as usize) {
            *entry = match floor {
                Some(position) => Floor::Above(position.get(Partition(0)).0),
                None => Floor::Nothing,
            };
        }
    }

    /// Takes in the node's tenants from now on: before the shards are told of new ones, after they were told of removed
    /// ones. A commit with a message of a tenant that is not among them is refused.
    pub fn set_tenants(&self, registry: &Registry) {
        self.shared.index().tenants.register(registry);
        self.shared.registry.store(Arc::new(registry.clone()));
    }

    /// All keys that are stored under a tenant's name.
    ///
    /// # Errors
    /// The store is shut down.
    pub async fn keys_of(&self, tenant: &str) -> Result<Vec<Key>, Refusal> {
        let (reply, keys) = tokio::sync::oneshot::channel();
        let asked = self.shared.queue.push_own(Request::KeysOf { tenant: tenant.to_owned(), reply });
        if !asked {
            return Err(Refusal::Unavailable);
        }
        keys.await.map_err(|_| Refusal::Unavailable)
    }

    /// The tenant of this name has ended: nothing that the log holds under it is needed any more, and none of it is
    /// ever read again, whoever has the name later.
    pub fn end_log(&self, tenant: &str) {
        let mut index = self.shared.index();
        let slot = index.tenants.slot(tenant);
        index.tenants.get_mut(slot).ended = true;
        drop(index);
        self.shared.bell.ring();
    }

    /// Bytes and messages that the log holds of a tenant.
    #[must_use]
    pub fn log_of(&self, tenant: TenantId) -> (u64, u64) {
        let index = self.shared.index();
        let slot = index.tenants.slot_of(tenant);
        slot.map_or((0, 0), |slot| (index.tenants.get(slot).bytes, index.tenants.get(slot).count))
    }

    /// Puts tenants' own limits on the bytes of their messages in force, from the next trimming on.
    pub fn set_log_limits(&self, registry: &Registry, limits: &Limits) {
        let mut index = self.shared.index();
        for id in registry.ids() {
            if let Some(slot) = index.tenants.slot_of(id) {
                index.tenants.get_mut(slot).limit = limits.of(id).get(Row::LogBytes);
            }
        }
    }

    /// Bytes in the log, and how often a limit on them was met, by tenant; of those that have any of it.
    #[must_use]
    pub fn log_use(&self) -> BTreeMap<String, LogUse> {
        let index = self.shared.index();
        let used = index.tenants.iter().filter(|t| t.bytes > 0 || t.limit.is_some());
        used.map(|t| {
            let (enforced, observed) = t.hits;
            (t.name.to_string(), LogUse { bytes: t.bytes, enforced, observed })
        })
        .collect()
    }

    /// True if publishers should be read no further for now: the queue is over half of a bound, or
    /// changes of keys wait for their checkpoint.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.shared.queue.is_congested() || self.shared.dirty_full.load(Ordering::Relaxed)
    }

    /// Lets the keeper look now for what is due, and not at its next beat.
    pub fn wake_keeper(&self) {
        self.shared.bell.ring();
    }

    /// How the store is.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.shared.health().clone()
    }

    /// Counters, for metrics.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.shared.gauge();
        self.shared.counters.read()
    }
}
