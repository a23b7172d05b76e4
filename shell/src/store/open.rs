//! Opening a store: the checkpoint, the index files, and a replay of the journal's tail.

use super::error::StoreError;
use super::files::{File, Files};
use super::index::{Index, Segment};
use super::journal::Link;
use super::options::StoreOptions;
use super::record::{Group, Record, decode};
use super::segment::{
    self, HeaderError, SegmentHeader, Tail, index_name, name, read_segment_header, read_whole, walk,
};
use super::sidecar::{Collector, SegmentIndex};
use super::state::{self, Changes, Loaded, SeededMap, State, StoredRetained};
use super::stats::Counters;
use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mast_core::message::Message;
use mast_core::store::key::{Key, Space};
use mast_core::store::port::Restored;
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::tenant::registry::{OWN, Registry};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A store read back.
pub struct Opened {
    /// The open checkpoint file.
    pub state: State,
    /// The log's index.
    pub index: Index,
    /// Revisions of the keys.
    pub keys: SeededMap<Bytes, u64>,
    /// What the journal holds beyond the checkpoint.
    pub changes: Changes,
    /// The checkpoint covers the journal up to here.
    pub covers: u64,
    /// What the first new segment continues.
    pub link: Link,
    /// What the shards are told.
    pub restored: Vec<Restored>,
    /// Tenants on disk that are not in the registry, with what is kept of them.
    pub unknown: Vec<(String, u64)>,
    /// The journal's end was cut off in a crash.
    pub torn: bool,
}

/// A record of administration, as it was stored.
#[derive(Clone, Debug)]
pub struct AdminRecord {
    /// Its key, under mast's own name.
    pub key: Key,
    /// Its value.
    pub value: Bytes,
    /// Sequence of its last write.
    pub revision: Seq,
}

/// Tells the tenants of the node, who may be among the records of administration. An error ends the opening.
pub type TenantsOf<'a> = &'a mut dyn FnMut(&[AdminRecord]) -> Result<Registry, String>;

struct Opening<'a> {
    files: &'a Arc<dyn Files>,
    options: &'a StoreOptions,
    registry: Registry,
    index: Index,
    changes: Changes,
    /// Retained messages that the journal holds beyond the checkpoint.
    retained: BTreeMap<(Box<str>, Box<str>), Option<StoredRetained>>,
    covers: u64,
    /// The sequence after what was read so far.
    next: u64,
    torn: bool,
}

fn io_at<T>(
    files: &dyn Files,
    name: &str,
    what: &'static str,
    result: io::Result<T>,
) -> Result<T, StoreError> {
    result.map_err(|source| StoreError::Io { place: files.describe(name), what, source })
}

/// Reads a store back, or begins one in an empty directory.
///
/// # Errors
/// See [`StoreError`]; nothing is changed on disk then, except that leftovers of an earlier crash may be gone.
pub fn open(
    files: &Arc<dyn Files>,
    options: &StoreOptions,
    tenants: TenantsOf<'_>,
    shards: usize,
    counters: &Arc<Counters>,
) -> Result<Opened, StoreError> {
    let names = io_at(&**files, "", "list", files.list())?;
    let ids = tidy(&**files, &names)?;
    let has_state = names.iter().any(|n| n == state::FILE);
    if !has_state && !ids.is_empty() {
        let reason = "missing, though there is a journal".to_owned();
        return Err(StoreError::State { place: files.describe(state::FILE), reason });
    }
    let state = State::open(files.clone(), counters.clone(), options.state_cache_bytes, !has_state)?;
    let loaded = state.load()?;
    if let Some(lost) = loaded.segments.iter().find(|id| ids.binary_search(id).is_err()) {
        let reason = "the file is missing, though the checkpoint names it".to_owned();
        return Err(StoreError::Corrupt { place: files.describe(&name(*lost)), offset: 0, reason });
    }
    let mut index = Index::new(options.entropy, shards, options.ring_bytes);
    for (tenant, seq) in &loaded.trimmed {
        let slot = index.tenants.slot(tenant);
        index.tenants.get_mut(slot).trimmed = *seq;
    }
    let mut opening = Opening {
        files,
        options,
        registry: Registry::default(),
        index,
        changes: Changes::new(options.entropy),
        retained: BTreeMap::new(),
        covers: loaded.covers,
        next: 0,
        torn: false,
    };
    let link = opening.read_journal(&ids)?;
    opening.finish(state, loaded, link, tenants)
}

