//! The answer to what a CONNECT says of its user: the listener's chain of authenticators, anonymous access, rate of
//! attempts.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use mast_core::{
    conn::handshake::Claims,
    time::{Now, Wall},
};

use super::state::Profile;
use super::{AuthState, KeyedRate, Login, jwt::Token};
use crate::{
    config::{Authenticator, Limits},
    listen::admission::source_of,
};

/// Sources and users remembered for rates.
const MAX_KEYS: usize = 65_536;

/// What a CONNECT says of its user, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    /// Whom the verified client certificate stands for, where the listener takes that from it.
    pub certificate: Option<&'a User>,
    /// `None`: a unix socket.
    pub source: Option<IpAddr>,
    /// The authenticators of the listener, in order.
    pub chain: &'a [Authenticator],
    /// The listener's tenant, if it has a fixed one.
    pub tenant: Option<&'a str>,
    /// Whether the listener takes anonymous clients.
    pub allow_anonymous: bool,
}

/// A proven user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// The tenant that the proof names. `None`: that of the listener, or the default one.
    pub tenant: Option<String>,
    /// What the client id must match, with `*` for any text.
    pub client_id: Option<String>,
    /// When the proof ends, and the connection with it.
    pub expires: Option<Wall>,
    /// What the proof says besides, for rules. Its address is not looked at: that is the connection's.
    pub claims: Claims,
}

/// Who the client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Let in without a proven name.
    Anonymous,
    User(User),
}

/// Why it is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// 0x86 (3.x: 4): wrong user name or password. Which of them is not told.
    BadUserNameOrPassword,
    /// 0x87 (3.x: 5): no user name, and anonymous clients are not taken.
    NotAuthorized,
    /// 0x97 (3.x: 3): too many checks wait.
    Busy,
    /// 0x85 (3.x: 2): the certificate's rule wants another client id.
    ClientId,
    /// 0x9F (3.x: 3): too many attempts from this source or for this user.
    TooManyAttempts,
}

impl Denial {
    /// The label `reason` of `mast_auth_failures_total`.
    pub fn reason(self) -> &'static str {
        match self {
            Denial::BadUserNameOrPassword => "bad_user_name_or_password",
            Denial::NotAuthorized => "not_authorized",
            Denial::ClientId => "client_id",
            Denial::Busy => "hash_queue",
            Denial::TooManyAttempts => "login_rate",
        }
    }
}

/// The rates of attempts. One for the process.
pub struct LoginGate {
    rates: Mutex<(KeyedRate<IpAddr>, KeyedRate<String>)>,
}

impl LoginGate {
    pub fn new(limits: &Limits) -> Self {
        Self { rates: Mutex::new(rates(limits)) }
    }

    /// Puts new rates in force.
    pub fn reconfigure(&self, limits: &Limits) {
        *self.rates.lock().unwrap_or_else(PoisonError::into_inner) = rates(limits);
    }

    /// Decides: asks the listener's authenticators in their order until one knows the client.
    pub async fn decide(
        &self,
        auth: &AuthState,
        given: Credentials<'_>,
        now: Now,
    ) -> Result<Identity, Denial> {
        // Whether the client showed something that one of the chain could have known: then it does not become
        // anonymous by being unknown.
        let mut tried = false;
        for authenticator in given.chain {
            let verdict = match authenticator {
                Authenticator::Certificate => given.certificate.map(|user| Ok(user.clone())),
                Authenticator::Jwt => {
                    tried |= given.password.is_some();
                    self.token(auth, given, now)
                }
                Authenticator::Password => {
                    tried |= given.user.is_some() && auth.passwords().is_some();
                    self.password(auth, given, now).await
                }
            };
            match verdict {
                Some(Ok(user)) => return Ok(Identity::User(user)),
                Some(Err(denial)) => return Err(denial),
                // Not its own: the next one is asked.
                None => {}
            }
        }
        match (tried, given.allow_anonymous) {
            (true, _) => Err(Denial::BadUserNameOrPassword),
            // A name that nothing can check is no name: rules for users must not apply to it.
            (false, true) => Ok(Identity::Anonymous),
            (false, false) => Err(Denial::NotAuthorized),
        }
    }

    fn token(&self, auth: &AuthState, given: Credentials<'_>, now: Now) -> Option<Result<User, Denial>> {
        let (verifier, password) = (auth.tokens()?, given.password?);
        match verifier.verify(password, now.wall) {
            Token::NotMine => None,
            Token::Refused(why) => {
                tracing::debug!("token refused: {why}");
                // Only bad ones count: good tokens cost no hash, and fleets come back together.
                let within = self.take(given.source, None, now);
                Some(Err(if within { Denial::BadUserNameOrPassword } else { Denial::TooManyAttempts }))
            }
            Token::Accepted(user) => Some(Ok(user)),
        }
    }

    async fn password(
        &self,
        auth: &AuthState,
        given: Credentials<'_>,
        now: Now,
    ) -> Option<Result<User, Denial>> {
        let (verifier, user) = (auth.passwords()?, given.user?);
        let Some(password) = given.password else { return Some(Err(Denial::BadUserNameOrPassword)) };
        if !self.take(given.source, Some(user), now) {
            return Some(Err(Denial::TooManyAttempts));
        }
        match verifier.verify(given.tenant, user, password).await {
            Login::Accepted(tenant) => {
                let tenant = tenant.map(|t| t.to_string());
                let profile = tenant.as_deref().and_then(|tenant| auth.profile(tenant, user));
                let Profile { client_id, claims } = profile.unwrap_or_default();
                let name = user.to_owned();
                Some(Ok(User { name, tenant, client_id, claims, ..User::default() }))
            }
            Login::Refused => Some(Err(Denial::BadUserNameOrPassword)),
            Login::Unknown => None,
            Login::Busy => Some(Err(Denial::Busy)),
        }
    }

