//! Why a store could not be opened.

use std::io;

/// Why a store could not be opened. Each says what, where and the way out.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses the directory.
    #[error("{place}: in use by another process; stop it, or give this one another data directory")]
    Locked {
        /// The lock.
        place: String,
    },
    /// The file system refused something.
    #[error("{place}: cannot {what}: {source}")]
    Io {
        /// The file.
        place: String,
        /// What was tried.
        what: &'static str,
        /// What the file system said.
        source: io::Error,
    },
    /// A file is damaged where it had been on stable storage.
    #[error(
        "{place}: damaged at byte {offset}: {reason}; restore a backup, or copy what is intact: `mast salvage --data-dir DIR --to NEW`"
    )]
    Corrupt {
        /// The file.
        place: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// Written in a format that this version does not know.
    #[error("{place}: format {found}, but this version reads format {known}; use the version that wrote it")]
    Format {
        /// The file.
        place: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The file of keys and retained messages cannot be used.
    #[error(
        "{place}: {reason}; restore a backup, or copy what is intact: `mast salvage --data-dir DIR --to NEW`"
    )]
    State {
        /// The file.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The options contradict each other.
    #[error("store options: {0}")]
    Options(&'static str),
    /// The records of administration cannot be used.
    #[error("records of administration: {0}")]
    Admin(String),
    /// A thread could not be started.
    #[error("cannot start a thread of the store: {0}")]
    Thread(io::Error),
}
