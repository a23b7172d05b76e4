//! Limits of tenants in force: what a tenant uses, and what happens where that is all it may. A tenant on one shard
//! is counted here alone; of one that is spread over the shards its home shard keeps the ledger.

pub(crate) mod caps;
pub(crate) mod connect;
pub(crate) mod deliver;
pub(crate) mod ledger;
pub(crate) mod packet;
pub(crate) mod rate;
pub(crate) mod retained;

use crate::conn::handshake::Admission;
use crate::ids::{ConnId, ShardIx, TenantId};
use crate::quota::ledger::{Ledger, QuotaMsg};
use crate::quota::rate::Rate;
use crate::shard::Shard;
use crate::shard::peer::{GroupJoin, PeerMsg};
use crate::shard::timers::Timer;
use crate::sys::{Hits, Usage};
use crate::tenant::limits::{Limit, Row, TenantLimits};
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

/// The limits of one tenant on one shard. A tenant that has none, and never had, has no such thing.
#[derive(Debug)]
pub(crate) struct Quota {
    pub limits: TenantLimits,
    pub hits: Hits,
    /// CONNECTs; counted at home.
    pub connects: Option<Rate>,
    pub publishes: Option<Rate>,
    pub publish_bytes: Option<Rate>,
    /// Connections that are not read until there are tokens, in order.
    pub waiting: VecDeque<ConnId>,
    /// When the timer for what waits fires.
    pub armed: Option<Mono>,
    /// On the home shard of a spread tenant.
    pub ledger: Ledger,
    /// Retained messages on their way to the store, by topic.
    pub retaining: BTreeMap<Box<str>, retained::Retaining>,
    /// Topics and bytes that they add.
    pub retaining_total: (u64, u64),
    /// Some limit concerns single packets from clients.
    pub packets: bool,
}

impl Quota {
    fn new() -> Quota {
        Quota {
            limits: TenantLimits::default(),
            hits: Hits::default(),
            connects: None,
            publishes: None,
            publish_bytes: None,
            waiting: VecDeque::new(),
            armed: None,
            ledger: Ledger::default(),
            retaining: BTreeMap::new(),
            retaining_total: (0, 0),
            packets: false,
        }
    }

    /// Whether `value` is over the limit of a row. Counts it if so; true only where the limit is enforced.
    pub fn over(&mut self, row: Row, value: u64) -> bool {
        match self.limits.get(row) {
            Some(limit) if value > limit.value => self.hit(row, limit.observe),
            Some(_) | None => false,
        }
    }

    /// What the ledger says, of rows with a limit.
    pub fn held(&self) -> [Option<u64>; 4] {
        let mut held = self.ledger.totals().map(Some);
        for (held, row) in held.iter_mut().zip(ledger::COUNTED) {
            *held = held.filter(|_| self.limits.get(row).is_some());
        }
        held
    }

    /// Counts; true where the limit is enforced.
    pub fn hit(&mut self, row: Row, observe: bool) -> bool {
        self.hits.count(row, observe);
        !observe
    }

    fn take_limits(&mut self, limits: TenantLimits, leased: bool, now: Mono) {
        self.limits = limits;
        let limits = &self.limits;
        let renew = |rate: &mut Option<Rate>, row, leased: bool| {
            let Some(Limit { value, observe }) = limits.get(row) else {
                *rate = None;
                return;
            };
            match rate {
                Some(rate) => rate.change(value, observe, now),
                None if leased => *rate = Some(Rate::leased(value, observe, now)),
                None => *rate = Some(Rate::new(value, observe, now)),
            }
        };
        renew(&mut self.connects, Row::ConnectsPerSecond, false);
        renew(&mut self.publishes, Row::PublishesPerSecond, leased);
        renew(&mut self.publish_bytes, Row::PublishBytesPerSecond, leased);
        for (index, row) in ledger::LEASED.into_iter().enumerate() {
            if leased {
                renew(&mut self.ledger.masters[index], row, false);
            }
        }
        let concerns = [
            Row::Subscriptions,
            Row::SubscriptionsPerClient,
            Row::PublishesPerSecond,
            Row::PublishBytesPerSecond,
            Row::RetainedMessages,
            Row::RetainedBytes,
            Row::PacketSize,
            Row::TopicBytes,
            Row::TopicLevels,
            Row::MaxQos,
            Row::ReceiveMaximum,
            Row::TopicAliasMaximum,
            Row::Wildcards,
            Row::SharedSubscriptions,
            Row::Retain,
        ];
        self.packets = concerns.into_iter().any(|row| limits.get(row).is_some());
    }
}

/// Why a connection is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Its tenant's rate of publishes.
    Rate,
    /// The home shard is asked for room.
    Home,
}

