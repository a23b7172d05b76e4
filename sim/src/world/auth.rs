//! Authentication of the node: who has a password is known, who has a method gets challenges, and then is
//! accepted or not, as the draws say; late, wrong or silent answers to re-authentication among them.

use super::World;
use super::link::Server;
use super::store::Told;
use crate::client::{AuthStart, METHOD, Spoil};
use crate::facts::{AuthVerdict, Fact};
use mast_core::codec::Reason;
use mast_core::conn::handshake::{AuthAnswer, AuthQuestion, Identity};
use mast_core::ids::{OpId, TenantId};
use mast_core::shard::input::Input;

/// Reasons for which a client is refused.
const REFUSALS: [Reason; 4] =
    [Reason::NOT_AUTHORIZED, Reason::BAD_USER_NAME_OR_PASSWORD, Reason::SERVER_UNAVAILABLE, Reason::BANNED];

impl World {
    /// How a client's next connection authenticates; `None`: with a password.
    pub(super) fn auth_start(&mut self, client: usize) -> Option<AuthStart> {
        let spec = &self.clients[client].spec;
        if spec.auth_steps == 0 || !spec.v5 {
            return None;
        }
        let spoil = match self.auths.below(30) {
            0 => Spoil::Method,
            1 | 2 => Spoil::Answer,
            3 => Spoil::Packet,
            _ => Spoil::Nothing,
        };
        Some(AuthStart { spoil: if self.calm { Spoil::Nothing } else { spoil } })
    }

    fn identity(&self, client: usize) -> Identity {
        let spec = &self.clients[client].spec;
        let principal = Some(Box::from(spec.name.as_str()));
        let identity = Identity::new(TenantId(u32::from(spec.tenant)), principal);
        Identity { claims: self.ledger.rights.claims(&spec.name), ..identity }
    }

    /// The acceptor's question is answered.
    pub(super) fn authenticated(&mut self, link: usize) {
        let state = &self.links[link];
        if state.closing || !matches!(state.server, Server::Handshake(_)) {
            return;
        }
        let client = state.client;
        let Some(question) = self.links[link].asked.take() else { return };
        let answer = match &question {
            _ if self.node.is_none() => AuthAnswer::Refuse { reason: Reason::SERVER_UNAVAILABLE },
            AuthQuestion::Password { .. } => {
                AuthAnswer::Accept { identity: self.identity(client), data: None }
            }
            // A stranger that has read the specification.
            AuthQuestion::Step { .. } if self.clients[client].spec.auth_steps == 0 => {
                AuthAnswer::Refuse { reason: Reason::BAD_AUTHENTICATION_METHOD }
            }
            AuthQuestion::Step { method, data, .. } => {
                let answer = self.step(link, method, data.as_deref());
                self.note_answer(link, &answer);
                answer
            }
        };
        let state = &mut self.links[link];
        if let Server::Handshake(handshake) = &mut state.server {
            let progress = handshake.authenticated(answer, &mut state.hello);
            self.progress(link, progress);
        }
    }

    fn note_answer(&mut self, link: usize, answer: &AuthAnswer) {
        let client = self.links[link].client;
        let verdict = match answer {
            AuthAnswer::Accept { .. } => AuthVerdict::Accept,
            AuthAnswer::Continue { .. } => AuthVerdict::Continue,
            AuthAnswer::Refuse { reason } => AuthVerdict::Refuse(reason.0),
        };
        self.marks.hit(match verdict {
            AuthVerdict::Refuse(_) => "authentication refused",
            AuthVerdict::Continue => "authentication went on",
            AuthVerdict::Accept | AuthVerdict::Silence => "authentication accepted",
        });
        self.note(Fact::AuthDecided { client, link, verdict });
    }

    /// A challenge, and at last acceptance or refusal. What the client sends must be what was sent to it.
    fn step(&mut self, link: usize, method: &str, data: Option<&[u8]>) -> AuthAnswer {
        let client = self.links[link].client;
        let done = self.links[link].challenges;
        let due = if done == 0 { Vec::new() } else { vec![done; usize::from(done)] };
        if method != METHOD || data != Some(&due) {
            self.fail("authentication", &format!("asked about {method} {data:?}, due was {due:?}"));
        }
        if done + 1 < self.clients[client].spec.auth_steps {
            self.links[link].challenges += 1;
            return AuthAnswer::Continue { data: vec![done + 1; usize::from(done) + 1].into() };
        }
        self.links[link].challenges = 0;
        if !self.calm && self.auths.chance(25) {
            return AuthAnswer::Refuse { reason: *self.auths.pick(&REFUSALS) };
        }
        AuthAnswer::Accept { identity: self.identity(client), data: None }
    }

    /// A shard asks about an AUTH of a running connection.
    pub(super) fn asked_again(&mut self, shard: u16, op: OpId, link: usize, question: &AuthQuestion) {
        let client = self.links[link].client;
        let AuthQuestion::Step { method, data, .. } = question else {
            self.fail("authentication", "a running connection is asked for its password");
            return;
        };
        let mut answer = self.step(link, method, data.as_deref());
        if !self.calm && matches!(answer, AuthAnswer::Accept { .. }) {
            match self.auths.below(10) {
                // Nobody may slip into a session as another.
                0 => {
                    let identity =
                        Identity { principal: Some(Box::from("another")), ..self.identity(client) };
                    answer = AuthAnswer::Accept { identity, data: None };
                    let verdict = AuthVerdict::Refuse(Reason::NOT_AUTHORIZED.0);
                    self.marks.hit("re-authentication as another was refused");
                    self.note(Fact::AuthDecided { client, link, verdict });
                    self.tell(Told { shard, input: Input::AuthDone { op, answer } });
                    return;
                }
                1 => {
                    self.marks.hit("re-authentication stayed unanswered");
                    self.note(Fact::AuthDecided { client, link, verdict: AuthVerdict::Silence });
                    return;
                }
                _ => self.marks.hit("re-authentication accepted"),
            }
        }
        self.note_answer(link, &answer);
        self.tell(Told { shard, input: Input::AuthDone { op, answer } });
    }
}
