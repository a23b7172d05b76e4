//! Tokens of the API: 256 random bits behind a word that tells what they are. Of each only the SHA-256 is kept, which
//! for a random secret is as good as any slow hash.

use super::records::TokenObject;
use super::state::State;
use aws_lc_rs::{digest, rand};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt::Write;
use std::io;
use std::path::Path;
use subtle::ConstantTimeEq;

/// What every token begins with, so that scanners for leaked secrets can know one.
const PREFIX: &str = "mast_";
/// The file with the bootstrap token, in the data directory.
pub const BOOTSTRAP_FILE: &str = "bootstrap-token";

/// A new token and its digest.
pub fn make() -> io::Result<(String, String)> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("no random bytes from the system"))?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let digest = digest_of(&token);
    Ok((token, digest))
}

/// A new id: short, and not to be guessed from others.
pub fn make_id() -> io::Result<String> {
    let mut bytes = [0; 9];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("no random bytes from the system"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The digest of a token.
pub fn digest_of(token: &str) -> String {
    let hash = digest::digest(&digest::SHA256, token.as_bytes());
    let mut text = String::with_capacity(64);
    for byte in hash.as_ref() {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
    }
    text
}

/// The token that was given, if it is one of ours and has not expired.
pub fn find<'a>(state: &'a State, given: &str, now_ms: u64) -> Option<&'a TokenObject> {
    let digest = digest_of(given);
    let mut found = None;
    // All are looked at, so that the time tells nothing.
    for token in state.tokens.values() {
        if bool::from(token.value.digest.as_bytes().ct_eq(digest.as_bytes())) {
            found = Some(&token.value);
        }
    }
    found.filter(|token| token.expires.is_none_or(|at| now_ms < at))
}

/// Writes the bootstrap token where only the owner of the data directory can read it.
pub fn leave(data_dir: &Path, token: &str) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt;
    let path = data_dir.join(BOOTSTRAP_FILE);
    let mut open = std::fs::OpenOptions::new();
    let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    file.sync_all()
}

/// Removes that file; it may be gone.
pub fn take_away(data_dir: &Path) {
    if let Err(error) = std::fs::remove_file(data_dir.join(BOOTSTRAP_FILE))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "the file of the bootstrap token could not be removed; remove it by hand");
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::Kept;
    use super::*;

    #[test]
    fn a_token_is_found_by_its_digest_until_it_expires() {
        let (token, digest) = make().expect("random bytes");
        assert!(token.starts_with("mast_") && token.len() == 48 && digest.len() == 64, "{token}");
        let mut state = State::default();
        let value = TokenObject {
            id: "a".into(),
            description: String::new(),
            digest,
            tenant: None,
            read_only: false,
            expires: Some(1000),
            created: 0,
            bootstrap: false,
        };
        state.tokens.insert(vec!["a".into()], Kept { value, revision: 1 });
        assert!(find(&state, &token, 999).is_some());
        assert!(find(&state, &token, 1000).is_none());
        assert!(find(&state, "mast_", 0).is_none() && find(&state, "", 0).is_none());
    }
}
