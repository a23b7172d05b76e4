//! All that a shard is told about tenants: who they are, and what holds for each. One value, so that a change is
//! put in force whole or not at all.

use crate::tenant::limits::Limits;
use crate::tenant::registry::Registry;
use crate::tenant::rules::Rules;

/// The tenants of a node and what holds for them.
#[derive(Clone, Debug, Default)]
pub struct Tenancy {
    /// Who they are. A shard takes in tenants that it does not have yet, and lets in no clients of one that is not there
    /// any more.
    pub registry: Registry,
    /// Their access control lists.
    pub rules: Rules,
    /// How much each may have.
    pub limits: Limits,
}
