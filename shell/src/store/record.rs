//! The journal's records and commit groups as bytes.
//!
//! A *group* is one commit: a header and its records. It counts only as a whole. The header begins with
//! the segment's salt, a random number that never leaves the disk: it marks groups of this segment (the
//! rest of a recycled file carries another salt) and no client can forge one inside a payload.
//!
//! ```text
//! group   salt u64 | crc u32 of what follows | length u32 of records | first seq u64 | synced seq u64 | wall ms u64 | records | pad to 8
//! record  crc u32 of what follows | length u32 of body | body
//! body    1 append | 2 put | 3 delete | 4 moved append (carries its own sequence)
//! ```
//! All numbers are little-endian. CRCs start from a value made of the salt and the offset in the file, so
//! that bytes found at another place or in another segment never pass.

use mast_core::ids::{SessionUid, TenantId};
use mast_core::message::{Message, MessageParts, QoS};
use mast_core::time::Wall;
use std::sync::Arc;

/// Bytes of a group's header.
pub const GROUP_HEADER: usize = 40;
/// Bytes of a record's header.
pub const RECORD_HEADER: usize = 8;
/// Bytes that an append takes beside names, spill list and body, at most.
pub const APPEND_FIXED: usize = RECORD_HEADER + 34;

const APPEND: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const MOVED: u8 = 4;

const LOG: u8 = 1;
const RETAIN: u8 = 1 << 1;
const SPILL: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const RETAIN_FLAG: u8 = 1 << 4;
const QOS_SHIFT: u8 = 5;

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Bytes of its records.
    pub len: u32,
    /// Sequence of its first part.
    pub first: u64,
    /// Everything up to here had been synced when the group was written.
    pub synced: u64,
    /// When it was written.
    pub wall: Wall,
}

/// An append as it lies in a record.
#[derive(Clone, Copy, Debug)]
pub struct AppendView<'a> {
    /// Its sequence, if the record is a copy from a segment that was cleaned.
    pub moved: Option<u64>,
    /// In the log, for cursors.
    pub log: bool,
    /// Replaces the retained message of its topic.
    pub retain: bool,
    /// Little-endian session uids it was spilled for; `None` if it is nobody's spill.
    pub spill: Option<&'a [u8]>,
    /// Name of its tenant.
    pub tenant: &'a str,
    /// The message, with a tenant number that means nothing.
    pub message: MessageParts<'a>,
    /// Client kind.
    pub kind: u8,
}

/// A decoded record.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A message.
    Append(AppendView<'a>),
    /// A key was set.
    Put {
        /// The encoded key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// A key was removed.
    Delete {
        /// The encoded key.
        key: &'a [u8],
    },
}

impl AppendView<'_> {
    /// Bytes of topic, properties and payload.
    #[must_use]
    pub fn size(&self) -> u32 {
        (self.message.topic.len() + self.message.props.len() + self.message.payload.len()) as u32
    }

    /// Builds the message for `tenant`.
    #[must_use]
    pub fn to_message(&self, tenant: TenantId) -> Arc<Message> {
        let mut message = Message::new(&MessageParts { tenant, ..self.message });
        if let Some(fresh) = Arc::get_mut(&mut message) {
            fresh.kind = self.kind;
        }
        message
    }

    /// The sessions it was spilled for.
    pub fn spill_uids(&self) -> impl Iterator<Item = SessionUid> + '_ {
        let raw = self.spill.unwrap_or_default();
        raw.chunks_exact(8).map(|c| SessionUid(c.try_into().map_or(0, u64::from_le_bytes)))
    }
}

/// The start value of a CRC for bytes at `offset` of the segment with `salt`.
fn seed(salt: u64, offset: u64) -> u32 {
    let mixed = (salt ^ offset.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> 32) as u32
}

fn crc(salt: u64, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed(salt, offset));
    hasher.update(bytes);
    hasher.finalize()
}

/// Rounds up to the alignment of groups.
#[must_use]
pub const fn align(n: usize) -> usize {
    (n + 7) & !7
}

