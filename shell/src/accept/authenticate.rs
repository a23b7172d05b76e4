//! From a question of the handshake to its answer: who it is by the login gate, which tenant by the listener or
//! the configuration, never by what the client says.

use crate::auth::{AuthState, Credentials, Denial, Identity as Name, LoginGate};
use crate::config::{Config, Listener};
use mast_core::codec::Reason;
use mast_core::conn::handshake::{AuthAnswer, AuthQuestion, Identity};
use mast_core::tenant::registry::Registry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Decides who comes in.
pub struct Authenticator {
    state: Arc<AuthState>,
    registry: Registry,
    default_tenant: Option<String>,
    pub(super) gate: LoginGate,
}

impl Authenticator {
    /// With the files in use and the tenants of the node.
    #[must_use]
    pub fn new(state: Arc<AuthState>, registry: Registry, config: &Config) -> Authenticator {
        let default_tenant = config.default_tenant.clone();
        Authenticator { state, registry, default_tenant, gate: LoginGate::new(&config.limits) }
    }

    /// Answers a question. `certificate` = the user that the client's certificate names; `ip` = `None` for unix
    /// sockets; `now` counts from any fixed start.
    pub async fn answer(
        &self,
        question: AuthQuestion,
        listener: &Listener,
        certificate: Option<&str>,
        ip: Option<IpAddr>,
        now: Duration,
    ) -> AuthAnswer {
        let (user, password) = match question {
            AuthQuestion::Password { username, password, .. } => (username, password),
            // No method is offered, so no handshake gets here.
            AuthQuestion::Step { .. } => return refuse(Reason::BAD_AUTHENTICATION_METHOD),
        };
        let given = Credentials {
            user: user.as_deref(),
            password: password.as_deref(),
            certificate_user: certificate,
            source: ip,
            allow_anonymous: listener.allow_anonymous,
        };
        match self.gate.decide(&self.state, given, now).await {
            Ok(Name::Anonymous) => self.identify(listener, None),
            Ok(Name::User(user)) => self.identify(listener, Some(user.into_boxed_str())),
            Err(denial) => refuse(match denial {
                Denial::BadUserNameOrPassword => Reason::BAD_USER_NAME_OR_PASSWORD,
                Denial::NotAuthorized => Reason::NOT_AUTHORIZED,
                Denial::Busy => Reason::QUOTA_EXCEEDED,
                Denial::TooManyAttempts => Reason::CONNECTION_RATE_EXCEEDED,
            }),
        }
    }

    fn identify(&self, listener: &Listener, principal: Option<Box<str>>) -> AuthAnswer {
        let name = listener.tenant.as_deref().or(self.default_tenant.as_deref());
        match name.and_then(|name| self.registry.id(name)) {
            Some(tenant) => AuthAnswer::Accept { identity: Identity { tenant, principal }, data: None },
            None => refuse(Reason::NOT_AUTHORIZED),
        }
    }
}

/// A refusal with this reason.
pub(super) const fn refuse(reason: Reason) -> AuthAnswer {
    AuthAnswer::Refuse { reason }
}
