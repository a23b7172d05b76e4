//! What the embedded store does when the disk is full, fails or lies.

use mast::store::files::Files;
use mast::store::files::fault::FaultFiles;
use mast::store::salvage::{SalvageReport, salvage};
use mast::store::{InlineStore, StoreError};
use mast_core::ids::ShardIx;
use mast_core::rng::Rng;
use mast_core::store::port::{CommitResult, Durability, Expect, Read, ReadResult, Refusal};
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::tenant::registry::Registry;
use mast_tests::contract::{
    ACME, Bench, StoreUnderTest, ZETA, log_read, logged, message, put, retained, seqs,
};
use mast_tests::store::history::{History, crash_options, read_image};
use mast_tests::store::{Ears, Inline, TestClock, registry};
use std::sync::Arc;

fn bench() -> Bench<Inline> {
    let clock = TestClock::at(1000);
    Bench::new(Inline::on(FaultFiles::new(64 << 20), crash_options(&clock), clock, false))
}

/// Which bytes are damaged in turn: every one with `MAST_EVERY_BYTE`, else every `usual`th.
fn stride(usual: usize) -> usize {
    if std::env::var_os("MAST_EVERY_BYTE").is_some() { 1 } else { usual }
}

fn fill(b: &mut Bench<Inline>, count: u64) {
    for i in 0..count {
        b.done(vec![
            logged(message(ACME, &format!("t/{}", i % 5), &[i as u8; 200])),
            put("k", "v", Expect::Any),
        ]);
    }
}

fn names(files: &FaultFiles, suffix: &str) -> Vec<String> {
    let all = files.list().expect("a list");
    all.into_iter().filter(|n| n.ends_with(suffix)).collect()
}

fn open(files: &FaultFiles, verify: bool) -> Result<Vec<u64>, StoreError> {
    let clock = TestClock::at(1000);
    let mut options = crash_options(&clock);
    options.verify_at_open = verify;
    read_image(files, &options, &clock).map(|image| image.log.keys().copied().collect())
}

