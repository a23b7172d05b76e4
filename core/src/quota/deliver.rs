//! Deliveries against their tenant's rates. A session without tokens keeps its messages in its queue, in turn with
//! others of the tenant; what does not fit there goes the way of every slow consumer: to the log, or, with QoS 0,
//! nowhere.

use crate::conn::Conn;
use crate::ids::{SessionId, TenantId};
use crate::message::MessageParts;
use crate::quota::rate::Rate;
use crate::session::plane::{Followup, Plane};
use crate::shard::Shard;
use crate::tenant::limits::{Row, TenantLimits};
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Delivery rates of one tenant.
#[derive(Debug)]
pub(crate) struct Deliveries {
    tenant: TenantId,
    messages: Option<Rate>,
    bytes: Option<Rate>,
    waiting: VecDeque<SessionId>,
    /// Hits that the tenant's own counters have not got yet, by rate: enforced, observed.
    hits: [[u64; 2]; 2],
}

/// By the tenant's number; `None` = no limit.
pub(crate) type DeliveryRates = Vec<Option<Box<Deliveries>>>;

const ROWS: [Row; 2] = [Row::DeliveriesPerSecond, Row::DeliveryBytesPerSecond];

impl Deliveries {
    fn rates(&mut self) -> [Option<&mut Rate>; 2] {
        [self.messages.as_mut(), self.bytes.as_mut()]
    }
}

/// Whether a message may be sent to a session now: takes its tokens, or puts the session in the queue for them.
pub(crate) fn take(
    rates: &mut DeliveryRates,
    conn: &mut Conn,
    id: SessionId,
    parts: &MessageParts<'_>,
    now: Mono,
    followups: &mut Vec<Followup>,
) -> bool {
    let Some(Some(own)) = rates.get_mut(parts.tenant.0 as usize) else { return true };
    let amounts = [1, (parts.topic.len() + parts.props.len() + parts.payload.len()) as u64];
    let behind = conn.quota.out_waiting || !own.waiting.is_empty() && conn.quota.out_turn == 0;
    let mut ready = true;
    let mut hits = own.hits;
    for ((rate, n), hit) in own.rates().into_iter().zip(amounts).zip(&mut hits) {
        let Some(rate) = rate.filter(|r| !r.observe) else { continue };
        if behind || !rate.is_ready(n, now) {
            ready = false;
            hit[0] += u64::from(!conn.quota.out_waiting && conn.quota.out_turn == 0);
        }
    }
    if ready {
        for ((rate, n), hit) in own.rates().into_iter().zip(amounts).zip(&mut hits) {
            match rate {
                // What waits is looked at again: a rate that only counts counts what passes, once.
                Some(rate) if rate.observe => hit[1] += u64::from(!rate.watch(n, now)),
                Some(rate) => rate.take(n),
                None => {}
            }
        }
        conn.quota.out_turn = conn.quota.out_turn.saturating_sub(1);
    }
    own.hits = hits;
    let joins = !ready && !conn.quota.out_waiting;
    if joins {
        conn.quota.out_waiting = true;
        conn.quota.out_turn = 0;
        own.waiting.push_back(id);
    }
    let asks = own.rates().into_iter().flatten().any(|r| r.leased && !r.asked && r.want > 0);
    if joins || asks {
        followups.push(Followup::Tokens(own.tenant));
    }
    ready
}

/// Takes the tokens of a message that is sent whatever there is.
pub(crate) fn charge(rates: &mut DeliveryRates, parts: &MessageParts<'_>, now: Mono) {
    let Some(Some(own)) = rates.get_mut(parts.tenant.0 as usize) else { return };
    let amounts = [1, (parts.topic.len() + parts.props.len() + parts.payload.len()) as u64];
    let mut hits = own.hits;
    for ((rate, n), hit) in own.rates().into_iter().zip(amounts).zip(&mut hits) {
        match rate {
            Some(rate) if rate.observe => hit[1] += u64::from(!rate.watch(n, now)),
            Some(rate) => rate.take(n),
            None => {}
        }
    }
    own.hits = hits;
}