/// Removes leftovers and returns the numbers of the segments, ascending. A segment that is freed loses its index file
/// first, so an index file alone tells that a segment was lost.
fn tidy(files: &dyn Files, names: &[String]) -> Result<Vec<u64>, StoreError> {
    let mut ids: Vec<u64> = names.iter().filter_map(|n| segment::id_of(n)).collect();
    ids.sort_unstable();
    for found in names {
        if let Some(stem) = found.strip_suffix(".idx")
            && !ids.iter().any(|&id| index_name(id) == *found)
        {
            let place = files.describe(&format!("{stem}.seg"));
            let reason = "the file is missing, though its index file is there".to_owned();
            return Err(StoreError::Corrupt { place, offset: 0, reason });
        }
    }
    for found in names {
        if found.starts_with("spare-") || found == "index.new" || found == state::NEW_FILE {
            io_at(files, found, "remove", files.remove(found))?;
        }
    }
    Ok(ids)
}

/// Opens a segment and reads its header.
fn open_segment(files: &dyn Files, id: u64) -> Result<(Arc<dyn File>, SegmentHeader), StoreError> {
    let file_name = name(id);
    let file = io_at(files, &file_name, "open", files.open(&file_name))?;
    let header = io_at(files, &file_name, "read", read_segment_header(&*file))?;
    let corrupt = |reason: &str| StoreError::Corrupt {
        place: files.describe(&file_name),
        offset: 0,
        reason: reason.to_owned(),
    };
    match header {
        Ok(header) if header.id == id => Ok((file, header)),
        Ok(_) => Err(corrupt("the header belongs to another segment")),
        Err(HeaderError::Damaged) => Err(corrupt("the header is damaged")),
        Err(HeaderError::Format(found)) => {
            Err(StoreError::Format { place: files.describe(&file_name), found, known: segment::FORMAT })
        }
    }
}

fn admin_record((raw, value, revision): &(Bytes, Bytes, u64)) -> Option<AdminRecord> {
    let key = Key::from_bytes(raw.clone())?;
    let (space, owner, _) = key.split()?;
    let is_one = space == Space::Admin && owner == OWN;
    is_one.then(|| AdminRecord { key, value: value.clone(), revision: Seq(*revision) })
}