#[test]
fn a_flipped_bit_in_a_sealed_segment_is_refused_and_the_file_named() {
    let mut b = bench();
    fill(&mut b, 200);
    let files = b.store.files.copy();
    let segments = names(&files, ".seg");
    assert!(segments.len() >= 3, "{segments:?}");
    let intact = open(&files.copy(), true).expect("it opens");
    let len = files.open(&segments[0]).expect("a file").len().expect("a length");
    let (mut refused, mut harmless) = (0, 0);
    let used = (0..80).chain((4096..len).step_by(stride(17)));
    for offset in used {
        let disk = files.copy();
        disk.flip(&segments[0], offset, offset as u8).expect("a byte");
        match open(&disk, true) {
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Format { .. })) => {
                assert!(error.to_string().contains(&segments[0]), "{error}");
                refused += 1;
            }
            Err(error) => panic!("{offset}: {error}"),
            // Padding, or what lies behind the segment's end.
            Ok(seqs) => {
                assert_eq!(seqs, intact, "{offset}");
                harmless += 1;
            }
        }
    }
    assert!(refused > 20 * harmless, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_flipped_bit_in_the_last_segment_is_torn_at_its_end_and_refused_before() {
    let mut b = bench();
    fill(&mut b, 30);
    let files = b.store.files.copy();
    let segment = names(&files, ".seg").pop().expect("a segment");
    let intact = open(&files.copy(), false).expect("it opens");
    let (mut torn, mut refused) = (0, 0);
    for offset in (4096..16_000).step_by(stride(7)) {
        let disk = files.copy();
        disk.flip(&segment, offset, 3).expect("a byte");
        match open(&disk, false) {
            Err(error) => {
                assert!(error.to_string().contains(&segment), "{error}");
                refused += 1;
            }
            Ok(seqs) => {
                assert!(intact.starts_with(&seqs), "{offset}");
                // Only the last commit has nothing behind it that proves it was synced.
                assert!(seqs.len() + 1 >= intact.len(), "{offset}");
                torn += usize::from(seqs.len() < intact.len());
            }
        }
    }
    assert!(torn > 0 && refused > torn, "{torn} torn, {refused} refused");
}

#[test]
fn a_damaged_record_is_reported_and_reading_goes_on_behind_it() {
    let mut b = bench();
    fill(&mut b, 200);
    assert!(b.store.running().checkpoint());
    b.store.running().tick();
    b.store.running().tick();
    let segments = names(&b.store.files, ".seg");
    b.store.reopen();
    let intact = b.log(log_read(&["#"], 0)).entries;
    assert_eq!(intact.len(), 200);
    b.store.files.flip(&segments[0], 4300, 1).expect("a byte");
    for _ in 0..2 {
        let page = b.log(log_read(&["#"], 0));
        assert_eq!(page.lost, [intact[0].seq]);
        assert_eq!(page.entries[..], intact[1..], "the rest is whole");
    }
    let page = b.page(Read::At { partition: Partition(0), seqs: vec![intact[0].seq, intact[1].seq] });
    assert_eq!((page.lost, page.entries), (vec![intact[0].seq], vec![intact[1].clone()]));
    let damaged = b.store.client.health().damaged.expect("it is reported");
    assert!(damaged.contains(&segments[0]), "{damaged}");
    assert_eq!(b.store.client.stats().damage, 1, "each place is told once");
}

#[test]
fn what_a_sealed_segment_lost_at_its_end_is_told_and_the_next_segment_is_read() {
    let mut b = bench();
    fill(&mut b, 200);
    let segments = names(&b.store.files, ".seg");
    let file = b.store.files.open(&segments[0]).expect("a file");
    file.set_len(10_000).expect("a cut");
    let page = b.log(log_read(&["#"], 0));
    assert!(!page.lost.is_empty() && page.lost.len() + page.entries.len() == 200, "{:?}", page.lost);
    assert!(
        page.lost[0] > page.entries[0].seq && page.lost.iter().max() < page.entries.last().map(|e| &e.seq)
    );
}

#[test]
fn a_read_that_the_file_system_refuses_is_tried_again_before_it_counts_as_damage() {
    let mut b = bench();
    fill(&mut b, 3);
    b.store.files.fail_reads(4);
    let mut refused = 0;
    let page = loop {
        match b.read(Read::Log(log_read(&["#"], 0))) {
            ReadResult::Page(page) => break page,
            ReadResult::Failed(Refusal::Unavailable) => refused += 1,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused > 0 && page.lost.is_empty() && page.entries.len() == 3, "{refused}: {page:?}");
    b.store.files.fail_reads(u32::MAX);
    for tries in 0.. {
        assert!(tries < 100, "it never gave up");
        if let ReadResult::Page(page) = b.read(Read::Log(log_read(&["#"], 0))) {
            assert_eq!((page.lost.len(), page.entries.len()), (3, 0));
            break;
        }
    }
}

#[test]
fn a_lost_or_damaged_index_file_is_made_again() {
    let mut b = bench();
    fill(&mut b, 200);
    b.store.running().tick();
    b.store.running().tick();
    let files = b.store.files.copy();
    let intact = open(&files.copy(), false).expect("it opens");
    let index = names(&files, ".idx");
    assert!(index.len() >= 2, "{index:?}");
    files.flip(&index[0], 90, 1).expect("a byte");
    files.remove(&index[1]).expect("a removal");
    assert_eq!(open(&files, false).expect("it opens"), intact);
}

#[test]
fn a_missing_segment_is_refused() {
    let mut b = bench();
    fill(&mut b, 200);
    let segments = names(&b.store.files, ".seg");
    for gone in &segments[..segments.len() - 1] {
        let disk = b.store.files.copy();
        disk.remove(gone).expect("a removal");
        let error = open(&disk, false).expect_err("a segment is missing");
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    }
    let disk = b.store.files.copy();
    for segment in &segments {
        disk.remove(segment).expect("a removal");
    }
    assert!(b.store.running().checkpoint());
    let disk = b.store.files.copy();
    disk.remove(segments.last().expect("one")).expect("a removal");
    open(&disk, false).expect_err("the journal's end is missing");
    let disk = b.store.files.copy();
    disk.remove("state.redb").expect("a removal");
    assert!(matches!(open(&disk, false), Err(StoreError::State { .. })));
}

#[test]
fn a_covered_segment_that_is_gone_with_its_index_file_is_named_and_refused() {
    let mut b = bench();
    fill(&mut b, 200);
    assert!(b.store.running().checkpoint());
    b.store.running().tick();
    let segments = names(&b.store.files, ".seg");
    assert!(segments.len() >= 3 && !names(&b.store.files, ".idx").is_empty(), "{segments:?}");
    for gone in &segments {
        let disk = b.store.files.copy();
        disk.remove(gone).expect("a removal");
        // It may have none yet.
        disk.remove(&gone.replace(".seg", ".idx")).unwrap_or_default();
        let error = open(&disk, false).expect_err("a segment is missing").to_string();
        assert!(error.contains(gone.as_str()) && error.contains("missing"), "{gone}: {error}");
    }
    open(&b.store.files.copy(), true).expect("nothing is missing");
}

#[test]
fn segments_that_are_freed_are_never_taken_for_lost_wherever_a_crash_falls() {
    let mut b = bench();
    fill(&mut b, 200);
    assert!(b.store.running().checkpoint());
    let before = names(&b.store.files, ".seg").len();
    let from = b.store.files.ops();
    for shard in 0..2 {
        b.store.set_floor(ShardIx(shard), ACME, Some(Position::at(Partition(0), Seq(u64::MAX >> 1))));
    }
    for round in 0..4 {
        b.store.clock.set(2000 + round);
        b.store.running().tick();
    }
    assert!(names(&b.store.files, ".seg").len() < before, "nothing was freed");
    let mut rng = Rng::new(9);
    let all = from..=b.store.files.ops();
    for ops in all.step_by(stride(5)) {
        let mut draw = |n: u64| rng.below(n);
        for disk in [b.store.files.kill(ops), b.store.files.crash(ops, &mut draw)] {
            open(&disk, false).unwrap_or_else(|e| panic!("after {ops} operations: {e}"));
        }
    }
}

#[test]
fn an_unknown_format_is_refused_with_both_numbers() {
    let mut b = bench();
    fill(&mut b, 1);
    let disk = b.store.files.copy();
    let segment = &names(&disk, ".seg")[0];
    disk.flip(segment, 8, 1).expect("a byte");
    let error = open(&disk, false).expect_err("another format");
    assert!(matches!(error, StoreError::Format { found: 3, known: 1, .. }), "{error}");
}

#[test]
fn a_full_disk_refuses_messages_but_not_cursors_and_heals() {
    let mut b = bench();
    fill(&mut b, 10);
    b.store.running().tick();
    // What is free now is all there will be: the rest of this segment and the spare.
    let used: u64 = 64 << 20;
    let free = b.store.files.free_bytes().expect("a number");
    b.store.files.set_capacity(used - free);
    let mut refused = None;
    for i in 0..1000 {
        b.store.running().tick();
        match b.commit(vec![logged(message(ACME, "t/full", &[i as u8; 500]))]) {
            CommitResult::Done { .. } => {}
            other => {
                refused = Some(other);
                break;
            }
        }
    }
    assert_eq!(refused, Some(CommitResult::Refused(Refusal::Full)));
    let health = b.store.client.health();
    assert!(health.full && health.reason.is_some(), "{health:?}");
    b.done(vec![put("cursor", "moves on", Expect::Any)]);
    assert!(!seqs(&b.log(log_read(&["#"], 0))).is_empty(), "reads go on");
    b.store.files.set_capacity(64 << 20);
    b.store.running().tick();
    b.done(vec![logged(message(ACME, "t/again", b"x"))]);
    assert!(!b.store.client.health().full);
    let before = seqs(&b.log(log_read(&["#"], 0)));
    b.store.reopen();
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))), before);
}

