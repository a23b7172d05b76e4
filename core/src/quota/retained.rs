//! Retained messages against their tenant's limits. The index is on the tenant's home shard; what is on its way to
//! the store holds its room there, so that many publishes at once cannot pass together.

use crate::conn::Phase;
use crate::ids::{ConnId, TenantId};
use crate::message::Message;
use crate::quota::ledger::QuotaMsg;
use crate::quota::{Asking, Wait};
use crate::shard::Shard;
use crate::shard::tenants::{Retained, TenantState};
use crate::tenant::limits::Row;
use alloc::boxed::Box;

/// Retained publishes of one topic that are on their way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retaining {
    /// How many.
    pub count: u32,
    /// Size of the largest.
    pub size: u64,
    /// Topics that they add: one or none.
    pub new: u64,
    /// Bytes that they add.
    pub more: u64,
}

/// The home shard's word about a retained publish.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub topic: Box<str>,
    pub size: u64,
    /// It holds room.
    pub held: bool,
    pub refused: bool,
}

/// What mast itself retains (`$SYS`) is no client's.
fn counts(topic: &str) -> bool {
    !topic.starts_with("$SYS")
}

impl TenantState {
    /// Puts a retained message in its place.
    pub(crate) fn set_retained(&mut self, topic: &str, retained: Retained) {
        let size = retained.message.size() as u64;
        let old = self.retained.set(topic, retained);
        if counts(topic) {
            self.usage.retained_messages += u64::from(old.is_none());
            self.usage.retained_bytes += size;
            self.usage.retained_bytes -= old.map_or(0, |o| o.message.size() as u64);
        }
        self.counters.retained = self.retained.len() as u64;
    }

    /// Takes a retained message away.
    pub(crate) fn remove_retained(&mut self, topic: &str) {
        if let Some(old) = self.retained.remove(topic)
            && counts(topic)
        {
            self.usage.retained_messages -= 1;
            self.usage.retained_bytes -= old.message.size() as u64;
        }
        self.counters.retained = self.retained.len() as u64;
    }

    /// What of a message would be new: a topic or none, and how many bytes.
    fn adds(&self, topic: &str, size: u64) -> (u64, u64) {
        match self.retained.get(topic) {
            Some(old) => (0, size.saturating_sub(old.message.size() as u64)),
            None => (1, size),
        }
    }
}

impl Shard {
    fn limits_retained(&self, tenant: TenantId) -> bool {
        self.limit(tenant, Row::RetainedMessages).is_some()
            || self.limit(tenant, Row::RetainedBytes).is_some()
    }

    /// On the home shard: whether a retained message fits, with all that is on its way. One that adds nothing
    /// does, also where there is too much already.
    pub(crate) fn fits_retained(&mut self, tenant: TenantId, topic: &str, size: u64) -> bool {
        let Some(state) = self.tenants.get_mut(tenant.0 as usize) else { return true };
        let (new, more) = state.adds(topic, size);
        let used = (state.usage.retained_messages, state.usage.retained_bytes);
        let Some(quota) = &mut state.quota else { return true };
        let known = quota.retaining.get(topic).copied().unwrap_or_default();
        let (new, more) = (new.saturating_sub(known.new), more.saturating_sub(known.more));
        let total = quota.retaining_total;
        let refused = new > 0 && quota.over(Row::RetainedMessages, used.0 + total.0 + new)
            || more > 0 && quota.over(Row::RetainedBytes, used.1 + total.1 + more);
        !refused
    }

    /// On the home shard: holds room for a retained message. Whether it does, and whether there is none.
    pub(crate) fn hold_retained(&mut self, tenant: TenantId, topic: &str, size: u64) -> (bool, bool) {
        if !self.limits_retained(tenant) {
            return (false, false);
        }
        if !self.fits_retained(tenant, topic, size) {
            return (false, true);
        }
        if let Some(quota) = self.quota(tenant) {
            let retaining = quota.retaining.entry(Box::from(topic)).or_default();
            retaining.count += 1;
            retaining.size = retaining.size.max(size);
        }
        self.recount_retaining(tenant, topic);
        (true, false)
    }

