//! Password files, keys of tokens and access control lists in use, with a reload that changes all or nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use mast_core::{
    conn::handshake::{Attributes, Claims},
    tenant::{registry::Registry, rules::Rules},
};

use super::{
    acl_file::AclFileError,
    hash::StoredHash,
    jwt::JwtVerifier,
    jwt_keys::JwtKeysError,
    logins::Logins,
    password_file::{PasswordFile, PasswordFileError},
    rights::Rights,
    verifier::{NoRandom, PasswordVerifier, VerifierLimits},
};
use crate::config::{Authenticator, Config, Listener};

/// Why authentication cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("password file {0}")]
    Passwords(#[from] PasswordFileError),
    #[error("access control list {0}")]
    Acl(#[from] AclFileError),
    #[error("keys of tokens {0}")]
    Jwt(#[from] JwtKeysError),
    #[error(transparent)]
    Random(#[from] NoRandom),
}

/// A user that is kept in the store.
#[derive(Debug, Clone)]
pub struct StoredUser {
    pub tenant: Arc<str>,
    pub name: String,
    pub hash: StoredHash,
    /// What its client id must match, with `*` for any text and `%u` for its name.
    pub client_id: Option<String>,
    /// For the placeholders and conditions of rules.
    pub attributes: BTreeMap<String, String>,
    /// Rules of its tenant don't bind it.
    pub superuser: bool,
}

/// What a user that is kept in the store is bound to.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// What its client id must match, with `*` for any text.
    pub client_id: Option<String>,
    /// What rules may ask about.
    pub claims: Claims,
}

/// Users from both sources.
#[derive(Default)]
struct Sources {
    /// `None`: no file is configured.
    files: Option<Logins>,
    stored: BTreeMap<Arc<str>, Arc<PasswordFile>>,
}

/// What is in use now. Listeners and shards share it.
pub struct AuthState {
    passwords: ArcSwapOption<PasswordVerifier>,
    sources: Mutex<Sources>,
    profiles: ArcSwap<HashMap<(String, String), Profile>>,
    limits: VerifierLimits,
    tokens: ArcSwapOption<JwtVerifier>,
    rights: ArcSwap<Rights>,
}

/// Files that were read and checked, not yet in use.
pub struct Checked {
    passwords: Option<Logins>,
    tokens: Option<JwtVerifier>,
    rights: Rights,
    /// Listeners that take passwords of every tenant.
    common_doors: Vec<String>,
    limits: VerifierLimits,
}

impl Checked {
    /// Reads what the configuration names. Nothing named: no passwords, everything allowed.
    pub fn read(config: &Config) -> Result<Self, AuthError> {
        let auth = &config.auth;
        let shared = auth.password_file.as_deref().map(PasswordFile::read).transpose()?;
        let mut files = BTreeMap::new();
        for (name, tenant) in &config.tenant_sections {
            if let Some(path) = &tenant.password_file {
                files.insert(Arc::from(name.as_str()), PasswordFile::read(path)?);
            }
        }
        let rights = Rights::read(config)?;
        let passwords = (shared.is_some() || !files.is_empty()).then(|| Logins::new(shared, files));
        let tokens = if config.jwt.is_configured() { Some(JwtVerifier::new(&config.jwt)?) } else { None };
        let asks = |l: &&Listener| l.tenant.is_none() && l.authenticators.contains(&Authenticator::Password);
        Ok(Self {
            passwords,
            tokens,
            rights,
            common_doors: config.listeners.iter().filter(asks).map(|l| l.name.clone()).collect(),
            limits: VerifierLimits::from_config(auth),
        })
    }

    /// Remarks for the log, such as outdated hashes.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(logins) = &self.passwords {
            for (tenant, file) in logins.files() {
                remark_passwords(&of(tenant), file, &mut remarks);
            }
            if let (Some(user), false) = (logins.ambiguous().first(), self.common_doors.is_empty()) {
                let n = logins.ambiguous().len();
                let doors = self.common_doors.join(", ");
                remarks.push(format!(
                    "{n} user names stand in several password files, such as \"{user}\": they can log in only where \
                     the listener has a tenant, not at {doors}"
                ));
            }
        }
        self.rights.remarks(&mut remarks);
        remarks
    }
}

/// Of whom a file is, for remarks.
pub(super) fn of(tenant: Option<&str>) -> String {
    tenant.map(|t| format!(" of tenant {t}")).unwrap_or_default()
}

fn remark_passwords(of: &str, file: &PasswordFile, remarks: &mut Vec<String>) {
    if file.is_empty() {
        remarks.push(format!("the password file{of} has no users: nobody can log in with a password"));
    }
    if file.weak_hashes() > 0 {
        let n = file.weak_hashes();
        remarks.push(format!("{n} users{of} have $6$ hashes, which are cheap to guess: set their passwords again with mast passwd"));
    }
}

