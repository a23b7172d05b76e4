//! `cargo run --release -p mast-tests --bin kill_rounds -- 200`: crashes of the broker under load; ends with 1 if
//! a promise was broken.

use std::process::ExitCode;

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).map_or(Ok(200), |n| n.parse());
    let Ok(rounds) = rounds else {
        eprintln!("usage: kill_rounds [ROUNDS]");
        return ExitCode::from(2);
    };
    println!("{rounds} rounds of kill -9 under QoS 1 and 2 load in both directions, class synced");
    let report = mast_tests::kill::run(rounds, |done| {
        if done % 10 == 0 || done == rounds {
            println!("{done} of {rounds}");
        }
    });
    println!("{report:#?}");
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
