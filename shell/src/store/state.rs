//! Keys and retained messages as of a checkpoint, in one redb file. The journal is the point of
//! durability: this file only makes its beginning superfluous.
//!
//! A checkpoint is one transaction that holds all changes and the sequence up to which it covers the
//! journal. Every value carries a checksum of its own, because redb checks its pages only on repair.

use super::error::StoreError;
use super::files::{File, Files};
use super::record::{self, GROUP_HEADER, GroupWriter, Record};
use super::stats::{Counters, add};
use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mast_core::message::Message;
use mast_core::time::Wall;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Version of this file's format.
pub const FORMAT: u64 = 1;
/// The file.
pub const FILE: &str = "state.redb";
/// Its successor while it is written.
pub const NEW_FILE: &str = "state.new";

const KEYS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("keys");
const RETAINED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("retained");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Segments that must be there, as of the checkpoint that `META["segments_at"]` names.
const SEGMENTS: TableDefinition<'_, u64, ()> = TableDefinition::new("segments");
const TRIMMED: TableDefinition<'_, &str, u64> = TableDefinition::new("trimmed");

/// A map keyed by client data.
pub type SeededMap<K, V> = HashMap<K, V, FixedState>;

/// Tenant and topic.
pub type TopicName = (Box<str>, Box<str>);

/// Changes since the last checkpoint.
#[derive(Debug)]
pub struct Changes {
    /// Everything up to here is in them.
    pub covers: u64,
    /// Keys, with value and revision; `None` = removed.
    pub keys: SeededMap<Bytes, Option<(Bytes, u64)>>,
    /// Retained messages by (tenant, topic); `None` = removed.
    pub retained: SeededMap<TopicName, Option<(u64, Arc<Message>)>>,
    /// How far each tenant's log is trimmed.
    pub trimmed: Vec<(Box<str>, u64)>,
    /// Numbers of the journal's segments, ascending.
    pub segments: Vec<u64>,
    /// Memory they take, about.
    pub bytes: usize,
}

impl Changes {
    /// None yet.
    #[must_use]
    pub fn new(seed: u64) -> Changes {
        let hasher = FixedState::with_seed(seed);
        Changes {
            covers: 0,
            keys: HashMap::with_hasher(hasher.clone()),
            retained: HashMap::with_hasher(hasher),
            trimmed: Vec::new(),
            segments: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds later changes.
    pub fn absorb(&mut self, later: Changes) {
        self.covers = later.covers;
        self.keys.extend(later.keys);
        self.retained.extend(later.retained);
        self.trimmed = later.trimmed;
        self.segments = later.segments;
        self.bytes += later.bytes;
    }
}

/// A retained message as it was stored.
#[derive(Clone, Debug)]
pub struct StoredRetained {
    /// Name of its tenant.
    pub tenant: Box<str>,
    /// Its sequence.
    pub seq: u64,
    /// The body of its record.
    pub body: Vec<u8>,
    /// When it expires.
    pub expires: Option<Wall>,
}

/// All that the file holds.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The checkpoint covers the journal up to here.
    pub covers: u64,
    /// Keys with value and revision.
    pub keys: Vec<(Bytes, Bytes, u64)>,
    /// Retained messages.
    pub retained: Vec<StoredRetained>,
    /// How far each tenant's log was trimmed.
    pub trimmed: Vec<(Box<str>, u64)>,
    /// Numbers of the segments that must be there; none in a file of an older version.
    pub segments: Vec<u64>,
}

struct Backend {
    file: Arc<dyn File>,
    counters: Arc<Counters>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        add(&self.counters.state_bytes, data.len() as u64);
        self.file.write_at(data, offset)
    }
}

/// The open file.
pub struct State {
    files: Arc<dyn Files>,
    counters: Arc<Counters>,
    cache: usize,
    /// `None` after a failure, until it could be opened again.
    db: Option<Database>,
    /// A write to the file failed: what its pages hold on disk is unknown, so it must be replaced.
    suspect: bool,
}

fn io_error(files: &dyn Files, name: &str, what: &'static str, source: io::Error) -> StoreError {
    StoreError::Io { place: files.describe(name), what, source }
}

impl State {
    fn builder(cache: usize) -> Builder {
        let mut builder = Database::builder();
        builder.set_cache_size(cache);
        builder
    }

    fn open_file(&self, name: &str, fresh: bool) -> Result<Database, StoreError> {
        let files = &*self.files;
        let file = if fresh { files.create(name) } else { files.open(name) };
        let file = file.map_err(|e| io_error(files, name, "open", e))?;
        let backend = Backend { file, counters: self.counters.clone() };
        let opened = State::builder(self.cache).create_with_backend(backend);
        opened.map_err(|e| self.state_error(name, e))
    }