    /// What the messages of a topic that are on their way add, now.
    fn recount_retaining(&mut self, tenant: TenantId, topic: &str) {
        let Some(state) = self.tenants.get_mut(tenant.0 as usize) else { return };
        let size = state.quota.as_ref().and_then(|q| q.retaining.get(topic)).map_or(0, |r| r.size);
        let (new, more) = state.adds(topic, size);
        let Some(quota) = &mut state.quota else { return };
        let Some(retaining) = quota.retaining.get_mut(topic) else { return };
        let (new, more) = if retaining.count == 0 { (0, 0) } else { (new, more) };
        quota.retaining_total.0 = quota.retaining_total.0 + new - retaining.new;
        quota.retaining_total.1 = quota.retaining_total.1 + more - retaining.more;
        (retaining.new, retaining.more) = (new, more);
        if retaining.count == 0 {
            quota.retaining.remove(topic);
        }
    }

    /// On the home shard: a retained message is in the index, or never will be.
    pub(crate) fn unretain(&mut self, tenant: TenantId, topic: &str) {
        let Some(quota) = self.quota(tenant) else { return };
        let Some(retaining) = quota.retaining.get_mut(topic) else { return };
        retaining.count -= 1;
        self.recount_retaining(tenant, topic);
    }

    /// A retained message that held room was not stored.
    pub(crate) fn retain_failed(&mut self, tenant: TenantId, topic: &str) {
        if self.home(tenant) == self.me {
            self.unretain(tenant, topic);
        } else {
            self.tell_home(tenant, QuotaMsg::RetainGive { tenant, topic: Box::from(topic) });
        }
    }

    /// Room that was held for a publish that did not come.
    pub(crate) fn give_retain(&mut self, tenant: TenantId, answered: &Answered) {
        if answered.held {
            self.retain_failed(tenant, &answered.topic);
        }
    }

    /// Asks the home shard about a retained publish, before it is handled; true if the answer is not there yet.
    pub(crate) fn must_ask_retain(&mut self, id: ConnId, tenant: TenantId, topic: &str, size: u64) -> bool {
        if !self.limits_retained(tenant) || self.home(tenant) == self.me || !self.is_ledgered(tenant) {
            return false;
        }
        let Some(conn) = self.plane.conn(id).filter(|c| c.phase == Phase::Online) else { return false };
        match conn.quota.retain.take() {
            Some(answered) if *answered.topic == *topic && answered.size == size => {
                conn.quota.retain = Some(answered);
                return false;
            }
            Some(answered) => self.give_retain(tenant, &answered),
            None => {}
        }
        let token = self.new_token();
        if let Some(conn) = self.plane.conn(id) {
            conn.quota.wait = Some(Wait::Home);
        }
        self.asking.insert(token, Asking::Retain { conn: id, topic: Box::from(topic), size });
        self.tell_home(tenant, QuotaMsg::RetainAsk { tenant, token, topic: Box::from(topic), size });
        true
    }

    /// Room for a retained publish: whether it is held until the message is stored; an error if there is none.
    pub(crate) fn retain_room(
        &mut self,
        id: ConnId,
        tenant: TenantId,
        topic: &str,
        size: u64,
    ) -> Result<bool, ()> {
        let (held, refused) = if !self.limits_retained(tenant) {
            (false, false)
        } else if self.home(tenant) == self.me {
            self.hold_retained(tenant, topic, size)
        } else {
            let answered = self.plane.conn(id).and_then(|c| c.quota.retain.take());
            answered.map_or((false, false), |a| (a.held, a.refused))
        };
        if refused { Err(()) } else { Ok(held) }
    }

    /// A will that would be one too many is delivered and not retained. It is looked at where the index is; the
    /// home shard of a spread tenant takes the wills of other shards as they come.
    pub(crate) fn may_retain_will(&mut self, message: &Message) -> bool {
        let (tenant, size) = (message.tenant, message.size() as u64);
        !message.retain
            || message.payload().is_empty()
            || !self.limits_retained(tenant)
            || self.home(tenant) != self.me
            || self.fits_retained(tenant, message.topic(), size)
    }
}
