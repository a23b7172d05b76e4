//! From what a client shows (password, certificate) to who it is. The tenant comes from the listener or
//! the configuration, never from what the client says.

use crate::auth::rate::KeyedRate;
use crate::auth::state::AuthState;
use crate::auth::verifier::Login;
use crate::config::{Config, Listener};
use mast_core::codec::Reason;
use mast_core::conn::handshake::{AuthAnswer, AuthQuestion, Identity};
use mast_core::tenant::registry::Registry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Sources and users whose rate is remembered.
const MAX_KEYS: usize = 100_000;

/// Decides who comes in.
pub struct Authenticator {
    state: Arc<AuthState>,
    registry: Registry,
    default_tenant: Option<String>,
    per_source: Mutex<KeyedRate<IpAddr>>,
    per_user: Mutex<KeyedRate<String>>,
}

impl Authenticator {
    /// With the files in use and the tenants of the node.
    #[must_use]
    pub fn new(state: Arc<AuthState>, registry: Registry, config: &Config) -> Authenticator {
        let rate = |per_second: u32| per_second.saturating_mul(2);
        let limits = &config.limits;
        Authenticator {
            state,
            registry,
            default_tenant: config.default_tenant.clone(),
            per_source: Mutex::new(KeyedRate::new(
                limits.login_rate_per_source,
                rate(limits.login_rate_per_source),
                MAX_KEYS,
            )),
            per_user: Mutex::new(KeyedRate::new(
                limits.login_rate_per_user,
                rate(limits.login_rate_per_user),
                MAX_KEYS,
            )),
        }
    }

    /// Answers a question of the handshake. `certificate` = the user that the client's certificate names.
    pub async fn answer(
        &self,
        question: AuthQuestion,
        listener: &Listener,
        certificate: Option<&str>,
        ip: Option<IpAddr>,
        now: Duration,
    ) -> AuthAnswer {
        let (username, password) = match question {
            AuthQuestion::Password { username, password, .. } => (username, password),
            // No method is offered, so no handshake gets here.
            AuthQuestion::Step { .. } => return refuse(Reason::BAD_AUTHENTICATION_METHOD),
        };
        if let Some(user) = certificate {
            // The certificate says who it is; a user name beside it changes nothing.
            return self.identify(listener, Some(Box::from(user)));
        }
        let passwords = self.state.passwords();
        match (username, passwords) {
            (Some(user), Some(verifier)) => {
                if !self.may_try(&user, ip, now) {
                    return refuse(Reason::CONNECTION_RATE_EXCEEDED);
                }
                match verifier.verify(&user, password.as_deref().unwrap_or_default()).await {
                    Login::Accepted => self.identify(listener, Some(user)),
                    Login::Refused => refuse(Reason::BAD_USER_NAME_OR_PASSWORD),
                    Login::Busy => refuse(Reason::QUOTA_EXCEEDED),
                }
            }
            // Nothing is configured that could check a name: it counts as a label where anybody may come in.
            (Some(user), None) if listener.allow_anonymous => self.identify(listener, Some(user)),
            // [MQTT-3.1.2-19] A password without a user name is well-formed, and no proof of anything.
            (None, _) if listener.allow_anonymous && password.is_none() => self.identify(listener, None),
            (Some(_) | None, _) => refuse(Reason::NOT_AUTHORIZED),
        }
    }

    fn may_try(&self, user: &str, ip: Option<IpAddr>, now: Duration) -> bool {
        let source =
            ip.is_none_or(|ip| self.per_source.lock().unwrap_or_else(PoisonError::into_inner).take(ip, now));
        source && self.per_user.lock().unwrap_or_else(PoisonError::into_inner).take(user.to_owned(), now)
    }

    fn identify(&self, listener: &Listener, principal: Option<Box<str>>) -> AuthAnswer {
        let name = listener.tenant.as_deref().or(self.default_tenant.as_deref());
        match name.and_then(|name| self.registry.id(name)) {
            Some(tenant) => AuthAnswer::Accept { identity: Identity { tenant, principal }, data: None },
            None => refuse(Reason::NOT_AUTHORIZED),
        }
    }
}

const fn refuse(reason: Reason) -> AuthAnswer {
    AuthAnswer::Refuse { reason }
}