#[test]
fn a_full_disk_heals_when_trimming_frees_a_segment() {
    let mut b = bench();
    b.store.running().tick();
    let free = b.store.files.free_bytes().expect("a number");
    // Room for the checkpoint to grow, none for another segment.
    b.store.files.set_capacity((64 << 20) - free + (96 << 10));
    let mut last = 0;
    while let CommitResult::Done { last: at } = b.commit(vec![logged(message(ACME, "t", &[1; 900]))]) {
        last = at.0;
        b.store.running().tick();
        assert!(last < 1000, "the disk never fills");
    }
    for shard in 0..2 {
        b.store.set_floor(ShardIx(shard), ACME, None);
    }
    for _ in 0..3 {
        b.store.running().tick();
    }
    assert!(b.done(vec![logged(message(ACME, "t", b"there is room again"))]) > last);
}

#[test]
fn a_failed_sync_is_refused_for_good_and_the_journal_goes_on_elsewhere() {
    let mut b = bench();
    fill(&mut b, 5);
    // Written and acknowledged, but not yet synced when the sync fails.
    let op = b.op();
    b.store.commit(ShardIx(0), op, vec![logged(message(ACME, "t/stored", b"x"))], Durability::Stored);
    drop(b.store.told(ShardIx(0)));
    b.store.files.fail_syncs("journal-", 1);
    let failed = b.commit(vec![logged(message(ACME, "t/failed", b"x")), put("failed", "x", Expect::Absent)]);
    assert_eq!(failed, CommitResult::Refused(Refusal::Unavailable));
    let health = b.store.client.health();
    assert!(health.writable, "{health:?}");
    let next = b.done(vec![logged(message(ACME, "t/next", b"x")), put("failed", "now", Expect::Absent)]);
    assert_eq!(next, 13, "the refused commit took no number");
    assert_eq!(names(&b.store.files, ".seg").len(), 2, "a new segment");
    for lost in [false, true] {
        let mut draw = |_| 0;
        let ops = b.store.files.ops();
        let disk = if lost { b.store.files.crash(ops, &mut draw) } else { b.store.files.kill(ops) };
        let clock = TestClock::at(1000);
        let image = read_image(&disk, &crash_options(&clock), &clock).expect("it opens");
        let topics: Vec<&str> = image.log.values().map(|m| &*m.0).skip(5).collect();
        assert_eq!(topics, ["t/stored", "t/next"], "lost {lost}");
    }
}

