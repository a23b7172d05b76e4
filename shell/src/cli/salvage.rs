//! `mast salvage`: copies what is intact of a damaged store to a new data directory.

use super::{Failure, print};
use crate::store::files::{Files, os::OsFiles};
use crate::store::salvage::salvage;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, clap::Args)]
pub struct SalvageArgs {
    /// Data directory with the damaged store; no broker may use it. It is not changed.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// New data directory for the copy; its store must be empty or absent.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

fn store_in(data_dir: &Path) -> Result<Arc<dyn Files>, Failure> {
    let dir = data_dir.join("store");
    let files = OsFiles::new(&dir).map_err(|e| Failure::new(format!("{}: {e}", dir.display())))?;
    Ok(Arc::new(files))
}

pub fn run(args: SalvageArgs) -> Result<(), Failure> {
    if !args.data_dir.join("store").is_dir() {
        return Err(Failure::new(format!("{}: there is no store in it", args.data_dir.display())));
    }
    let entropy = crate::engine::entropy().map_err(|e| Failure::new(e.to_string()))?;
    let (from, to) = (store_in(&args.data_dir)?, store_in(&args.to)?);
    let report = salvage(&from, &to, entropy).map_err(|e| Failure::new(e.to_string()))?;
    let mut out = format!("copied: {} commits to {}\n", report.commits, args.to.display());
    for place in &report.damaged {
        out.push_str(&format!("damaged: {place}\n"));
    }
    for (first, last) in &report.missing {
        out.push_str(&format!("missing: sequences {first} to {last}\n"));
    }
    if report.state_lost {
        out.push_str(
            "lost: the checkpoint; keys and retained messages are those that the journal still holds\n",
        );
    }
    print(out.as_bytes())
}
