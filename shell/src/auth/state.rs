//! Password file and access control list in use, with a reload that changes both or neither.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use mast_core::authz::{Acl, Rule, Subject};

use super::{
    acl_file::{self, AclFileError},
    password_file::{PasswordFile, PasswordFileError},
    verifier::{NoRandom, PasswordVerifier, VerifierLimits},
};
use crate::config::Auth;

/// Why authentication cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("password file {0}")]
    Passwords(#[from] PasswordFileError),
    #[error("access control list {0}")]
    Acl(#[from] AclFileError),
    #[error(transparent)]
    Random(#[from] NoRandom),
}

/// What is in use now. Listeners and shards share it.
pub struct AuthState {
    passwords: ArcSwapOption<PasswordVerifier>,
    acl: ArcSwap<Acl>,
}

/// Files that were read and checked, not yet in use.
pub struct Checked {
    passwords: Option<PasswordFile>,
    acl: Acl,
    limits: VerifierLimits,
}

impl Checked {
    /// Reads what the configuration names. Nothing named: no passwords, everything allowed.
    pub fn read(auth: &Auth) -> Result<Self, AuthError> {
        let passwords = auth.password_file.as_deref().map(PasswordFile::read).transpose()?;
        let acl = match &auth.acl_file {
            Some(path) => acl_file::read(path)?,
            None => Acl::allow_all(),
        };
        Ok(Self { passwords, acl, limits: VerifierLimits::from_config(auth) })
    }

    /// Remarks for the log, such as outdated hashes.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(file) = &self.passwords {
            if file.is_empty() {
                remarks.push("the password file has no users: nobody can log in with a password".to_owned());
            }
            if file.weak_hashes() > 0 {
                let n = file.weak_hashes();
                remarks.push(format!("{n} users have $6$ hashes, which are cheap to guess: set their passwords again with mast passwd"));
            }
        }
        let literal =
            |r: &&Rule| r.subject != Subject::Pattern && (r.filter.contains("%c") || r.filter.contains("%u"));
        for rule in self.acl.rules().iter().filter(literal) {
            let line = rule.line;
            remarks.push(format!(
                "line {line} of the access control list is a `topic` line with %c or %u, which stand for names in \
                 `pattern` lines only"
            ));
        }
        if !self.acl.is_open() && self.acl.rules().is_empty() {
            remarks.push("the access control list is empty: every topic is refused".to_owned());
        }
        remarks
    }
}

impl AuthState {
    pub fn new(checked: Checked) -> Result<Self, AuthError> {
        let passwords = match checked.passwords {
            Some(file) => Some(Arc::new(PasswordVerifier::new(file, checked.limits)?)),
            None => None,
        };
        Ok(Self { passwords: ArcSwapOption::new(passwords), acl: ArcSwap::from_pointee(checked.acl) })
    }

    /// Puts newly read files in use and forgets remembered logins. A verifier keeps its bounds until a restart.
    pub fn replace(&self, checked: Checked) -> Result<(), AuthError> {
        match (checked.passwords, self.passwords.load_full()) {
            (Some(file), Some(verifier)) => verifier.replace(file)?,
            (Some(file), None) => {
                self.passwords.store(Some(Arc::new(PasswordVerifier::new(file, checked.limits)?)));
            }
            (None, _) => self.passwords.store(None),
        }
        self.acl.store(Arc::new(checked.acl));
        Ok(())
    }

    /// The verifier of passwords; `None`: no password file is configured.
    pub fn passwords(&self) -> Option<Arc<PasswordVerifier>> {
        self.passwords.load_full()
    }

    /// The rules in use.
    pub fn acl(&self) -> Arc<Acl> {
        self.acl.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mast_core::authz::Access;

    fn auth(dir: &std::path::Path) -> Auth {
        let text = format!("[auth]\npassword_file = \"{0}/passwd\"\nacl_file = \"{0}/acl\"", dir.display());
        let file = dir.join("mast.toml");
        std::fs::write(&file, text).expect("write");
        let sources = crate::config::Sources { file: Some(file), ..Default::default() };
        let place = crate::config::Place { is_root: true, ..Default::default() };
        crate::config::Sources { place, ..sources }.load().expect("configuration").auth
    }

    #[test]
    fn a_broken_file_refuses_the_reload_and_the_old_rules_stay() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let auth = auth(dir.path());
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("write");
        write("passwd", "# nobody\n");
        write("acl", "topic read a\ntopic dev/%c\n");
        let checked = Checked::read(&auth).expect("good files");
        let remarks = checked.remarks();
        assert!(remarks.len() == 2 && remarks[1].contains("line 2"), "{remarks:?}");
        let state = AuthState::new(checked).expect("state");
        write("acl", "topic read b\nnonsense\n");
        let error = Checked::read(&auth).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("acl:2"), "{error}");
        assert!(state.acl().check(None, "c", Access::Receive, "a").allowed);
        write("acl", "topic read b\n");
        state.replace(Checked::read(&auth).expect("good files")).expect("replace");
        assert!(!state.acl().check(None, "c", Access::Receive, "a").allowed);
        assert!(state.passwords().is_some());
    }
}
