//! Password hashes: mosquitto's `$6$`, `$7$` and `$argon2id$`, and bcrypt. Passwords are bytes of full length.

use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::{digest, pbkdf2, rand};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use subtle::ConstantTimeEq;

/// Argon2id cost of new hashes: mosquitto 2.1's default, about 48 ms of CPU and 46 MiB each.
const NEW_MEMORY_KIB: u32 = 47_104;
const NEW_PASSES: u32 = 1;
const NEW_LANES: u32 = 1;

/// Bounds on the cost that a file may ask for, so that one line cannot stop the broker.
const MAX_MEMORY_KIB: u32 = 1 << 20;
const MAX_PASSES: u32 = 64;
const MAX_LANES: u32 = 16;
const MAX_ITERATIONS: u32 = 10_000_000;
const MAX_BCRYPT_COST: u32 = 16;
/// bcrypt looks at no more of a password than this.
const BCRYPT_MAX_PASSWORD: usize = 72;

/// A stored password hash.
#[derive(Clone)]
pub enum StoredHash {
    /// `$6$salt$hash`: SHA-512 of password and salt, as old mosquitto versions wrote it.
    Sha512 { salt: Vec<u8>, hash: Vec<u8> },
    /// `$7$iterations$salt$hash`: PBKDF2 with HMAC-SHA-512.
    Pbkdf2 { iterations: NonZeroU32, salt: Vec<u8>, hash: Vec<u8> },
    /// `$argon2id$v=19$m=…,t=…,p=…$salt$hash`.
    Argon2id { params: Params, version: Version, salt: Vec<u8>, hash: Vec<u8> },
    /// `$2a$`, `$2b$`, `$2x$` or `$2y$`.
    Bcrypt { text: String, cost: u32 },
}

/// Why a text is no usable hash. It never holds the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashProblem {
    #[error("no password hash (a plain text password?); known are $6$, $7$, $argon2id$ and bcrypt")]
    UnknownScheme,
    #[error("malformed {0} hash")]
    Malformed(&'static str),
    #[error("the cost of this {0} hash is out of bounds")]
    Cost(&'static str),
    #[error("hashing failed")]
    Failed,
}

impl StoredHash {
    /// Parses the part of a password file's line behind the colon.
    pub fn parse(text: &str) -> Result<Self, HashProblem> {
        if let Some(rest) = text.strip_prefix("$6$") {
            parse_sha512(rest)
        } else if let Some(rest) = text.strip_prefix("$7$") {
            parse_pbkdf2(rest)
        } else if let Some(rest) = text.strip_prefix("$argon2id$") {
            parse_argon2id(rest)
        } else if ["$2a$", "$2b$", "$2x$", "$2y$"].iter().any(|p| text.starts_with(p)) {
            parse_bcrypt(text)
        } else {
            Err(HashProblem::UnknownScheme)
        }
    }

    /// A new argon2id hash with a random salt.
    pub fn create(password: &[u8]) -> Result<Self, HashProblem> {
        let mut salt = vec![0; 16];
        rand::fill(&mut salt).map_err(|_| HashProblem::Failed)?;
        let params =
            Params::new(NEW_MEMORY_KIB, NEW_PASSES, NEW_LANES, None).map_err(|_| HashProblem::Failed)?;
        let mut hash = vec![0; 32];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone())
            .hash_password_into(password, &salt, &mut hash)
            .map_err(|_| HashProblem::Failed)?;
        Ok(Self::Argon2id { params, version: Version::V0x13, salt, hash })
    }

    /// Whether `password` is the right one. Takes the scheme's full time in either case; not for I/O threads.
    pub fn verify(&self, password: &[u8]) -> bool {
        #[cfg(test)]
        VERIFIED.with(|count| count.set(count.get() + 1));
        match self {
            Self::Sha512 { salt, hash } => {
                let mut context = digest::Context::new(&digest::SHA512);
                context.update(password);
                context.update(salt);
                context.finish().as_ref().ct_eq(hash).into()
            }
            Self::Pbkdf2 { iterations, salt, hash } => {
                let mut computed = vec![0; hash.len()];
                pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, *iterations, salt, password, &mut computed);
                computed.ct_eq(hash).into()
            }
            Self::Argon2id { params, version, salt, hash } => {
                let mut computed = vec![0; hash.len()];
                let argon = Argon2::new(Algorithm::Argon2id, *version, params.clone());
                argon.hash_password_into(password, salt, &mut computed).is_ok() && computed.ct_eq(hash).into()
            }
            Self::Bcrypt { text, .. } => {
                // A longer password would be accepted by its first 72 bytes alone.
                let whole = password.len() <= BCRYPT_MAX_PASSWORD;
                let head = &password[..password.len().min(BCRYPT_MAX_PASSWORD)];
                bcrypt::verify(head, text).unwrap_or(false) & whole
            }
        }
    }

    /// CPU time of a check in microseconds, roughly: to find the dearest hash of a file.
    pub fn cost_us(&self) -> u64 {
        match self {
            Self::Sha512 { .. } => 1,
            Self::Pbkdf2 { iterations, .. } => u64::from(iterations.get()) * 45 / 100,
            Self::Argon2id { params, .. } => u64::from(params.m_cost()) * u64::from(params.t_cost()),
            Self::Bcrypt { cost, .. } => 57 << cost,
        }
    }

    /// Whether a new password should rather be stored differently.
    pub fn is_weak(&self) -> bool {
        matches!(self, Self::Sha512 { .. })
    }
}

