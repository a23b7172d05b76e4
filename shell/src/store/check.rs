//! Reads a store through without changing it: formats, checksums, the chain of segments.

use super::error::StoreError;
use super::files::Files;
use super::segment::{self, HeaderError, Tail, name, read_segment_header, read_whole, walk};
use super::state;
use std::io;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Journal files.
    pub segments: usize,
    /// Valid bytes in them.
    pub bytes: u64,
    /// The journal's end was cut off in a crash. That is normal.
    pub torn: bool,
    /// Bytes that the file system has free.
    pub free_bytes: u64,
}

/// Reads every segment. Only the lock file is written. A store that does not exist yet is a good one.
///
/// # Errors
/// The store is in use ([`StoreError::Locked`]), or would not open.
pub fn check(files: &dyn Files) -> Result<CheckReport, StoreError> {
    let at = |name: &str, what, source| StoreError::Io { place: files.describe(name), what, source };
    let _lock = files.lock().map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked { place: files.describe("lock") },
        _ => at("lock", "lock", e),
    })?;
    let names = files.list().map_err(|e| at("", "list", e))?;
    let mut ids: Vec<u64> = names.iter().filter_map(|n| segment::id_of(n)).collect();
    ids.sort_unstable();
    if !ids.is_empty() && !names.iter().any(|n| n == state::FILE) {
        let reason = "missing, though there is a journal".to_owned();
        return Err(StoreError::State { place: files.describe(state::FILE), reason });
    }
    let mut headers = Vec::with_capacity(ids.len());
    for &id in &ids {
        let file = files.open(&name(id)).map_err(|e| at(&name(id), "open", e))?;
        let header = read_segment_header(&*file).map_err(|e| at(&name(id), "read", e))?;
        let corrupt = |reason: &str| StoreError::Corrupt {
            place: files.describe(&name(id)),
            offset: 0,
            reason: reason.to_owned(),
        };
        match header {
            Ok(header) if header.id == id => headers.push((file, header)),
            Ok(_) => return Err(corrupt("the header belongs to another segment")),
            Err(HeaderError::Damaged) => return Err(corrupt("the header is damaged")),
            Err(HeaderError::Format(found)) => {
                let place = files.describe(&name(id));
                return Err(StoreError::Format { place, found, known: segment::FORMAT });
            }
        }
    }
    let mut report = CheckReport { segments: ids.len(), ..CheckReport::default() };
    for (i, (file, header)) in headers.iter().enumerate() {
        let next = headers.get(i + 1).map(|(_, next)| next);
        let sealed = next.filter(|n| n.prev_id == header.id).map(|n| n.prev_end);
        let raw = read_whole(&**file, sealed).map_err(|e| at(&name(header.id), "read", e))?;
        let walked = walk(&raw, header, sealed, |_| {});
        report.bytes += walked.end;
        match walked.tail {
            Tail::Clean => {}
            Tail::Torn if sealed.is_none() => report.torn |= next.is_none(),
            Tail::Torn | Tail::Corrupt => {
                let place = files.describe(&name(header.id));
                let reason = "a group that had been synced is damaged".to_owned();
                return Err(StoreError::Corrupt { place, offset: walked.end, reason });
            }
        }
    }
    report.free_bytes = files.free_bytes().map_err(|e| at("", "look at the space of", e))?;
    Ok(report)
}
