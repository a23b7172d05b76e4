//! A will goes out exactly once after an unclean end, and never after a clean one.

use super::{Oracle, Rest};
use crate::facts::{AuthVerdict, End, Fact, Uid};
use crate::ledger::{Ledger, SLACK};
use crate::scenario::Role;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Its connection was never accepted, stands, or its end is not known for sure.
    Maybe,
    /// Its connection ended uncleanly.
    Yes,
    /// Its connection ended cleanly.
    No,
}

#[derive(Debug)]
struct Will {
    client: usize,
    sent_at: u64,
    /// When its connection ended, µs.
    ended_at: u64,
    due: Due,
    seen: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Wills {
    /// By publication.
    wills: BTreeMap<Uid, Will>,
    /// Will of a connection.
    of_link: BTreeMap<usize, Uid>,
    /// Connections that the server ends, because it refused a proof.
    refused: BTreeSet<usize>,
}

impl Oracle for Wills {
    fn name(&self) -> &'static str {
        "wills"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        match fact {
            Fact::ConnectSent { client, link, will: Some(uid), .. } => {
                self.come_back(*client, ledger);
                self.wills.insert(
                    *uid,
                    Will { client: *client, sent_at: ledger.now, ended_at: 0, due: Due::Maybe, seen: 0 },
                );
                self.of_link.insert(*link, *uid);
                Ok(())
            }
            Fact::Ended { link, end, was_online, .. } => {
                self.ended(*link, *end, *was_online, ledger.now);
                Ok(())
            }
            Fact::Delivered(d)
                if ledger.clients[d.client].role == Role::Observer && !d.retain && !d.repeated =>
            {
                self.seen(d.uid, d.qos, ledger)
            }
            // A DISCONNECT behind a proof that was refused is not read.
            Fact::AuthDecided { link, verdict: AuthVerdict::Refuse(_) | AuthVerdict::Silence, .. } => {
                self.refused.insert(*link);
                self.may_be_unread(*link);
                Ok(())
            }
            // The DISCONNECT may have been among what was not read.
            Fact::Overtaken { link, .. } => {
                self.may_be_unread(*link);
                Ok(())
            }
            // A client that comes back (or tries to) before its will's delay is over may call it back.
            Fact::ConnectSent { client, .. } => {
                self.come_back(*client, ledger);
                Ok(())
            }
            Fact::Delivered(_)
            | Fact::Connected { .. }
            | Fact::Refused { .. }
            | Fact::Goodbye { .. }
            | Fact::SubscribeSent { .. }
            | Fact::Subscribed { .. }
            | Fact::UnsubscribeSent { .. }
            | Fact::Unsubscribed { .. }
            | Fact::PublishSent { .. }
            | Fact::PublishAcked { .. }
            | Fact::PublishDone { .. }
            | Fact::PublishForgotten { .. }
            | Fact::Crashed { .. }
            | Fact::LateConnect { .. }
            | Fact::AuthDecided { verdict: AuthVerdict::Accept | AuthVerdict::Continue, .. }
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
        for (uid, will) in &self.wills {
            let publication = &ledger.publications[*uid as usize];
            let promised = publication.qos > 0
                && is_watched(publication.tenant, will.sent_at, ledger)
                && !ledger.store_harmed
                && !ledger.crash_excuses
                && !ledger.rights.is_restricted(&publication.topic);
            if will.due == Due::Yes && will.seen == 0 && promised {
                return Err(format!("will {uid} of client {} never came", will.client));
            }
        }
        Ok(())
    }
}

/// The tenant's observer listens since before then.
fn is_watched(tenant: u8, since: u64, ledger: &Ledger) -> bool {
    ledger.clients.iter().zip(&ledger.sessions).any(|(spec, session)| {
        spec.role == Role::Observer
            && spec.tenant == tenant
            && !session.blind
            && session.subs.get("will/#").is_some_and(|s| s.since.is_some_and(|at| at < since))
    })
}

impl Wills {
    fn come_back(&mut self, client: usize, ledger: &Ledger) {
        for (uid, will) in &mut self.wills {
            let delay = u64::from(ledger.publications[*uid as usize].delay_secs) * 1_000_000;
            let early = delay > 0 && ledger.now < will.ended_at + delay + SLACK;
            if will.client == client && will.due == Due::Yes && early {
                will.due = Due::Maybe;
            }
        }
    }

    /// The DISCONNECT of a connection may not have been read.
    fn may_be_unread(&mut self, link: usize) {
        let will = self.of_link.get(&link).and_then(|uid| self.wills.get_mut(uid));
        if let Some(will) = will.filter(|w| w.due == Due::No) {
            will.due = Due::Maybe;
        }
    }

    fn ended(&mut self, link: usize, end: End, was_online: bool, now: u64) {
        let Some(will) = self.of_link.get(&link).and_then(|uid| self.wills.get_mut(uid)) else { return };
        if !was_online {
            return;
        }
        will.ended_at = now;
        will.due = match end {
            End::WithWill | End::Cut => Due::Yes,
            // The DISCONNECT may have met a connection that the server was closing.
            End::Clean if !self.refused.contains(&link) => Due::No,
            // Vanished clients may never be noticed, or come back before their will's delay is over; in a
            // crash the client may have been half out of the door.
            End::Clean | End::Vanished | End::Abandoned | End::ByServer | End::Crash => Due::Maybe,
        };
    }

    fn seen(&mut self, uid: Option<Uid>, qos: u8, ledger: &Ledger) -> Result<(), String> {
        let Some((uid, will)) = uid.and_then(|uid| self.wills.get_mut(&uid).map(|w| (uid, w))) else {
            return Ok(());
        };
        will.seen += 1;
        let settled = ledger.crashes == 0 && !ledger.store_harmed;
        if will.due == Due::No && settled {
            return Err(format!("will {uid} of client {} came after a clean end", will.client));
        }
        let lost_what_was_acked = ledger.crash_excuses && ledger.crashes > 0;
        if will.seen > 1 && (qos == 2 || settled) && !lost_what_was_acked {
            return Err(format!("will {uid} of client {} came {} times", will.client, will.seen));
        }
        Ok(())
    }
}
