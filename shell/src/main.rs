//! The `mast` binary.

use std::process::ExitCode;

use mast::{
    cli::{self, Failure},
    config::Sources,
};

fn main() -> ExitCode {
    cli::main(serve)
}

/// The place where the MQTT engine is put into [`mast::serve::run`].
fn serve(sources: &Sources) -> Result<(), Failure> {
    let start = |_context: mast::serve::Context| -> Result<NoEngine, String> {
        Err("this build has no MQTT engine yet".to_owned())
    };
    mast::serve::run(sources, start).map_err(|e| Failure { code: e.exit_code(), message: e.to_string() })
}

/// Stands where the engine will; it cannot exist.
enum NoEngine {}

impl mast::serve::Engine for NoEngine {
    fn reload(&mut self, _config: &std::sync::Arc<mast::config::Config>) -> Vec<String> {
        match *self {}
    }

    async fn drain(&mut self) {
        match *self {}
    }

    async fn failed(&mut self) -> String {
        match *self {}
    }
}
