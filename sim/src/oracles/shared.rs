//! Shared groups of workers: each message goes to exactly one member, QoS 1 more often only after a member
//! left or the node died; none is lost while a member's session lives.

use super::loss::{OVERHEAD, is_excused};
use super::{Oracle, Rest};
use crate::facts::{AuthVerdict, Delivery, Fact, Uid};
use crate::ledger::{Known, Ledger, SubFacts};
use crate::scenario::Role;
use std::collections::{BTreeMap, BTreeSet};

/// Who got it, and how often.
#[derive(Debug, Default)]
struct Taken {
    members: Vec<usize>,
    qos2: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct SharedGroups {
    /// By tenant, full filter and publication.
    taken: BTreeMap<(u8, String, Uid), Taken>,
    /// By tenant and full filter: when a member last left, in whatever way.
    unsettled: BTreeMap<(u8, String), u64>,
    /// Members whose re-authentication failed, until they come back.
    doomed: BTreeSet<usize>,
}

impl Oracle for SharedGroups {
    fn name(&self) -> &'static str {
        "shared groups"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        match fact {
            Fact::Delivered(delivery) => self.delivered(delivery, ledger),
            Fact::Ended { client, .. }
            | Fact::UnsubscribeSent { client, .. }
            | Fact::Connected { client, .. } => {
                self.left(*client, ledger);
                Ok(())
            }
            // The server will leave it, and its client may be the last to hear.
            Fact::AuthDecided { client, verdict: AuthVerdict::Refuse(_) | AuthVerdict::Silence, .. } => {
                self.doomed.insert(*client);
                Ok(())
            }
            Fact::ConnectSent { client, .. } => {
                self.doomed.remove(client);
                Ok(())
            }
            Fact::Refused { .. }
            | Fact::Goodbye { .. }
            | Fact::SubscribeSent { .. }
            | Fact::Subscribed { .. }
            | Fact::Unsubscribed { .. }
            | Fact::PublishSent { .. }
            | Fact::PublishAcked { .. }
            | Fact::PublishDone { .. }
            | Fact::PublishForgotten { .. }
            | Fact::Crashed { .. }
            | Fact::LateConnect { .. }
            | Fact::Overtaken { .. }
            | Fact::AuthDecided { .. }
            | Fact::AuthSpoiled { .. }
            | Fact::AuthContinued { .. }
            | Fact::Reauthenticated { .. }
            | Fact::ClockSet { .. }
            | Fact::Restarted
            | Fact::Calm
            | Fact::AllGone => Ok(()),
        }
    }

    fn at_rest(&mut self, ledger: &Ledger, _: &Rest) -> Result<(), String> {
        for (client, session) in ledger.sessions.iter().enumerate() {
            if ledger.clients[client].role != Role::Worker || session.alive != Known::Yes || session.blind {
                continue;
            }
            for sub in session.subs.values().filter(|s| s.shared() && !s.unsure && s.granted > 0) {
                self.complete(client, sub, ledger)?;
            }
        }
        Ok(())
    }
}

impl SharedGroups {
    fn left(&mut self, client: usize, ledger: &Ledger) {
        let spec = &ledger.clients[client];
        if spec.role == Role::Worker {
            // Workers have one filter each, named in their specification of the run.
            for filter in ledger.worker_filters(client) {
                self.unsettled.insert((spec.tenant, filter), ledger.now);
            }
        }
    }

    fn delivered(&mut self, delivery: &Delivery, ledger: &Ledger) -> Result<(), String> {
        let spec = &ledger.clients[delivery.client];
        let Some(uid) = delivery.uid.filter(|_| spec.role == Role::Worker && !delivery.repeated) else {
            return Ok(());
        };
        let filters = ledger.worker_filters(delivery.client);
        let [filter] = filters.as_slice() else { return Ok(()) };
        let key = (spec.tenant, filter.clone());
        let moved = self.unsettled.get(&key).copied().unwrap_or(0);
        let publication = &ledger.publications[uid as usize];
        let taken = self.taken.entry((key.0, key.1, uid)).or_default();
        taken.members.push(delivery.client);
        taken.qos2 += u32::from(delivery.qos == 2);
        let sent = publication.sent_at.unwrap_or(0);
        let doomed = self.doomed.iter().any(|other| {
            ledger.clients[*other].tenant == spec.tenant && ledger.worker_filters(*other).contains(filter)
        });
        let calm = !doomed
            && moved < sent
            && ledger.crashed_at.iter().all(|at| *at < sent)
            && publication.sends <= 1;
        if taken.members.len() > 1 && calm {
            return Err(format!("{uid} went to {:?} of {filter} without a cause", taken.members));
        }
        if taken.qos2 > 1 && publication.qos == 2 && !publication.doubtful && ledger.crashes == 0 {
            return Err(format!("QoS 2 {uid} went to {:?} of {filter}", taken.members));
        }
        Ok(())
    }

    /// Everything that is owed to a group with a live member was taken by somebody.
    fn complete(&self, client: usize, sub: &SubFacts, ledger: &Ledger) -> Result<(), String> {
        let tenant = ledger.clients[client].tenant;
        for publication in &ledger.publications {
            let Some(sent) = publication.sent_at else { continue };
            if publication.tenant != tenant
                || publication.qos == 0
                || publication.clear
                || !sub.matches(&publication.topic)
                || sub.since.is_none_or(|since| since >= sent)
                || is_excused(publication, ledger)
                || ledger.rights.is_restricted(&publication.topic)
            {
                continue;
            }
            // For a member that takes no packet of this size it is done when that member was chosen.
            let size = publication.topic.len() + publication.size + OVERHEAD;
            if ledger.clients.iter().any(|c| c.max_packet > 0 && size > c.max_packet as usize) {
                continue;
            }
            let key = (tenant, sub.spec.filter.clone(), publication.uid);
            if !self.taken.contains_key(&key) && !ledger.may_hold_begun(&sub.spec.filter, tenant, publication)
            {
                return Err(format!(
                    "{} lost {publication:?}, though client {client} lives",
                    sub.spec.filter
                ));
            }
        }
        Ok(())
    }
}
