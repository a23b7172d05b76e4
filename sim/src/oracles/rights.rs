//! What the rules forbid is neither accepted nor delivered: no denied publish reaches anybody, no denied
//! topic anybody who may not read it, and rights that were taken away during a session are gone for what is
//! published after that. What they allow is not refused.

use super::{Oracle, Rest};
use crate::facts::{Delivery, Fact, Uid};
use crate::ledger::{Known, Ledger, inner};
use crate::rights::PROTECTED;
use crate::scenario::GrantSpec;
use mast_core::authz::Access;
use mast_core::topic::naive::naive_matches;
use std::collections::BTreeMap;

/// Not authorized.
const DENIED: u8 = 0x87;

/// See the module.
#[derive(Debug, Default)]
pub struct RightsOracle {
    /// When a will was given to the server, µs.
    wills: BTreeMap<Uid, u64>,
    /// Unanswered SUBSCRIBEs: when, and their filters.
    asked: BTreeMap<(usize, u16), (u64, Vec<String>)>,
}

impl Oracle for RightsOracle {
    fn name(&self) -> &'static str {
        "rights"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        if !ledger.rights.any() {
            return Ok(());
        }
        match fact {
            Fact::ConnectSent { client, will, .. } => {
                self.asked.retain(|(of, _), _| of != client);
                if let Some(uid) = will {
                    self.wills.insert(*uid, ledger.now);
                }
                Ok(())
            }
            Fact::Delivered(delivery) => self.delivered(delivery, ledger),
            Fact::PublishAcked { client, uid, reason, .. } => acked(*client, *uid, *reason, ledger),
            Fact::SubscribeSent { client, packet_id, filters, .. } => {
                let filters = filters.iter().map(|f| f.filter.clone()).collect();
                self.asked.insert((*client, *packet_id), (ledger.now, filters));
                Ok(())
            }
            Fact::Subscribed { client, packet_id, codes } => {
                let Some((at, filters)) = self.asked.remove(&(*client, *packet_id)) else { return Ok(()) };
                filters.iter().zip(codes).try_for_each(|(f, code)| granted(*client, f, *code, at, ledger))
            }
            Fact::Connected { .. }
            | Fact::Refused { .. }
            | Fact::Goodbye { .. }
            | Fact::Ended { .. }
            | Fact::UnsubscribeSent { .. }
            | Fact::Unsubscribed { .. }
            | Fact::PublishSent { .. }
            | Fact::PublishDone { .. }
            | Fact::PublishForgotten { .. }
            | Fact::AuthDecided { .. }
            | Fact::AuthSpoiled { .. }
            | Fact::AuthContinued { .. }
            | Fact::Reauthenticated { .. }
            | Fact::ClockSet { .. }
            | Fact::Crashed { .. }
            | Fact::LateConnect { .. }
            | Fact::Overtaken { .. }
            | Fact::Restarted
            | Fact::Calm
            | Fact::AllGone => Ok(()),
        }
    }

    fn at_rest(&mut self, _: &Ledger, _: &Rest) -> Result<(), String> {
        Ok(())
    }
}

impl RightsOracle {
    fn delivered(&self, delivery: &Delivery, ledger: &Ledger) -> Result<(), String> {
        let Some(uid) = delivery.uid else { return Ok(()) };
        let publication = &ledger.publications[uid as usize];
        let from = self.wills.get(&uid).copied().or(publication.sent_at).unwrap_or(0);
        let judge = |client: usize, access| {
            let user = &ledger.clients[client].name;
            ledger.rights.verdict(user, access, &publication.topic, from, ledger.now)
        };
        if judge(publication.client, Access::Publish) == Known::No {
            return Err(format!(
                "{publication:?} may not be published, and client {} got it",
                delivery.client
            ));
        }
        if judge(delivery.client, Access::Receive) == Known::No {
            return Err(format!("client {} may not receive {publication:?}", delivery.client));
        }
        Ok(())
    }
}

fn acked(client: usize, uid: Uid, reason: u8, ledger: &Ledger) -> Result<(), String> {
    let publication = &ledger.publications[uid as usize];
    let spec = &ledger.clients[client];
    // 3.1.1 has no code: a forbidden publish is acknowledged and dropped.
    let Some(sent) = publication.sent_at.filter(|_| spec.v5) else { return Ok(()) };
    let verdict = ledger.rights.verdict(&spec.name, Access::Publish, &publication.topic, sent, ledger.now);
    match verdict {
        Known::No if reason != DENIED => Err(format!("{reason:#x} for a forbidden {publication:?}")),
        Known::Yes if reason == DENIED => Err(format!("{publication:?} is allowed, but refused")),
        Known::Yes | Known::No | Known::Maybe => Ok(()),
    }
}

/// A filter must be refused if a denial names it and nothing behind it can be read, and must not be
/// refused for its rights if something behind it can.
fn granted(client: usize, filter: &str, code: u8, at: u64, ledger: &Ledger) -> Result<(), String> {
    let spec = &ledger.clients[client];
    let filter = inner(filter);
    let known =
        PROTECTED.iter().chain(&crate::scenario::generate::TOPICS).filter(|t| naive_matches(filter, t));
    let judge = |t: &&&str| ledger.rights.verdict(&spec.name, Access::Receive, t, at, ledger.now);
    let readable = known.clone().any(|t| judge(&t) == Known::Yes);
    let hopeless = ledger.rights.always(at, ledger.now, |rules| {
        // What allows something may stand before the denial: those are left to `readable`.
        !ledger.rights.is_superuser(&spec.name)
            && rules.ordered.iter().all(|r| !r.allow)
            && rules.rules.iter().any(|r| {
                r.user.as_deref() == Some(&*spec.name) && r.grant == GrantSpec::Deny && r.filter == filter
            })
    });
    let refused = if spec.v5 { code == DENIED } else { code >= 0x80 };
    if hopeless && !refused {
        return Err(format!("client {client}: {filter} is granted with {code:#x}, though it is denied"));
    }
    if readable && spec.v5 && refused {
        return Err(format!("client {client}: {filter} is refused, though something behind it may be read"));
    }
    Ok(())
}
