//! What is stored of a session: binary values that begin with a format number. A format that this
//! version does not know is reported and left alone, never guessed at.

use crate::codec::SubOptions;
use crate::conn::identity::{Attributes, Claims};
use crate::ids::SessionUid;
use crate::message::QoS;
use crate::session::will::Will;
use crate::store::position::{Partition, Position, Seq};
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::IpAddr;

/// Format of the values in this file.
const FORMAT: u8 = 1;
/// Format of filters and cursors, which know replays; they are read in both.
const FORMAT_REPLAYS: u8 = 2;
/// Format of a session whose owner's proof said more than a name.
const FORMAT_CLAIMS: u8 = 2;

/// Value of [`crate::store::key::Space::Session`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionRecord {
    pub uid: SessionUid,
    /// Grows with each connection: a loser of a takeover can write nothing more.
    pub epoch: u64,
    /// The shard that owns it; with the node's name once there is more than one.
    pub owner: u16,
    pub persistent: bool,
    pub expiry_secs: u32,
    /// Since when it is away; `None` = connected.
    pub away_since: Option<Wall>,
    pub principal: Option<Box<str>>,
    /// What rules ask about while it is away.
    pub claims: Claims,
    pub will: Option<Will>,
    /// Client kind, for retention by kind.
    pub kind: u8,
}

/// Value of [`crate::store::key::Space::Filter`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FilterRecord {
    /// The session that it belongs to: what an earlier one under the same client id left is not ours.
    pub owner: SessionUid,
    pub options: SubOptions,
    pub id: u32,
    pub start: Position,
    /// Number of the replay of retained messages that its SUBSCRIBE began; 0 = none.
    pub replay: u64,
}

/// A message in flight, as stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredInflight {
    pub packet_id: u16,
    pub pos: (Partition, Seq),
    pub qos: QoS,
    pub retain: bool,
    /// PUBREC was received: PUBREL follows, never PUBLISH again.
    pub released: bool,
    /// A group or a replay sent it: the log may have another copy for the session itself.
    pub apart: bool,
    pub sub_ids: Vec<u32>,
    /// Topic of a retained message sent by a replay: its body is found by it.
    pub name: Option<Box<str>>,
}

/// A replay of retained messages that is not over, as stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredReplay {
    pub filter: Box<str>,
    pub number: u64,
    /// See [`crate::session::replays::Replay::fence`].
    pub fence: Option<(Partition, Seq)>,
    /// The last name that left the queue; empty = none.
    pub after: Box<str>,
}

/// Value of [`crate::store::key::Space::Cursor`]: all up to `base` is finished, but for what is in
/// flight; so the floor is below the lowest in flight, and what is finished above the floor is known
/// exactly. The QoS 2 window is part of it, since a finished QoS 2 message may leave the window only
/// together with the cursor that covers it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CursorRecord {
    /// The session that it belongs to; 0 for a group.
    pub owner: SessionUid,
    pub base: Position,
    /// The session was at the live edge with nothing unsent: a watermark of the same run of the shard may
    /// raise `base`. Names that run; 0 = it was not.
    pub live: u64,
    pub inflight: Vec<StoredInflight>,
    /// Replays up to this number are listed, or over.
    pub replays_upto: u64,
    pub replays: Vec<StoredReplay>,
}

/// Appends integers and strings.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }
    fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }
    fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }
    fn bytes(&mut self, v: &[u8]) {
        self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
    }
    fn position(&mut self, v: &Position) {
        let entries: Vec<_> = v.iter().collect();
        self.u16(entries.len() as u16);
        for (partition, seq) in entries {
            self.u16(partition.0);
            self.u64(seq.0);
        }
    }

    fn claims(&mut self, claims: &Claims) {
        self.u8(u8::from(claims.superuser));
        let attributes = claims.attributes.as_deref().into_iter().flatten();
        self.u32(attributes.clone().count() as u32);
        for (name, value) in attributes {
            self.bytes(name.as_bytes());
            self.bytes(value.as_bytes());
        }
        let groups = claims.groups.as_deref().unwrap_or_default();
        self.u32(groups.len() as u32);
        for group in groups {
            self.bytes(group.as_bytes());
        }
        match claims.source {
            None => self.bytes(&[]),
            Some(IpAddr::V4(ip)) => self.bytes(&ip.octets()),
            Some(IpAddr::V6(ip)) => self.bytes(&ip.octets()),
        }
    }
}