impl AuthState {
    pub fn new(checked: Checked) -> Result<Self, AuthError> {
        let state = Self {
            passwords: ArcSwapOption::new(None),
            sources: Mutex::new(Sources { files: checked.passwords, stored: BTreeMap::new() }),
            profiles: ArcSwap::default(),
            limits: checked.limits,
            tokens: ArcSwapOption::from_pointee(checked.tokens),
            rights: ArcSwap::from_pointee(checked.rights),
        };
        state.renew(&state.sources())?;
        Ok(state)
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the users of both sources in use and forgets remembered logins.
    fn renew(&self, sources: &Sources) -> Result<(), AuthError> {
        if sources.files.is_none() && sources.stored.is_empty() {
            self.passwords.store(None);
            return Ok(());
        }
        let none = Logins::default();
        let logins = sources.files.as_ref().unwrap_or(&none).with(&sources.stored);
        match self.passwords.load_full() {
            Some(verifier) => verifier.replace(logins)?,
            None => self.passwords.store(Some(Arc::new(PasswordVerifier::new(logins, self.limits)?))),
        }
        Ok(())
    }

    /// Puts the users that are kept in the store in place of the former ones.
    pub fn set_stored(&self, users: Vec<StoredUser>) -> Result<(), AuthError> {
        let mut profiles = HashMap::new();
        let mut tenants: BTreeMap<Arc<str>, Vec<(String, StoredHash)>> = BTreeMap::new();
        for user in users {
            if user.client_id.is_some() || user.superuser || !user.attributes.is_empty() {
                let client_id = user.client_id.map(|pattern| pattern.replace("%u", &user.name));
                let attributes: Attributes =
                    user.attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
                let attributes = (!attributes.is_empty()).then(|| Arc::new(attributes));
                let claims = Claims { superuser: user.superuser, attributes, ..Claims::default() };
                profiles.insert((user.tenant.to_string(), user.name.clone()), Profile { client_id, claims });
            }
            tenants.entry(user.tenant).or_default().push((user.name, user.hash));
        }
        let stored = tenants.into_iter().map(|(tenant, users)| (tenant, Arc::new(PasswordFile::of(users))));
        let mut sources = self.sources();
        sources.stored = stored.collect();
        self.profiles.store(Arc::new(profiles));
        self.renew(&sources)
    }

    /// What a user of a tenant is bound to, if it is kept in the store and bound to anything.
    pub fn profile(&self, tenant: &str, user: &str) -> Option<Profile> {
        let profiles = self.profiles.load();
        if profiles.is_empty() {
            return None;
        }
        profiles.get(&(tenant.to_owned(), user.to_owned())).cloned()
    }

    /// Puts newly read files in use and forgets remembered logins. A verifier keeps its bounds until a restart.
    pub fn replace(&self, checked: Checked) -> Result<(), AuthError> {
        let mut sources = self.sources();
        sources.files = checked.passwords;
        self.renew(&sources)?;
        drop(sources);
        self.tokens.store(checked.tokens.map(Arc::new));
        self.rights.store(Arc::new(checked.rights));
        Ok(())
    }

    /// The verifier of passwords; `None`: no password file is configured.
    pub fn passwords(&self) -> Option<Arc<PasswordVerifier>> {
        self.passwords.load_full()
    }

    /// The verifier of tokens; `None`: no keys are configured.
    pub fn tokens(&self) -> Option<Arc<JwtVerifier>> {
        self.tokens.load_full()
    }

    /// The rules in use. Those of a tenant that the node does not have (yet) are nobody's.
    pub fn rules(&self, registry: &Registry) -> Rules {
        self.rights.load().rules(registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mast_core::authz::Access;

    fn config(dir: &std::path::Path) -> Config {
        let text = format!("[auth]\npassword_file = \"{0}/passwd\"\nacl_file = \"{0}/acl\"", dir.display());
        let file = dir.join("mast.toml");
        std::fs::write(&file, text).expect("write");
        let sources = crate::config::Sources { file: Some(file), ..Default::default() };
        let place = crate::config::Place { is_root: true, ..Default::default() };
        crate::config::Sources { place, ..sources }.load().expect("configuration")
    }

    #[test]
    fn a_broken_file_refuses_the_reload_and_the_old_rules_stay() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let config = config(dir.path());
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("write");
        write("passwd", "# nobody\n");
        write("acl", "topic read a\ntopic dev/%c\n");
        let checked = Checked::read(&config).expect("good files");
        let remarks = checked.remarks();
        assert!(remarks.len() == 2 && remarks[1].contains("line 2"), "{remarks:?}");
        let state = AuthState::new(checked).expect("state");
        write("acl", "topic read b\nnonsense\n");
        let error = Checked::read(&config).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("acl:2"), "{error}");
        assert!(state.rights.load().shared().check(None, "c", Access::Receive, "a").allowed);
        write("acl", "topic read b\n");
        state.replace(Checked::read(&config).expect("good files")).expect("replace");
        assert!(!state.rights.load().shared().check(None, "c", Access::Receive, "a").allowed);
        assert!(state.passwords().is_some());
    }
}
