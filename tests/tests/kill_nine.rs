//! The broker dies by kill -9 under load and keeps its promises. `MAST_KILL_ROUNDS` sets the number of rounds.

use mast_tests::kill;

#[test]
fn kill_9_under_load_loses_doubles_and_reorders_nothing() {
    let rounds = std::env::var("MAST_KILL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let report = kill::run(rounds, |_| {});
    println!("{report:?}");
    assert!(report.acknowledged > 0, "{report:?}");
    assert!(report.is_clean(), "{report:?}");
}
