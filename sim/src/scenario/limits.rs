//! Limits of tenants in scenarios: drawn for some tenants, changed while running, lifted when the world becomes calm,
//! because then everybody must be able to come back and finish.

use super::Scenario;
use crate::draw::Draw;
use mast_core::tenant::limits::{Limit, TenantLimits};
use serde::{Deserialize, Serialize};

/// Limits of one tenant from some time on, in place of those that it had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedLimits {
    /// From when.
    pub at_ms: u64,
    /// Whose.
    pub tenant: u8,
    /// Name, value, and whether it only counts.
    pub rows: Vec<(String, u64, bool)>,
}

impl TimedLimits {
    /// As the core takes them. A name that is none is left out.
    #[must_use]
    pub fn limits(&self) -> TenantLimits {
        let mut limits = TenantLimits::default();
        for (name, value, observe) in &self.rows {
            let set = limits.set(name, Some(Limit { value: *value, observe: *observe }));
            debug_assert!(set.is_ok(), "{name}");
        }
        limits
    }
}

/// What may be drawn, with little and much of it.
const DRAWN: [(&str, u64, u64); 11] = [
    ("connections", 1, 5),
    ("persistent_sessions", 1, 5),
    ("subscriptions", 1, 12),
    ("subscriptions_per_client", 1, 5),
    ("shared_groups", 1, 2),
    ("group_members", 1, 3),
    ("connects_per_second", 1, 5),
    ("publishes_per_second", 2, 50),
    ("publish_bytes_per_second", 200, 5_000),
    ("deliveries_per_second", 5, 100),
    ("delivery_bytes_per_second", 500, 10_000),
];

/// Draws placements and limits into a scenario, or none.
pub(super) fn add(scenario: &mut Scenario, d: &mut Draw) {
    let (placed, limited) = (d.chance(40), d.chance(40));
    if placed {
        scenario.topology.one_shard = (0..scenario.topology.tenants).map(|_| d.chance(60)).collect();
    }
    if !limited {
        return;
    }
    for tenant in 0..scenario.topology.tenants {
        if d.chance(30) {
            continue;
        }
        let changes = d.range(1, 3);
        for change in 0..changes {
            let at_ms = if change == 0 { 0 } else { d.range(1_000, scenario.calm_at_ms) };
            let mut rows = Vec::new();
            for (name, least, most) in DRAWN {
                if d.chance(35) {
                    rows.push((name.to_owned(), d.range(least, most), d.chance(20)));
                }
            }
            scenario.limits.push(TimedLimits { at_ms, tenant, rows });
        }
        // Where nothing is refused any more, the account may still be kept.
        let kept = if d.chance(60) { &DRAWN[..5] } else { &[] };
        let rows = kept.iter().map(|(name, ..)| ((*name).to_owned(), 1_000_000, false)).collect();
        scenario.limits.push(TimedLimits { at_ms: scenario.calm_at_ms, tenant, rows });
    }
    scenario.limits.sort_by_key(|l| l.at_ms);
}
