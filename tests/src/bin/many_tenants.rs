//! `cargo run --release -p mast-tests --bin many_tenants -- 1000 10`: that many tenants with that many sessions each:
//! memory, start, and CPU per message beside a single tenant; ends with 1 if it is more than 1.2 times as much.
//! It holds a socket for each session, so the limit on open files must allow that.

use std::process::ExitCode;

use mast_tests::many::{Plan, run};

const MIB: f64 = (1 << 20) as f64;

fn main() -> ExitCode {
    let numbers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|n| n.parse()).collect();
    let (tenants, sessions) = match numbers.as_deref() {
        Ok([]) => (1000, 10),
        Ok([tenants, sessions]) if tenants.min(sessions) > &0 => (*tenants, *sessions),
        Ok(_) | Err(_) => {
            eprintln!("usage: many_tenants [TENANTS SESSIONS]");
            return ExitCode::from(2);
        }
    };
    let seen = run(&Plan { tenants, sessions, messages: 10_000, passes: 5 });
    println!("{tenants} tenants with {sessions} persistent sessions each");
    println!("start without sessions: {:.2} s", seen.first_start.as_secs_f64());
    println!("start after kill -9 with all sessions: {:.2} s", seen.restart.as_secs_f64());
    println!("resident memory without sessions: {:.1} MiB", seen.rss_empty as f64 / MIB);
    println!("with all sessions absent: {:.1} MiB", seen.rss_absent as f64 / MIB);
    println!("with all sessions connected: {:.1} MiB", seen.rss_connected as f64 / MIB);
    println!("CPU s per million messages (QoS 1, 50 pairs), one tenant:  {:.2?}", seen.one);
    println!("                                             many tenants: {:.2?}", seen.many);
    println!("many / one, median: {:.2}", seen.ratio());
    if seen.ratio() <= 1.2 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
