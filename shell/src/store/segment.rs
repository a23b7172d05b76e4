//! A segment file of the journal: its header, and reading it back whole.

use super::files::File;
use super::record::{GROUP_HEADER, Group, read_group, read_header};
use mast_core::time::Wall;
use std::io;

/// Version of the journal's format. Another number is refused.
pub const FORMAT: u32 = 1;
/// Bytes before the first group; a page, so that writing groups never rewrites the header's sectors.
pub const HEADER: u64 = 4096;

const MAGIC: &[u8; 8] = b"mastjrnl";
const HEADER_USED: usize = 80;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Number of the segment, ascending; also in its name.
    pub id: u64,
    /// Mark of its groups.
    pub salt: u64,
    /// Sequence of its first part.
    pub base: u64,
    /// The segment before it, 0 if none.
    pub prev_id: u64,
    /// Where the segment before it ends: what lies behind was never acknowledged.
    pub prev_end: u64,
    /// When it was begun.
    pub wall: Wall,
    /// Sequences may be missing between the segment before and this one (after a salvage).
    pub gap: bool,
}

/// What a header turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Not a segment, or damaged.
    Damaged,
    /// Written by another version of mast.
    Format(u32),
}

/// File name of segment `id`.
#[must_use]
pub fn name(id: u64) -> String {
    format!("journal-{id:016x}.seg")
}

/// File name of the index beside segment `id`.
#[must_use]
pub fn index_name(id: u64) -> String {
    format!("journal-{id:016x}.idx")
}

/// The segment number in a file name.
#[must_use]
pub fn id_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("journal-")?.strip_suffix(".seg")?, 16).ok()
}

impl SegmentHeader {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = vec![0u8; HEADER as usize];
        raw[..8].copy_from_slice(MAGIC);
        raw[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let numbers =
            [self.id, self.salt, self.base, self.prev_id, self.prev_end, self.wall.0, u64::from(self.gap)];
        for (i, n) in numbers.iter().enumerate() {
            raw[16 + 8 * i..24 + 8 * i].copy_from_slice(&n.to_le_bytes());
        }
        let sum = crc32fast::hash(&raw[16..HEADER_USED]);
        raw[12..16].copy_from_slice(&sum.to_le_bytes());
        raw
    }

    /// From bytes.
    ///
    /// # Errors
    /// Tells whether it is damaged or of another format.
    pub fn decode(raw: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let raw = raw.get(..HEADER_USED).ok_or(HeaderError::Damaged)?;
        if &raw[..8] != MAGIC {
            return Err(HeaderError::Damaged);
        }
        let word = |at: usize| raw[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let number = |i: usize| raw[16 + 8 * i..24 + 8 * i].try_into().map_or(0, u64::from_le_bytes);
        // The format is judged first: another version may compute the rest differently.
        if word(8) != FORMAT {
            return Err(HeaderError::Format(word(8)));
        }
        if word(12) != crc32fast::hash(&raw[16..HEADER_USED]) {
            return Err(HeaderError::Damaged);
        }
        Ok(SegmentHeader {
            id: number(0),
            salt: number(1),
            base: number(2),
            prev_id: number(3),
            prev_end: number(4),
            wall: Wall(number(5)),
            gap: number(6) != 0,
        })
    }
}

/// Reads the header of an open segment.
///
/// # Errors
/// What the file system says; the inner error tells what is wrong with the header.
pub fn read_segment_header(file: &dyn File) -> io::Result<Result<SegmentHeader, HeaderError>> {
    let mut raw = vec![0u8; HEADER_USED];
    match file.read_at(&mut raw, 0) {
        Ok(()) => Ok(SegmentHeader::decode(&raw)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Err(HeaderError::Damaged)),
        Err(error) => Err(error),
    }
}

/// How the valid part of a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// At its last group.
    Clean,
    /// In a group that was not finished, or that later unsynced ones lost: normal after a crash.
    Torn,
    /// Before a group that is damaged although it had been synced.
    Corrupt,
}

/// Result of walking a segment.
#[derive(Clone, Copy, Debug)]
pub struct Walked {
    /// Where the valid part ends.
    pub end: u64,
    /// The next sequence.
    pub next: u64,
    /// Wall time of the last group.
    pub wall: Wall,
    /// How it ends.
    pub tail: Tail,
}

/// Walks the groups of `raw` (a segment from offset 0), giving each valid one to `each`.
///
/// `sealed` is the end that the next segment recorded: up to there every group must be valid. Without
/// it this is the last segment: the walk ends at the first group that is not valid, and looks behind it for
/// proof that it had been synced. A group that does not continue the sequence is not valid.
pub fn walk(
    raw: &[u8],
    header: &SegmentHeader,
    sealed: Option<u64>,
    mut each: impl FnMut(&Group<'_>),
) -> Walked {
    let mut walked = Walked { end: HEADER, next: header.base, wall: header.wall, tail: Tail::Clean };
    let limit = sealed.map_or(raw.len(), |end| (end as usize).min(raw.len()));
    while (walked.end as usize) < limit {
        let group = read_group(&raw[..limit], header.salt, walked.end as usize);
        let Some(group) = group.filter(|g| g.header.first == walked.next) else {
            walked.tail = match sealed {
                Some(_) => Tail::Corrupt,
                None => judge_tail(raw, header.salt, walked.end as usize, walked.next),
            };
            return walked;
        };
        each(&group);
        walked.next += group.consumed;
        walked.end = group.end();
        walked.wall = group.header.wall;
    }
    if sealed.is_some_and(|end| walked.end != end) {
        walked.tail = Tail::Corrupt;
    }
    walked
}

/// Judges a last segment's end at `at`: it is corrupt if a later group says that `next` had been
/// synced, torn if there are traces of a group, clean otherwise.
fn judge_tail(raw: &[u8], salt: u64, at: usize, next: u64) -> Tail {
    let mark = salt.to_le_bytes();
    let mut tail = Tail::Clean;
    let mut pos = at;
    while let Some(head) = raw.get(pos..pos + 8) {
        if head == mark {
            tail = Tail::Torn;
            if let Some(header) = read_header(&raw[pos..], salt, pos as u64)
                && header.synced >= next
            {
                return Tail::Corrupt;
            }
        }
        pos += 8;
    }
    if tail == Tail::Clean && raw.get(at..at + GROUP_HEADER).is_some_and(|g| g.iter().any(|&b| b != 0)) {
        // A header whose first sector was lost in part; or the old content of a recycled file.
        tail = Tail::Torn;
    }
    tail
}

/// Reads `file` from its beginning to `end` (or whole).
///
/// # Errors
/// What the file system says.
pub fn read_whole(file: &dyn File, end: Option<u64>) -> io::Result<Vec<u8>> {
    let len = file.len()?;
    let len = end.map_or(len, |end| end.min(len));
    let mut raw = vec![0u8; len as usize];
    file.read_at(&mut raw, 0)?;
    Ok(raw)
}