    fn state_error(&self, name: &str, error: impl fmt::Display) -> StoreError {
        StoreError::State { place: self.files.describe(name), reason: error.to_string() }
    }

    /// Opens the file; creates it if `fresh`.
    ///
    /// # Errors
    /// It cannot be opened, or is of another format.
    pub fn open(
        files: Arc<dyn Files>,
        counters: Arc<Counters>,
        cache: usize,
        fresh: bool,
    ) -> Result<State, StoreError> {
        let mut state = State { files, counters, cache, db: None, suspect: false };
        if fresh {
            let db = state.open_file(NEW_FILE, true)?;
            let empty = Changes::new(0);
            write(&db, &empty).map_err(|e| state.state_error(NEW_FILE, e))?;
            drop(db);
            state.adopt_new()?;
        }
        let db = state.open_file(FILE, false)?;
        let found = read_format(&db).map_err(|e| state.state_error(FILE, e))?;
        if found != FORMAT {
            return Err(StoreError::Format {
                place: state.files.describe(FILE),
                found: found as u32,
                known: FORMAT as u32,
            });
        }
        state.db = Some(db);
        Ok(state)
    }

    fn adopt_new(&self) -> Result<(), StoreError> {
        let files = &*self.files;
        files.rename(NEW_FILE, FILE).map_err(|e| io_error(files, NEW_FILE, "rename", e))?;
        files.sync_dir().map_err(|e| io_error(files, FILE, "sync the directory of", e))
    }

    /// Reads everything.
    ///
    /// # Errors
    /// A value is damaged, or the file cannot be read.
    pub fn load(&self) -> Result<Loaded, StoreError> {
        let Some(db) = &self.db else { return Err(self.state_error(FILE, "not open")) };
        load(db).map_err(|e| self.state_error(FILE, e))
    }

    /// Writes a checkpoint. After a failure the file is replaced by a copy before anything is written again.
    ///
    /// # Errors
    /// The checkpoint does not hold; the same changes must be given again, with later ones.
    pub fn commit(&mut self, changes: &Changes) -> Result<(), StoreError> {
        if self.suspect {
            self.replace()?;
        }
        let Some(db) = &self.db else { return Err(self.state_error(FILE, "not open")) };
        if let Err(error) = write(db, changes) {
            self.suspect = true;
            self.db = None;
            return Err(self.state_error(FILE, error));
        }
        Ok(())
    }

    /// Writes which segments must be there, before some go. The checkpoint stays as it is otherwise.
    ///
    /// # Errors
    /// What was there before holds, or this does; nothing may be removed.
    pub fn list_segments(&mut self, segments: &[u64]) -> Result<(), StoreError> {
        if self.suspect {
            self.replace()?;
        }
        let Some(db) = &self.db else { return Err(self.state_error(FILE, "not open")) };
        let written = begin(db).and_then(|tx| {
            let covers = tx.open_table(META)?.get("covers")?.map_or(0, |v| v.value());
            write_segments(&tx, segments, covers)?;
            Ok(tx.commit()?)
        });
        if let Err(error) = written {
            self.suspect = true;
            self.db = None;
            return Err(self.state_error(FILE, error));
        }
        Ok(())
    }

    /// Copies the file's content to a new one, syncs that and takes it instead. The page cache may show pages that
    /// never reached the disk: so each value's checksum is verified on the way, and the old file never used again.
    fn replace(&mut self) -> Result<(), StoreError> {
        self.db = None;
        let old = self.open_file(FILE, false)?;
        let loaded = load(&old).map_err(|e| self.state_error(FILE, e))?;
        let new = self.open_file(NEW_FILE, true)?;
        write_loaded(&new, &loaded).map_err(|e| self.state_error(NEW_FILE, e))?;
        drop(new);
        drop(old);
        self.adopt_new()?;
        self.db = Some(self.open_file(FILE, false)?);
        self.suspect = false;
        Ok(())
    }
}

fn begin(db: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut tx = db.begin_write()?;
    // Two-phase: values hold clients' bytes, so checksums alone may not decide which commit is whole.
    tx.set_two_phase_commit(true);
    // Keeps opening after a crash from reading the whole file.
    tx.set_quick_repair(true);
    Ok(tx)
}

