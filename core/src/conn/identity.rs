//! Who a client is, as authentication found it, and what else its proof says: that decides over its rights.

use crate::ids::TenantId;
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::IpAddr;

/// Attributes of a client by name, for rules.
pub type Attributes = BTreeMap<Box<str>, Box<str>>;

/// Who a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The tenant: never from anything that the client asserts in a topic or property.
    pub tenant: TenantId,
    /// The user; `None` = anonymous. Owns the sessions that it makes.
    pub principal: Option<Box<str>>,
    /// When the proof ends (a token's expiry): so does the connection. `None` = never.
    pub expires: Option<Wall>,
    /// What rules may ask about besides.
    pub claims: Claims,
}

impl Identity {
    /// A client of which nothing else is known, for as long as it likes.
    #[must_use]
    pub fn new(tenant: TenantId, principal: Option<Box<str>>) -> Identity {
        Identity { tenant, principal, expires: None, claims: Claims::default() }
    }
}

/// What a proof says besides the name. Most say nothing, so nothing is allocated for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The rules of its tenant don't apply to it; denials of the node's operator do.
    pub superuser: bool,
    /// Attributes; `None` = none.
    pub attributes: Option<Arc<Attributes>>,
    /// Groups that the user is in; `None` = none.
    pub groups: Option<Arc<[Box<str>]>>,
    /// The client's address, behind trusted proxies; `None` for unix sockets.
    pub source: Option<IpAddr>,
}

impl Claims {
    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.as_ref().and_then(|a| a.get(name)).map(|v| &**v)
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.as_ref().is_some_and(|g| g.iter().any(|name| &**name == group))
    }

    /// Whether the proof says anything of its user, so that a session's record must keep it.
    #[must_use]
    pub fn says_something(&self) -> bool {
        self.superuser || self.attributes.is_some() || self.groups.is_some()
    }
}
