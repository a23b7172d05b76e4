//! From a question of the handshake to its answer: who it is by the login gate; which tenant by what the client proved
//! itself with, the listener or the configuration, never by what the client says.

use crate::auth::certificate::{self, CertificateNames};
use crate::auth::{AuthState, Credentials, Denial, Identity as Name, LoginGate, User};
use crate::config::{Authenticator as Link, Config, Listener};
use arc_swap::ArcSwap;
use mast_core::codec::Reason;
use mast_core::conn::handshake::{AuthAnswer, AuthQuestion, Claims, Identity};
use mast_core::ids::TenantId;
use mast_core::tenant::registry::Registry;
use mast_core::time::Now;
use std::net::IpAddr;
use std::sync::Arc;

/// What a verified client certificate says.
#[derive(Clone, Debug, Default)]
pub struct ClientCertificate {
    /// The name in the place that `username_from` of the listener tells; `None`: it tells none.
    pub user: Option<String>,
    /// All names, for the rules.
    pub names: CertificateNames,
}

/// Decides who comes in.
pub struct Authenticator {
    state: Arc<AuthState>,
    /// The tenants whose clients are let in: a new one once store and shards have it.
    registry: ArcSwap<Registry>,
    default_tenant: Option<String>,
    pub(super) gate: LoginGate,
}

impl Authenticator {
    /// With the files in use and the tenants of the node.
    #[must_use]
    pub fn new(state: Arc<AuthState>, registry: Registry, config: &Config) -> Authenticator {
        let default_tenant = config.default_tenant.clone();
        let registry = ArcSwap::from_pointee(registry);
        Authenticator { state, registry, default_tenant, gate: LoginGate::new(&config.limits) }
    }

    /// Whether a tenant's clients are spread over all shards.
    pub fn is_spread(&self, tenant: TenantId) -> bool {
        self.registry.load().is_spread(tenant)
    }

    /// Lets clients of these tenants in from now on, and of no others.
    pub fn set_tenants(&self, registry: Registry) {
        self.registry.store(Arc::new(registry));
    }

    /// Answers a question. `ip` = `None` for unix sockets.
    pub async fn answer(
        &self,
        question: AuthQuestion,
        config: &Config,
        listener: &Listener,
        certificate: Option<&ClientCertificate>,
        ip: Option<IpAddr>,
        now: Now,
    ) -> AuthAnswer {
        let (client_id, user, password) = match question {
            AuthQuestion::Password { client_id, username, password } => (client_id, username, password),
            // No method is offered, so no handshake gets here.
            AuthQuestion::Step { .. } => return refuse(Reason::BAD_AUTHENTICATION_METHOD),
        };
        let certified = match certified(config, listener, certificate) {
            Ok(user) => user,
            Err(denial) => return refuse(reason(denial)),
        };
        let given = Credentials {
            user: user.as_deref(),
            password: password.as_deref(),
            certificate: certified.as_ref(),
            source: ip,
            chain: &listener.authenticators,
            tenant: listener.tenant.as_deref(),
            allow_anonymous: listener.allow_anonymous,
        };
        match self.gate.decide(&self.state, given, now).await {
            Ok(Name::Anonymous) => self.identify(listener, None, &client_id, ip),
            Ok(Name::User(user)) => self.identify(listener, Some(user), &client_id, ip),
            Err(denial) => refuse(reason(denial)),
        }
    }

    fn identify(
        &self,
        listener: &Listener,
        user: Option<User>,
        client_id: &str,
        ip: Option<IpAddr>,
    ) -> AuthAnswer {
        let proven = user.as_ref().and_then(|u| u.tenant.as_deref());
        let name = match (proven, listener.tenant.as_deref()) {
            // A door of one tenant is no door for another's users, however good their proof.
            (Some(proven), Some(fixed)) if proven != fixed => return refuse(Reason::NOT_AUTHORIZED),
            (Some(name), _) | (None, Some(name)) => Some(name),
            (None, None) => self.default_tenant.as_deref(),
        };
        let Some(tenant) = name.and_then(|name| self.registry.load().id(name)) else {
            return refuse(Reason::NOT_AUTHORIZED);
        };
        let mut identity = Identity::new(tenant, None);
        identity.claims.source = ip;
        let Some(user) = user else { return AuthAnswer::Accept { identity, data: None } };
        if user.client_id.as_ref().is_some_and(|pattern| !certificate::matches(pattern, client_id)) {
            return refuse(reason(Denial::ClientId));
        }
        identity.principal = Some(user.name.into_boxed_str());
        identity.expires = user.expires;
        identity.claims = Claims { source: ip, ..user.claims };
        AuthAnswer::Accept { identity, data: None }
    }
}

/// Whom the certificate stands for, by the rules, and behind them by the listener's `username_from`.
fn certified(
    config: &Config,
    listener: &Listener,
    certificate: Option<&ClientCertificate>,
) -> Result<Option<User>, Denial> {
    let Some(certificate) = certificate.filter(|_| listener.authenticators.contains(&Link::Certificate))
    else {
        return Ok(None);
    };
    let by_rule = certificate::map(&config.certificate_rules, &certificate.names)?;
    let by_name = || certificate.user.clone().map(|name| User { name, ..User::default() });
    Ok(by_rule.or_else(by_name))
}

/// The reason code of a denial.
const fn reason(denial: Denial) -> Reason {
    match denial {
        Denial::BadUserNameOrPassword => Reason::BAD_USER_NAME_OR_PASSWORD,
        Denial::NotAuthorized => Reason::NOT_AUTHORIZED,
        Denial::ClientId => Reason::CLIENT_IDENTIFIER_NOT_VALID,
        Denial::Busy => Reason::QUOTA_EXCEEDED,
        Denial::TooManyAttempts => Reason::CONNECTION_RATE_EXCEEDED,
    }
}

/// A refusal with this reason.
pub(super) const fn refuse(reason: Reason) -> AuthAnswer {
    AuthAnswer::Refuse { reason }
}
