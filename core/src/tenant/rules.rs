//! The access control lists of a node: a tenant's own one, or the one that all others share.

use crate::authz::Acl;
use crate::ids::TenantId;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// Which rules are for which tenant.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    shared: Option<Arc<Acl>>,
    own: BTreeMap<TenantId, Arc<Acl>>,
}

impl Rules {
    /// Rules for every tenant that has none of its own; `None` = everything is allowed there.
    #[must_use]
    pub fn shared(acl: Option<Arc<Acl>>) -> Rules {
        Rules { shared: acl, own: BTreeMap::new() }
    }

    /// Gives `tenant` its own rules, which stand instead of the shared ones, not beside them.
    pub fn give(&mut self, tenant: TenantId, acl: Arc<Acl>) {
        self.own.insert(tenant, acl);
    }

    /// The rules of `tenant`; `None` = everything is allowed.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> Option<&Arc<Acl>> {
        self.own.get(&tenant).or(self.shared.as_ref()).filter(|acl| !acl.is_open())
    }
}
