//! `kill -9` of a real process that commits, at random moments: what was printed as acknowledged is there.

use mast::store::files::os::OsFiles;
use mast::store::{InlineStore, StoreClient};
use mast_core::ids::{OpId, ShardIx};
use mast_core::rng::Rng;
use mast_core::store::port::{LogRead, Read, ReadResult, Restored};
use mast_tests::contract::{Told, log_read};
use mast_tests::store::dir::TempDir;
use mast_tests::store::{Ears, TestClock, options, registry};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Runs a victim until it has acknowledged `acks` commits, kills it, and returns the last number acknowledged.
fn run_and_kill(dir: &TempDir, first: u64, acks: u64) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_store_victim"));
    let mut victim =
        command.arg(dir.path()).arg(first.to_string()).stdout(Stdio::piped()).spawn().expect("a victim");
    let mut lines = BufReader::new(victim.stdout.take().expect("a pipe")).lines();
    let mut last = 0;
    for _ in 0..acks {
        last = lines.next().expect("it goes on").expect("a line").parse().expect("a number");
    }
    victim.kill().expect("a kill");
    // What it had printed before it died counts as well; a line cut short does not.
    for line in lines.map_while(Result::ok) {
        last = line.parse().map_or(last, |n: u64| n.max(last));
    }
    victim.wait().expect("an end");
    last
}

fn read_all(client: &StoreClient, store: &mut InlineStore, ears: &Ears) -> Vec<u64> {
    let read = LogRead { max_entries: u32::MAX, max_bytes: u32::MAX, ..log_read(&["t/#"], 0) };
    client.read(ShardIx(0), OpId { idx: 0, generation: 0 }, Read::Log(read)).expect("the store runs");
    store.pump();
    let told = ears.take(ShardIx(0)).into_iter().next().expect("an answer");
    let Told::Read(_, ReadResult::Page(page)) = told else { panic!("{told:?}") };
    let number = |payload: &[u8]| u64::from_le_bytes(payload.try_into().expect("eight bytes"));
    page.entries.iter().map(|e| number(e.message.payload())).collect()
}

#[test]
fn a_killed_process_leaves_a_prefix_with_all_it_had_acknowledged() {
    let dir = TempDir::new();
    let mut rng = Rng::new(42);
    let mut first = 1;
    for round in 0..8 {
        let acked = run_and_kill(&dir, first, 1 + rng.below(3000));
        let ears = Ears::default();
        let files = Arc::new(OsFiles::new(dir.path()).expect("a directory"));
        let opened = InlineStore::open(options(&TestClock::at(1000)), files, registry(), ears.sinks());
        let (mut store, restored) = opened.expect("the store opens");
        let last = restored.iter().find_map(|r| match r {
            Restored::Key { value, .. } => std::str::from_utf8(value).ok()?.parse().ok(),
            Restored::Retained { .. } | Restored::End { .. } => None,
        });
        let last: u64 = last.unwrap_or(0);
        assert!(last >= acked, "round {round}: {acked} was acknowledged, {last} is the last");
        let client = store.client();
        let numbers = read_all(&client, &mut store, &ears);
        let wanted: Vec<u64> = (1..=last).collect();
        assert_eq!(numbers, wanted, "round {round}");
        if round % 2 == 0 {
            store.shutdown();
        }
        first = last + 1;
    }
}
