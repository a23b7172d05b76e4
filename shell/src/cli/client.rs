//! `mast sub`, `mast pub` and `mast bench` on the command line: runtime, signals, standard streams.

use std::io::{BufWriter, IsTerminal};

use super::{Failure, print};
use crate::bench::BenchArgs;
use crate::client::{ClientError, PubArgs, SubArgs, publish, subscribe};

pub fn sub(args: SubArgs) -> Result<(), Failure> {
    let quiet = args.client.quiet;
    let mut out = BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    // If the signal cannot be taken over, it does what it always does.
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    run(quiet, subscribe::run(args, &mut out, stop))
}

pub fn publish(args: PubArgs) -> Result<(), Failure> {
    let quiet = args.client.quiet;
    run(quiet, async { publish::run(args, tokio::io::BufReader::new(tokio::io::stdin())).await })
}

pub fn bench(args: BenchArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(e.to_string()))?;
    let progress = args.progress || std::io::stderr().is_terminal();
    let json = args.json;
    crate::obs::process::limit_resources();
    let done = runtime.block_on(crate::bench::run(args, |line| {
        if progress {
            eprintln!("{line}");
        }
    }));
    runtime.shutdown_background();
    let report = done.map_err(|e| Failure { message: e.message, code: e.code })?;
    print(if json { report.json() + "\n" } else { report.to_string() }.as_bytes())?;
    match report.fault() {
        None => Ok(()),
        Some(fault) => Err(Failure::new(fault)),
    }
}

fn run(quiet: bool, work: impl Future<Output = Result<(), ClientError>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(e.to_string()))?;
    let done = runtime.block_on(work);
    // A thread may still wait for a line of standard input.
    runtime.shutdown_background();
    done.map_err(|e| Failure { message: if quiet { String::new() } else { e.message }, code: e.code })
}
