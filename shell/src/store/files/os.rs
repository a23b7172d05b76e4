//! The real file layer: a directory of the operating system.

use super::{File, Files, Lock};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the lock file.
const LOCK: &str = "lock";

/// A directory on disk.
#[derive(Debug)]
pub struct OsFiles {
    dir: PathBuf,
}

impl OsFiles {
    /// Uses `dir`, which is created if it does not exist (readable by the owner alone: it holds
    /// clients' messages).
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn new(dir: &Path) -> io::Result<OsFiles> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(OsFiles { dir: dir.to_path_buf() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

#[derive(Debug)]
struct OsFile(fs::File);

impl File for OsFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // File systems without fallocate: reserve by writing.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let zeros = vec![0u8; 1 << 20];
                let mut at = 0;
                while at < len {
                    let n = (len - at).min(zeros.len() as u64);
                    self.0.write_all_at(&zeros[..n as usize], at)?;
                    at += n;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

struct OsLock {
    /// The lock lasts as long as this handle is open.
    _file: fs::File,
}

impl Lock for OsLock {}

fn options() -> fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl Files for OsFiles {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile(options().open(self.path(name))?)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile(options().create(true).truncate(true).open(self.path(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        fs::File::open(&self.dir)?.sync_all()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = statvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        let file = options().create(true).truncate(false).open(self.path(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(OsLock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn describe(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}
