//! The `mast` binary.

use mast::cli::{self, Failure};
use mast::config::Sources;
use mast::engine::AllInOne;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(serve)
}

fn serve(sources: &Sources) -> Result<(), Failure> {
    mast::serve::run(sources, AllInOne::start)
        .map_err(|e| Failure { code: e.exit_code(), message: e.to_string() })
}