/// The list, marked with the checkpoint that it belongs to: one that an older version left behind does not count.
fn write_segments(tx: &redb::WriteTransaction, segments: &[u64], covers: u64) -> Result<(), redb::Error> {
    let mut table = tx.open_table(SEGMENTS)?;
    table.retain(|id, ()| segments.binary_search(&id).is_ok())?;
    for id in segments {
        if table.get(id)?.is_none() {
            table.insert(id, ())?;
        }
    }
    tx.open_table(META)?.insert("segments_at", covers)?;
    Ok(())
}

fn read_segments(tx: &redb::ReadTransaction, covers: u64) -> Result<Vec<u64>, redb::Error> {
    let at = tx.open_table(META)?.get("segments_at")?.map(|v| v.value());
    if at != Some(covers) {
        return Ok(Vec::new());
    }
    let table = tx.open_table(SEGMENTS)?;
    let ids: Result<Vec<u64>, redb::StorageError> =
        table.iter()?.map(|item| item.map(|(id, _)| id.value())).collect();
    Ok(ids?)
}

fn write(db: &Database, changes: &Changes) -> Result<(), redb::Error> {
    let tx = begin(db)?;
    {
        let mut keys = tx.open_table(KEYS)?;
        for (key, value) in sorted(changes.keys.iter()) {
            match value {
                Some((value, revision)) => {
                    keys.insert(&**key, &*encode_value(key, value, *revision))?;
                }
                None => {
                    keys.remove(&**key)?;
                }
            }
        }
        let mut retained = tx.open_table(RETAINED)?;
        for ((tenant, topic), message) in sorted(changes.retained.iter()) {
            let key = retained_key(tenant, topic);
            match message {
                Some((seq, message)) => {
                    retained.insert(&*key, &*encode_retained(tenant, *seq, message))?;
                }
                None => {
                    retained.remove(&*key)?;
                }
            }
        }
        let mut trimmed = tx.open_table(TRIMMED)?;
        for (tenant, seq) in &changes.trimmed {
            trimmed.insert(&**tenant, seq)?;
        }
        let mut meta = tx.open_table(META)?;
        meta.insert("format", FORMAT)?;
        meta.insert("covers", changes.covers)?;
    }
    write_segments(&tx, &changes.segments, changes.covers)?;
    tx.commit()?;
    Ok(())
}

/// In key order: a B-tree takes neighbours at a fraction of the cost.
fn sorted<'a, K: Ord + 'a, V: 'a>(items: impl Iterator<Item = (&'a K, &'a V)>) -> Vec<(&'a K, &'a V)> {
    let mut list: Vec<_> = items.collect();
    list.sort_unstable_by(|a, b| a.0.cmp(b.0));
    list
}

fn write_loaded(db: &Database, loaded: &Loaded) -> Result<(), redb::Error> {
    let tx = begin(db)?;
    {
        let mut keys = tx.open_table(KEYS)?;
        for (key, value, revision) in &loaded.keys {
            keys.insert(&**key, &*encode_value(key, value, *revision))?;
        }
        let mut retained = tx.open_table(RETAINED)?;
        for message in &loaded.retained {
            let Some(Record::Append(view)) = record::decode(&message.body) else { continue };
            let key = retained_key(&message.tenant, view.message.topic);
            let copy = view.to_message(view.message.tenant);
            retained.insert(&*key, &*encode_retained(&message.tenant, message.seq, &copy))?;
        }
        let mut trimmed = tx.open_table(TRIMMED)?;
        for (tenant, seq) in &loaded.trimmed {
            trimmed.insert(&**tenant, seq)?;
        }
        let mut meta = tx.open_table(META)?;
        meta.insert("format", FORMAT)?;
        meta.insert("covers", loaded.covers)?;
    }
    write_segments(&tx, &loaded.segments, loaded.covers)?;
    tx.commit()?;
    Ok(())
}

fn read_format(db: &Database) -> Result<u64, redb::Error> {
    let meta = db.begin_read()?.open_table(META)?;
    Ok(meta.get("format")?.map_or(0, |v| v.value()))
}

fn load(db: &Database) -> Result<Loaded, String> {
    read_all(db).map_err(|e| e.to_string())?
}

