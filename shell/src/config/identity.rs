//! The keys that say who a client is: tenants, authenticators of a listener, rules for client certificates,
//! tokens.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use jsonwebtoken::Algorithm;
use mast_core::tenant::registry::{NameError, check_name};

use super::{
    invalid,
    keys::{Auth, Tenants},
    kind::{Kind, Switch},
    layers::Layers,
    nearest::nearest,
    table::{choice, section},
};
use crate::auth::certificate::{self, CertificateRule};

choice! {
    /// A link of a listener's chain: who may say who a client is.
    Authenticator { Certificate = "certificate", Jwt = "jwt", Password = "password" }
}

impl Authenticator {
    /// In the order of an automatic chain: the cheap and strong proofs first.
    pub const ALL: [Authenticator; 3] =
        [Authenticator::Certificate, Authenticator::Jwt, Authenticator::Password];
}

section! {
    /// A tenant. The part after the dot is its name: 1 to 64 of A-Z, a-z, 0-9, _ and -. A section may be empty.
    Tenant {
        /// Password file of this tenant's users. Who logs in with it is of this tenant; on a listener of this tenant no other password file counts.
        password_file: Option<PathBuf> = "", Kind::Text;
        /// Access control list of this tenant, in place of `auth.acl_file`.
        acl_file: Option<PathBuf> = "", Kind::Text;
        /// Whether its clients are spread over all shard threads or meet on one. "auto": spread if it is the default tenant or the only one. Fixed until a restart.
        spread: Switch = "auto", Kind::Switch;
    }
}

section! {
    /// Rules from client certificates to users, as an array of tables (`[[certificate]]`) in the order in which they
    /// are tried; the first whose conditions all hold decides. Patterns may contain `*`. Values from the certificate
    /// are put in for `%cn` and `%san`. Before them stands nothing, behind them `username_from` of the listener.
    CertificateKeys {
        /// Pattern for the subject's common name. Empty: any, or none.
        cn: Option<String> = "", Kind::Text;
        /// Pattern for one of the alternative names (DNS, e-mail, URI).
        san: Option<String> = "", Kind::Text;
        /// Parts of the subject that must all be there, such as "O=acme" or "OU=dev-*".
        subject: Vec<String> = "", Kind::List;
        /// Tenant of the client. Empty: the listener's, or `tenants.default`.
        tenant: Option<String> = "", Kind::Text;
        /// User name of the client.
        user: String = "%cn", Kind::Text;
        /// Pattern that the client id must match; `%u` is the user name. Empty: any client id.
        client_id: Option<String> = "", Kind::Text;
    }
}

section! {
    /// JSON web tokens in the password field of CONNECT. A token must have an expiry, and the connection ends with it.
    Jwt {
        /// Algorithms that are accepted: HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA. Must be named where tokens are used.
        algorithms: Vec<String> = "", Kind::List;
        /// File with the secret of the HS algorithms, at least 32 bytes; a line end behind it does not count.
        secret_file: Option<PathBuf> = "", Kind::Text;
        /// PEM file with the public key of the other algorithms.
        key_file: Option<PathBuf> = "", Kind::Text;
        /// File with a set of keys (JWKS), chosen by the token's `kid`. Read again when it changes, at the next token.
        jwks_file: Option<PathBuf> = "", Kind::Text;
        /// Claim with the user name.
        user_claim: String = "sub", Kind::Text;
        /// Claim with the tenant; a token without it is refused.
        tenant_claim: String = "tenant", Kind::Text;
        /// What the claim `iss` must be. Empty: anything.
        issuer: Option<String> = "", Kind::Text;
        /// What the claim `aud` must be, or contain, one of. Empty: anything.
        audience: Vec<String> = "", Kind::List;
        /// How far clocks may differ.
        leeway: Duration = "0s", Kind::Time { min_ms: 0, max_ms: 600_000 };
    }
}

