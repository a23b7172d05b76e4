//! Password files in mosquitto's format: `user:hash` lines. Reading refuses anything it does not understand.

use std::{
    collections::HashMap,
    io::Write,
    path::{Path, PathBuf},
};

use super::hash::{HashProblem, StoredHash};

/// A password file in memory.
#[derive(Debug, Default)]
pub struct PasswordFile {
    users: HashMap<String, StoredHash>,
    /// What an unknown user's password is checked against: as dear as the dearest real hash.
    decoy: Option<StoredHash>,
    /// Names whose hashes should be renewed.
    weak: usize,
}

/// Why a password file is refused.
#[derive(Debug, thiserror::Error)]
pub enum PasswordFileError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Line { path: PathBuf, line: usize, problem: LineProblem },
}

/// What is wrong with one line. Never holds its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    #[error("expected user:hash")]
    NoColon,
    #[error("the user name is empty")]
    NoUser,
    #[error("this user name was on an earlier line already")]
    Twice,
    #[error(transparent)]
    Hash(#[from] HashProblem),
}

/// One meaningful line: user and hash, or nothing.
fn parse_line(line: &str) -> Result<Option<(&str, StoredHash)>, LineProblem> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (user, hash) = line.split_once(':').ok_or(LineProblem::NoColon)?;
    if user.is_empty() {
        return Err(LineProblem::NoUser);
    }
    Ok(Some((user, StoredHash::parse(hash)?)))
}

impl PasswordFile {
    /// Reads `path`; an empty file is one that lets nobody in.
    pub fn read(path: &Path) -> Result<Self, PasswordFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PasswordFileError::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|(line, problem)| PasswordFileError::Line {
            path: path.to_owned(),
            line,
            problem,
        })
    }

    /// Parses a whole file; the error is the line's number and its problem.
    pub fn parse(text: &str) -> Result<Self, (usize, LineProblem)> {
        let mut file = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let Some((user, hash)) = parse_line(line).map_err(|p| (number, p))? else { continue };
            file.weak += usize::from(hash.is_weak());
            if file.decoy.as_ref().is_none_or(|d| d.cost_us() < hash.cost_us()) {
                file.decoy = Some(hash.clone());
            }
            if file.users.insert(user.to_owned(), hash).is_some() {
                return Err((number, LineProblem::Twice));
            }
        }
        Ok(file)
    }

    /// Of users that are kept elsewhere. Of two of one name the last counts.
    pub fn of(users: impl IntoIterator<Item = (String, StoredHash)>) -> Self {
        let mut file = Self::default();
        for (user, hash) in users {
            file.weak += usize::from(hash.is_weak());
            if file.decoy.as_ref().is_none_or(|d| d.cost_us() < hash.cost_us()) {
                file.decoy = Some(hash.clone());
            }
            file.users.insert(user, hash);
        }
        file
    }

    /// Whether `user` may log in with `password`; `None`: there is no such user, which costs as much to find out.
    /// Blocks for the time of a hash.
    pub fn verify(&self, user: &str, password: &[u8]) -> Option<bool> {
        let Some(hash) = self.users.get(user) else {
            self.waste(password);
            return None;
        };
        Some(hash.verify(password))
    }

    /// Takes the time of the dearest check.
    pub fn waste(&self, password: &[u8]) {
        if let Some(decoy) = &self.decoy {
            // The decoy is a real user's hash: its answer must not count.
            std::hint::black_box(decoy.verify(password));
        }
    }

    /// How long [`PasswordFile::waste`] takes, µs.
    pub fn decoy_cost(&self) -> u64 {
        self.decoy.as_ref().map_or(0, StoredHash::cost_us)
    }

    /// The names in it, in no order.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(String::as_str)
    }

    pub fn len(&self) -> usize {
        self.users.len()
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Number of users whose hash is of an outdated kind.
    pub fn weak_hashes(&self) -> usize {
        self.weak
    }
}

/// A change to a password file.
pub enum Edit<'a> {
    /// Add the user or replace the hash.
    Set {
        user: &'a str,
        hash: &'a StoredHash,
    },
    Delete {
        user: &'a str,
    },
}

/// What an edit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited {
    Added,
    Updated,
    Deleted,
    /// The user to delete was not there; nothing was written.
    NotFound,
}

