//! From a question of the handshake to its answer: who it is by the login gate; which tenant by what the client proved
//! itself with, the listener or the configuration, never by what the client says.

use crate::auth::certificate::{self, CertificateNames};
use crate::auth::{
    AuthState, Ban, BanSource, Banned, Circumstances, Credentials, Denial, Identity as Name, LoginGate,
    Suspect, User,
};
use crate::config::{Authenticator as Link, Config, Listener};
use crate::obs::log::ClientText;
use arc_swap::ArcSwap;
use mast_core::codec::Reason;
use mast_core::conn::handshake::{AuthAnswer, AuthQuestion, Claims, Identity};
use mast_core::ids::TenantId;
use mast_core::tenant::registry::Registry;
use mast_core::time::{Now, Wall};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The method of enhanced authentication (MQTT 5, 4.12) whose data is a JSON web token.
const JWT: &str = "JWT";

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
    pub(crate) state: Arc<AuthState>,
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
        let (client_id, user, password, version, clean_start) = match question {
            AuthQuestion::Password { client_id, username, password, version, clean_start } => {
                (client_id, username, password, version, clean_start)
            }
            AuthQuestion::Step { client_id, method, data } => {
                let answer = self.token_step(listener, &client_id, &method, data.as_deref(), ip, now).await;
                return self.not_flapping(config, &client_id, answer, now);
            }
        };
        // What is banned already by what is known now costs no proof. A name counts where it is what will be proven.
        let own_name = |link: &Link| match link {
            Link::Certificate | Link::Jwt => false,
            Link::Http | Link::Password => true,
        };
        let claimed = user.as_deref().filter(|_| listener.authenticators.iter().all(own_name));
        if self.is_banned(listener.tenant.as_deref(), &client_id, claimed, ip, now) {
            return refuse(reason(Denial::Banned));
        }
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
            circumstances: Circumstances {
                client_id: &client_id,
                version,
                clean_start,
                listener: &listener.name,
                certificate_cn: certificate.and_then(|c| c.names.cn().ok()),
            },
        };
        let answer = match self.gate.decide(&self.state, given, now).await {
            Ok(Name::Anonymous) => self.identify(listener.tenant.as_deref(), None, &client_id, ip, now),
            Ok(Name::User(user)) => {
                self.identify(listener.tenant.as_deref(), Some(user), &client_id, ip, now)
            }
            Err(denial) => refuse(reason(denial)),
        };
        self.not_flapping(config, &client_id, answer, now)
    }

    /// The methods of enhanced authentication that a configuration offers.
    pub fn methods(config: &Config) -> Arc<[Box<str>]> {
        let has_tokens = config.listeners.iter().any(|l| l.authenticators.contains(&Link::Jwt));
        if has_tokens { Arc::from([Box::from(JWT)]) } else { Arc::from([]) }
    }

    /// The method `JWT` in CONNECT: its data is the token.
    async fn token_step(
        &self,
        listener: &Listener,
        client_id: &str,
        method: &str,
        token: Option<&[u8]>,
        ip: Option<IpAddr>,
        now: Now,
    ) -> AuthAnswer {
        if method != JWT || !listener.authenticators.contains(&Link::Jwt) {
            return refuse(Reason::BAD_AUTHENTICATION_METHOD);
        }
        if self.is_banned(listener.tenant.as_deref(), client_id, None, ip, now) {
            return refuse(reason(Denial::Banned));
        }
        match self.gate.token(&self.state, token.unwrap_or_default(), ip, now).await {
            Some(Ok(user)) => self.identify(listener.tenant.as_deref(), Some(user), client_id, ip, now),
            Some(Err(Denial::BadUserNameOrPassword)) | None => refuse(Reason::NOT_AUTHORIZED),
            Some(Err(denial)) => refuse(reason(denial)),
        }
    }

    /// A client that is connected proves itself again. The shard sees to it that it is who it was.
    pub async fn answer_again(&self, question: AuthQuestion, now: Now) -> AuthAnswer {
        let AuthQuestion::Step { client_id, method, data } = question else {
            return refuse(Reason::BAD_AUTHENTICATION_METHOD);
        };
        if &*method != JWT {
            return refuse(Reason::BAD_AUTHENTICATION_METHOD);
        }
        // A bad one ends the connection, so no rate is needed here.
        match self.gate.token(&self.state, data.as_deref().unwrap_or_default(), None, now).await {
            Some(Ok(user)) => self.identify(None, Some(user), &client_id, None, now),
            Some(Err(_)) | None => refuse(Reason::NOT_AUTHORIZED),
        }
    }

    fn is_banned(
        &self,
        tenant: Option<&str>,
        client_id: &str,
        user: Option<&str>,
        address: Option<IpAddr>,
        now: Now,
    ) -> bool {
        let suspect = Suspect { tenant, client_id, user, address };
        let Some(ban) = self.state.bans.refuses(&suspect, now.wall) else { return false };
        let kind = ban.kind().as_str();
        tracing::debug!(kind, reason = ban.reason, "a banned client was refused");
        true
    }

    /// Bans a client that is let in too often.
    fn not_flapping(&self, config: &Config, client_id: &str, answer: AuthAnswer, now: Now) -> AuthAnswer {
        let AuthAnswer::Accept { identity, .. } = &answer else { return answer };
        let registry = self.registry.load();
        let Some(tenant) = registry.name(identity.tenant).filter(|_| !client_id.is_empty()) else {
            return answer;
        };
        let at = Duration::from_micros(now.mono.0);
        if !self.state.flapping.connected(&config.flapping, tenant, client_id, at) {
            return answer;
        }
        let length = u64::try_from(config.flapping.ban.as_millis()).unwrap_or(u64::MAX);
        let ban = Ban {
            tenant: Some(tenant.to_owned()),
            who: Banned::Client(client_id.to_owned()),
            until: Some(Wall(now.wall.0.saturating_add(length))),
            reason: format!(
                "more than {} connections within {:?}",
                config.flapping.max_connects, config.flapping.window
            ),
        };
        let client = ClientText::new(client_id, config.limits.max_log_text);
        tracing::warn!(tenant, %client, length = ?config.flapping.ban, "a client that connects too often is banned");
        self.state.bans.add(BanSource::Flapping, ban, now.wall);
        // Counts it as well.
        self.is_banned(Some(tenant), client_id, None, None, now);
        refuse(reason(Denial::Banned))
    }

    /// `fixed`: the tenant of the listener, if it has one of its own.
    fn identify(
        &self,
        fixed: Option<&str>,
        user: Option<User>,
        client_id: &str,
        ip: Option<IpAddr>,
        now: Now,
    ) -> AuthAnswer {
        let proven = user.as_ref().and_then(|u| u.tenant.as_deref());
        let name = match (proven, fixed) {
            // A door of one tenant is no door for another's users, however good their proof.
            (Some(proven), Some(fixed)) if proven != fixed => return refuse(Reason::NOT_AUTHORIZED),
            (Some(name), _) | (None, Some(name)) => Some(name),
            (None, None) => self.default_tenant.as_deref(),
        };
        let Some(tenant) = name.and_then(|name| self.registry.load().id(name)) else {
            return refuse(Reason::NOT_AUTHORIZED);
        };
        if self.is_banned(name, client_id, user.as_ref().map(|u| u.name.as_str()), ip, now) {
            return refuse(reason(Denial::Banned));
        }
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
        Denial::Unavailable => Reason::SERVER_UNAVAILABLE,
        Denial::Banned => Reason::BANNED,
        Denial::TooManyAttempts => Reason::CONNECTION_RATE_EXCEEDED,
    }
}

/// A refusal with this reason.
pub(super) const fn refuse(reason: Reason) -> AuthAnswer {
    AuthAnswer::Refuse { reason }
}