/// Bytes of the record of an append.
#[must_use]
pub fn append_len(tenant: &str, message: &Message, spill: Option<&[SessionUid]>) -> usize {
    RECORD_HEADER
        + 18
        + if message.expires.is_some() { 8 } else { 0 }
        + spill.map_or(0, |s| 4 + 8 * s.len())
        + tenant.len()
        + message.size()
}

/// Bytes of the record of a put.
#[must_use]
pub const fn put_len(key: &[u8], value: &[u8]) -> usize {
    RECORD_HEADER + 5 + key.len() + value.len()
}

/// Bytes of the record of a delete.
#[must_use]
pub const fn delete_len(key: &[u8]) -> usize {
    RECORD_HEADER + 1 + key.len()
}

/// Writes groups into a buffer that will land at a known offset of a segment.
pub struct GroupWriter<'a> {
    out: &'a mut Vec<u8>,
    salt: u64,
    /// Offset in the file at which `out` will be written.
    base: u64,
    start: usize,
}

impl<'a> GroupWriter<'a> {
    /// Begins a group at the end of `out`, whose first byte will lie at `base`.
    pub fn begin(out: &'a mut Vec<u8>, salt: u64, base: u64) -> GroupWriter<'a> {
        let start = out.len();
        out.resize(start + GROUP_HEADER, 0);
        GroupWriter { out, salt, base, start }
    }

    fn open(&mut self) -> usize {
        let at = self.out.len();
        self.out.extend_from_slice(&[0; RECORD_HEADER]);
        at
    }

    fn close(&mut self, at: usize) -> u64 {
        let len = (self.out.len() - at - RECORD_HEADER) as u32;
        self.out[at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
        let offset = self.base + at as u64;
        let sum = crc(self.salt, offset, &self.out[at + 4..]);
        self.out[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        offset
    }

    /// Adds a message; returns the record's offset in the file.
    pub fn append(
        &mut self,
        tenant: &str,
        message: &Message,
        log: bool,
        retain: bool,
        spill: Option<&[SessionUid]>,
    ) -> u64 {
        let at = self.open();
        let mut flags = (message.qos as u8) << QOS_SHIFT;
        for (on, bit) in [
            (log, LOG),
            (retain, RETAIN),
            (spill.is_some(), SPILL),
            (message.expires.is_some(), EXPIRES),
            (message.retain, RETAIN_FLAG),
        ] {
            flags |= if on { bit } else { 0 };
        }
        let out = &mut *self.out;
        out.extend_from_slice(&[APPEND, flags, message.kind, tenant.len() as u8]);
        out.extend_from_slice(&(message.topic().len() as u16).to_le_bytes());
        out.extend_from_slice(&(message.props().len() as u32).to_le_bytes());
        out.extend_from_slice(&message.publisher.0.to_le_bytes());
        if let Some(at) = message.expires {
            out.extend_from_slice(&at.0.to_le_bytes());
        }
        if let Some(uids) = spill {
            out.extend_from_slice(&(uids.len() as u32).to_le_bytes());
            for uid in uids {
                out.extend_from_slice(&uid.0.to_le_bytes());
            }
        }
        out.extend_from_slice(tenant.as_bytes());
        out.extend_from_slice(message.topic().as_bytes());
        out.extend_from_slice(message.props());
        out.extend_from_slice(message.payload());
        self.close(at)
    }

    /// Adds a copy of an append's body (from [`body_of`]) that keeps sequence `seq`.
    pub fn moved(&mut self, seq: u64, body: &[u8]) -> u64 {
        let at = self.open();
        // A body that was moved before already carries its sequence.
        let rest = if body.first() == Some(&MOVED) { body.get(9..) } else { body.get(1..) };
        self.out.push(MOVED);
        self.out.extend_from_slice(&seq.to_le_bytes());
        self.out.extend_from_slice(rest.unwrap_or_default());
        self.close(at)
    }

    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        let at = self.open();
        self.out.push(PUT);
        self.out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.out.extend_from_slice(key);
        self.out.extend_from_slice(value);
        self.close(at);
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: &[u8]) {
        let at = self.open();
        self.out.push(DELETE);
        self.out.extend_from_slice(key);
        self.close(at);
    }

    /// Ends the group.
    pub fn finish(self, first: u64, synced: u64, wall: Wall) {
        let len = self.out.len() - self.start - GROUP_HEADER;
        let header = GroupHeader { len: len as u32, first, synced, wall };
        let offset = self.base + self.start as u64;
        let raw = encode_header(&header, self.salt, offset);
        self.out[self.start..self.start + GROUP_HEADER].copy_from_slice(&raw);
        let end = align(self.out.len());
        self.out.resize(end, 0);
    }

    /// Drops what was written of the group.
    pub fn abandon(self) {
        self.out.truncate(self.start);
    }
}

fn encode_header(header: &GroupHeader, salt: u64, offset: u64) -> [u8; GROUP_HEADER] {
    let mut raw = [0u8; GROUP_HEADER];
    raw[0..8].copy_from_slice(&salt.to_le_bytes());
    raw[12..16].copy_from_slice(&header.len.to_le_bytes());
    raw[16..24].copy_from_slice(&header.first.to_le_bytes());
    raw[24..32].copy_from_slice(&header.synced.to_le_bytes());
    raw[32..40].copy_from_slice(&header.wall.0.to_le_bytes());
    let sum = crc(salt, offset, &raw[12..]);
    raw[8..12].copy_from_slice(&sum.to_le_bytes());
    raw
}

fn u32_at(raw: &[u8], at: usize) -> Option<u32> {
    raw.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(raw: &[u8], at: usize) -> Option<u64> {
    raw.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Reads the header of a group at `offset`; `None` if there is none of this segment, or a damaged one.
#[must_use]
pub fn read_header(raw: &[u8], salt: u64, offset: u64) -> Option<GroupHeader> {
    let raw = raw.get(..GROUP_HEADER)?;
    if u64_at(raw, 0)? != salt || u32_at(raw, 8)? != crc(salt, offset, &raw[12..]) {
        return None;
    }
    Some(GroupHeader {
        len: u32_at(raw, 12)?,
        first: u64_at(raw, 16)?,
        synced: u64_at(raw, 24)?,
        wall: Wall(u64_at(raw, 32)?),
    })
}

/// The body of the record at the start of `raw`, which lies at `offset`; `None` if it is damaged.
#[must_use]
pub fn body_of(raw: &[u8], salt: u64, offset: u64) -> Option<&[u8]> {
    let len = u32_at(raw, 4)? as usize;
    let covered = raw.get(4..RECORD_HEADER.checked_add(len)?)?;
    (u32_at(raw, 0)? == crc(salt, offset, covered)).then(|| &covered[4..])
}

/// Whole length of the record at the start of `raw`, as its header claims.
#[must_use]
pub fn claimed_len(raw: &[u8]) -> Option<usize> {
    Some(RECORD_HEADER + u32_at(raw, 4)? as usize)
}

/// Decodes a body that passed its CRC; `None` if this version cannot read it.
#[must_use]
pub fn decode(body: &[u8]) -> Option<Record<'_>> {
    let (&tag, rest) = body.split_first()?;
    match tag {
        APPEND => decode_append(rest, None).map(Record::Append),
        MOVED => {
            let seq = u64_at(rest, 0)?;
            decode_append(&rest[8..], Some(seq)).map(Record::Append)
        }
        PUT => {
            let len = u32_at(rest, 0)? as usize;
            let rest = &rest[4..];
            Some(Record::Put { key: rest.get(..len)?, value: &rest[len..] })
        }
        DELETE => Some(Record::Delete { key: rest }),
        _ => None,
    }
}

fn decode_append(raw: &[u8], moved: Option<u64>) -> Option<AppendView<'_>> {
    let (head, mut rest) = raw.split_at_checked(17)?;
    let flags = head[0];
    let tenant_len = head[2] as usize;
    let topic_len = u16::from_le_bytes([head[3], head[4]]) as usize;
    let props_len = u32_at(head, 5)? as usize;
    let publisher = SessionUid(u64_at(head, 9)?);
    let mut take = |n: usize| {
        let (part, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(part)
    };
    let expires = if flags & EXPIRES == 0 { None } else { Some(Wall(u64_at(take(8)?, 0)?)) };
    let spill = if flags & SPILL == 0 {
        None
    } else {
        let count = u32_at(take(4)?, 0)? as usize;
        Some(take(count.checked_mul(8)?)?)
    };
    let tenant = std::str::from_utf8(take(tenant_len)?).ok()?;
    let topic = std::str::from_utf8(take(topic_len)?).ok()?;
    let props = take(props_len)?;
    Some(AppendView {
        moved,
        log: flags & LOG != 0,
        retain: flags & RETAIN != 0,
        spill,
        tenant,
        message: MessageParts {
            tenant: TenantId(u32::MAX),
            qos: QoS::from_bits(flags >> QOS_SHIFT & 3)?,
            retain: flags & RETAIN_FLAG != 0,
            expires,
            publisher,
            topic,
            props,
            payload: rest,
        },
        kind: head[1],
    })
}

/// A group found whole.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Its header.
    pub header: GroupHeader,
    /// Offset of the header in the file.
    pub offset: u64,
    /// Its records, unparsed.
    pub records: &'a [u8],
    /// How many sequences it uses up.
    pub consumed: u64,
}

/// Reads the group at `at` of a segment's bytes (`raw[0]` lies at offset 0 of the file) and checks every CRC in it.
#[must_use]
pub fn read_group(raw: &[u8], salt: u64, at: usize) -> Option<Group<'_>> {
    let header = read_header(raw.get(at..)?, salt, at as u64)?;
    let start = at + GROUP_HEADER;
    let records = raw.get(start..start.checked_add(header.len as usize)?)?;
    let mut group = Group { header, offset: at as u64, records, consumed: 0 };
    let mut pos = 0;
    while pos < records.len() {
        let body = body_of(&records[pos..], salt, (start + pos) as u64)?;
        match decode(body)? {
            Record::Append(AppendView { moved: Some(_), .. }) => {}
            Record::Append(_) | Record::Put { .. } | Record::Delete { .. } => group.consumed += 1,
        }
        pos += RECORD_HEADER + body.len();
    }
    Some(group)
}

impl<'a> Group<'a> {
    /// Where the next group begins.
    #[must_use]
    pub fn end(&self) -> u64 {
        align(self.offset as usize + GROUP_HEADER + self.records.len()) as u64
    }