/// As it stands in a password file.
impl std::fmt::Display for StoredHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sha512 { salt, hash } => {
                write!(f, "$6${}${}", STANDARD.encode(salt), STANDARD.encode(hash))
            }
            Self::Pbkdf2 { iterations, salt, hash } => {
                write!(f, "$7${iterations}${}${}", STANDARD.encode(salt), STANDARD.encode(hash))
            }
            Self::Argon2id { params, version, salt, hash } => write!(
                f,
                "$argon2id$v={}$m={},t={},p={}${}${}",
                u32::from(*version),
                params.m_cost(),
                params.t_cost(),
                params.p_cost(),
                STANDARD_NO_PAD.encode(salt),
                STANDARD_NO_PAD.encode(hash)
            ),
            Self::Bcrypt { text, .. } => f.write_str(text),
        }
    }
}

/// Hashes never get into logs by accident.
impl std::fmt::Debug for StoredHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoredHash(..)")
    }
}

fn decode(text: &str, scheme: &'static str) -> Result<Vec<u8>, HashProblem> {
    let bytes = STANDARD.decode(text).map_err(|_| HashProblem::Malformed(scheme))?;
    if bytes.is_empty() { Err(HashProblem::Malformed(scheme)) } else { Ok(bytes) }
}

fn parse_sha512(rest: &str) -> Result<StoredHash, HashProblem> {
    let (salt, hash) = rest.split_once('$').ok_or(HashProblem::Malformed("$6$"))?;
    let (salt, hash) = (decode(salt, "$6$")?, decode(hash, "$6$")?);
    if hash.len() != 64 {
        return Err(HashProblem::Malformed("$6$"));
    }
    Ok(StoredHash::Sha512 { salt, hash })
}

fn parse_pbkdf2(rest: &str) -> Result<StoredHash, HashProblem> {
    let malformed = HashProblem::Malformed("$7$");
    let mut parts = rest.split('$');
    let (Some(iterations), Some(salt), Some(hash), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed);
    };
    let iterations: NonZeroU32 = iterations.parse().map_err(|_| malformed)?;
    if iterations.get() > MAX_ITERATIONS {
        return Err(HashProblem::Cost("$7$"));
    }
    let (salt, hash) = (decode(salt, "$7$")?, decode(hash, "$7$")?);
    if hash.len() != 64 {
        return Err(malformed);
    }
    Ok(StoredHash::Pbkdf2 { iterations, salt, hash })
}

fn parse_argon2id(rest: &str) -> Result<StoredHash, HashProblem> {
    let malformed = HashProblem::Malformed("$argon2id$");
    let mut parts = rest.split('$').peekable();
    let version = match parts.peek().and_then(|p| p.strip_prefix("v=")) {
        Some("19") => Version::V0x13,
        Some("16") | None => Version::V0x10,
        Some(_) => return Err(malformed),
    };
    if parts.peek().is_some_and(|p| p.starts_with("v=")) {
        parts.next();
    }
    let (Some(costs), Some(salt), Some(hash), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed);
    };
    let (mut m, mut t, mut p) = (None, None, None);
    for cost in costs.split(',') {
        let (name, value) = cost.split_once('=').ok_or(malformed)?;
        let value: u32 = value.parse().map_err(|_| malformed)?;
        match name {
            "m" => m = Some(value),
            "t" => t = Some(value),
            "p" => p = Some(value),
            _ => return Err(malformed),
        }
    }
    let (m, t, p) = (m.ok_or(malformed)?, t.ok_or(malformed)?, p.ok_or(malformed)?);
    if m > MAX_MEMORY_KIB || t > MAX_PASSES || p > MAX_LANES {
        return Err(HashProblem::Cost("$argon2id$"));
    }
    let unpadded = |text: &str| STANDARD_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| malformed);
    let (salt, hash) = (unpadded(salt)?, unpadded(hash)?);
    if salt.len() < argon2::MIN_SALT_LEN || !(16..=64).contains(&hash.len()) {
        return Err(malformed);
    }
    let params = Params::new(m, t, p, Some(hash.len())).map_err(|_| HashProblem::Cost("$argon2id$"))?;
    Ok(StoredHash::Argon2id { params, version, salt, hash })
}