impl Plane {
    pub(crate) fn take_delivery_limits(&mut self, tenant: TenantId, limits: &TenantLimits, leased: bool) {
        let at = tenant.0 as usize;
        let now = self.now.mono;
        if ROWS.into_iter().all(|row| limits.get(row).is_none()) {
            if let Some(slot) = self.rates.get_mut(at)
                && let Some(own) = slot
            {
                (own.messages, own.bytes) = (None, None);
                if own.waiting.is_empty() {
                    *slot = None;
                }
            }
            return;
        }
        if self.rates.len() <= at {
            self.rates.resize_with(at + 1, || None);
        }
        let own = self.rates[at].get_or_insert_with(|| {
            let (messages, bytes, waiting) = (None, None, VecDeque::new());
            Box::new(Deliveries { tenant, messages, bytes, waiting, hits: [[0; 2]; 2] })
        });
        for (slot, row) in [&mut own.messages, &mut own.bytes].into_iter().zip(ROWS) {
            match (limits.get(row), &mut *slot) {
                (None, _) => *slot = None,
                (Some(limit), Some(rate)) => rate.change(limit.value, limit.observe, now),
                (Some(limit), None) if leased => *slot = Some(Rate::leased(limit.value, limit.observe, now)),
                (Some(limit), None) => *slot = Some(Rate::new(limit.value, limit.observe, now)),
            }
        }
    }

    pub(crate) fn delivery_rate(&mut self, tenant: TenantId, row: Row) -> Option<&mut Rate> {
        let own = self.rates.get_mut(tenant.0 as usize)?.as_mut()?;
        if row == Row::DeliveriesPerSecond { own.messages.as_mut() } else { own.bytes.as_mut() }
    }
}

impl Shard {
    /// Sessions wait for tokens, or a lease is due.
    pub(crate) fn tokens_missed(&mut self, tenant: TenantId) {
        let now = self.plane.now.mono;
        let Some(Some(own)) = self.plane.rates.get_mut(tenant.0 as usize) else { return };
        let hits = core::mem::take(&mut own.hits);
        let waits = !own.waiting.is_empty();
        let rates = own.rates().into_iter().flatten().filter(|r| !r.observe);
        let wait = rates.map(|rate| if rate.is_ready(1, now) { 1 } else { rate.wait(1) }).max().unwrap_or(1);
        if let Some(quota) = self.quota(tenant) {
            for (row, [enforced, observed]) in ROWS.into_iter().zip(hits) {
                quota.hits.enforced[row as usize] += enforced;
                quota.hits.observed[row as usize] += observed;
            }
        }
        if waits {
            self.arm_rates(tenant, wait);
        }
        self.ask_leases(tenant);
    }

    /// Hits of deliveries that were not handed over yet.
    pub(crate) fn delivery_hits(&self, tenant: TenantId) -> [(Row, [u64; 2]); 2] {
        let own = self.plane.rates.get(tenant.0 as usize).and_then(Option::as_ref);
        let hits = own.map_or([[0; 2]; 2], |o| o.hits);
        [(ROWS[0], hits[0]), (ROWS[1], hits[1])]
    }

    /// Lets sessions go on that wait for tokens, each with its share of what there is.
    pub(crate) fn wake_deliveries(&mut self, tenant: TenantId) {
        let now = self.plane.now.mono;
        let at = tenant.0 as usize;
        let Some(Some(own)) = self.plane.rates.get_mut(at) else { return };
        let many = own.waiting.len();
        let tokens = own.messages.as_mut().filter(|r| !r.observe).map_or(u64::MAX, |r| r.tokens(now));
        let share = u32::try_from(tokens / (many.max(1) as u64)).unwrap_or(u32::MAX).max(1);
        for _ in 0..many {
            let Some(Some(own)) = self.plane.rates.get_mut(at) else { return };
            if !own.rates().into_iter().flatten().all(|rate| rate.observe || rate.is_ready(1, now)) {
                break;
            }
            let Some(id) = own.waiting.pop_front() else { return };
            let Some(conn) = self.plane.session(id).and_then(|s| s.conn) else { continue };
            let Some(conn) = self.plane.conn(conn).filter(|c| c.quota.out_waiting) else { continue };
            conn.quota.out_waiting = false;
            conn.quota.out_turn = share;
            self.plane.pump(id);
        }
        let Some(slot) = self.plane.rates.get_mut(at) else { return };
        let Some(own) = slot else { return };
        if own.waiting.is_empty() && own.messages.is_none() && own.bytes.is_none() {
            // The limits were taken away.
            *slot = None;
            return;
        }
        if many > 0 {
            self.tokens_missed(tenant);
        }
    }
}
