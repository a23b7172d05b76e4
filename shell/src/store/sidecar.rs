//! The index of a sealed segment, and the file beside it that keeps it: which messages lie where, so that
//! opening need not read the segment.
//!
//! The file is only a cache. It is made by reading the segment, and made again if it is missing or damaged.

use super::record::Record;
use super::segment::{SegmentHeader, Walked, walk};
use mast_core::time::Wall;

const MAGIC: &[u8; 8] = b"mastsidx";
const VERSION: u32 = 1;

/// A message in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its sequence.
    pub seq: u64,
    /// Offset of its record.
    pub offset: u32,
    /// Bytes of topic, properties and payload.
    pub size: u32,
    /// Number of its topic in [`SegmentIndex::topics`].
    pub topic: u32,
    /// When it expires.
    pub expires: Option<Wall>,
    /// It is a copy from an older segment.
    pub moved: bool,
}

/// What a segment holds for the log. Spilled messages are not in it: their sessions end with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentIndex {
    /// Where its valid part ends.
    pub end: u64,
    /// The sequence after its last part.
    pub next: u64,
    /// Wall time of its last group.
    pub wall: Wall,
    /// Tenant and topic names.
    pub topics: Vec<(Box<str>, Box<str>)>,
    /// In the order of the file.
    pub entries: Vec<Logged>,
}

/// Collects an index from records.
#[derive(Debug)]
pub struct Collector {
    index: SegmentIndex,
    numbers: hashbrown::HashMap<(Box<str>, Box<str>), u32, foldhash::fast::FixedState>,
}

#[derive(Hash)]
struct NameRef<'a>(&'a str, &'a str);

impl hashbrown::Equivalent<(Box<str>, Box<str>)> for NameRef<'_> {
    fn equivalent(&self, key: &(Box<str>, Box<str>)) -> bool {
        self.0 == &*key.0 && self.1 == &*key.1
    }
}

impl Collector {
    /// An empty one; `seed` keys its hash table.
    #[must_use]
    pub fn new(seed: u64) -> Collector {
        Collector {
            index: SegmentIndex::default(),
            numbers: hashbrown::HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
        }
    }

    /// Takes in one record.
    pub fn add(&mut self, offset: u64, seq: u64, record: &Record<'_>) {
        let Record::Append(view) = record else { return };
        if view.spill.is_some() || !view.log {
            return;
        }
        let name = NameRef(view.tenant, view.message.topic);
        let topic = match self.numbers.get(&name) {
            Some(&topic) => topic,
            None => {
                let topic = self.index.topics.len() as u32;
                let owned: (Box<str>, Box<str>) = (name.0.into(), name.1.into());
                self.index.topics.push(owned.clone());
                self.numbers.insert(owned, topic);
                topic
            }
        };
        self.index.entries.push(Logged {
            seq,
            offset: offset as u32,
            size: view.size(),
            topic,
            expires: view.message.expires,
            moved: view.moved.is_some(),
        });
    }

    /// The index, once `walked` tells where the segment ends.
    #[must_use]
    pub fn finish(mut self, walked: &Walked) -> SegmentIndex {
        self.index.end = walked.end;
        self.index.next = walked.next;
        self.index.wall = walked.wall;
        self.index
    }
}

/// Indexes the bytes of a sealed segment; the walk tells if it is damaged.
#[must_use]
pub fn index_segment(raw: &[u8], header: &SegmentHeader, end: u64) -> (SegmentIndex, Walked) {
    let mut collector = Collector::new(header.salt);
    let walked = walk(raw, header, Some(end), |group| {
        for (offset, seq, record) in group.parts() {
            collector.add(offset, seq, &record);
        }
    });
    (collector.finish(&walked), walked)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(part)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Option<Box<str>> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).ok().map(Into::into)
    }
}

const MOVED: u32 = 1 << 31;
const EXPIRES: u32 = 1 << 30;

impl SegmentIndex {
    /// As the bytes of the file beside the segment.
    #[must_use]
    pub fn encode(&self, header: &SegmentHeader) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.entries.len() * 20);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for n in [header.id, header.salt, header.base, self.end, self.next, self.wall.0] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&(self.topics.len() as u32).to_le_bytes());
        for (tenant, topic) in &self.topics {
            for name in [tenant, topic] {
                out.extend_from_slice(&(name.len() as u32).to_le_bytes());
                out.extend_from_slice(name.as_bytes());
            }
        }
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            let mut size = entry.size;
            size |= if entry.moved { MOVED } else { 0 };
            size |= if entry.expires.is_some() { EXPIRES } else { 0 };
            out.extend_from_slice(&entry.seq.to_le_bytes());
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(&entry.topic.to_le_bytes());
            if let Some(at) = entry.expires {
                out.extend_from_slice(&at.0.to_le_bytes());
            }
        }
        let sum = crc32fast::hash(&out[16..]);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// From a file's bytes; `None` unless they are whole and belong to the segment with `header`.
    #[must_use]
    pub fn decode(raw: &[u8], header: &SegmentHeader) -> Option<SegmentIndex> {
        let mut r = Reader(raw);
        if r.take(8)? != MAGIC || r.u32()? != VERSION || r.u32()? != crc32fast::hash(raw.get(16..)?) {
            return None;
        }
        if r.u64()? != header.id || r.u64()? != header.salt || r.u64()? != header.base {
            return None;
        }
        let mut index =
            SegmentIndex { end: r.u64()?, next: r.u64()?, wall: Wall(r.u64()?), ..SegmentIndex::default() };
        for _ in 0..r.u32()? {
            index.topics.push((r.name()?, r.name()?));
        }
        let count = r.u32()? as usize;
        index.entries.reserve(count.min(raw.len() / 20));
        for _ in 0..count {
            let (seq, offset, size, topic) = (r.u64()?, r.u32()?, r.u32()?, r.u32()?);
            if topic as usize >= index.topics.len() {
                return None;
            }
            index.entries.push(Logged {
                seq,
                offset,
                size: size & !(MOVED | EXPIRES),
                topic,
                expires: if size & EXPIRES == 0 { None } else { Some(Wall(r.u64()?)) },
                moved: size & MOVED != 0,
            });
        }
        r.0.is_empty().then_some(index)
    }
}