fn parse_bcrypt(text: &str) -> Result<StoredHash, HashProblem> {
    let malformed = HashProblem::Malformed("bcrypt");
    let parts: bcrypt::HashParts = text.parse().map_err(|_| malformed)?;
    let cost = parts.get_cost();
    if !(4..=MAX_BCRYPT_COST).contains(&cost) {
        return Err(HashProblem::Cost("bcrypt"));
    }
    Ok(StoredHash::Bcrypt { text: text.to_owned(), cost })
}

#[cfg(test)]
thread_local! {
    /// Checks of this thread's test, so that a test counts work instead of time.
    pub static VERIFIED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA512: &str = "$6$AQIDBAUGBwgJCgsM$XtaqFTpVqKCBusKxL7SramYPpHVSOw+CXtRUIv0PpX6q57MW1a1RUVsLMxkhMn6XOYi3uYMZcGrMAEzcnh9EoA==";
    const PBKDF2: &str = "$7$101$AQIDBAUGBwgJCgsM$ElKF/yT2lAwrOIqDbqwyDkdEWWjEv9xNCPp7zaw7NgKePlIs4CqOpY89+U/jSu9Z0ymojy1xkdWS2VfMzvRKZw==";
    const ARGON2ID: &str =
        "$argon2id$v=19$m=1024,t=1,p=1$AQIDBAUGBwgJCgsMYWJjZA$AtOBncSFYxkBIWnJSbTPbX7LGmfABdxAdrvhJrp+0HU";
    const BCRYPT: &str = "$2b$04$w5S5CusUKxJwYtSZPdAd1O7GG2Du.SglucOQoCEMNzJLvTaVi3kuG";

    fn right(text: &str, password: &[u8]) -> bool {
        StoredHash::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).verify(password)
    }

    #[test]
    fn every_scheme_accepts_its_password_and_no_other() {
        // The constants were made with Python (hashlib, argon2-cffi, bcrypt) for the password "secret".
        for text in [SHA512, PBKDF2, ARGON2ID, BCRYPT] {
            assert!(right(text, b"secret"), "{text}");
            assert!(!right(text, b"secre"), "{text}");
            // HMAC fills a short key up with zeros, so PBKDF2 cannot tell a zero at the end.
            assert!(!right(text, b"secret\0") || text == PBKDF2, "{text}");
            assert!(!right(text, b"secret\0x"), "{text}");
            assert!(!right(text, b""), "{text}");
            assert_eq!(StoredHash::parse(text).map(|h| h.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_new_hash_reads_back_and_verifies() {
        let made = StoredHash::create(b"p\0q").map(|h| h.to_string()).unwrap_or_default();
        assert!(made.starts_with("$argon2id$v=19$m=47104,t=1,p=1$"), "{made}");
        assert!(right(&made, b"p\0q"));
        assert!(!right(&made, b"p"));
    }

    #[test]
    fn bcrypt_refuses_what_it_would_cut_off() {
        let long = [b'x'; 73];
        let text = bcrypt::hash(&long[..72], 4).unwrap_or_default();
        assert!(right(&text, &long[..72]));
        assert!(!right(&text, &long));
    }

    #[test]
    fn malformed_unknown_and_ruinous_hashes_are_refused() {
        use HashProblem::{Cost, Malformed, UnknownScheme};
        for (text, problem) in [
            ("secret", UnknownScheme),
            ("", UnknownScheme),
            ("$5$abc$def", UnknownScheme),
            ("$6$c2FsdA==", Malformed("$6$")),
            ("$6$c2FsdA==$aGFzaA==", Malformed("$6$")),
            ("$7$0$c2FsdA==$aGFzaA==", Malformed("$7$")),
            ("$7$99999999$c2FsdA==$aGFzaA==", Cost("$7$")),
            ("$argon2id$v=19$m=4294967295,t=1,p=1$c2FsdHNhbHQ$aGFzaA", Cost("$argon2id$")),
            ("$argon2id$v=19$m=1024,t=1$c2FsdHNhbHQ$aGFzaA", Malformed("$argon2id$")),
            ("$argon2id$v=7$m=1024,t=1,p=1$c2FsdHNhbHQ$aGFzaA", Malformed("$argon2id$")),
            (&BCRYPT.replace("$04$", "$31$"), Cost("bcrypt")),
            ("$2b$10$short", Malformed("bcrypt")),
        ] {
            assert_eq!(StoredHash::parse(text).err(), Some(problem), "{text}");
        }
    }
}
