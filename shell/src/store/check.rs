//! Looks at a store without changing it: it is opened as at a start, but every record is read, and what opening
//! writes stays in memory. So whatever a start refuses is found.

use super::error::StoreError;
use super::files::overlay::OverlayFiles;
use super::files::{self, Files};
use super::options::StoreOptions;
use super::stats::Counters;
use super::{open, segment, state};
use mast_core::tenant::registry::Registry;
use mast_core::time::Wall;
use std::io;
use std::sync::Arc;

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

/// Reads everything. Only the lock file is written. A store that does not exist yet is a good one.
///
/// # Errors
/// The store is in use ([`StoreError::Locked`]), or would not open.
pub fn check(files: &Arc<dyn Files>, registry: &Registry) -> Result<CheckReport, StoreError> {
    let at = |name: &str, what, source| StoreError::Io { place: files.describe(name), what, source };
    let _lock = files.lock().map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked { place: files.describe("lock") },
        _ => at("lock", "lock", e),
    })?;
    let names = files.list().map_err(|e| at("", "list", e))?;
    let mut report = CheckReport {
        free_bytes: files.free_bytes().map_err(|e| at("", "look at the space of", e))?,
        ..CheckReport::default()
    };
    if !names.iter().any(|n| n == state::FILE || n.ends_with(".idx") || segment::id_of(n).is_some()) {
        return Ok(report);
    }
    let mut options = StoreOptions::new(Arc::new(|| Wall(0)), 1);
    options.verify_at_open = true;
    let overlay: Arc<dyn files::Files> = Arc::new(OverlayFiles::new(files.clone()));
    let opened =
        open::open(&overlay, &options, &mut |_| Ok(registry.clone()), 1, &Arc::new(Counters::default()))?;
    report.segments = opened.index.segments.len();
    report.bytes = opened.index.segments.values().map(|s| s.end).sum();
    report.torn = opened.torn;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::super::files::fault::FaultFiles;
    use super::super::shared::{Event, Sink};
    use super::super::{InlineStore, StoreClient};
    use super::*;
    use mast_core::ids::{OpId, ShardIx};
    use mast_core::store::key::{Key, Space};
    use mast_core::store::port::{Durability, Expect, Write};

    struct Deaf;

    impl Sink for Deaf {
        fn deliver(&mut self, _events: Vec<Event>) {}
    }

    fn registry() -> Registry {
        Registry::new(&["acme"]).expect("a good name")
    }

    fn open_on(files: &FaultFiles) -> Result<InlineStore, StoreError> {
        let mut options = StoreOptions::new(Arc::new(|| Wall(1000)), 7);
        options.segment_bytes = 32 << 10;
        options.max_commit_bytes = 16 << 10;
        InlineStore::open(options, Arc::new(files.clone()), registry(), vec![Box::new(Deaf)]).map(|s| s.0)
    }

    fn put(client: &StoreClient, n: u8) {
        let key = Key::new(Space::Session, "acme", &[&[n]]);
        let write = Write::Put { key, value: vec![n; 3000].into(), expect: Expect::Any };
        client
            .commit(ShardIx(0), OpId { idx: n.into(), generation: 1 }, vec![write], Durability::Synced)
            .expect("room");
    }

    /// A store of several sealed segments that are needed, since no checkpoint covers them.
    fn stored() -> FaultFiles {
        let files = FaultFiles::new(64 << 20);
        let mut store = open_on(&files).expect("a new store");
        for n in 0..40 {
            put(&store.client(), n);
            store.pump();
        }
        store.tick();
        drop(store);
        files.copy()
    }

    fn names(files: &FaultFiles, suffix: &str) -> Vec<String> {
        files.list().expect("a list").into_iter().filter(|n| n.ends_with(suffix)).collect()
    }

    fn examine(files: &FaultFiles) -> Result<CheckReport, StoreError> {
        let files: Arc<dyn Files> = Arc::new(files.clone());
        check(&files, &registry())
    }

    #[test]
    fn a_check_changes_nothing_and_finds_a_good_store_good() {
        let disk = stored();
        let before = names(&disk, "");
        let report = examine(&disk).expect("it is good");
        assert!(report.segments >= 3 && report.bytes > 100_000, "{report:?}");
        assert_eq!(names(&disk, ""), before);
        open_on(&disk).expect("it opens");
    }

    #[test]
    fn a_missing_segment_is_named_and_refused_by_start_and_check() {
        let disk = stored();
        let segments = names(&disk, ".seg");
        assert!(names(&disk, ".idx").len() >= 2, "{:?}", names(&disk, ""));
        for gone in &segments[..2] {
            let disk = disk.copy();
            disk.remove(gone).expect("a removal");
            for refused in [open_on(&disk).err(), examine(&disk).err()] {
                let text = refused.expect("it is refused").to_string();
                assert!(text.contains(gone) && text.contains("missing"), "{text}");
            }
        }
    }

    #[test]
    fn a_check_names_the_file_that_is_cut_short_or_damaged() {
        let disk = stored();
        for name in names(&disk, ".seg").iter().take(2).chain([&state::FILE.to_owned()]) {
            let cut = disk.copy();
            cut.open(name).and_then(|f| f.set_len(5000)).expect("a cut");
            let text = examine(&cut).expect_err("it is cut short").to_string();
            assert!(text.contains(name.as_str()), "{text}");
        }
        let flipped = disk.copy();
        let first = &names(&disk, ".seg")[0];
        flipped.flip(first, 6000, 1).expect("a byte");
        let text = examine(&flipped).expect_err("it is damaged").to_string();
        assert!(text.contains(first.as_str()), "{text}");
    }
}