impl Jwt {
    /// Whether any key is configured.
    pub fn is_configured(&self) -> bool {
        self.secret_file.is_some() || self.key_file.is_some() || self.jwks_file.is_some()
    }

    /// The algorithms; what is none of ours was refused before.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        self.algorithms.iter().filter_map(|name| name.parse().ok()).collect()
    }
}

const ALGORITHMS: [&str; 12] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
    "EdDSA",
];

/// All tenants by name, in the order of their numbers, and the sections of those that have one.
pub(super) fn tenants(layers: &mut Layers, tenants: &Tenants) -> (Vec<String>, BTreeMap<String, Tenant>) {
    for (at, name) in tenants.names.iter().enumerate() {
        if let Err(error) = check_name(name) {
            invalid(layers, &["tenants", "names"], name_problem(name, error));
        } else if tenants.names[..at].contains(name) {
            invalid(layers, &["tenants", "names"], format!("\"{name}\" stands there twice"));
        }
    }
    let mut names = tenants.names.clone();
    let mut sections = BTreeMap::new();
    for name in layers.names("tenant") {
        match (check_name(&name), Tenant::build(&layers.section(&["tenant", &name], Tenant::KEYS))) {
            (Err(error), _) => invalid(layers, &["tenant", &name], name_problem(&name, error)),
            (Ok(()), Err(key)) => {
                invalid(layers, &["tenant", &name, key], "the value does not fit its key".into())
            }
            (Ok(()), Ok(section)) => {
                if !names.contains(&name) {
                    names.push(name.clone());
                }
                sections.insert(name, section);
            }
        }
    }
    if let Some(default) = tenants.default.as_ref().filter(|d| !names.contains(d)) {
        let what = format!("no tenant \"{default}\"; there are: {}", names.join(", "));
        invalid(layers, &["tenants", "default"], what);
    }
    (names, sections)
}

fn name_problem(name: &str, error: NameError) -> String {
    let name = name.escape_debug();
    match error {
        NameError::Length | NameError::Character => {
            format!("\"{name}\": a tenant's name is 1 to 64 of A-Z, a-z, 0-9, _ and -")
        }
        NameError::Reserved => format!("\"{name}\": this name is reserved for mast itself"),
    }
}

/// The rules for client certificates, in their order.
pub(super) fn certificate_rules(layers: &mut Layers, tenants: &[String]) -> Vec<CertificateRule> {
    let mut numbers = Vec::new();
    for name in layers.names("certificate") {
        match name.parse::<u32>() {
            Ok(number) => numbers.push((number, name)),
            Err(_) => invalid(
                layers,
                &["certificate", &name],
                "rules have numbers, or stand as [[certificate]]".into(),
            ),
        }
    }
    numbers.sort_unstable();
    let mut rules: Vec<CertificateRule> = Vec::new();
    for (_, name) in numbers {
        let at = |key| ["certificate", name.as_str(), key];
        let keys =
            match CertificateKeys::build(&layers.section(&["certificate", &name], CertificateKeys::KEYS)) {
                Ok(keys) => keys,
                Err(key) => {
                    invalid(layers, &at(key), "the value does not fit its key".into());
                    continue;
                }
            };
        if let Some(tenant) = keys.tenant.as_ref().filter(|t| !tenants.contains(t)) {
            let what = format!("no tenant \"{tenant}\"; there are: {}", tenants.join(", "));
            invalid(layers, &at("tenant"), what);
        }
        if let Some(before) = rules.iter().position(CertificateRule::matches_all) {
            let what = format!(
                "rule {} before it matches every certificate, so this one is never tried",
                before + 1
            );
            invalid(layers, &["certificate", &name], what);
        }
        match certificate::rule(&keys) {
            Ok(rule) => rules.push(rule),
            Err((key, problem)) => invalid(layers, &at(key), problem),
        }
    }
    rules
}

