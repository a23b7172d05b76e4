//! A fixed set of seeds: every promise holds, rare situations are reached, and runs repeat exactly.

use mast_sim::marks::{Marks, SOMETIMES};
use mast_sim::scenario::generate::generate;
use mast_sim::world::run;

const SEEDS: u64 = 100;
const SHARDS: u16 = 4;

#[test]
fn every_promise_holds_on_the_fixed_seeds_and_rare_situations_are_reached() {
    let mut marks = Marks::default();
    for seed in 0..SEEDS {
        let report = run(&generate(seed, SHARDS));
        if let Some(failure) = report.failure {
            panic!("seed {seed}: {}: {}\n{}", failure.oracle, failure.how, failure.tail.join("\n"));
        }
        marks.add(&report.marks);
    }
    let missed: Vec<&&str> = SOMETIMES.iter().filter(|what| marks.count(what) == 0).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}

#[test]
fn the_same_scenario_twice_gives_the_same_hash() {
    for seed in 1000..1010 {
        let scenario = generate(seed, SHARDS);
        assert_eq!(run(&scenario).hash, run(&scenario).hash, "seed {seed}");
    }
}
