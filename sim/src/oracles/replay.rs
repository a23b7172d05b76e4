//! What is retained when a client subscribes is owed to its session (QoS 1 and 2), whatever becomes of its
//! connections and of the node meanwhile [MQTT-3.3.1-9].

use super::{Oracle, Rest};
use crate::facts::{Fact, Publication, Uid};
use crate::ledger::{Known, Ledger};
use crate::scenario::FilterSpec;
use mast_core::topic::naive::naive_matches;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct RetainedOwed {
    /// SUBSCRIBEs on their way: when they were sent, and their filters.
    asked: BTreeMap<(usize, u16), (u64, Vec<FilterSpec>)>,
    /// By client and filter: the session's incarnation, and what it is owed.
    owed: BTreeMap<(usize, String), (u32, Vec<Uid>)>,
}

impl Oracle for RetainedOwed {
    fn name(&self) -> &'static str {
        "retained messages that are owed"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        match fact {
            Fact::ConnectSent { client, .. } => self.asked.retain(|(of, _), _| of != client),
            Fact::SubscribeSent { client, packet_id, filters, .. } => {
                for spec in filters {
                    // One that wants none leaves the replay of the one before alone, unless it takes QoS 0 alone.
                    if spec.qos == 0 || spec.retain_handling == 0 {
                        self.owed.remove(&(*client, spec.filter.clone()));
                    }
                }
                self.asked.insert((*client, *packet_id), (ledger.now, filters.clone()));
            }
            Fact::Subscribed { client, packet_id, codes } => {
                let Some((at, filters)) = self.asked.remove(&(*client, *packet_id)) else { return Ok(()) };
                for (spec, code) in filters.iter().zip(codes) {
                    let plain = !spec.filter.starts_with("$share/");
                    if plain && spec.retain_handling == 0 && (1..=2).contains(code) {
                        self.begin(*client, spec, at, ledger);
                    }
                }
            }
            Fact::UnsubscribeSent { client, filters, .. } => {
                for filter in filters {
                    self.owed.remove(&(*client, filter.clone()));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, ledger: &Ledger, _: &Rest) -> Result<(), String> {
        if ledger.store_harmed || ledger.crash_excuses && ledger.crashes > 0 {
            return Ok(());
        }
        for ((client, filter), (incarnation, owed)) in &self.owed {
            let session = &ledger.sessions[*client];
            let known = session.incarnation == *incarnation && session.alive == Known::Yes && !session.blind;
            if !known || ledger.clients[*client].max_packet > 0 {
                continue;
            }
            for uid in owed.iter().filter(|uid| stands(&ledger.publications[**uid as usize], ledger)) {
                let received = session.received.get(uid).copied().unwrap_or_default();
                if received.retained == 0 && received.plain == 0 {
                    return Err(format!(
                        "client {client} never got {uid}, retained when it subscribed to {filter}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl RetainedOwed {
    /// A SUBSCRIBE that was sent at `at` is in effect.
    fn begin(&mut self, client: usize, spec: &FilterSpec, at: u64, ledger: &Ledger) {
        let tenant = ledger.clients[client].tenant;
        let owed: Vec<Uid> = ledger
            .publications
            .iter()
            .filter(|p| p.retain && p.qos > 0 && !p.clear && !p.will && p.expiry_secs == 0)
            .filter(|p| p.tenant == tenant && p.acked_at.is_some_and(|acked| acked < at))
            .filter(|p| !p.refused && naive_matches(&spec.filter, &p.topic))
            .map(|p| p.uid)
            .collect();
        let incarnation = ledger.sessions[client].incarnation;
        self.owed.insert((client, spec.filter.clone()), (incarnation, owed));
    }
}

/// Nothing can have taken its place on its topic since it was stored.
fn stands(publication: &Publication, ledger: &Ledger) -> bool {
    let sent = publication.sent_at.unwrap_or(0);
    let before = |q: &Publication| q.sends == 1 && q.acked_at.is_some_and(|acked| acked < sent);
    publication.sends == 1
        && !ledger.rights.is_restricted(&publication.topic)
        && ledger.publications.iter().all(|q| {
            q.uid == publication.uid
                || !q.retain
                || q.tenant != publication.tenant
                || q.topic != publication.topic
                || before(q)
        })
}