    /// Offset in the file and body of each record. The group was checked when it was read.
    pub fn bodies(&self) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        let base = self.offset + GROUP_HEADER as u64;
        let records = self.records;
        let mut at = 0usize;
        std::iter::from_fn(move || {
            let end = at + claimed_len(records.get(at..)?)?;
            let body = records.get(at + RECORD_HEADER..end)?;
            let offset = base + at as u64;
            at = end;
            Some((offset, body))
        })
    }

    /// Offset in the file, sequence and content of each record of a group that was found whole.
    /// Moved appends have their own sequence and use up none of the group's.
    pub fn parts(&self) -> impl Iterator<Item = (u64, u64, Record<'a>)> + use<'a> {
        let mut next = self.header.first;
        self.bodies().filter_map(move |(offset, body)| {
            let record = decode(body)?;
            let seq = match &record {
                Record::Append(AppendView { moved: Some(seq), .. }) => *seq,
                Record::Append(_) | Record::Put { .. } | Record::Delete { .. } => {
                    next += 1;
                    next - 1
                }
            };
            Some((offset, seq, record))
        })
    }

    /// The group's bytes for another segment, where they will lie at `offset`.
    pub fn reseal(&self, new_salt: u64, base: u64, synced: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + GROUP_HEADER, 0);
        for (_, body) in self.bodies() {
            let at = out.len();
            out.extend_from_slice(&[0; RECORD_HEADER]);
            out.extend_from_slice(body);
            out[at + 4..at + 8].copy_from_slice(&(body.len() as u32).to_le_bytes());
            let sum = crc(new_salt, base + at as u64, &out[at + 4..]);
            out[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
        let header = GroupHeader { synced, ..self.header };
        let raw = encode_header(&header, new_salt, base + start as u64);
        out[start..start + GROUP_HEADER].copy_from_slice(&raw);
        out.resize(align(out.len()), 0);
    }
}
