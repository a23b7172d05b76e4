//! Power cuts on the fault model: whatever was not synced may be lost, kept or torn; what comes back is a prefix of
//! the commit order that holds everything acknowledged.

use mast_core::rng::Rng;
use mast_tests::store::history::{History, read_image};

/// Crashes `history` at `cuts` random points, the last always among them, and judges each.
fn crash_everywhere(history: &History, seed: u64, cuts: u64) {
    let mut rng = Rng::new(seed);
    let files = &history.under.files;
    let ops = files.ops();
    for cut in 0..cuts {
        let at = if cut == 0 { ops } else { rng.below(ops as u64 + 1) as usize };
        let acked = files.notes(at).into_iter().max().unwrap_or(0);
        let mut draw = |n| rng.below(n);
        let disk = files.crash(at, &mut draw);
        if let Err(wrong) = history.judge(&disk, acked) {
            panic!("seed {seed}, cut {cut} at {at} of {ops}: {wrong}");
        }
        // And once more while it was opening and being read.
        let again = rng.below(disk.ops() as u64 + 1) as usize;
        let mut draw = |n| rng.below(n);
        let disk = disk.crash(again, &mut draw);
        if let Err(wrong) = history.judge(&disk, acked) {
            panic!("seed {seed}, cut {cut} at {at} of {ops}, then at {again} of opening: {wrong}");
        }
    }
}

#[test]
fn after_a_power_cut_a_prefix_with_all_acknowledged_commits_is_there() {
    for seed in 0..12 {
        let mut history = History::start(seed, false);
        for _ in 0..60 {
            history.step();
        }
        crash_everywhere(&history, seed, 60);
    }
}

#[test]
fn after_a_power_cut_amid_trimming_and_cleaning_what_is_needed_is_there() {
    for seed in 100..108 {
        let mut history = History::start(seed, true);
        for _ in 0..150 {
            history.step();
        }
        let stats = history.under.client.stats();
        assert!(stats.segments_freed > 0, "seed {seed} frees no segment");
        crash_everywhere(&history, seed, 40);
    }
}

#[test]
fn a_crash_at_every_single_operation_of_a_short_history_loses_nothing_acknowledged() {
    let mut history = History::start(7, false);
    for _ in 0..8 {
        history.step();
    }
    let files = &history.under.files;
    let mut rng = Rng::new(7);
    for at in 0..=files.ops() {
        let acked = files.notes(at).into_iter().max().unwrap_or(0);
        for _ in 0..3 {
            let mut draw = |n| rng.below(n);
            let disk = files.crash(at, &mut draw);
            if let Err(wrong) = history.judge(&disk, acked) {
                panic!("cut at {at}: {wrong}");
            }
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_it_wrote() {
    let mut history = History::start(9, false);
    for _ in 0..40 {
        history.step();
    }
    let files = &history.under.files;
    for at in (0..=files.ops()).rev().step_by(7) {
        let acked = files.notes(at).into_iter().max().unwrap_or(0);
        if let Err(wrong) = history.judge(&files.kill(at), acked) {
            panic!("killed at {at}: {wrong}");
        }
    }
}

#[test]
fn a_store_that_came_back_goes_on_and_crashes_again() {
    for seed in 200..206 {
        let mut rng = Rng::new(seed);
        let mut history = History::start(seed, seed % 2 == 0);
        for _ in 0..6 {
            for _ in 0..20 {
                history.step();
            }
            let files = &history.under.files;
            let ops = files.ops();
            let acked = files.notes(ops).into_iter().max().unwrap_or(0);
            let mut draw = |n| rng.below(n);
            let disk = files.crash(ops, &mut draw);
            // The images beyond what came back are void: the store goes on from there.
            let came_back =
                read_image(&disk.copy(), &history.under.options, &history.under.clock).expect("it opens");
            let n = history.images.iter().rposition(|i| i.head == came_back.head).expect("a prefix");
            assert!(n as u64 >= acked || history.images[acked as usize].head <= came_back.head);
            history.images.truncate(n + 1);
            history.go_on(disk);
        }
    }
}
