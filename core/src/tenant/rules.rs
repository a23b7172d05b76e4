//! The rules of a node: whose lists are whose. The operator's ordered rules are for every tenant; a tenant has
//! ordered rules of its own, and a list in mosquitto's form, its own or the one that all others share.

use crate::authz::{Acl, Policy, RuleList};
use crate::ids::TenantId;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// Which rules are for which tenant.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    node: Option<Arc<RuleList>>,
    shared: Option<Arc<Acl>>,
    own: BTreeMap<TenantId, Arc<Acl>>,
    ordered: BTreeMap<TenantId, Arc<RuleList>>,
    allow_otherwise: bool,
}

impl Rules {
    /// A list for every tenant that has none of its own; `None` = everything is allowed there.
    #[must_use]
    pub fn shared(acl: Option<Arc<Acl>>) -> Rules {
        Rules { shared: acl, ..Rules::default() }
    }

    /// Gives `tenant` its own list, which stands instead of the shared one, not beside it.
    pub fn give(&mut self, tenant: TenantId, acl: Arc<Acl>) {
        self.own.insert(tenant, acl);
    }

    /// Gives `tenant` ordered rules; they are asked before its list.
    pub fn give_ordered(&mut self, tenant: TenantId, rules: Arc<RuleList>) {
        self.ordered.insert(tenant, rules);
    }

    /// Rules of the node's operator; they are asked before those of any tenant. `None` = none.
    pub fn set_node(&mut self, rules: Option<Arc<RuleList>>) {
        self.node = rules;
    }

    /// Whether that is allowed which no rule decides, for tenants that no list stands for.
    pub fn set_allow_otherwise(&mut self, allow: bool) {
        self.allow_otherwise = allow;
    }

    /// What of all this stands for `tenant`; `None` = everything is allowed.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> Option<Policy<'_>> {
        let list = self.own.get(&tenant).or(self.shared.as_ref()).map(|acl| &**acl);
        let policy = Policy {
            node: self.node.as_deref(),
            tenant: self.ordered.get(&tenant).map(|rules| &**rules),
            list: list.filter(|acl| !acl.is_open()),
            allow_otherwise: self.allow_otherwise,
        };
        (!policy.is_open()).then_some(policy)
    }
}
