//! The file layer of the embedded store: the few operations that it needs from a file system, as traits,
//! so that tests can lose, tear and corrupt writes.
//!
//! All files of a store lie in one directory and are called by their plain names.

pub mod fault;
pub mod os;
pub mod overlay;

use std::io;
use std::sync::Arc;

/// One open file. All methods may be called from several threads.
pub trait File: Send + Sync {
    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Whatever the file system says; part of the data may have been written.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Size in bytes.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn len(&self) -> io::Result<u64>;

    /// True if the file has no bytes.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file or extends it with zeros (without reserving space for them).
    ///
    /// # Errors
    /// Whatever the file system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the file `len` bytes long with space reserved, so that later writes below `len` cannot run
    /// out of it.
    ///
    /// # Errors
    /// `StorageFull` if there is no space; the file is then of no use.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Returns once all data written before is on stable storage (`fdatasync`).
    ///
    /// # Errors
    /// After an error nothing is known about what was written since the last success, and a later
    /// success means nothing: the caller must give this file up.
    fn sync_data(&self) -> io::Result<()>;
}

/// Held while a store uses its directory.
pub trait Lock: Send + Sync {}

/// One directory.
pub trait Files: Send + Sync {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, or whatever the file system says.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Creates an empty file for reading and writing; one of that name is emptied.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing `to`.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns once all creations, renames and removals are on stable storage.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn sync_dir(&self) -> io::Result<()>;

    /// Names of all files, sorted.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Bytes that can still be allocated.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Locks the directory against a second store, until the guard is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` if somebody holds the lock.
    fn lock(&self) -> io::Result<Box<dyn Lock>>;

    /// How to call a file in messages to people.
    fn describe(&self, name: &str) -> String;
}

/// True for errors that mean "no space", which may pass, and not "broken".
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