/// Reads them back; `None` where the value ends too early.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }
    fn u16(&mut self) -> Option<u16> {
        self.take(2).and_then(|b| b.try_into().ok()).map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes)
    }
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }
    fn str(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.bytes()?).ok()
    }
    fn position(&mut self) -> Option<Position> {
        let n = self.u16()?;
        let mut position = Position::start();
        for _ in 0..n {
            let partition = Partition(self.u16()?);
            position.raise(partition, Seq(self.u64()?));
        }
        Some(position)
    }
    fn claims(&mut self) -> Option<Claims> {
        let superuser = self.u8()? != 0;
        let mut attributes = Attributes::new();
        for _ in 0..self.u32()? {
            let name = Box::from(self.str()?);
            attributes.insert(name, Box::from(self.str()?));
        }
        let mut groups: Vec<Box<str>> = Vec::new();
        for _ in 0..self.u32()? {
            groups.push(Box::from(self.str()?));
        }
        Some(Claims {
            superuser,
            attributes: (!attributes.is_empty()).then(|| Arc::new(attributes)),
            groups: (!groups.is_empty()).then(|| groups.into()),
            source: match self.bytes()? {
                [] => None,
                raw => Some(match raw.len() {
                    4 => IpAddr::from(<[u8; 4]>::try_from(raw).ok()?),
                    16 => IpAddr::from(<[u8; 16]>::try_from(raw).ok()?),
                    _ => return None,
                }),
            },
        })
    }
    fn format(&mut self) -> Option<()> {
        (self.u8()? == FORMAT).then_some(())
    }
    fn either_format(&mut self) -> Option<u8> {
        self.u8().filter(|f| matches!(*f, FORMAT | FORMAT_REPLAYS))
    }
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl SessionRecord {
    pub fn encode(&self) -> Bytes {
        let mut out = Out::default();
        // The address of its last connection is asked for by its will alone.
        let claims = self.claims.says_something() || self.will.is_some() && self.claims.source.is_some();
        out.u8(if claims { FORMAT_CLAIMS } else { FORMAT });
        out.u64(self.uid.0);
        out.u64(self.epoch);
        out.u16(self.owner);
        out.u8(u8::from(self.persistent)
            | u8::from(self.away_since.is_some()) << 1
            | u8::from(self.principal.is_some()) << 2
            | u8::from(self.will.is_some()) << 3);
        out.u8(self.kind);
        out.u32(self.expiry_secs);
        if let Some(at) = self.away_since {
            out.u64(at.0);
        }
        if let Some(principal) = &self.principal {
            out.bytes(principal.as_bytes());
        }
        if let Some(will) = &self.will {
            out.u8(will.qos as u8 | u8::from(will.retain) << 2 | u8::from(will.expiry_secs.is_some()) << 3);
            out.u32(will.delay_secs);
            out.u32(will.expiry_secs.unwrap_or(0));
            out.bytes(will.topic.as_bytes());
            out.bytes(&will.props);
            out.bytes(&will.payload);
        }
        if claims {
            out.claims(&self.claims);
        }
        Bytes::from(out.0)
    }

    pub fn decode(raw: &[u8]) -> Option<SessionRecord> {
        let mut input = In(raw);
        let format = input.u8().filter(|f| matches!(*f, FORMAT | FORMAT_CLAIMS))?;
        let uid = SessionUid(input.u64()?);
        let epoch = input.u64()?;
        let owner = input.u16()?;
        let flags = input.u8()?;
        let kind = input.u8()?;
        let expiry_secs = input.u32()?;
        let away_since = if flags & 2 != 0 { Some(Wall(input.u64()?)) } else { None };
        let principal = if flags & 4 != 0 { Some(Box::from(input.str()?)) } else { None };
        let will = if flags & 8 != 0 {
            let bits = input.u8()?;
            let delay_secs = input.u32()?;
            let expiry = input.u32()?;
            Some(Will {
                qos: QoS::from_bits(bits & 3)?,
                retain: bits & 4 != 0,
                delay_secs,
                expiry_secs: (bits & 8 != 0).then_some(expiry),
                topic: Box::from(input.str()?),
                props: Box::from(input.bytes()?),
                payload: Box::from(input.bytes()?),
            })
        } else {
            None
        };
        let persistent = flags & 1 != 0;
        let claims = if format == FORMAT_CLAIMS { input.claims()? } else { Claims::default() };
        input.end(SessionRecord {
            uid,
            epoch,
            owner,
            persistent,
            expiry_secs,
            away_since,
            principal,
            claims,
            will,
            kind,
        })
    }
}

