//! Enhanced authentication as a client does it (MQTT 5, 4.12): it answers each challenge with the challenge,
//! and now and then breaks the rules.

use super::{Client, Ctx};
use crate::facts::Fact;
use mast_core::codec::{Auth, Packet, Property, PropsBuf, Reason};

/// The method that the node's authentication speaks.
pub const METHOD: &str = "SIM";

/// How a client breaks the rules of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// Not at all.
    Nothing,
    /// A method that the node does not speak.
    Method,
    /// Another method in the answer than in CONNECT.
    Answer,
    /// PINGREQ instead of an answer.
    Packet,
}

/// How a connection begins.
#[derive(Clone, Copy, Debug)]
pub struct AuthStart {
    /// What is wrong with it.
    pub spoil: Spoil,
}

/// The exchange of one connection.
#[derive(Debug)]
pub struct Exchange {
    spoil: Spoil,
    /// A re-authentication is under way.
    pub again: bool,
}

impl Exchange {
    /// Begins with the CONNECT.
    #[must_use]
    pub const fn new(start: AuthStart) -> Exchange {
        Exchange { spoil: start.spoil, again: false }
    }

    /// The method that CONNECT names.
    #[must_use]
    pub fn method(&self) -> &'static str {
        if self.spoil == Spoil::Method { "ODD" } else { METHOD }
    }
}

impl Client {
    /// Notes that what is sent now must be refused.
    pub(super) fn note_spoiled(&mut self, ctx: &mut Ctx<'_>, link: usize, spoil: Spoil) {
        let due = match spoil {
            Spoil::Nothing => return,
            // [MQTT-4.12.0-1]
            Spoil::Method => Reason::BAD_AUTHENTICATION_METHOD,
            // [MQTT-4.12.0-5], [MQTT-3.1.2-30]
            Spoil::Answer | Spoil::Packet => Reason::PROTOCOL_ERROR,
        };
        ctx.note(Fact::AuthSpoiled { client: self.index, link, due: due.0 });
    }

    /// AUTH of the server.
    pub(super) fn challenged(&mut self, ctx: &mut Ctx<'_>, auth: &Auth<'_>) {
        let (client, online) = (self.index, self.online());
        let Some(wire) = &mut self.wire else { return };
        let link = wire.link;
        let Some(exchange) = wire.exchange.as_mut().filter(|e| !online || e.again) else {
            ctx.broken = Some(format!("[MQTT-4.12.0-6] {auth:?} outside of an exchange"));
            return;
        };
        if auth.props.auth_method() != Some(METHOD) {
            ctx.broken = Some(format!("[MQTT-4.12.0-5] another method than in CONNECT: {auth:?}"));
            return;
        }
        if auth.reason == Reason::SUCCESS {
            exchange.again = false;
            ctx.note(Fact::Reauthenticated { client, link });
            return;
        }
        let spoil = if online { Spoil::Nothing } else { exchange.spoil };
        ctx.note(Fact::AuthContinued { client, link });
        self.note_spoiled(ctx, link, spoil);
        let method = match spoil {
            Spoil::Packet => {
                self.put(ctx, &Packet::PingReq);
                return;
            }
            Spoil::Answer => "ODD",
            Spoil::Nothing | Spoil::Method => METHOD,
        };
        let data = auth.props.auth_data().unwrap_or_default();
        self.put_auth(ctx, Reason::CONTINUE_AUTHENTICATION, method, data);
    }

    /// AUTH 0x19, unless one is under way or the connection has no method.
    pub fn reauthenticate(&mut self, ctx: &mut Ctx<'_>) {
        let exchange = self.wire.as_mut().and_then(|wire| wire.exchange.as_mut());
        let Some(exchange) = exchange.filter(|e| !e.again) else { return };
        exchange.again = true;
        self.put_auth(ctx, Reason::REAUTHENTICATE, METHOD, b"");
    }

    fn put_auth(&mut self, ctx: &mut Ctx<'_>, reason: Reason, method: &str, data: &[u8]) {
        let mut props = PropsBuf::new();
        let fits = props.push(&Property::AuthMethod(method)).is_ok()
            && props.push(&Property::AuthData(data)).is_ok();
        if !fits {
            ctx.broken = Some("AUTH property did not encode".to_owned());
        }
        self.put(ctx, &Packet::Auth(Auth { reason, props: props.as_props() }));
    }
}
