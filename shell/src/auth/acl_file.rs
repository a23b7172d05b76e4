//! Access control lists in mosquitto's format, read as they are. A line that is not understood refuses the file.

use std::path::{Path, PathBuf};

use mast_core::authz::{Acl, Grant, Rule, Subject};

/// Why a list is refused.
#[derive(Debug, thiserror::Error)]
pub enum AclFileError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Line { path: PathBuf, line: u32, problem: AclProblem },
}

/// What is wrong with one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AclProblem {
    #[error("expected `user`, `topic` or `pattern`, not `{0}`")]
    UnknownWord(String),
    #[error("`{0}` is followed by nothing")]
    Missing(&'static str),
    #[error("`{0}` is no access; there are read, write, readwrite and deny")]
    UnknownAccess(String),
    #[error("`{0}` is no valid topic filter")]
    BadFilter(String),
}

/// Reads a list.
pub fn read(path: &Path) -> Result<Acl, AclFileError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| AclFileError::Io { path: path.to_owned(), source })?;
    parse(&text).map_err(|(line, problem)| AclFileError::Line { path: path.to_owned(), line, problem })
}

/// Parses a list; the error is the line's number and its problem.
pub fn parse(text: &str) -> Result<Acl, (u32, AclProblem)> {
    let mut rules = Vec::new();
    let mut user = Subject::Anonymous;
    for (line, content) in (1u32..).zip(text.lines()) {
        let content = content.trim_matches([' ', '\t', '\r']);
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let (word, rest) = split_word(content);
        let at = |problem| (line, problem);
        match word {
            "user" if rest.is_empty() => return Err(at(AclProblem::Missing("user"))),
            "user" => user = Subject::User(rest.to_owned()),
            "topic" => {
                let (grant, filter) = parse_rule(rest, "topic").map_err(at)?;
                rules.push(Rule { subject: user.clone(), grant, filter: filter.to_owned(), line });
            }
            "pattern" => {
                let (grant, filter) = parse_rule(rest, "pattern").map_err(at)?;
                rules.push(Rule { subject: Subject::Pattern, grant, filter: filter.to_owned(), line });
            }
            other => return Err(at(AclProblem::UnknownWord(shorten(other)))),
        }
    }
    Ok(Acl::new(rules))
}

fn split_word(text: &str) -> (&str, &str) {
    match text.split_once([' ', '\t']) {
        Some((word, rest)) => (word, rest.trim_start_matches([' ', '\t'])),
        None => (text, ""),
    }
}

/// `[read|write|readwrite|deny] filter`. A filter may contain spaces, if an access stands before it.
fn parse_rule<'a>(rest: &'a str, word: &'static str) -> Result<(Grant, &'a str), AclProblem> {
    let (first, more) = split_word(rest);
    if first.is_empty() {
        return Err(AclProblem::Missing(word));
    }
    let (grant, filter) = if more.is_empty() {
        (Grant::ReadWrite, first)
    } else {
        let grant = match first {
            "read" => Grant::Read,
            "write" => Grant::Write,
            "readwrite" => Grant::ReadWrite,
            "deny" => Grant::Deny,
            other => return Err(AclProblem::UnknownAccess(shorten(other))),
        };
        (grant, more)
    };
    if is_filter(filter) { Ok((grant, filter)) } else { Err(AclProblem::BadFilter(shorten(filter))) }
}

/// Whether wildcards stand where they may.
pub fn is_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let last = levels.peek().is_none();
        let good = match level {
            "#" => last,
            "+" => true,
            other => !other.contains(['#', '+', '\0']),
        };
        if !good {
            return false;
        }
    }
    filter.len() <= 65_535
}

fn shorten(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mast_core::authz::Access;

    const LIST: &str = "\
# This affects access control for clients with no username.
topic read $SYS/#

\tuser roger smith
topic foo/bar
topic deny  foo/bar/with space
topic read a topic with spaces

# This affects all clients.
pattern write $SYS/broker/connection/%c/state
pattern readwrite dev/%u/#
";

    #[test]
    fn a_mosquitto_list_is_read_as_it_is() {
        let acl = parse(LIST).unwrap_or_else(|e| panic!("{e:?}"));
        let roger = Subject::User("roger smith".into());
        let seen: Vec<_> =
            acl.rules().iter().map(|r| (r.line, r.subject.clone(), r.grant, r.filter.as_str())).collect();
        assert_eq!(
            seen,
            [
                (2, Subject::Anonymous, Grant::Read, "$SYS/#"),
                (5, roger.clone(), Grant::ReadWrite, "foo/bar"),
                (6, roger.clone(), Grant::Deny, "foo/bar/with space"),
                (7, roger, Grant::Read, "a topic with spaces"),
                (10, Subject::Pattern, Grant::Write, "$SYS/broker/connection/%c/state"),
                (11, Subject::Pattern, Grant::ReadWrite, "dev/%u/#"),
            ]
        );
        assert!(acl.check(None, "c", Access::Receive, "$SYS/broker/uptime").allowed);
        assert!(acl.check(Some("roger smith"), "c", Access::Publish, "dev/roger smith/x").allowed);
    }

    #[test]
    fn an_empty_list_refuses_everything() {
        let acl = parse("# nothing\n").unwrap_or_else(|e| panic!("{e:?}"));
        assert!(!acl.check(None, "c", Access::Publish, "a").allowed);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        let refused = |text: &str| parse(text).err();
        assert_eq!(refused("\nusr ann"), Some((2, AclProblem::UnknownWord("usr".into()))));
        assert_eq!(refused("user"), Some((1, AclProblem::Missing("user"))));
        assert_eq!(refused("topic"), Some((1, AclProblem::Missing("topic"))));
        assert_eq!(refused("topic rw a/b"), Some((1, AclProblem::UnknownAccess("rw".into()))));
        assert_eq!(refused("topic read a/#/b"), Some((1, AclProblem::BadFilter("a/#/b".into()))));
        assert_eq!(refused("topic a+/b"), Some((1, AclProblem::BadFilter("a+/b".into()))));
    }
}
