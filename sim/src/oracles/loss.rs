//! No acknowledged QoS 1 or 2 message is lost to a subscription that was acknowledged before the message
//! was sent, as long as its session lives. Drops by policy count only where the policy can apply.

use super::{Oracle, Rest};
use crate::facts::{Fact, Publication};
use crate::ledger::{Known, Ledger, SessionFacts};
use mast_core::authz::Access;
use mast_core::sys::Drop;

/// Bytes of a PUBLISH beside topic and payload, at most, in these scenarios.
pub const OVERHEAD: usize = 80;

/// See the module.
#[derive(Debug)]
pub struct Loss;

impl Oracle for Loss {
    fn name(&self) -> &'static str {
        "no acknowledged loss"
    }

    fn take(&mut self, _: &Fact, _: &Ledger) -> Result<(), String> {
        Ok(())
    }

    fn at_rest(&mut self, ledger: &Ledger, rest: &Rest) -> Result<(), String> {
        let (mut by_limit, mut refused) = (0, 0);
        for (client, session) in ledger.sessions.iter().enumerate() {
            if session.alive != Known::Yes || !session.online || session.blind {
                continue;
            }
            for publication in &ledger.publications {
                if !owed(client, session, publication, ledger) {
                    continue;
                }
                if session.was_away && rest.dropped(Drop::OfflineLimit) > by_limit {
                    by_limit += 1;
                    continue;
                }
                // The overflow of a slow clean session goes to the store after its acknowledgement.
                if !session.was_away && session.expiry == 0 && rest.dropped(Drop::StoreRefused) > refused {
                    refused += 1;
                    continue;
                }
                return Err(format!("client {client} never got {publication:?}"));
            }
        }
        Ok(())
    }
}

/// True if the publication is owed and missing.
fn owed(client: usize, session: &SessionFacts, publication: &Publication, ledger: &Ledger) -> bool {
    let (Some(sent), Some(acked)) = (publication.sent_at, publication.acked_at) else { return false };
    let spec = &ledger.clients[client];
    // What the rules do not allow for sure is not owed.
    let publisher = &ledger.clients[publication.client].name;
    let may_publish = ledger.rights.verdict(publisher, Access::Publish, &publication.topic, sent, acked);
    let may_receive =
        ledger.rights.verdict(&spec.name, Access::Receive, &publication.topic, sent, ledger.now);
    if may_publish != Known::Yes || may_receive != Known::Yes {
        return false;
    }
    if publication.tenant != spec.tenant
        || publication.qos == 0
        || publication.clear
        || session.received.contains_key(&publication.uid)
        || is_excused(publication, ledger)
    {
        return false;
    }
    if spec.max_packet > 0 && publication.topic.len() + publication.size + OVERHEAD > spec.max_packet as usize
    {
        return false;
    }
    session.subs.values().any(|sub| {
        !sub.shared()
            && !sub.unsure
            && sub.granted > 0
            && sub.since.is_some_and(|since| since < sent)
            && sub.matches(&publication.topic)
            && !(sub.spec.no_local && publication.client == client)
    })
}

/// What may be missing whoever should have got it.
#[must_use]
pub fn is_excused(publication: &Publication, ledger: &Ledger) -> bool {
    let Some(acked) = publication.acked_at else { return true };
    let expired = publication.expiry_secs > 0;
    // Memory-class acknowledgements promise nothing about crashes.
    let crashed = ledger.crash_excuses
        && ledger.crashed_at.iter().any(|at| *at >= publication.sent_at.unwrap_or(acked));
    expired || crashed
}
