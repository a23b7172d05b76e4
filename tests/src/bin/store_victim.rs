//! A process to be killed: commits as fast as it can, and prints the number of each commit that was acknowledged.
//!
//! `store_victim DIRECTORY FIRST`: commit `n` appends a message with payload `n` and sets the key `last` to `n`.

use mast::store::files::os::OsFiles;
use mast::store::{Event, Sink, Store};
use mast_core::ids::{OpId, ShardIx};
use mast_core::store::port::{CommitResult, Durability, Expect};
use mast_tests::contract::{ACME, SHARDS, logged, message, put};
use mast_tests::store::{TestClock, options, registry};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

struct Printer {
    first: u64,
    acked: Sender<u64>,
}

impl Sink for Printer {
    fn deliver(&mut self, events: Vec<Event>) {
        let mut out = std::io::stdout().lock();
        for event in events {
            let Event::CommitDone { op, result } = event else { continue };
            let CommitResult::Done { .. } = result else { panic!("{result:?}") };
            let number = self.first + u64::from(op.idx);
            // A closed pipe means that the killer has seen enough.
            if writeln!(out, "{number}").is_err() || self.acked.send(number).is_err() {
                std::process::exit(0);
            }
        }
        if out.flush().is_err() {
            std::process::exit(0);
        }
    }
}

struct Deaf;

impl Sink for Deaf {
    fn deliver(&mut self, _events: Vec<Event>) {}
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let first: u64 = args[2].parse().expect("a number");
    let mut options = options(&TestClock::at(1000));
    options.segment_bytes = 256 << 10;
    let files = OsFiles::new(Path::new(&args[1])).expect("a directory");
    let (acked, acks) = channel();
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(Printer { first, acked })];
    sinks.extend((1..SHARDS).map(|_| Box::new(Deaf) as Box<dyn Sink>));
    let (store, _) = Store::open(options, Arc::new(files), registry(), sinks).expect("the store opens");
    let client = store.client();
    for i in 0u32.. {
        let number = first + u64::from(i);
        let topic = format!("t/{}", i % 10);
        let writes = vec![
            logged(message(ACME, &topic, &number.to_le_bytes())),
            put("last", &number.to_string(), Expect::Any),
        ];
        let op = OpId { idx: i, generation: 0 };
        client.commit(ShardIx(0), op, writes, Durability::Synced).expect("the queue has room");
        if i >= 64 {
            acks.recv().expect("the store answers");
        }
    }
}