impl Opening<'_> {
    fn corrupt(&self, id: u64, offset: u64, reason: impl Into<String>) -> StoreError {
        StoreError::Corrupt { place: self.files.describe(&name(id)), offset, reason: reason.into() }
    }

    /// Reads all segments; returns what the next one continues.
    fn read_journal(&mut self, ids: &[u64]) -> Result<Link, StoreError> {
        let mut opened = Vec::with_capacity(ids.len());
        for &id in ids {
            opened.push(open_segment(&**self.files, id)?);
        }
        if opened.is_empty() {
            if self.covers > 0 {
                let reason = "the journal it belongs to is missing".to_owned();
                return Err(StoreError::State { place: self.files.describe(state::FILE), reason });
            }
            self.next = 1;
            return Ok(Link { id: 1, base: 1, prev_id: 0, prev_end: 0, gap: false });
        }
        let mut end = 0;
        for i in 0..opened.len() {
            let successor = opened.get(i + 1).map(|(_, header)| *header);
            let (file, header) = &opened[i];
            self.check_chain(header, i)?;
            end = self.read_segment(file.clone(), header, successor.as_ref())?;
        }
        let last = opened[opened.len() - 1].1.id;
        if self.next <= self.covers {
            let reason = format!(
                "the journal ends at {} but the checkpoint covers {}: its end is lost",
                self.next - 1,
                self.covers
            );
            return Err(self.corrupt(last, end, reason));
        }
        Ok(Link { id: last + 1, base: self.next, prev_id: last, prev_end: end, gap: false })
    }

    /// Segments may be missing only where the checkpoint makes them superfluous, or a salvage left them out.
    fn check_chain(&self, header: &SegmentHeader, i: usize) -> Result<(), StoreError> {
        let continues = i > 0 && header.base == self.next;
        let freed_before = header.base <= self.covers + 1 && header.base >= self.next.max(1);
        if continues || freed_before || header.gap {
            return Ok(());
        }
        let reason = format!("begins at {} but {} is expected: a segment is missing", header.base, self.next);
        Err(self.corrupt(header.id, 0, reason))
    }

    /// Takes in one segment and returns where it ends.
    fn read_segment(
        &mut self,
        file: Arc<dyn File>,
        header: &SegmentHeader,
        successor: Option<&SegmentHeader>,
    ) -> Result<u64, StoreError> {
        let recorded = successor.filter(|s| s.prev_id == header.id).map(|s| s.prev_end);
        let side = successor.and_then(|_| self.read_side(header));
        let side = side.filter(|s| recorded.is_none_or(|end| end == s.end));
        let (sealed, indexed) = match side {
            Some(side) if side.next <= self.covers + 1 && !self.options.verify_at_open => {
                let len = io_at(&**self.files, &name(header.id), "look at", file.len())?;
                if len < side.end {
                    return Err(self.corrupt(header.id, len, "the file ends before what was written to it"));
                }
                (side, true)
            }
            side => {
                let indexed = side.is_some();
                let end = recorded.or(side.map(|s| s.end));
                (self.walk_segment(&*file, header, end, successor.is_none())?, indexed)
            }
        };
        let segment = Segment {
            file,
            salt: header.salt,
            base: header.base,
            next: sealed.next,
            end: sealed.end,
            wall: sealed.wall,
            sealed: true,
            indexed,
            live_bytes: 0,
            live_count: 0,
        };
        self.index.segments.insert(header.id, segment);
        self.index.load(header.id, header.base, &sealed);
        self.next = sealed.next;
        Ok(sealed.end)
    }

    fn read_side(&self, header: &SegmentHeader) -> Option<SegmentIndex> {
        let file = self.files.open(&index_name(header.id)).ok()?;
        SegmentIndex::decode(&read_whole(&*file, None).ok()?, header)
    }

    /// Reads a segment whole, and replays what the checkpoint does not cover.
    fn walk_segment(
        &mut self,
        file: &dyn File,
        header: &SegmentHeader,
        end: Option<u64>,
        last: bool,
    ) -> Result<SegmentIndex, StoreError> {
        let file_name = name(header.id);
        let raw = io_at(&**self.files, &file_name, "read", read_whole(file, end.filter(|_| !last)))?;
        let mut collector = Collector::new(self.options.entropy);
        let walked = walk(&raw, header, end, |group| {
            for (offset, seq, record) in group.parts() {
                collector.add(offset, seq, &record);
            }
            self.replay(group);
        });
        match walked.tail {
            Tail::Clean => {}
            // Only the last segment, or one whose successor is gone, may end so: what follows its end
            // is the old content of a recycled file.
            Tail::Torn if end.is_none() => self.torn |= last,
            Tail::Torn | Tail::Corrupt => {
                return Err(self.corrupt(header.id, walked.end, "a group that had been synced is damaged"));
            }
        }
        Ok(collector.finish(&walked))
    }

    fn replay(&mut self, group: &Group<'_>) {
        for (_, seq, record) in group.parts() {
            if seq <= self.covers {
                continue;
            }
            match record {
                Record::Put { key, value } => {
                    let value = Some((Bytes::copy_from_slice(value), seq));
                    self.changes.keys.insert(Bytes::copy_from_slice(key), value);
                }
                Record::Delete { key } => {
                    self.changes.keys.insert(Bytes::copy_from_slice(key), None);
                }
                Record::Append(view) if view.retain && view.moved.is_none() => {
                    let name = (view.tenant.into(), view.message.topic.into());
                    let kept = (!view.message.payload.is_empty()).then(|| {
                        let message = view.to_message(view.message.tenant);
                        StoredRetained {
                            tenant: view.tenant.into(),
                            seq,
                            body: state::retained_body(view.tenant, &message),
                            expires: view.message.expires,
                        }
                    });
                    self.retained.insert(name, kept);
                }
                Record::Append(_) => {}
            }
        }
    }

    fn finish(
        mut self,
        state: State,
        loaded: Loaded,
        link: Link,
        tenants: TenantsOf<'_>,
    ) -> Result<Opened, StoreError> {
        self.index.settle();
        let keys = self.keys(loaded.keys);
        let admin: Vec<AdminRecord> = keys.iter().filter_map(admin_record).collect();
        self.registry = tenants(&admin).map_err(StoreError::Admin)?;
        self.index.tenants.register(&self.registry);
        let mut unknown: BTreeMap<String, u64> = BTreeMap::new();
        for tenant in self.index.tenants.iter().filter(|t| t.id.is_none() && t.count > 0) {
            unknown.insert(tenant.name.to_string(), tenant.count);
        }
        let mut restored = Vec::new();
        let keys = self.restore_keys(keys, &mut restored, &mut unknown);
        self.restore_retained(loaded.retained, &mut restored, &mut unknown);
        let head = Position::at(Partition(0), Seq(self.next - 1));
        restored.push(Restored::End { head });
        self.changes.covers = self.covers;
        Ok(Opened {
            state,
            index: self.index,
            keys,
            changes: self.changes,
            covers: self.covers,
            link,
            restored,
            unknown: unknown.into_iter().collect(),
            torn: self.torn,
        })
    }

    /// All keys with value and revision, in order.
    fn keys(&self, loaded: Vec<(Bytes, Bytes, u64)>) -> Vec<(Bytes, Bytes, u64)> {
        let replayed = self.changes.keys.iter();
        let replayed = replayed.filter_map(|(k, v)| v.as_ref().map(|(v, r)| (k.clone(), v.clone(), *r)));
        let mut all: Vec<(Bytes, Bytes, u64)> = loaded
            .into_iter()
            .filter(|(k, _, _)| !self.changes.keys.contains_key(k))
            .chain(replayed)
            .collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn restore_keys(
        &mut self,
        all: Vec<(Bytes, Bytes, u64)>,
        restored: &mut Vec<Restored>,
        unknown: &mut BTreeMap<String, u64>,
    ) -> SeededMap<Bytes, u64> {
        let mut table =
            HashMap::with_capacity_and_hasher(all.len(), FixedState::with_seed(self.options.entropy));
        for (raw, value, revision) in all {
            let key = Key::from_bytes(raw.clone());
            let tenant = key.as_ref().and_then(|k| k.split()).map(|(_, tenant, _)| tenant);
            match tenant {
                Some(tenant) if self.registry.id(tenant).is_some() => {
                    table.insert(raw, revision);
                    restored.extend(key.map(|key| Restored::Key { key, value, revision: Seq(revision) }));
                }
                // Told already.
                Some(OWN) => {
                    table.insert(raw, revision);
                }
                // Kept in the file, for the day the tenant is configured again.
                Some(tenant) => *unknown.entry(tenant.to_owned()).or_default() += 1,
                None => *unknown.entry("?".to_owned()).or_default() += 1,
            }
        }
        table
    }

    fn restore_retained(
        &mut self,
        loaded: Vec<StoredRetained>,
        restored: &mut Vec<Restored>,
        unknown: &mut BTreeMap<String, u64>,
    ) {
        let now = (self.options.clock)();
        let mut all: BTreeMap<(Box<str>, Box<str>), StoredRetained> = BTreeMap::new();
        for message in loaded {
            if let Some(Record::Append(view)) = decode(&message.body) {
                all.insert((message.tenant.clone(), view.message.topic.into()), message);
            }
        }
        for (name, message) in std::mem::take(&mut self.retained) {
            match message {
                Some(message) => {
                    let kept = self.to_message(&message).map(|m| (message.seq, m));
                    self.changes.retained.insert(name.clone(), kept);
                    all.insert(name, message);
                }
                None => {
                    self.changes.retained.insert(name.clone(), None);
                    all.remove(&name);
                }
            }
        }
        for (name, stored) in all {
            if stored.expires.is_some_and(|at| at <= now) {
                self.changes.retained.insert(name, None);
                continue;
            }
            if self.registry.id(&stored.tenant).is_none() {
                *unknown.entry(stored.tenant.to_string()).or_default() += 1;
                continue;
            }
            if let Some(message) = self.to_message(&stored) {
                restored.push(Restored::Retained { partition: Partition(0), seq: Seq(stored.seq), message });
            }
        }
    }

    /// The message of a stored retained one; of a tenant that is not configured, under a number that
    /// means nothing (it only passes through to the checkpoint).
    fn to_message(&self, stored: &StoredRetained) -> Option<Arc<Message>> {
        let Record::Append(view) = decode(&stored.body)? else { return None };
        let id = self.registry.id(&stored.tenant).unwrap_or(view.message.tenant);
        Some(view.to_message(id))
    }
}
