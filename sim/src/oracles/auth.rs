//! Enhanced authentication (MQTT 5, 4.12): nobody is admitted whom it has not accepted, a refusal has its
//! reason [MQTT-4.12.0-2], who breaks the exchange is refused, and a refused re-authentication ends the
//! connection [MQTT-4.12.1-2]. That a refusal leaves the session as it was, session present tells.

use super::{Oracle, Rest};
use crate::facts::{AuthVerdict, Fact};
use crate::ledger::Ledger;
use std::collections::BTreeMap;

/// Reasons for which the server may end a connection whatever authentication thinks: keep alive timeout,
/// session taken over.
const ANYWAY: [u8; 2] = [0x8D, 0x8E];
/// Of the reasons that authentication gives here, those that no DISCONNECT may carry [MQTT-3.14.2-1]: bad user
/// name or password, server unavailable, banned.
const CONNACK_ONLY: [u8; 3] = [0x86, 0x88, 0x8A];
/// What stands for them.
const NOT_AUTHORIZED: u8 = 0x87;
/// What silence counts as: server busy.
const BUSY: u8 = 0x89;

/// One connection that authenticates.
#[derive(Debug, Default)]
struct Exchange {
    connected: bool,
    /// Accepted before CONNACK.
    accepted: bool,
    /// Accepted again, and not yet told.
    again: bool,
    /// Steps that were asked for and not yet told.
    steps: u32,
    /// The reason with which it must end.
    due: Option<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Authentication {
    links: BTreeMap<usize, Exchange>,
    current: BTreeMap<usize, usize>,
}

impl Oracle for Authentication {
    fn name(&self) -> &'static str {
        "authentication"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        match fact {
            Fact::ConnectSent { client, link, .. } => {
                self.current.remove(client);
                if ledger.clients[*client].auth_steps > 0 {
                    self.current.insert(*client, *link);
                    self.links.insert(*link, Exchange::default());
                }
            }
            Fact::AuthDecided { link, verdict, .. } => self.decided(*link, *verdict),
            Fact::AuthSpoiled { link, due, .. } => {
                if let Some(exchange) = self.links.get_mut(link) {
                    exchange.due = Some(*due);
                }
            }
            Fact::Connected { client, link, .. } => {
                let Some(exchange) = self.links.get_mut(link) else { return Ok(()) };
                if !exchange.accepted || exchange.due.is_some() {
                    return Err(format!("client {client} was admitted: {exchange:?}"));
                }
                exchange.connected = true;
            }
            Fact::Refused { client, link, reason } => {
                let Some(exchange) = self.links.get(link) else { return Ok(()) };
                if exchange.due.is_some_and(|due| due != *reason)
                    || (exchange.due.is_none() && !exchange.accepted)
                {
                    return Err(format!("client {client} was refused with {reason:#x}: {exchange:?}"));
                }
            }
            Fact::AuthContinued { client, link } => {
                let Some(exchange) = self.links.get_mut(link).filter(|e| e.steps > 0) else {
                    return Err(format!("client {client}: AUTH that nobody asked for"));
                };
                exchange.steps -= 1;
            }
            Fact::Reauthenticated { client, link } => {
                let again = self.links.get_mut(link).is_some_and(|e| std::mem::take(&mut e.again));
                if !again {
                    return Err(format!("client {client} was told that it is accepted again, and is not"));
                }
            }
            Fact::Goodbye { client, reason } => {
                let exchange = self.current.get(client).and_then(|link| self.links.get(link));
                let due = exchange.and_then(|e| e.due);
                // A publish that could not be stored ends the connection too.
                let trouble = ledger.store_harmed && *reason == 0x80;
                if due.is_some_and(|due| due != *reason) && !ANYWAY.contains(reason) && !trouble {
                    return Err(format!("client {client} was left with {reason:#x}: {exchange:?}"));
                }
            }
            Fact::Ended { .. }
            | Fact::SubscribeSent { .. }
            | Fact::Subscribed { .. }
            | Fact::UnsubscribeSent { .. }
            | Fact::Unsubscribed { .. }
            | Fact::PublishSent { .. }
            | Fact::PublishAcked { .. }
            | Fact::PublishDone { .. }
            | Fact::PublishForgotten { .. }
            | Fact::Delivered(_)
            | Fact::ClockSet { .. }
            | Fact::Crashed { .. }
            | Fact::LateConnect { .. }
            | Fact::Overtaken { .. }
            | Fact::Restarted
            | Fact::Calm
            | Fact::AllGone => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, ledger: &Ledger, _: &Rest) -> Result<(), String> {
        for (client, link) in &self.current {
            let refused = self.links.get(link).and_then(|e| e.due);
            if ledger.sessions[*client].link == Some(*link) && refused.is_some() {
                return Err(format!("client {client} is still there, refused with {refused:?}"));
            }
        }
        Ok(())
    }
}

impl Authentication {
    fn decided(&mut self, link: usize, verdict: AuthVerdict) {
        let Some(exchange) = self.links.get_mut(&link) else { return };
        match verdict {
            AuthVerdict::Continue => exchange.steps += 1,
            // Before CONNACK the first acceptance is the one that counts.
            AuthVerdict::Accept if exchange.accepted => exchange.again = true,
            AuthVerdict::Accept => exchange.accepted = true,
            AuthVerdict::Refuse(reason) if exchange.accepted && CONNACK_ONLY.contains(&reason) => {
                exchange.due = Some(NOT_AUTHORIZED);
            }
            AuthVerdict::Refuse(reason) => exchange.due = Some(reason),
            AuthVerdict::Silence => exchange.due = Some(BUSY),
        }
    }
}
