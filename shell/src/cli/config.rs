//! `mast config check|show|reference`.

use clap::Subcommand;

use super::{ConfigArgs, Failure, print};
use crate::{
    auth::Checked,
    banner,
    config::{EXIT_CONFIG, reference},
    serve,
};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration and the files it names; exit code 78 if the broker would not start with it.
    Check(ConfigArgs),
    /// Print all values as TOML.
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Say where each value comes from.
        #[arg(long)]
        origin: bool,
    },
    /// Print the reference of all keys (Markdown).
    Reference,
}

/// `before`: the flags that stood before the command.
pub fn run(command: ConfigCommand, before: ConfigArgs) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(args) => check(args.behind(before)),
        ConfigCommand::Show { config, origin } => {
            let (_, layers) = config.behind(before).sources().load_layers().map_err(bad)?;
            print(reference::show(&layers, origin).as_bytes())
        }
        ConfigCommand::Reference => print(reference::reference().as_bytes()),
    }
}

fn check(args: ConfigArgs) -> Result<(), Failure> {
    let config = args.sources().load().map_err(bad)?;
    let checked = Checked::read(&config).map_err(bad)?;
    serve::load_tls(&config).map_err(bad)?;
    let mut out = String::from("the configuration is good\n");
    for remark in checked.remarks().into_iter().chain(banner::advice(&config)) {
        out.push_str("remark: ");
        out.push_str(&remark);
        out.push('\n');
    }
    print(out.as_bytes())
}

fn bad(error: impl std::fmt::Display) -> Failure {
    Failure { message: error.to_string(), code: EXIT_CONFIG }
}
