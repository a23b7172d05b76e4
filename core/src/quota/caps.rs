//! What a connection may: the node's settings under its tenant's limits. Computed at CONNECT; what the client was
//! told then holds for as long as it is connected, where the table says so.

use crate::codec::{Connect, Version};
use crate::ids::TenantId;
use crate::message::QoS;
use crate::settings::{OfflineLimits, Settings};
use crate::shard::Shard;
use crate::tenant::limits::{Limit, Row};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub max_packet: u32,
    pub receive_maximum: u16,
    pub max_qos: QoS,
    pub retain: bool,
    pub wildcards: bool,
    pub shared: bool,
    pub aliases: u16,
    pub session_expiry: u32,
    keep_alive_min: u16,
    keep_alive_max: u16,
    /// The maximum is the tenant's: it holds for clients, too, that cannot be told.
    strict_keep_alive: bool,
}

impl Shard {
    pub(crate) fn caps(&self, tenant: TenantId) -> Caps {
        let s: &Settings = &self.plane.settings;
        let value = |row| self.limit(tenant, row).filter(|l| !l.observe).map(|l| l.value);
        let under = |row, own: u64| value(row).map_or(own, |v| v.min(own));
        let on = |row, own: bool| own && value(row) != Some(0);
        let max_qos = under(Row::MaxQos, s.max_qos as u64) as u8;
        let own_max = value(Row::KeepAliveMax).map(|v| v as u16);
        Caps {
            max_packet: under(Row::PacketSize, u64::from(s.max_packet)) as u32,
            receive_maximum: under(Row::ReceiveMaximum, u64::from(s.receive_maximum)) as u16,
            max_qos: QoS::from_bits(max_qos).unwrap_or(s.max_qos),
            retain: on(Row::Retain, s.retain_available),
            wildcards: on(Row::Wildcards, s.wildcard_available),
            shared: on(Row::SharedSubscriptions, s.shared_available),
            aliases: under(Row::TopicAliasMaximum, u64::from(s.topic_alias_max)) as u16,
            session_expiry: under(Row::SessionExpiry, u64::from(s.session_expiry_max)) as u32,
            keep_alive_min: value(Row::KeepAliveMin).unwrap_or(0) as u16,
            keep_alive_max: match (own_max, s.keep_alive_max) {
                (Some(own), 0) => own,
                (Some(own), node) => own.min(node),
                (None, node) => node,
            },
            strict_keep_alive: own_max.is_some(),
        }
    }

    /// What may be kept for an absent session of the tenant.
    pub(crate) fn offline_limits(&self, tenant: TenantId) -> OfflineLimits {
        let mut limits = self.plane.settings.offline;
        let value = |row| self.limit(tenant, row).filter(|l| !l.observe).map(|l| l.value);
        limits.max_messages = value(Row::OfflineMessages).unwrap_or(limits.max_messages);
        limits.max_bytes = value(Row::OfflineBytes).unwrap_or(limits.max_bytes);
        limits
    }

    /// Some tenant has limits of its own on what is kept for absent sessions.
    pub(crate) fn has_offline_limits(&self) -> bool {
        self.tenants.iter().filter_map(|t| t.quota.as_ref()).any(|q| {
            q.limits.get(Row::OfflineMessages).is_some() || q.limits.get(Row::OfflineBytes).is_some()
        })
    }

    /// The least number of messages that any limit on an absent session, also one that only counts, speaks of.
    pub(crate) fn least_offline_messages(&self, tenant: TenantId, enforced: u64) -> u64 {
        let bytes = self.limit(tenant, Row::OfflineBytes).map_or(u64::MAX, |_| 0);
        let messages = self.limit(tenant, Row::OfflineMessages).map_or(u64::MAX, |l| l.value);
        enforced.min(messages).min(bytes)
    }

    /// A limit on what is kept for an absent session has bound.
    pub(crate) fn offline_hit(&mut self, tenant: TenantId, messages: bool) {
        self.told_limit_hit(tenant, if messages { Row::OfflineMessages } else { Row::OfflineBytes });
    }

    /// Counts what an absent session was owed when it came back, against limits that only count.
    pub(crate) fn observe_backlog(&mut self, tenant: TenantId, messages: u64, bytes: u64) {
        for (row, value) in [(Row::OfflineMessages, messages), (Row::OfflineBytes, bytes)] {
            if self.limit(tenant, row).is_some_and(|l| l.observe) {
                self.over(tenant, row, value);
            }
        }
    }
}

impl Caps {
    /// Keep alive under the operator's bounds, seconds; a client that wants none gets the greatest. Before MQTT 5 a
    /// client cannot be told of a shorter one, so its own holds (3.1.1, [MQTT-3.1.2-24]), unless its tenant's limit
    /// says that silence may not last longer.
    pub fn keep_alive(&self, version: Version, asked: u16) -> u16 {
        let granted = match (asked, self.keep_alive_max) {
            (asked, 0) => asked,
            (0, max) => max,
            (asked, max) if version.is_v5() || self.strict_keep_alive => asked.min(max),
            (asked, _) => asked,
        };
        if granted == 0 { 0 } else { granted.max(self.keep_alive_min) }
    }

    /// Session expiry of a CONNECT, seconds.
    pub fn expiry(&self, connect: &Connect<'_>, v3_expiry: u32) -> u32 {
        asked_expiry(connect, v3_expiry).min(self.session_expiry)
    }
}

/// Session expiry that a CONNECT asks for, seconds.
pub(crate) fn asked_expiry(connect: &Connect<'_>, v3_expiry: u32) -> u32 {
    match connect.version {
        Version::V5 => connect.props.session_expiry().unwrap_or(0),
        Version::V31 | Version::V311 if connect.clean_start => 0,
        Version::V31 | Version::V311 => v3_expiry,
    }
}

/// Whether a keep alive is out of a limit's range; none is longer than any.
pub(crate) fn keep_alive_over(row: Row, limit: Limit, asked: u16) -> bool {
    match row {
        Row::KeepAliveMin => asked != 0 && u64::from(asked) < limit.value,
        _ => asked == 0 || u64::from(asked) > limit.value,
    }
}