#[test]
fn while_no_new_segment_can_be_begun_the_outcome_is_unknown_and_commits_are_refused() {
    let mut b = bench();
    fill(&mut b, 5);
    // The sync fails, and so does whatever is tried next.
    b.store.files.fail_syncs("journal-", 1);
    b.store.files.fail_syncs("spare-", 3);
    assert_eq!(b.commit(vec![logged(message(ACME, "t/failed", b"x"))]), CommitResult::Unknown);
    assert!(!b.store.client.health().writable);
    let refused = b.commit(vec![put("k2", "x", Expect::Any)]);
    assert_eq!(refused, CommitResult::Refused(Refusal::Unavailable));
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))).len(), 5, "reads go on");
    for _ in 0..4 {
        b.store.running().tick();
    }
    assert!(b.store.client.health().writable);
    b.done(vec![logged(message(ACME, "t/next", b"x"))]);
    b.store.reopen();
    assert_eq!(seqs(&b.log(log_read(&["t/failed"], 0))).len(), 0);
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))).len(), 6);
}

#[test]
fn a_write_that_fails_half_way_is_refused_for_good() {
    let mut b = bench();
    fill(&mut b, 5);
    b.store.files.fail_writes(1);
    let failed = b.commit(vec![logged(message(ACME, "t/failed", &[1; 3000]))]);
    assert_eq!(failed, CommitResult::Refused(Refusal::Unavailable));
    b.done(vec![logged(message(ACME, "t/next", b"x"))]);
    b.store.reopen();
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))).len(), 6);
}

#[test]
fn a_failed_checkpoint_loses_nothing_and_is_made_up_for() {
    let mut b = bench();
    fill(&mut b, 5);
    b.done(vec![retained(message(ACME, "r", b"kept"))]);
    b.store.files.fail_syncs("state", 1);
    assert!(!b.store.running().checkpoint());
    b.done(vec![put("later", "x", Expect::Any)]);
    assert!(b.store.running().checkpoint(), "into a fresh copy of the file");
    assert!(b.store.running().checkpoint());
    let ops = b.store.files.ops();
    let mut draw = |_| 0;
    let disk = b.store.files.crash(ops, &mut draw);
    let clock = TestClock::at(1000);
    let image = read_image(&disk, &crash_options(&clock), &clock).expect("it opens");
    assert_eq!((image.keys.len(), image.retained.len(), image.log.len()), (2, 1, 5));
}

#[test]
fn random_histories_survive_random_faults() {
    for seed in 300..330u64 {
        let mut history = History::start(seed, seed % 3 == 0);
        for step in 0..60u64 {
            match (seed * 31 + step * 17) % 23 {
                0 => history.under.files.fail_syncs("journal-", 1),
                1 => history.under.files.fail_writes(1),
                2 => history.under.files.fail_syncs("state", 1),
                3 => history.under.files.fail_syncs("spare", 1),
                _ => {}
            }
            history.step();
        }
        // An outcome that was unknown is settled once the journal goes on.
        for _ in 0..4 {
            history.under.running().tick();
        }
        history.step();
        let files = &history.under.files;
        let ops = files.ops();
        let acked = files.notes(ops).into_iter().max().unwrap_or(0);
        let mut rng = mast_core::rng::Rng::new(seed);
        for round in 0..4 {
            let mut draw = |n| rng.below(n);
            let disk = if round == 0 { files.kill(ops) } else { files.crash(ops, &mut draw) };
            if let Err(wrong) = history.judge(&disk, acked) {
                panic!("seed {seed}, round {round}: {wrong}");
            }
        }
    }
}

