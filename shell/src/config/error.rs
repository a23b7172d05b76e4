//! What can be wrong with a configuration, in words that name the place and the way out.

use std::{fmt, path::PathBuf};

/// Where a value came from. Later ones win: default, file, environment, command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Env(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One mistake. A load reports all of them at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: cannot read the configuration file: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("{origin}: not valid TOML: {reason}")]
    Syntax { origin: Origin, reason: String },
    #[error("{origin}: unknown key `{key}`{}", meant(.nearest))]
    UnknownKey { origin: Origin, key: String, nearest: Option<String> },
    #[error("{origin}: `{key}` is a section, not a value")]
    NotATable { origin: Origin, key: String },
    #[error("{origin}: `{key}` is {got}; it takes {accepts}")]
    WrongValue { origin: Origin, key: String, got: String, accepts: String },
    #[error("{origin}: `{key}`: {problem}")]
    Invalid { origin: Origin, key: String, problem: String },
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default()
}

/// All mistakes of one load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
