//! Trim by need: what no session needs any more leaves the index, in slices, so that the lock is never held long.

use super::Index;
use super::tenants::Floor;
use mast_core::time::Wall;
use std::time::Duration;

/// When the log is cut whoever may still need it, and when not although nobody does.
#[derive(Clone, Debug)]
pub struct TrimRules {
    /// Messages stay at least this long.
    pub min_retention: Duration,
    /// `min_retention` holds only as long as the journal is smaller than this.
    pub retention_bytes: u64,
    /// Messages go after this, also if a session still needs them.
    pub max_age: Duration,
    /// A tenant's oldest messages go beyond this many bytes of messages.
    pub tenant_bytes: u64,
}

/// The time `age` before `now`; `None` before the clock's beginning.
fn before(now: Wall, age: Duration) -> Option<Wall> {
    now.0.checked_sub(age.as_millis() as u64).map(Wall)
}

impl super::tenants::Tenant {
    /// Counts that the tenant is over its own limit.
    fn count_limit(&mut self) {
        let Some(limit) = self.limit else { return };
        let over = self.bytes > limit.value;
        if limit.observe {
            // Once for each time that it grows beyond: nothing brings it back at once.
            self.hits.1 += u64::from(over && !self.over);
        } else {
            self.hits.0 += u64::from(over);
        }
        self.over = over;
    }
}

impl Index {
    /// The sequence up to which the log of the tenant in `slot` may go now. With `hurry` the
    /// minimum retention does not count.
    #[must_use]
    pub fn trim_target(&self, slot: u32, rules: &TrimRules, now: Wall, head: u64, hurry: bool) -> u64 {
        let tenant = self.tenants.get(slot);
        if tenant.ended {
            return head;
        }
        let mut need = head;
        for floor in &tenant.floors {
            match floor {
                Floor::Unknown => need = 0,
                Floor::Nothing => {}
                Floor::Above(seq) => need = need.min(*seq),
            }
        }
        if !hurry {
            need = need.min(self.older_than(now, rules.min_retention));
        }
        let mut target = need.max(self.older_than(now, rules.max_age)).max(tenant.trimmed);
        let enforced = tenant.limit.filter(|l| !l.observe).map_or(rules.tenant_bytes, |l| l.value);
        if tenant.bytes > enforced {
            target = target.max(self.over_limit(slot, enforced));
        }
        target.min(head)
    }

    /// The last sequence that is surely older than `age`.
    fn older_than(&self, now: Wall, age: Duration) -> u64 {
        before(now, age).map_or(0, |wall| self.seq_at(wall))
    }

    /// The sequence up to which a tenant must be cut to fall a twentieth below `limit`.
    fn over_limit(&self, slot: u32, limit: u64) -> u64 {
        let tenant = self.tenants.get(slot);
        let mut excess = tenant.bytes - (limit - limit / 20);
        let mut at = tenant.trimmed;
        let mut budget = u32::MAX;
        while let Ok(Some((seq, place))) = self.blocks.next(at, u64::MAX, &mut budget) {
            at = seq;
            let owner = if place.spilled {
                tenant.spilled.binary_search(&seq).ok().map(|_| slot)
            } else {
                self.tenants.topic_at(place.topic).map(|t| t.tenant)
            };
            if owner == Some(slot) {
                excess = excess.saturating_sub(u64::from(place.size));
                if excess == 0 {
                    break;
                }
            }
        }
        at
    }

    /// Raises the trim marks of all tenants; true if any rose.
    pub fn raise_marks(&mut self, rules: &TrimRules, now: Wall, head: u64, hurry: bool) -> bool {
        let mut rose = false;
        for slot in 0..self.tenants.len() as u32 {
            let target = self.trim_target(slot, rules, now, head, hurry);
            let tenant = self.tenants.get_mut(slot);
            tenant.count_limit();
            if target > tenant.trimmed {
                tenant.trimmed = target;
                rose |= tenant.count > 0;
            }
        }
        rose
    }

    /// Lets go of what lies below the marks, topics from number `from` on, until about `budget` steps are
    /// done. Returns where to go on.
    pub fn sweep(&mut self, from: u32, budget: u32) -> Option<u32> {
        let mut left = budget;
        let mut ix = from;
        while ix < self.tenants.topic_slots() {
            let Some(topic) = self.tenants.topic_at(ix) else { break };
            let tenant = topic.tenant;
            let floor = self.tenants.trimmed(tenant);
            let mut popped = false;
            while let Some(seq) = self.tenants.pop(ix, floor) {
                self.forget(tenant, seq);
                popped = true;
                left = left.saturating_sub(1);
                if left == 0 {
                    return Some(ix);
                }
            }
            if popped {
                self.tenants.release_if_empty(ix);
            }
            left = left.saturating_sub(1);
            ix += 1;
            if left == 0 {
                return Some(ix);
            }
        }
        self.sweep_spills();
        None
    }

    /// Lets go of spilled messages. They are few: only what slow sessions could not take.
    fn sweep_spills(&mut self) {
        for slot in 0..self.tenants.len() as u32 {
            let floor = self.tenants.trimmed(slot);
            let tenant = self.tenants.get_mut(slot);
            let cut = tenant.spilled.partition_point(|&s| s <= floor);
            if cut == 0 {
                continue;
            }
            let gone: Vec<u64> = tenant.spilled.drain(..cut).collect();
            tenant.spills.retain(|_, list| {
                let cut = list.partition_point(|&s| s <= floor);
                list.drain(..cut);
                !list.is_empty()
            });
            for seq in gone {
                self.forget(slot, seq);
            }
        }
    }
}
