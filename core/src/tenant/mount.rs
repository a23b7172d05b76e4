//! The mount: the only way from what a client wrote to a topic inside the broker, and back.
//!
//! Inside, a topic is (tenant, topic). [`TenantTopic`] has no public constructor besides
//! [`Mount::mount`], and routing, retained storage and the log accept nothing else; what the encoder
//! sends to a client comes from [`Mount::unmount`], which answers only for its own tenant. So a
//! forgotten mount does not compile, and a message that strayed is not sent.

use crate::ids::TenantId;
use crate::message::Message;

/// A connection's place in the topic space: its tenant, as authentication found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    tenant: TenantId,
}

/// A topic name or filter under its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantTopic<'a> {
    tenant: TenantId,
    topic: &'a str,
}

impl Mount {
    /// The mount of `tenant`. Only admission and restoring call this, with the authenticated tenant.
    #[must_use]
    pub const fn new(tenant: TenantId) -> Mount {
        Mount { tenant }
    }

    /// The tenant.
    #[must_use]
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }

    /// Puts a client's topic or filter under the tenant.
    #[must_use]
    pub const fn mount(self, topic: &str) -> TenantTopic<'_> {
        TenantTopic { tenant: self.tenant, topic }
    }

    /// What this mount's clients may see of `message`: its topic, or `None` if it is another tenant's.
    #[must_use]
    pub fn unmount(self, message: &Message) -> Option<&str> {
        (message.tenant == self.tenant).then(|| message.topic())
    }
}

impl<'a> TenantTopic<'a> {
    /// The tenant.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The tenant-local text: for indexes and the log, never for a client.
    #[must_use]
    pub const fn local(&self) -> &'a str {
        self.topic
    }
}
