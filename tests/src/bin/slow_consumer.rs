//! `cargo run --release -p mast-tests --bin slow_consumer -- 5`: a consumer stopped for 60 s while 200,000 messages of
//! QoS 1 are published for it, each time beside the same without the stop; ends with 1 if a promise was broken.

use std::{process::ExitCode, time::Duration};

use mast_tests::slow::{Plan, run};

const MIB: u64 = 1 << 20;

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |n| n.parse());
    let Ok(rounds @ 1..) = rounds else {
        eprintln!("usage: slow_consumer [ROUNDS]");
        return ExitCode::from(2);
    };
    let plan = Plan {
        count: 200_000,
        size: 200,
        stop: Duration::from_secs(60),
        lasting: true,
        stopped: true,
        pair_rate: 200,
    };
    println!("{rounds} rounds: {} messages of {} bytes over {:?}", plan.count, plan.size, plan.stop);
    println!("round  grown MiB  lost  reordered  pair's p99 µs: stopped  reading  ratio");
    let (mut ratios, mut kept) = (Vec::new(), true);
    for round in 1..=rounds {
        let stopped = run(&plan);
        let reading = run(&Plan { stopped: false, ..plan.clone() });
        let ratio = stopped.pair_p99 as f64 / reading.pair_p99.max(1) as f64;
        println!(
            "{round:>5}  {:>9.1}  {:>4}  {:>9}  {:>22}  {:>7}  {ratio:>5.2}",
            stopped.grown as f64 / MIB as f64,
            stopped.lost + reading.lost,
            stopped.reordered + reading.reordered,
            stopped.pair_p99,
            reading.pair_p99,
        );
        let faults = [stopped.lost, stopped.reordered, reading.lost, reading.reordered].iter().sum::<u32>();
        kept &= faults == 0 && stopped.pair_faults + reading.pair_faults == 0 && stopped.grown < 64 * MIB;
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("median ratio {median:.2}");
    if kept && median <= 2.0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
