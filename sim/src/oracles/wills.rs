//! A will goes out exactly once after an unclean end, and never after a clean one.

use super::{Oracle, Rest};
use crate::facts::{End, Fact, Uid};
use crate::ledger::Ledger;
use crate::scenario::Role;
use std::collections::BTreeMap;

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
}

impl Oracle for Wills {
    fn name(&self) -> &'static str {
        "wills"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        match fact {
            Fact::ConnectSent { client, link, will: Some(uid), .. } => {
                self.wills.insert(*uid, Will { client: *client, due: Due::Maybe, seen: 0 });
                self.of_link.insert(*link, *uid);
                Ok(())
            }
            Fact::Ended { link, end, was_online, .. } => {
                self.ended(*link, *end, *was_online);
                Ok(())
            }
            Fact::Delivered(d)
                if ledger.clients[d.client].role == Role::Observer && !d.retain && !d.repeated =>
            {
                self.seen(d.uid, d.qos, ledger)
            }
            Fact::ConnectSent { .. }
            | Fact::Delivered(_)
            | Fact::Connected { .. }
            | Fact::Refused { .. }
            | Fact::SubscribeSent { .. }
            | Fact::Subscribed { .. }
            | Fact::UnsubscribeSent { .. }
            | Fact::Unsubscribed { .. }
            | Fact::PublishSent { .. }
            | Fact::PublishAcked { .. }
            | Fact::PublishDone { .. }
            | Fact::PublishForgotten { .. }
            | Fact::Crashed { .. }
            | Fact::Restarted
            | Fact::Calm
            | Fact::AllGone => Ok(()),
        }
    }

    fn at_rest(&mut self, ledger: &Ledger, _: &Rest) -> Result<(), String> {
        for (uid, will) in &self.wills {
            let publication = &ledger.publications[*uid as usize];
            let promised = publication.qos > 0 && !ledger.store_harmed && !ledger.crash_excuses;
            if will.due == Due::Yes && will.seen == 0 && promised {
                return Err(format!("will {uid} of client {} never came", will.client));
            }
        }
        Ok(())
    }
}

impl Wills {
    fn ended(&mut self, link: usize, end: End, was_online: bool) {
        let Some(will) = self.of_link.get(&link).and_then(|uid| self.wills.get_mut(uid)) else { return };
        if !was_online {
            return;
        }
        will.due = match end {
            End::WithWill | End::Cut => Due::Yes,
            // The DISCONNECT may have met a connection that the server was closing.
            End::Clean => Due::No,
            // Vanished clients may never be noticed, or come back before their will's delay is over; in a
            // crash the client may have been half out of the door.
            End::Vanished | End::Abandoned | End::ByServer | End::Crash => Due::Maybe,
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
        if will.seen > 1 && (qos == 2 || settled) {
            return Err(format!("will {uid} of client {} came {} times", will.client, will.seen));
        }
        Ok(())
    }
}
