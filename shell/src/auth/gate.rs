//! The answer to the user name and password of a CONNECT: anonymous access, password check, rate of attempts.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{AuthState, KeyedRate, Login};
use crate::{config::Limits, listen::admission::source_of};

/// Sources and users remembered for rates.
const MAX_KEYS: usize = 65_536;

/// What a CONNECT says of its user, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    /// The name in a verified client certificate, where the listener takes it as the user name.
    pub certificate_user: Option<&'a str>,
    /// `None`: a unix socket.
    pub source: Option<IpAddr>,
    /// Whether the listener takes anonymous clients.
    pub allow_anonymous: bool,
}

/// Who the client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Let in without a proven name.
    Anonymous,
    User(String),
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
    /// 0x9F (3.x: 3): too many attempts from this source or for this user.
    TooManyAttempts,
}

impl Denial {
    /// The label `reason` of `mast_auth_failures_total`.
    pub fn reason(self) -> &'static str {
        match self {
            Denial::BadUserNameOrPassword => "bad_user_name_or_password",
            Denial::NotAuthorized => "not_authorized",
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

    /// Decides. `now` counts from any fixed start.
    pub async fn decide(
        &self,
        auth: &AuthState,
        given: Credentials<'_>,
        now: Duration,
    ) -> Result<Identity, Denial> {
        // A proven certificate stands above what the packet says.
        if let Some(user) = given.certificate_user {
            return Ok(Identity::User(user.to_owned()));
        }
        let anonymous =
            if given.allow_anonymous { Ok(Identity::Anonymous) } else { Err(Denial::NotAuthorized) };
        let (Some(user), Some(verifier)) = (given.user, auth.passwords()) else {
            // Nobody proved a name that nothing can check: rules for users must not apply to it.
            return anonymous;
        };
        let Some(password) = given.password else { return Err(Denial::BadUserNameOrPassword) };
        if !self.take(given.source, user, now) {
            return Err(Denial::TooManyAttempts);
        }
        match verifier.verify(user, password).await {
            Login::Accepted => Ok(Identity::User(user.to_owned())),
            Login::Refused => Err(Denial::BadUserNameOrPassword),
            Login::Busy => Err(Denial::Busy),
        }
    }

    fn take(&self, source: Option<IpAddr>, user: &str, now: Duration) -> bool {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        source.is_none_or(|s| rates.0.take(source_of(s), now)) && rates.1.take(user.to_owned(), now)
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
        let state = Checked::read(&config.auth).and_then(AuthState::new).unwrap_or_else(|e| panic!("{e}"));
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
            certificate_user: None,
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
        let decide = async |g| gate.decide(&auth, g, Duration::ZERO).await;
        let ann = Ok(Identity::User("ann".into()));
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
        let decide = async |g| gate.decide(&auth, g, Duration::ZERO).await;
        assert_eq!(decide(given(Some("admin"), Some(b"x"), true)).await, Ok(Identity::Anonymous));
        assert_eq!(decide(given(Some("admin"), Some(b"x"), false)).await, Err(Denial::NotAuthorized));
        let mut certified = given(Some("admin"), None, false);
        certified.certificate_user = Some("dev1");
        assert_eq!(decide(certified).await, Ok(Identity::User("dev1".into())));
    }

    #[tokio::test]
    async fn attempts_have_a_rate() {
        let (auth, gate) = setup(Some(&passwords()));
        let mut refused = 0;
        for _ in 0..12 {
            let answer = gate.decide(&auth, given(Some("eve"), Some(b"x"), false), Duration::ZERO).await;
            refused += u32::from(answer == Err(Denial::TooManyAttempts));
        }
        assert_eq!(refused, 2);
    }
}
