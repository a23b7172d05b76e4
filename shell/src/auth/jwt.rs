//! JSON web tokens in the password field: signature by an allowed algorithm and a known key, then the claims.
//!
//! The library checks the signature alone. What the claims must be is decided here, by the time that is handed in, so
//! that no default of a library opens a door: an algorithm that is not on the list, a claim twice, a tenant that is
//! not one text are all refused.

use std::{collections::BTreeMap, fmt};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, Validation, decode};
use mast_core::{conn::handshake, tenant::registry::check_name, time::Wall};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::{
    gate::User,
    http::wire,
    jwt_keys::{JwtKeys, JwtKeysError},
};
use crate::config::Jwt;

/// Longest user name that a token may carry, bytes.
const MAX_USER: usize = 256;

/// Why a token was refused that no key is for.
const NO_KEY: &str = "no key has its algorithm and kid";

/// Checks tokens.
pub struct JwtVerifier {
    settings: Jwt,
    algorithms: Vec<Algorithm>,
    keys: JwtKeys,
}

/// The answer to a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// It is no token at all.
    NotMine,
    /// A token, but not a good one; for the log.
    Refused(&'static str),
    /// It names a key that is not known. Keys of a server may have changed.
    UnknownKey,
    Accepted(User),
}

/// The claims, each once.
struct Claims(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = BTreeMap<String, Value>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose members differ in name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut claims = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if claims.insert(name, value).is_some() {
                        // Which of two tenants did the issuer mean?
                        return Err(A::Error::custom("a claim stands there twice"));
                    }
                }
                Ok(claims)
            }
        }
        deserializer.deserialize_map(Once).map(Claims)
    }
}

impl JwtVerifier {
    /// Reads the keys.
    pub fn new(settings: &Jwt) -> Result<Self, JwtKeysError> {
        let keys = JwtKeys::read(settings)?;
        Ok(Self { settings: settings.clone(), algorithms: settings.algorithms(), keys })
    }

    /// Checks a password that may be a token.
    pub fn verify(&self, password: &[u8], now: Wall) -> Token {
        let Some(header) = header(password) else { return Token::NotMine };
        match self.check(&header, password, now) {
            Ok(user) => Token::Accepted(user),
            Err(NO_KEY) => Token::UnknownKey,
            Err(why) => Token::Refused(why),
        }
    }

    /// The same, where keys of a server that are not known yet are fetched.
    pub async fn verify_fetching(&self, password: &[u8], now: Wall) -> Token {
        match (self.verify(password, now), self.keys.url()) {
            (Token::UnknownKey, Some(set)) => {
                set.look_again().await;
                self.verify(password, now)
            }
            (token, _) => token,
        }
    }

    /// Fetches the keys of a server if it is time to.
    pub async fn keep_fresh(&self) {
        if let Some(set) = self.keys.url() {
            set.keep_fresh().await;
        }
    }

    /// Takes over the keys that a predecessor had fetched from the same server.
    pub fn adopt(&self, before: &JwtVerifier) {
        if let (Some(set), Some(old)) = (self.keys.url(), before.keys.url()) {
            set.adopt(old);
        }
    }

    fn check(&self, header: &Value, token: &[u8], now: Wall) -> Result<User, &'static str> {
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(|name| name.parse().ok());
        let algorithm =
            algorithm.filter(|a| self.algorithms.contains(a)).ok_or("its algorithm is not accepted")?;
        if header.get("crit").is_some() {
            return Err("it has extensions that must be understood");
        }
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid.as_str()),
            Some(_) => return Err("its kid is no text"),
        };
        let claims = self.verified(algorithm, kid, token)?;
        self.user(&claims.0, now)
    }

    /// The claims, if one of the keys signed them.
    fn verified(
        &self,
        algorithm: Algorithm,
        kid: Option<&str>,
        token: &[u8],
    ) -> Result<Claims, &'static str> {
        let mut validation = Validation::new(algorithm);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        let keys = self.keys.candidates(algorithm, kid);
        if keys.is_empty() {
            return Err(NO_KEY);
        }
        let found = keys.iter().find_map(|key| decode::<Claims>(token, key, &validation).ok());
        found.map(|data| data.claims).ok_or("its signature or form is not good")
    }

    fn user(&self, claims: &BTreeMap<String, Value>, now: Wall) -> Result<User, &'static str> {
        let settings = &self.settings;
        let leeway = u64::try_from(settings.leeway.as_millis()).unwrap_or(u64::MAX);
        let expires = claims.get("exp").and_then(millis).ok_or("it has no expiry")?.saturating_add(leeway);
        if expires <= now.0 {
            return Err("it has expired");
        }
        match claims.get("nbf").map(millis) {
            None => {}
            Some(None) => return Err("its nbf is no time"),
            Some(Some(from)) if from > now.0.saturating_add(leeway) => return Err("it is not valid yet"),
            Some(Some(_)) => {}
        }
        if let Some(issuer) = &settings.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err("it is from another issuer");
        }
        if !settings.audience.is_empty() && !self.is_for_us(claims.get("aud")) {
            return Err("it is for another audience");
        }
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str);
        let good =
            |name: &&str| !name.is_empty() && name.len() <= MAX_USER && !name.chars().any(char::is_control);
        let name = text(&settings.user_claim).filter(good).ok_or("its user is missing or malformed")?;
        let tenant = text(&settings.tenant_claim).filter(|t| check_name(t).is_ok());
        let tenant = tenant.ok_or("its tenant is missing or malformed")?;
        let claim = |name: &Option<String>| name.as_ref().and_then(|name| claims.get(name));
        let superuser = match claim(&settings.superuser_claim) {
            None => false,
            Some(Value::Bool(yes)) => *yes,
            Some(_) => return Err("its superuser claim is neither true nor false"),
        };
        let attributes = wire::attributes(claim(&settings.attributes_claim));
        let groups = wire::groups(claim(&settings.groups_claim));
        Ok(User {
            name: name.to_owned(),
            tenant: Some(tenant.to_owned()),
            client_id: None,
            expires: Some(Wall(expires)),
            claims: handshake::Claims {
                superuser,
                attributes: attributes.map_err(|_| "its attributes are malformed")?,
                groups: groups.map_err(|_| "its groups are malformed")?,
                source: None,
            },
        })
    }

    fn is_for_us(&self, audience: Option<&Value>) -> bool {
        let one =
            |value: &Value| value.as_str().is_some_and(|a| self.settings.audience.iter().any(|w| w == a));
        match audience {
            Some(Value::Array(several)) => several.iter().any(one),
            Some(value) => one(value),
            None => false,
        }
    }
}

/// The header, if this has the form of a signed token: three parts, of which the first is an object with `alg`.
fn header(password: &[u8]) -> Option<Value> {
    let mut parts = password.split(|b| *b == b'.');
    let (first, _, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(first).ok()?).ok()?;
    header.get("alg").is_some().then_some(header)
}

/// A time of a claim in milliseconds since 1970: a positive number of seconds, with or without a fraction.
fn millis(value: &Value) -> Option<u64> {
    match value.as_u64() {
        Some(seconds) => Some(seconds.saturating_mul(1000)),
        None => value.as_f64().filter(|s| s.is_finite() && *s >= 0.0).map(|s| (s * 1000.0) as u64),
    }
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