impl FilterRecord {
    pub fn encode(&self) -> Bytes {
        let mut out = Out::default();
        out.u8(FORMAT_REPLAYS);
        out.u64(self.owner.0);
        out.u8(self.options.to_bits());
        out.u32(self.id);
        out.position(&self.start);
        out.u64(self.replay);
        Bytes::from(out.0)
    }

    pub fn decode(raw: &[u8]) -> Option<FilterRecord> {
        let mut input = In(raw);
        let format = input.either_format()?;
        let owner = SessionUid(input.u64()?);
        let options = SubOptions::from_bits(input.u8()?)?;
        let id = input.u32()?;
        let start = input.position()?;
        let replay = if format == FORMAT { 0 } else { input.u64()? };
        input.end(FilterRecord { owner, options, id, start, replay })
    }
}

impl CursorRecord {
    pub fn encode(&self) -> Bytes {
        let mut out = Out::default();
        out.u8(FORMAT_REPLAYS);
        out.u64(self.owner.0);
        out.u64(self.live);
        out.position(&self.base);
        out.u32(self.inflight.len() as u32);
        for entry in &self.inflight {
            out.u16(entry.packet_id);
            out.u16(entry.pos.0.0);
            out.u64(entry.pos.1.0);
            out.u8(entry.qos as u8
                | u8::from(entry.retain) << 2
                | u8::from(entry.released) << 3
                | u8::from(entry.name.is_some()) << 4
                | u8::from(entry.apart) << 5);
            out.u16(entry.sub_ids.len() as u16);
            for id in &entry.sub_ids {
                out.u32(*id);
            }
            if let Some(name) = &entry.name {
                out.bytes(name.as_bytes());
            }
        }
        out.u64(self.replays_upto);
        out.u32(self.replays.len() as u32);
        for replay in &self.replays {
            out.bytes(replay.filter.as_bytes());
            out.u64(replay.number);
            // No sequence is 0.
            let (partition, seq) = replay.fence.unwrap_or_default();
            out.u16(partition.0);
            out.u64(seq.0);
            out.bytes(replay.after.as_bytes());
        }
        Bytes::from(out.0)
    }

    pub fn decode(raw: &[u8]) -> Option<CursorRecord> {
        let mut input = In(raw);
        let format = input.either_format()?;
        let owner = SessionUid(input.u64()?);
        let live = input.u64()?;
        let base = input.position()?;
        let n = input.u32()?;
        let mut inflight = Vec::new();
        for _ in 0..n {
            let packet_id = input.u16()?;
            let partition = Partition(input.u16()?);
            let seq = Seq(input.u64()?);
            let bits = input.u8()?;
            let ids = input.u16()?;
            let sub_ids = (0..ids).map(|_| input.u32()).collect::<Option<Vec<u32>>>()?;
            let name = if bits & 16 != 0 { Some(Box::from(input.str()?)) } else { None };
            inflight.push(StoredInflight {
                packet_id,
                pos: (partition, seq),
                qos: QoS::from_bits(bits & 3)?,
                retain: bits & 4 != 0,
                released: bits & 8 != 0,
                apart: bits & 32 != 0,
                sub_ids,
                name,
            });
        }
        let (mut replays_upto, mut replays) = (0, Vec::new());
        if format != FORMAT {
            replays_upto = input.u64()?;
            for _ in 0..input.u32()? {
                let (filter, number) = (Box::from(input.str()?), input.u64()?);
                let fence = (Partition(input.u16()?), Seq(input.u64()?));
                let fence = (fence.1 > Seq(0)).then_some(fence);
                replays.push(StoredReplay { filter, number, fence, after: Box::from(input.str()?) });
            }
        }
        input.end(CursorRecord { owner, base, live, inflight, replays_upto, replays })
    }
}

/// What a key of [`crate::store::key::Space::Inbound`] ends with: the packet id, and the session that
/// received the message, so that what an earlier session left cannot be taken for a message of this one.
pub(crate) fn inbound_tail(owner: SessionUid, packet_id: u16) -> [u8; 10] {
    let mut tail = [0; 10];
    tail[..8].copy_from_slice(&owner.0.to_be_bytes());
    tail[8..].copy_from_slice(&packet_id.to_be_bytes());
    tail
}

/// See [`inbound_tail`].
pub(crate) fn parse_inbound_tail(raw: &[u8]) -> Option<(u16, SessionUid)> {
    let mut input = In(raw);
    let owner = SessionUid(input.u64()?);
    let packet_id = input.u16()?;
    input.end((packet_id, owner))
}