/// What a connection has of its tenant's limits.
#[derive(Debug, Default)]
pub(crate) struct ConnQuota {
    /// Its tenant has limits on packets.
    pub limited: bool,
    /// Its tenant has limits on deliveries.
    pub out_limited: bool,
    /// It counts as a connection.
    pub slot: bool,
    /// It has room for a persistent session that is not made yet.
    pub session_slot: bool,
    /// Its CONNECT was looked at, and counted for the rate.
    pub checked: bool,
    pub wait: Option<Wait>,
    /// Publishes that it may still handle while others wait.
    pub turn: u32,
    /// Its session waits for delivery tokens.
    pub out_waiting: bool,
    /// Deliveries that its session may still send while others wait.
    pub out_turn: u32,
    /// Room for new filters that the home shard gave it.
    pub filters: Option<u32>,
    /// What the home shard said about its next retained publish.
    pub retain: Option<Box<retained::Answered>>,
}

/// Who waits for an answer of a home shard.
#[derive(Debug)]
pub(crate) enum Asking {
    Connect { conn: ConnId, admission: Box<Admission> },
    Filters { conn: ConnId },
    Group { from: ShardIx, join: Box<GroupJoin> },
    Retain { conn: ConnId, topic: Box<str>, size: u64 },
}

impl Shard {
    /// Puts the limits of all tenants in force.
    pub(crate) fn take_limits(&mut self) {
        let now = self.plane.now.mono;
        for number in 0..self.tenants.len() as u32 {
            let id = TenantId(number);
            let limits = self.tenancy.limits.of(id);
            let leased = self.is_ledgered(id);
            self.plane.take_delivery_limits(id, &limits, leased);
            let Some(tenant) = self.tenants.get_mut(number as usize) else { continue };
            if tenant.quota.is_none() && (limits.is_empty() || tenant.name.is_empty()) {
                continue;
            }
            let quota = tenant.quota.get_or_insert_with(|| Box::new(Quota::new()));
            quota.take_limits(limits, leased, now);
            self.report_use(id);
            // What waited looks again: the limit may be another now, or none.
            self.arm_rates(id, 1);
        }
        for conn in self.plane.conns.iter_mut().flatten() {
            let at = conn.mount.tenant().0 as usize;
            let quota = self.tenants.get(at).and_then(|t| t.quota.as_ref());
            conn.quota.limited = quota.is_some_and(|q| q.packets);
            conn.quota.out_limited = self.plane.rates.get(at).is_some_and(Option::is_some);
        }
    }

    /// Its use is counted by its home shard, because it is on several.
    pub(crate) fn is_ledgered(&self, tenant: TenantId) -> bool {
        self.shards > 1 && self.tenants.get(tenant.0 as usize).is_some_and(|t| t.spread)
    }

    pub(crate) fn quota(&mut self, tenant: TenantId) -> Option<&mut Quota> {
        self.tenants.get_mut(tenant.0 as usize)?.quota.as_deref_mut()
    }

    /// The limit of a row, if the tenant has one.
    pub(crate) fn limit(&self, tenant: TenantId, row: Row) -> Option<Limit> {
        self.tenants.get(tenant.0 as usize)?.quota.as_ref()?.limits.get(row)
    }

    /// See [`Quota::over`].
    pub(crate) fn over(&mut self, tenant: TenantId, row: Row, value: u64) -> bool {
        self.quota(tenant).is_some_and(|q| q.over(row, value))
    }

    /// What the tenant uses here.
    pub(crate) fn usage(&self, tenant: TenantId) -> Usage {
        self.tenants.get(tenant.0 as usize).map_or_else(Usage::default, |t| {
            let mut usage = t.usage.clone();
            usage.subscriptions = t.counters.subscriptions;
            usage
        })
    }

    /// Takes one of a counted row on a shard that counts for itself; false if there is none.
    pub(crate) fn take_own(&mut self, tenant: TenantId, row: Row) -> bool {
        let used = self.usage(tenant).of(row).unwrap_or(0);
        !self.over(tenant, row, used + 1)
    }

    /// Sends to the home shard of a tenant.
    pub(crate) fn tell_home(&mut self, tenant: TenantId, msg: QuotaMsg) {
        let home = self.home(tenant);
        self.send(home, PeerMsg::Quota(Box::new(msg)));
    }

    /// Sees to it that what waits for tokens is looked at after so many microseconds.
    pub(crate) fn arm_rates(&mut self, tenant: TenantId, micros: u64) {
        // Waking for each single token would cost more than the little burst does.
        let at = self.plane.now.mono.after_micros(micros.clamp(5_000, 1_000_000));
        let Some(quota) = self.quota(tenant) else { return };
        if quota.armed.is_none_or(|armed| at < armed) {
            quota.armed = Some(at);
            self.at(at, Timer::Rates(tenant));
        }
    }

    /// There may be tokens again.
    pub(crate) fn rates_due(&mut self, tenant: TenantId) {
        let now = self.plane.now.mono;
        let Some(quota) = self.quota(tenant) else { return };
        if quota.armed.is_none_or(|armed| armed > now) {
            return;
        }
        quota.armed = None;
        self.serve_leases(tenant);
        self.wake_publishers(tenant);
        self.wake_deliveries(tenant);
    }
}
