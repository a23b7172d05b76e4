//! Keys of tokens: a secret, a public key, a set of keys that is read again when its file changes, and one that is
//! fetched from a server.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    jwk::{Jwk, JwkSet, PublicKeyUse},
};
use zeroize::Zeroizing;

use super::jwks_url::UrlSet;
use crate::config::Jwt;

/// Shortest secret: what HS256 itself has (RFC 7518, 3.2).
const MIN_SECRET: usize = 32;
/// Largest set that is read, bytes.
pub(super) const MAX_SET: u64 = 1 << 20;

/// Why keys cannot be used. Never holds their text.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct JwtKeysError {
    path: PathBuf,
    problem: String,
}

/// A key, and what it is for.
pub(super) struct Key {
    pub(super) kid: Option<String>,
    /// The one algorithm it is for; `None`: all of its family.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

impl Key {
    fn is_for(&self, algorithm: Algorithm, kid: Option<&str>) -> bool {
        self.key.family() == algorithm.family()
            && self.algorithm.is_none_or(|a| a == algorithm)
            // A key without a name may have signed any token; a token without a name may be of any key.
            && (self.kid.is_none() || kid.is_none() || self.kid.as_deref() == kid)
    }
}

/// What tells one state of a file from another: inode, size, time of change.
type Stamp = (u64, u64, i64, i64);

/// A set of keys in a file.
struct SetFile {
    path: PathBuf,
    stamp: Mutex<Option<Stamp>>,
    keys: ArcSwap<Vec<Key>>,
}

/// All keys.
pub struct JwtKeys {
    fixed: Vec<Key>,
    set: Option<SetFile>,
    url: Option<UrlSet>,
}

impl JwtKeys {
    /// Reads what the configuration names.
    pub fn read(settings: &Jwt) -> Result<Self, JwtKeysError> {
        let mut fixed = Vec::new();
        if let Some(path) = &settings.secret_file {
            fixed.push(secret(path)?);
        }
        if let Some(path) = &settings.key_file {
            fixed.push(public_key(path)?);
        }
        let set = match &settings.jwks_file {
            None => None,
            Some(path) => {
                let stamp = stamp(path)?;
                let keys = ArcSwap::from_pointee(read_set(path)?);
                Some(SetFile { path: path.clone(), stamp: Mutex::new(Some(stamp)), keys })
            }
        };
        let url = UrlSet::new(settings).map_err(|e| {
            let path = settings.jwks_ca_file.clone().unwrap_or_else(|| "jwt.jwks_url".into());
            problem(&path, e)
        })?;
        Ok(Self { fixed, set, url })
    }

    /// The keys that may have signed a token.
    pub fn candidates(&self, algorithm: Algorithm, kid: Option<&str>) -> Vec<DecodingKey> {
        let sets = [self.set.as_ref().map(SetFile::current), self.url.as_ref().map(UrlSet::current)];
        let all = self.fixed.iter().chain(sets.iter().flatten().flat_map(|keys| keys.iter()));
        all.filter(|key| key.is_for(algorithm, kid)).map(|key| key.key.clone()).collect()
    }
}

impl JwtKeys {
    /// The set that is fetched, if there is one.
    pub fn url(&self) -> Option<&UrlSet> {
        self.url.as_ref()
    }
}

impl SetFile {
    /// The keys as the file has them now. It is asked at every token (one system call), so that a key that was taken out
    /// is out at once. A file that cannot be used leaves the keys as they were, and is reported once for each change.
    fn current(&self) -> Arc<Vec<Key>> {
        let now = stamp(&self.path).ok();
        let mut seen = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen != now {
            *seen = now;
            match read_set(&self.path) {
                Ok(keys) => {
                    tracing::info!(file = %self.path.display(), keys = keys.len(), "token keys were read again");
                    self.keys.store(Arc::new(keys));
                }
                Err(error) => tracing::error!("token keys stay as they were: {error}"),
            }
        }
        self.keys.load_full()
    }
}

fn problem(path: &Path, problem: impl ToString) -> JwtKeysError {
    JwtKeysError { path: path.to_owned(), problem: problem.to_string() }
}

fn stamp(path: &Path) -> Result<Stamp, JwtKeysError> {
    let found = std::fs::metadata(path).map_err(|e| problem(path, e))?;
    if found.len() > MAX_SET {
        return Err(problem(path, "a set of keys has at most 1 MiB"));
    }
    Ok((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

fn secret(path: &Path) -> Result<Key, JwtKeysError> {
    let text = Zeroizing::new(std::fs::read(path).map_err(|e| problem(path, e))?);
    let secret = text.strip_suffix(b"\n").unwrap_or(&text);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    if secret.len() < MIN_SECRET {
        return Err(problem(
            path,
            format!("a secret of {} bytes; at least {MIN_SECRET} are needed", secret.len()),
        ));
    }
    let key = DecodingKey::from_secret(secret).map_err(|e| problem(path, e))?;
    Ok(Key { kid: None, algorithm: None, key })
}

fn public_key(path: &Path) -> Result<Key, JwtKeysError> {
    let text = Zeroizing::new(std::fs::read(path).map_err(|e| problem(path, e))?);
    if text.windows(11).any(|w| w == b"PRIVATE KEY") {
        return Err(problem(path, "this is a private key; the broker needs the public one alone"));
    }
    let key = DecodingKey::from_rsa_pem(&text)
        .or_else(|_| DecodingKey::from_ec_pem(&text))
        .or_else(|_| DecodingKey::from_ed_pem(&text))
        .map_err(|_| {
            problem(path, "there is no public key of RSA, P-256, P-384 or Ed25519 in PEM in this file")
        })?;
    Ok(Key { kid: None, algorithm: None, key })
}

fn read_set(path: &Path) -> Result<Vec<Key>, JwtKeysError> {
    let text = Zeroizing::new(std::fs::read(path).map_err(|e| problem(path, e))?);
    parse_set(&text).map_err(|e| problem(path, e))
}

/// The keys of a set that can verify tokens.
pub(super) fn parse_set(text: &[u8]) -> Result<Vec<Key>, String> {
    let set: JwkSet = serde_json::from_slice(text)
        // The library's message may quote the text.
        .map_err(|e| format!("line {}: this is no set of keys (JWKS)", e.line()))?;
    let keys: Vec<Key> = set.keys.iter().filter_map(set_key).collect();
    if keys.is_empty() {
        return Err("there is no key that could verify a token in this set".to_owned());
    }
    Ok(keys)
}

/// A key of a set; `None` for those of other uses or kinds.
fn set_key(jwk: &Jwk) -> Option<Key> {
    let common = &jwk.common;
    if matches!(common.public_key_use, Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_))) {
        return None;
    }
    let algorithm = match common.key_algorithm {
        Some(name) => Some(Algorithm::try_from(name).ok()?),
        None => None,
    };
    let key = DecodingKey::from_jwk(jwk).ok()?;
    if key.family() == AlgorithmFamily::Hmac && key.try_get_as_bytes().ok()?.len() < MIN_SECRET {
        return None;
    }
    Some(Key { kid: common.key_id.clone(), algorithm, key })
}