/// A watermark of the run `run` of a shard.
pub(crate) fn encode_watermark(run: u64, position: &Position) -> Bytes {
    let mut out = Out::default();
    out.u8(FORMAT);
    out.u64(run);
    out.position(position);
    Bytes::from(out.0)
}

/// See [`encode_watermark`].
pub(crate) fn decode_watermark(raw: &[u8]) -> Option<(u64, Position)> {
    let mut input = In(raw);
    input.format()?;
    let run = input.u64()?;
    let position = input.position()?;
    input.end((run, position))
}

#[cfg(test)]
mod tests {
    use super::{CursorRecord, FilterRecord, SessionRecord, StoredInflight, StoredReplay};
    use crate::codec::SubOptions;
    use crate::conn::identity::Claims;
    use crate::ids::SessionUid;
    use crate::message::QoS;
    use crate::session::will::Will;
    use crate::store::position::{Partition, Position, Seq};
    use crate::time::Wall;
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use alloc::vec;

    #[test]
    fn records_come_back_as_they_were_and_cut_ones_are_refused() {
        let session = SessionRecord {
            uid: SessionUid(7),
            epoch: 3,
            owner: 1,
            persistent: true,
            expiry_secs: 60,
            away_since: Some(Wall(99)),
            principal: Some(Box::from("ann")),
            claims: Claims {
                superuser: true,
                attributes: Some(Arc::new([(Box::from("site"), Box::from("berlin"))].into())),
                groups: Some([Box::from("night"), Box::from("day")].into()),
                source: Some(core::net::IpAddr::from([192, 0, 2, 7])),
            },
            will: Some(Will {
                qos: QoS::ExactlyOnce,
                retain: true,
                delay_secs: 5,
                expiry_secs: Some(9),
                topic: Box::from("w"),
                props: Box::from(&b"\x01\x00"[..]),
                payload: Box::from(&b"bye"[..]),
            }),
            kind: 0,
        };
        let raw = session.encode();
        assert_eq!(SessionRecord::decode(&raw), Some(session.clone()));
        for n in 0..raw.len() {
            assert_eq!(SessionRecord::decode(&raw[..n]), None);
        }
        // One that says nothing more is written as it always was.
        let plain = SessionRecord { claims: Claims::default(), ..session.clone() };
        let raw = plain.encode();
        assert_eq!((raw[0], SessionRecord::decode(&raw)), (1, Some(plain)));
        let source = Some(core::net::IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]));
        let addressed = SessionRecord { claims: Claims { source, ..Claims::default() }, ..session };
        assert_eq!(SessionRecord::decode(&addressed.encode()), Some(addressed));
        let filter = FilterRecord {
            owner: SessionUid(7),
            options: SubOptions {
                qos: QoS::AtLeastOnce,
                no_local: true,
                retain_as_published: false,
                retain_handling: 2,
            },
            id: 268_435_455,
            start: Position::at(Partition(0), Seq(12)),
            replay: 9,
        };
        assert_eq!(FilterRecord::decode(&filter.encode()), Some(filter));
        let cursor = CursorRecord {
            owner: SessionUid(7),
            base: Position::at(Partition(2), Seq(1 << 40)),
            live: 77,
            inflight: vec![StoredInflight {
                packet_id: 65_535,
                pos: (Partition(2), Seq(5)),
                qos: QoS::ExactlyOnce,
                retain: false,
                released: true,
                apart: true,
                sub_ids: vec![1, 2],
                name: Some(Box::from("a/b")),
            }],
            replays_upto: 4,
            replays: vec![StoredReplay {
                filter: Box::from("a/#"),
                number: 3,
                fence: Some((Partition(0), Seq(8))),
                after: Box::from("a/b"),
            }],
        };
        assert_eq!(CursorRecord::decode(&cursor.encode()), Some(cursor));
    }

    #[test]
    fn filters_and_cursors_of_the_first_format_are_read() {
        let mut filter = vec![1, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0, 5, 0, 0];
        let read = FilterRecord::decode(&filter).map(|f| (f.owner, f.id, f.replay));
        assert_eq!(read, Some((SessionUid(7), 5, 0)));
        filter[0] = 3;
        assert_eq!(FilterRecord::decode(&filter), None);
        let mut cursor = vec![0; 23];
        cursor[0] = 1;
        assert_eq!(CursorRecord::decode(&cursor), Some(CursorRecord::default()));
    }
}