/// Applies `edit` to the text of a password file, leaving comments and other lines as they are.
pub fn edit_text(text: &str, edit: &Edit<'_>) -> Result<(String, Edited), (usize, LineProblem)> {
    PasswordFile::parse(text)?;
    let (user, new_line) = match edit {
        Edit::Set { user, hash } => (*user, Some(format!("{user}:{hash}"))),
        Edit::Delete { user } => (*user, None),
    };
    let mut out = String::with_capacity(text.len() + 160);
    let mut found = false;
    for line in text.lines() {
        let is_it = line.split_once(':').is_some_and(|(u, _)| u == user) && !line.starts_with('#');
        found |= is_it;
        let kept = if is_it { new_line.as_deref() } else { Some(line) };
        if let Some(kept) = kept {
            out.push_str(kept);
            out.push('\n');
        }
    }
    let edited = match (new_line, found) {
        (Some(_), true) => Edited::Updated,
        (Some(line), false) => {
            out.push_str(&line);
            out.push('\n');
            Edited::Added
        }
        (None, true) => Edited::Deleted,
        (None, false) => Edited::NotFound,
    };
    Ok((out, edited))
}

/// Replaces `path` by a file with `text`, all or nothing, readable by its owner alone unless the old file said
/// otherwise.
pub fn replace_file(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    // A symbolic link (as in Kubernetes secrets) stays one: its target is replaced.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = std::fs::metadata(&target).map_or(0o600, |m| m.permissions().mode() & 0o777);
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new.{}", std::process::id()));
    let temporary = target.with_file_name(name);
    let written = (|| {
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        std::fs::rename(&temporary, &target)?;
        let directory = target.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        // The first error is the one to report; that the leftover could not be removed adds nothing.
        std::fs::remove_file(&temporary).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$7$101$AQIDBAUGBwgJCgsM$ElKF/yT2lAwrOIqDbqwyDkdEWWjEv9xNCPp7zaw7NgKePlIs4CqOpY89+U/jSu9Z0ymojy1xkdWS2VfMzvRKZw==";

    #[test]
    fn users_of_a_file_log_in_and_others_do_not() {
        let file =
            PasswordFile::parse(&format!("# people\n\nann:{HASH}\nbob:{HASH}  \n")).unwrap_or_default();
        assert_eq!(file.len(), 2);
        assert_eq!(file.verify("ann", b"secret"), Some(true));
        assert_eq!(file.verify("ann", b"wrong"), Some(false));
        assert_eq!(file.verify("eve", b"secret"), None, "the decoy lets nobody in");
    }

    #[test]
    fn an_empty_file_lets_nobody_in() {
        let file = PasswordFile::parse("# nobody\n").unwrap_or_default();
        assert!(file.is_empty() && file.verify("ann", b"").is_none() && file.verify("", b"").is_none());
    }

    #[test]
    fn a_line_that_is_not_understood_refuses_the_file_with_its_number() {
        let refused = |text: &str| PasswordFile::parse(text).err();
        assert_eq!(refused(&format!("ann:{HASH}\nbob")), Some((2, LineProblem::NoColon)));
        assert_eq!(refused(&format!(":{HASH}")), Some((1, LineProblem::NoUser)));
        assert_eq!(refused("ann:secret"), Some((1, LineProblem::Hash(HashProblem::UnknownScheme))));
        assert_eq!(refused("ann:"), Some((1, LineProblem::Hash(HashProblem::UnknownScheme))));
        assert_eq!(refused(&format!("a:{HASH}\na:{HASH}")), Some((2, LineProblem::Twice)));
    }

    #[test]
    fn edits_change_one_line_and_keep_the_rest() {
        let hash = StoredHash::parse(HASH).unwrap_or_else(|e| panic!("{e}"));
        let text = format!("# people\nann:{HASH}\n");
        let set =
            |user| edit_text(&text, &Edit::Set { user, hash: &hash }).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(set("bob"), (format!("# people\nann:{HASH}\nbob:{HASH}\n"), Edited::Added));
        assert_eq!(set("ann"), (text.clone(), Edited::Updated));
        let delete = |user| edit_text(&text, &Edit::Delete { user }).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(delete("ann"), ("# people\n".to_owned(), Edited::Deleted));
        assert_eq!(delete("bob").1, Edited::NotFound);
        assert!(edit_text("garbage", &Edit::Delete { user: "ann" }).is_err(), "a broken file is not edited");
    }

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("passwd");
        replace_file(&path, "one").expect("first write");
        replace_file(&path, "two").expect("second write");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "two");
        assert_eq!(std::fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 1, "nothing is left behind");
    }
}