#[test]
fn a_directory_in_use_is_refused() {
    let b = bench();
    let clock = TestClock::at(1000);
    let second = InlineStore::open(
        crash_options(&clock),
        Arc::new(b.store.files.clone()),
        registry(),
        Ears::default().sinks(),
    );
    assert!(matches!(second.map(|_| ()), Err(StoreError::Locked { .. })));
}

#[test]
fn data_of_a_tenant_that_is_not_configured_is_kept_and_reported() {
    let mut b = bench();
    b.done(vec![logged(message(ZETA, "t", b"z")), retained(message(ZETA, "r", b"z"))]);
    b.done(vec![logged(message(ACME, "t", b"a"))]);
    assert!(b.store.running().checkpoint());
    let disk = b.store.files.copy();
    let clock = TestClock::at(1000);
    let ears = Ears::default();
    let only = Registry::new(&["acme"]).expect("a good name");
    let opened = InlineStore::open(crash_options(&clock), Arc::new(disk.clone()), only, ears.sinks());
    let (store, restored) = opened.expect("it opens");
    assert_eq!(restored.len(), 1, "only the head: {restored:?}");
    let health = store.client().health();
    assert_eq!(health.unknown_tenants, [("zeta".to_owned(), 2)]);
    store.shutdown();
    let image = read_image(&disk, &crash_options(&clock), &clock).expect("it opens");
    assert_eq!(image.retained.len(), 1, "it is back with its tenant");
}

#[test]
fn a_commit_that_fits_in_no_segment_is_refused() {
    let mut b = bench();
    let big = vec![7u8; 20 << 10];
    let refused = b.commit(vec![logged(message(ACME, "t", &big))]);
    assert_eq!(refused, CommitResult::Refused(Refusal::TooLarge));
    let almost = vec![7u8; 15 << 10];
    for _ in 0..5 {
        b.done(vec![logged(message(ACME, "t", &almost))]);
    }
    let page = b.page(Read::At {
        partition: Partition(0),
        seqs: (1..=5).map(mast_core::store::position::Seq).collect(),
    });
    assert_eq!(page.entries.len(), 5);
    assert!(page.entries.iter().all(|e| e.message.payload() == almost));
}

fn salvaged(from: &FaultFiles) -> (FaultFiles, SalvageReport) {
    let (to, source): (_, Arc<dyn Files>) = (FaultFiles::new(64 << 20), Arc::new(from.clone()));
    let target: Arc<dyn Files> = Arc::new(to.clone());
    let report = salvage(&source, &target, 99).expect("the directories can be used");
    (to, report)
}

#[test]
fn a_salvage_copies_everything_but_the_damaged_commit() {
    let mut b = bench();
    fill(&mut b, 100);
    let clock = TestClock::at(1000);
    let options = crash_options(&clock);
    let intact = read_image(&b.store.files.copy(), &options, &clock).expect("it opens");
    let segments = names(&b.store.files, ".seg");
    let disk = b.store.files.copy();
    disk.flip(&segments[0], 6000, 0).expect("a byte");
    read_image(&disk.copy(), &options, &clock).expect_err("it is damaged");
    let (copy, report) = salvaged(&disk);
    assert!(report.damaged.iter().any(|d| d.contains(&segments[0])), "{report:?}");
    let [(first, last)] = report.missing[..] else { panic!("{report:?}") };
    let image = read_image(&copy, &options, &clock).expect("it opens");
    assert_eq!(image.head, intact.head);
    assert_eq!(image.keys, intact.keys);
    let mut wanted = intact.log;
    wanted.retain(|seq, _| *seq < first || *seq > last);
    assert_eq!(image.log, wanted);
    assert_eq!(report.commits, 99);
}

#[test]
fn a_salvage_survives_a_damaged_header_and_a_lost_checkpoint() {
    let mut b = bench();
    fill(&mut b, 100);
    b.done(vec![retained(message(ACME, "r", b"kept"))]);
    let clock = TestClock::at(1000);
    let options = crash_options(&clock);
    let intact = read_image(&b.store.files.copy(), &options, &clock).expect("it opens");
    let disk = b.store.files.copy();
    let segments = names(&disk, ".seg");
    disk.flip(&segments[1], 20, 0).expect("a byte");
    disk.remove("state.redb").expect("a removal");
    let (copy, report) = salvaged(&disk);
    assert!(report.state_lost);
    assert!(report.missing.is_empty(), "{report:?}");
    let image = read_image(&copy, &options, &clock).expect("it opens");
    assert_eq!(image, intact, "the journal still held everything");
}