/// The outer error is redb's, the inner one tells what is damaged.
fn read_all(db: &Database) -> Result<Result<Loaded, String>, redb::Error> {
    let tx = db.begin_read()?;
    let covers = tx.open_table(META)?.get("covers")?.map_or(0, |v| v.value());
    let mut loaded = Loaded { covers, ..Loaded::default() };
    let keys = tx.open_table(KEYS)?;
    for item in keys.iter()? {
        let (key, value) = item?;
        let Some((revision, value)) = decode_value(key.value(), value.value()) else {
            return Ok(Err(format!(
                "the value of key {:?} is damaged",
                key.value().escape_ascii().to_string()
            )));
        };
        loaded.keys.push((Bytes::copy_from_slice(key.value()), value, revision));
    }
    let retained = tx.open_table(RETAINED)?;
    for item in retained.iter()? {
        let (key, value) = item?;
        let Some(message) = decode_retained(key.value(), value.value()) else {
            let key = key.value().escape_ascii().to_string();
            return Ok(Err(format!("the retained message {key:?} is damaged")));
        };
        loaded.retained.push(message);
    }
    let counts = (keys.len()?, retained.len()?);
    if counts != (loaded.keys.len() as u64, loaded.retained.len() as u64) {
        return Ok(Err("entries are missing".to_owned()));
    }
    loaded.segments = read_segments(&tx, covers)?;
    for item in tx.open_table(TRIMMED)?.iter()? {
        let (tenant, seq) = item?;
        loaded.trimmed.push((tenant.value().into(), seq.value()));
    }
    Ok(Ok(loaded))
}

fn checksum(key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u32).to_le_bytes());
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

fn seal(key: &[u8], mut raw: Vec<u8>) -> Vec<u8> {
    let sum = checksum(key, &raw[4..]);
    raw[..4].copy_from_slice(&sum.to_le_bytes());
    raw
}

fn unseal<'a>(key: &[u8], raw: &'a [u8]) -> Option<(u64, &'a [u8])> {
    let sum = u32::from_le_bytes(raw.get(..4)?.try_into().ok()?);
    if sum != checksum(key, &raw[4..]) {
        return None;
    }
    Some((u64::from_le_bytes(raw.get(4..12)?.try_into().ok()?), &raw[12..]))
}

fn encode_value(key: &[u8], value: &[u8], revision: u64) -> Vec<u8> {
    let mut raw = vec![0; 4];
    raw.extend_from_slice(&revision.to_le_bytes());
    raw.extend_from_slice(value);
    seal(key, raw)
}

fn decode_value(key: &[u8], raw: &[u8]) -> Option<(u64, Bytes)> {
    let (revision, value) = unseal(key, raw)?;
    Some((revision, Bytes::copy_from_slice(value)))
}

fn retained_key(tenant: &str, topic: &str) -> Vec<u8> {
    let mut key = vec![tenant.len() as u8];
    key.extend_from_slice(tenant.as_bytes());
    key.extend_from_slice(topic.as_bytes());
    key
}

/// The body of a retained message's record.
#[must_use]
pub fn retained_body(tenant: &str, message: &Message) -> Vec<u8> {
    let mut group = Vec::new();
    let mut writer = GroupWriter::begin(&mut group, 0, 0);
    writer.append(tenant, message, false, true, None);
    group.split_off(GROUP_HEADER + record::RECORD_HEADER)
}

fn encode_retained(tenant: &str, seq: u64, message: &Message) -> Vec<u8> {
    let mut raw = vec![0; 4];
    raw.extend_from_slice(&seq.to_le_bytes());
    raw.extend_from_slice(&retained_body(tenant, message));
    seal(&retained_key(tenant, message.topic()), raw)
}

fn decode_retained(key: &[u8], raw: &[u8]) -> Option<StoredRetained> {
    let (seq, body) = unseal(key, raw)?;
    let Record::Append(view) = record::decode(body)? else { return None };
    Some(StoredRetained {
        tenant: view.tenant.into(),
        seq,
        body: body.to_vec(),
        expires: view.message.expires,
    })
}

#[cfg(test)]
mod tests {
    use super::super::files::fault::FaultFiles;
    use super::*;

    #[test]
    fn a_list_of_segments_counts_only_for_the_checkpoint_it_was_written_with() {
        let files: Arc<dyn Files> = Arc::new(FaultFiles::new(64 << 20));
        let mut state = State::open(files, Arc::default(), 1 << 20, true).expect("a new file");
        assert_eq!(state.load().expect("read").segments, Vec::<u64>::new());
        let mut changes = Changes::new(1);
        (changes.covers, changes.segments) = (5, vec![1, 2, 3]);
        state.commit(&changes).expect("written");
        assert_eq!(state.load().expect("read").segments, [1, 2, 3]);
        state.list_segments(&[2, 4]).expect("written");
        assert_eq!(state.load().expect("read").segments, [2, 4]);
        // A version that knows no list writes a checkpoint, after which it may free what it likes.
        let tx = begin(state.db.as_ref().expect("open")).expect("a transaction");
        tx.open_table(META).and_then(|mut t| Ok(t.insert("covers", 6).map(|_| ())?)).expect("written");
        tx.commit().expect("committed");
        assert_eq!(state.load().expect("read").segments, Vec::<u64>::new());
    }
}