/// Checks the section for tokens.
pub(super) fn check_jwt(layers: &mut Layers, jwt: &Jwt) {
    for name in &jwt.algorithms {
        if ALGORITHMS.contains(&name.as_str()) {
            continue;
        }
        let what = if name.eq_ignore_ascii_case("none") {
            "tokens without a signature are never accepted".to_owned()
        } else {
            format!("\"{name}\" is no algorithm{}", meant(name, &ALGORITHMS))
        };
        invalid(layers, &["jwt", "algorithms"], what);
    }
    if jwt.is_configured() && jwt.algorithms.is_empty() {
        let what = "name the algorithms that are accepted, such as [\"ES256\"]";
        invalid(layers, &["jwt", "algorithms"], what.into());
    }
    let by_secret = |name: &String| name.starts_with("HS");
    if jwt.secret_file.is_some() && !jwt.algorithms.iter().any(by_secret) {
        invalid(layers, &["jwt", "secret_file"], "no HS algorithm is accepted, so it has no use".into());
    }
    if jwt.key_file.is_some() && jwt.algorithms.iter().all(by_secret) {
        invalid(
            layers,
            &["jwt", "key_file"],
            "no algorithm with public keys is accepted, so it has no use".into(),
        );
    }
    for (key, claim) in [("user_claim", &jwt.user_claim), ("tenant_claim", &jwt.tenant_claim)] {
        if claim.is_empty() {
            invalid(layers, &["jwt", key], "name a claim".into());
        }
    }
}

/// What a listener can ask.
#[derive(Clone, Copy)]
pub(super) struct Available {
    pub certificate: bool,
    pub jwt: bool,
}

impl Available {
    /// Whether an authenticator is configured, and what would configure it.
    fn has(self, authenticator: Authenticator) -> (bool, &'static str) {
        match authenticator {
            Authenticator::Certificate => (
                self.certificate,
                "the listener asks for no client certificates: set client_ca of its TLS section",
            ),
            Authenticator::Jwt => {
                (self.jwt, "there are no keys: set jwt.secret_file, jwt.key_file or jwt.jwks_file")
            }
            // Users may come at any time, by the API.
            Authenticator::Password => (true, ""),
        }
    }
}

/// The chain of a listener: what is named, or all that is configured.
pub(super) fn chain(
    layers: &mut Layers,
    listener: &str,
    named: &[String],
    available: Available,
) -> Vec<Authenticator> {
    if named.is_empty() {
        return Authenticator::ALL.into_iter().filter(|a| available.has(*a).0).collect();
    }
    let at = ["listener", listener, "authenticators"];
    let mut chain = Vec::new();
    for name in named {
        let Some(authenticator) = Authenticator::ALL.into_iter().find(|a| a.as_str() == name) else {
            let what = format!("\"{name}\" is no authenticator{}", meant(name, Authenticator::WORDS));
            invalid(layers, &at, what);
            continue;
        };
        let (there, way_out) = available.has(authenticator);
        if chain.contains(&authenticator) {
            invalid(layers, &at, format!("\"{name}\" stands there twice"));
        } else if there {
            chain.push(authenticator);
        } else {
            invalid(layers, &at, format!("\"{name}\" can't be asked: {way_out}"));
        }
    }
    chain
}

fn meant(word: &str, words: &[&str]) -> String {
    match nearest(word, words.iter().copied()) {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None => format!("; there are {}", words.join(", ")),
    }
}

/// Whether a listener of `tenant` (`None` = of no fixed one) has passwords to check.
pub(super) fn has_passwords(
    auth: &Auth,
    sections: &BTreeMap<String, Tenant>,
    tenant: Option<&String>,
) -> bool {
    let own = |t: &Tenant| t.password_file.is_some();
    let of_tenants = match tenant {
        Some(name) => sections.get(name).is_some_and(own),
        None => sections.values().any(own),
    };
    auth.password_file.is_some() || of_tenants
}
