//! Limits of tenants as data: which there are ([`table`]), what a tenant has of them, and the name of each.
//! Nothing is enforced here.

pub mod table;

use crate::ids::TenantId;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
pub use table::{LIMITS, Row, Unit};

/// A limit of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In the unit of its row; [`Limit::NONE`] = no limit, whatever holds for all tenants.
    pub value: u64,
    /// Nothing is refused or slowed: what would have been is counted.
    pub observe: bool,
}

impl Limit {
    /// The value that lifts what holds for all tenants.
    pub const NONE: u64 = u64::MAX;

    /// A limit that is enforced.
    #[must_use]
    pub const fn enforced(value: u64) -> Limit {
        Limit { value, observe: false }
    }

    /// A limit that only counts.
    #[must_use]
    pub const fn observed(value: u64) -> Limit {
        Limit { value, observe: true }
    }
}

/// What one tenant has of every row of the table; `None` = what holds for all tenants, or the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// By [`Row`].
    pub rows: [Option<Limit>; LIMITS.len()],
}

/// Why a value is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLimit(pub String);

impl TenantLimits {
    /// The limit of a row, if one is set.
    #[must_use]
    pub fn get(&self, row: Row) -> Option<Limit> {
        self.rows[row as usize].filter(|l| l.value != Limit::NONE)
    }

    /// Sets the row called `name`, or takes its limit away.
    ///
    /// # Errors
    /// There is no such row, or the value is out of its range; the text names the way out.
    pub fn set(&mut self, name: &str, limit: Option<Limit>) -> Result<(), BadLimit> {
        let Some(row) = Row::named(name) else {
            let mut text = String::from("no limit is called \"");
            text.extend(name.chars().take(64).flat_map(char::escape_debug));
            text.push_str("\"; `mast limits reference` lists them");
            return Err(BadLimit(text));
        };
        if let Some(limit) = limit {
            row.check(limit.value)?;
        }
        self.rows[row as usize] = limit;
        Ok(())
    }

    /// These limits, and where a row is not set, that of `others`.
    #[must_use]
    pub fn over(&self, others: &TenantLimits) -> TenantLimits {
        let mut merged = self.clone();
        for (mine, other) in merged.rows.iter_mut().zip(others.rows) {
            *mine = mine.or(other);
        }
        merged
    }

    /// Nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Row::all().all(|row| self.get(row).is_none())
    }
}

impl Row {
    /// All rows, in the order of the table.
    pub fn all() -> impl Iterator<Item = Row> {
        LIMITS.iter().map(|l| l.row)
    }

    /// The row with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Row> {
        LIMITS.iter().find(|l| l.name == name).map(|l| l.row)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        LIMITS[self as usize].name
    }

    /// Checks a value for it. [`Limit::NONE`] is good for every row.
    ///
    /// # Errors
    /// Out of range; the text says which the range is.
    pub fn check(self, value: u64) -> Result<(), BadLimit> {
        let def = &LIMITS[self as usize];
        let (min, max) = def.unit.range();
        if value == Limit::NONE || (min..=max).contains(&value) {
            return Ok(());
        }
        let mut text = String::from(def.name);
        text.push_str(" takes ");
        text.push_str(&min.to_string());
        text.push_str(" to ");
        text.push_str(&max.to_string());
        text.push_str(", not ");
        text.push_str(&value.to_string());
        Err(BadLimit(text))
    }
}

/// The limits of all tenants of a node.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    all: Arc<TenantLimits>,
    own: BTreeMap<TenantId, Arc<TenantLimits>>,
}

impl Limits {
    /// Limits that hold for every tenant, where it has none of its own.
    #[must_use]
    pub fn shared(all: TenantLimits) -> Limits {
        Limits { all: Arc::new(all), own: BTreeMap::new() }
    }

    /// Gives `tenant` limits of its own; rows that they leave open are those of all tenants.
    pub fn give(&mut self, tenant: TenantId, limits: TenantLimits) {
        self.own.insert(tenant, Arc::new(limits));
    }

    /// What holds for `tenant`.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> TenantLimits {
        let own = self.own.get(&tenant);
        own.map_or_else(|| TenantLimits::clone(&self.all), |own| own.over(&self.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_number_and_have_names_of_their_own() {
        for (index, def) in LIMITS.iter().enumerate() {
            assert_eq!(def.row as usize, index, "{}", def.name);
            assert_eq!(Row::named(def.name), Some(def.row));
            for text in [def.meaning, def.v5, def.v3] {
                assert!(text.ends_with('.'), "{}: {text}", def.name);
            }
        }
    }

    #[test]
    fn a_tenant_s_own_limit_stands_before_that_of_all_and_may_lift_it() {
        let mut all = TenantLimits::default();
        all.set("connections", Some(Limit::enforced(5))).expect("good");
        all.set("subscriptions", Some(Limit::enforced(9))).expect("good");
        let mut own = TenantLimits::default();
        own.set("connections", Some(Limit::enforced(Limit::NONE))).expect("good");
        let mut limits = Limits::shared(all);
        limits.give(TenantId(1), own);
        assert_eq!(limits.of(TenantId(0)).get(Row::Connections), Some(Limit::enforced(5)));
        assert_eq!(limits.of(TenantId(1)).get(Row::Connections), None);
        assert_eq!(limits.of(TenantId(1)).get(Row::Subscriptions), Some(Limit::enforced(9)));
    }

    #[test]
    fn a_name_that_is_none_and_a_value_out_of_range_are_refused_and_change_nothing() {
        let mut limits = TenantLimits::default();
        let unknown = limits.set("conections", Some(Limit::enforced(1))).expect_err("no such row");
        assert!(unknown.0.contains("conections"), "{}", unknown.0);
        let range = limits.set("max_qos", Some(Limit::enforced(3))).expect_err("out of range");
        assert_eq!(range.0, "max_qos takes 0 to 2, not 3");
        assert!(limits.is_empty());
    }
}