    fn take(&self, source: Option<IpAddr>, user: Option<&str>, now: Now) -> bool {
        let now = Duration::from_micros(now.mono.0);
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        source.is_none_or(|s| rates.0.take(source_of(s), now))
            && user.is_none_or(|u| rates.1.take(u.to_owned(), now))
    }
}

fn rates(limits: &Limits) -> (KeyedRate<IpAddr>, KeyedRate<String>) {
    // A burst of ten seconds: fleets come back together behind one address.
    let burst = |n: u32| n.saturating_mul(10);
    let (source, user) = (limits.login_rate_per_source, limits.login_rate_per_user);
    (KeyedRate::new(source, burst(source), MAX_KEYS), KeyedRate::new(user, burst(user), MAX_KEYS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::Checked,
        config::{Config, Place, Sources},
    };

    fn setup(passwords: Option<&str>) -> (AuthState, LoginGate) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut variables = std::collections::BTreeMap::new();
        if let Some(text) = passwords {
            let path = dir.path().join("passwd");
            std::fs::write(&path, text).expect("write");
            variables.insert("MAST__AUTH__PASSWORD_FILE".to_owned(), path.display().to_string());
        }
        variables.insert("MAST__LIMITS__LOGIN_RATE_PER_SOURCE".to_owned(), "1".to_owned());
        let sources = Sources { place: Place { variables, is_root: true }, ..Sources::default() };
        let config: Config = sources.load().unwrap_or_else(|e| panic!("{e}"));
        let state = Checked::read(&config).and_then(AuthState::new).unwrap_or_else(|e| panic!("{e}"));
        (state, LoginGate::new(&config.limits))
    }

    fn given<'a>(
        user: Option<&'a str>,
        password: Option<&'a [u8]>,
        allow_anonymous: bool,
    ) -> Credentials<'a> {
        Credentials {
            user,
            password,
            certificate: None,
            chain: &Authenticator::ALL,
            tenant: None,
            source: Some([192, 0, 2, 1].into()),
            allow_anonymous,
        }
    }

    fn passwords() -> String {
        format!("ann:{}\n", bcrypt::hash("secret", 4).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_name_is_believed_only_if_its_password_was_checked() {
        let (auth, gate) = setup(Some(&passwords()));
        let decide = async |g| gate.decide(&auth, g, Now::default()).await;
        let ann = Ok(Identity::User(User { name: "ann".into(), ..User::default() }));
        assert_eq!(decide(given(Some("ann"), Some(b"secret"), false)).await, ann);
        let bad = Err(Denial::BadUserNameOrPassword);
        assert_eq!(decide(given(Some("ann"), Some(b"wrong"), true)).await, bad);
        assert_eq!(decide(given(Some("ann"), None, true)).await, bad);
        assert_eq!(decide(given(Some("eve"), Some(b"secret"), true)).await, bad);
        assert_eq!(decide(given(None, None, true)).await, Ok(Identity::Anonymous));
        assert_eq!(decide(given(None, None, false)).await, Err(Denial::NotAuthorized));
    }

    #[tokio::test]
    async fn without_a_password_file_every_client_is_anonymous_whatever_it_says() {
        let (auth, gate) = setup(None);
        let decide = async |mut g: Credentials<'static>| {
            // What an automatic chain is without files.
            g.chain = &[Authenticator::Certificate];
            gate.decide(&auth, g, Now::default()).await
        };
        assert_eq!(decide(given(Some("admin"), Some(b"x"), true)).await, Ok(Identity::Anonymous));
        assert_eq!(decide(given(Some("admin"), Some(b"x"), false)).await, Err(Denial::NotAuthorized));
    }

    #[tokio::test]
    async fn a_certificate_counts_where_and_when_the_chain_says() {
        let (auth, gate) = setup(Some(&passwords()));
        let dev = User { name: "dev1".into(), ..User::default() };
        let mut both = given(Some("ann"), Some(b"secret"), false);
        both.certificate = Some(&dev);
        let name = async |chain, given: Credentials<'_>| {
            let answer = gate.decide(&auth, Credentials { chain, ..given }, Now::default()).await;
            answer.map(|who| match who {
                Identity::User(user) => user.name,
                Identity::Anonymous => String::new(),
            })
        };
        assert_eq!(name(&Authenticator::ALL, both).await.as_deref(), Ok("dev1"));
        let reversed = [Authenticator::Password, Authenticator::Certificate];
        assert_eq!(name(&reversed, both).await.as_deref(), Ok("ann"));
        // An unknown name is handed on; a wrong password is not.
        assert_eq!(name(&reversed, Credentials { user: Some("eve"), ..both }).await.as_deref(), Ok("dev1"));
        let wrong = Credentials { password: Some(b"wrong"), ..both };
        assert_eq!(name(&reversed, wrong).await, Err(Denial::BadUserNameOrPassword));
        let without = Credentials { user: None, password: None, ..both };
        assert_eq!(name(&[Authenticator::Password], without).await, Err(Denial::NotAuthorized));
    }

    #[tokio::test]
    async fn attempts_have_a_rate() {
        let (auth, gate) = setup(Some(&passwords()));
        let mut refused = 0;
        for _ in 0..12 {
            let answer = gate.decide(&auth, given(Some("eve"), Some(b"x"), false), Now::default()).await;
            refused += u32::from(answer == Err(Denial::TooManyAttempts));
        }
        assert_eq!(refused, 2);
    }
}
