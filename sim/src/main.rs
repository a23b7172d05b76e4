//! Runs the simulation over many seeds, or repeats one.
//!
//! `--seeds N` how many; `--start S` the first; `--seed S` just this one, with its whole story; `--nodes N`
//! the most shards of the node (nodes of a cluster, once there are clusters); `--shrink` writes the
//! smallest failing scenario to `sim/regressions/`; `--keep-going` shows all failures.

use mast_sim::marks::{Marks, SOMETIMES};
use mast_sim::scenario::Scenario;
use mast_sim::scenario::generate::generate;
use mast_sim::shrink::shrink;
use mast_sim::world::{Failure, run};
use std::process::ExitCode;
use std::time::SystemTime;

/// Runs that shrinking may take.
const SHRINK_RUNS: u32 = 1500;

struct Options {
    seeds: u64,
    start: u64,
    seed: Option<u64>,
    nodes: u16,
    shrink: bool,
    keep_going: bool,
    replay: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seeds: 100,
        start: 0,
        seed: None,
        nodes: 4,
        shrink: false,
        keep_going: false,
        replay: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Result<u64, String> {
            let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            value.parse().map_err(|_| format!("{arg}: {value} is not a number"))
        };
        match arg.as_str() {
            "--seeds" => options.seeds = number()?,
            "--start" => options.start = number()?,
            "--seed" => options.seed = Some(number()?),
            "--nodes" => options.nodes = u16::try_from(number()?).map_err(|e| e.to_string())?,
            "--shrink" => options.shrink = true,
            "--keep-going" => options.keep_going = true,
            "--replay" => options.replay = args.next(),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn show(name: &str, nodes: u16, failure: &Failure) {
    println!("FAILED {name}: {}: {}", failure.oracle, failure.how);
    for line in &failure.tail {
        println!("    {line}");
    }
    println!("repeat with: cargo run --release -p mast-sim -- --nodes {nodes} {name}");
}

fn replay(path: &str) -> Result<ExitCode, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let scenario: Scenario = serde_json::from_str(&text).map_err(|e| format!("{path}: {e}"))?;
    let report = run(&scenario);
    println!("hash {:016x}, {} events", report.hash, report.events);
    Ok(match &report.failure {
        Some(failure) => {
            show(&format!("--replay {path}"), scenario.topology.shards, failure);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    })
}

fn write_shrunken(seed: u64, scenario: &Scenario, failure: &Failure) {
    let small = shrink(scenario, &failure.oracle, SHRINK_RUNS);
    let name: String = failure.oracle.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let path = format!("sim/regressions/{name}-{seed}.json");
    let written = serde_json::to_string_pretty(&small)
        .map_err(|e| e.to_string())
        .and_then(|text| std::fs::write(&path, text).map_err(|e| e.to_string()));
    match written {
        Ok(()) => println!("shrunken to {} ops, {} faults: {path}", small.ops.len(), small.faults.len()),
        Err(error) => println!("could not write {path}: {error}"),
    }
    if let Some(failure) = run(&small).failure {
        show(&format!("--replay {path}"), small.topology.shards, &failure);
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if let Some(path) = &options.replay {
        return replay(path).unwrap_or_else(|error| {
            eprintln!("{error}");
            ExitCode::from(2)
        });
    }
    // A panic is a failure like others; its backtrace is asked for with the seed alone.
    if options.seed.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let (start, count) = options.seed.map_or((options.start, options.seeds), |seed| (seed, 1));
    #[expect(clippy::disallowed_methods, reason = "the speed of the runs is told, nothing depends on it")]
    let began = SystemTime::now();
    let mut marks = Marks::default();
    let (mut hash, mut failed, mut events, mut deliveries) = (0u64, 0u64, 0u64, 0u64);
    let mut done = 0;
    for seed in start..start + count {
        let scenario = generate(seed, options.nodes);
        let report = run(&scenario);
        done += 1;
        marks.add(&report.marks);
        hash = hash.rotate_left(5) ^ report.hash;
        events += report.events;
        deliveries += report.deliveries;
        let Some(failure) = &report.failure else { continue };
        failed += 1;
        if options.keep_going {
            println!("FAILED --seed {seed}: {}: {}", failure.oracle, failure.how);
            continue;
        }
        show(&format!("--seed {seed}"), options.nodes, failure);
        if options.shrink {
            write_shrunken(seed, &scenario, failure);
        }
        break;
    }
    let seconds = began.elapsed().map_or(0.0, |took| took.as_secs_f64()).max(0.001);
    for (what, n) in marks.iter() {
        println!("{n:>9}  {what}");
    }
    for what in SOMETIMES.iter().filter(|what| marks.count(what) == 0) {
        println!("    never  {what}");
    }
    println!(
        "{done} seeds, {failed} failed, {:.1} seeds/s, {events} events, {deliveries} deliveries, hash {hash:016x}",
        f64::from(u32::try_from(done).unwrap_or(u32::MAX)) / seconds
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
