//! Limits of tenants in the world: what is in force, that no count is ever above it, and that what the shards count is
//! what there is.

use super::World;
use mast_core::ids::TenantId;
use mast_core::sys::Usage;
use mast_core::tenant::limits::{Limits, Row};

/// Rows whose count may never be above its limit.
const COUNTED: [Row; 4] = [Row::Connections, Row::PersistentSessions, Row::Subscriptions, Row::SharedGroups];
/// Time that a change, or what was restored, takes to be known to all shards, µs.
const SETTLES: u64 = 1_000_000;

/// How much of each counted row a tenant may have, given that nobody is cut when a limit sinks.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    /// Until then everything is allowed.
    from: u64,
    /// By tenant and row; empty = to be looked up.
    most: Vec<[u64; 4]>,
}

impl World {
    /// The limits of this time.
    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for timed in &self.scenario.limits {
            if self.started + timed.at_ms * 1000 <= self.now {
                limits.give(TenantId(u32::from(timed.tenant)), timed.limits());
            }
        }
        limits
    }

    /// Limits or shards are new.
    pub(super) fn limits_unsettled(&mut self) {
        let peers = self.scenario.world.peer_delay_us;
        self.allowed = Allowed { from: self.now + SETTLES + 10 * peers, most: Vec::new() };
    }

    fn usage(&self, tenant: usize) -> Usage {
        let mut sum = Usage::default();
        for shard in self.node.iter().flat_map(|n| &n.shards) {
            if let Some((_, part)) = shard.tenant_usage().nth(tenant) {
                sum.add(&part.usage);
            }
        }
        sum
    }

    /// No count is above its limit.
    pub(super) fn watch_limits(&mut self) {
        if self.scenario.limits.is_empty() || self.now < self.allowed.from || self.node.is_none() {
            return;
        }
        let limits = self.limits();
        let fresh = self.allowed.most.is_empty();
        for tenant in 0..usize::from(self.scenario.topology.tenants) {
            let usage = self.usage(tenant);
            let set = limits.of(TenantId(tenant as u32));
            let used = COUNTED.map(|row| usage.of(row).unwrap_or(0));
            let limit = COUNTED.map(|row| set.get(row).filter(|l| !l.observe).map_or(u64::MAX, |l| l.value));
            if fresh {
                self.allowed.most.push(used);
            }
            for row in 0..COUNTED.len() {
                let most = &mut self.allowed.most[tenant][row];
                // What there was too much of may only sink.
                *most = limit[row].max((*most).min(used[row]));
                if used[row] > *most {
                    let (name, limit) = (COUNTED[row].name(), limit[row]);
                    let how = format!("tenant {tenant} has {} {name} of {limit}", used[row]);
                    self.fail("no count above its limit", &how);
                    return;
                }
                if limit[row] != u64::MAX && used[row] == limit[row] {
                    self.marks.hit("a tenant is at a limit");
                }
            }
        }
    }

    /// Everything is at rest: what is counted is what there is.
    pub(super) fn recount(&mut self) {
        let Some(node) = &self.node else { return };
        let (mut hits, mut waits) = (0, 0);
        let mut broken = None;
        for (index, shard) in node.shards.iter().enumerate() {
            for (name, told) in shard.tenant_usage() {
                let truth = shard.recount(name);
                if told.usage != truth {
                    broken =
                        Some(format!("shard {index} counts {:?} for {name}, there is {truth:?}", told.usage));
                }
                hits += told.hits.enforced.iter().sum::<u64>();
                let rates = [Row::PublishesPerSecond, Row::PublishBytesPerSecond, Row::DeliveriesPerSecond];
                waits += rates.iter().map(|row| told.hits.enforced[*row as usize]).sum::<u64>();
            }
        }
        // With limits in force, the home shard's ledger is the sum of what the shards have.
        for tenant in 0..u32::from(self.scenario.topology.tenants) {
            let ledgers = node.shards.iter().filter_map(|s| s.ledger(TenantId(tenant)));
            for ledger in ledgers {
                let usage = self.usage(tenant as usize);
                let own = COUNTED.map(|row| usage.of(row).unwrap_or(0));
                for (row, (held, own)) in ledger.into_iter().zip(own).enumerate() {
                    if held.is_some_and(|held| held != own) {
                        let name = COUNTED[row].name();
                        broken =
                            Some(format!("the ledger of tenant {tenant} has {held:?} {name}, not {own}"));
                    }
                }
            }
        }
        self.marks.many("a limit was met", hits);
        self.marks.many("something waited for a tenant's rate", waits);
        if let Some(how) = broken {
            self.fail("limits equal recomputed truth", &how);
        }
    }
}
