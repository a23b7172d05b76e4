//! `mast limits reference`.

use clap::Subcommand;

use super::{Failure, print};
use crate::config::tenant_limits;

#[derive(Debug, Subcommand)]
pub enum LimitsCommand {
    /// Print the reference of all limits of tenants (Markdown).
    Reference,
}

pub fn run(command: &LimitsCommand) -> Result<(), Failure> {
    match command {
        LimitsCommand::Reference => print(tenant_limits::reference().as_bytes()),
    }
}
