//! A directory that goes away with its owner.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory below the system's place for temporary files.
#[derive(Debug)]
pub struct TempDir(PathBuf);

static NEXT: AtomicU32 = AtomicU32::new(0);

impl TempDir {
    /// Creates it.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn new() -> TempDir {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mast-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for TempDir {
    fn default() -> TempDir {
        TempDir::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Left behind at worst; a test's result does not hang on it.
        let _gone: std::io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}
