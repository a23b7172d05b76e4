//! The command line.

mod admin;
mod client;
mod config;
mod doctor;
mod passwd;
mod salvage;

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::config::{FlagValue, LogLevel, Place, Sources, default_file};

/// Ends of a command: an error was printed already, or is to be printed.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    /// An ordinary failure: exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// Wrong usage: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2 }
    }
}

/// An MQTT broker for many tenants. Without a command, it serves.
#[derive(Debug, Parser)]
#[command(name = "mast", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check, show or describe the configuration.
    Config {
        #[command(subcommand)]
        command: config::ConfigCommand,
    },
    /// Add, change or delete a user of a password file.
    Passwd(passwd::PasswdArgs),
    /// Subscribe and print messages, with mosquitto_sub's flags and output.
    Sub(Box<crate::client::SubArgs>),
    /// Publish messages, with mosquitto_pub's flags.
    Pub(Box<crate::client::PubArgs>),
    /// Load a broker, and check and measure what comes of it.
    Bench(Box<crate::bench::BenchArgs>),
    /// Look for what would keep the broker from starting or serving; exit code 1 if there is something.
    Doctor(ConfigArgs),
    /// Copy what is intact of a damaged store to a new data directory.
    Salvage(salvage::SalvageArgs),
    /// List, make and delete tenants of a running broker.
    Tenant(admin::TenantArgs),
    /// List, make, change and delete users of a tenant.
    User(Box<admin::UserArgs>),
    /// List, make and revoke tokens of the API.
    Token(admin::TokenArgs),
    /// List sessions, disconnect clients, delete sessions.
    Session(admin::SessionArgs),
    /// List, read and delete retained messages.
    Retained(admin::RetainedArgs),
    /// Who changed what.
    Audit(admin::AuditArgs),
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// What this process is in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// The whole broker in one process.
    AllInOne,
    /// A member of the cluster's core.
    Core,
    /// Listeners that are attached to a core.
    Edge,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// What this process is.
    #[arg(long, value_enum, default_value = "all-in-one")]
    role: Role,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Flags that name or change the configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// Configuration file; /etc/mast/mast.toml if it exists.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Port of the plain MQTT listener. Without configured listeners no other is opened then.
    #[arg(long)]
    port: Option<u16>,
    /// Number of shard threads; 0 means one for each core.
    #[arg(long)]
    shards: Option<String>,
    /// Least severe level that is logged.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(LogLevel::WORDS))]
    log_level: Option<String>,
}

impl ConfigArgs {
    /// Of a file alone.
    fn of_file(config: Option<PathBuf>) -> Self {
        Self { config, data_dir: None, port: None, shards: None, log_level: None }
    }

    /// The sources of the configuration for this process.
    pub fn sources(self) -> Sources {
        let mut flags = Vec::new();
        let mut flag = |flag: &'static str, path: &'static [&'static str], value: Option<String>| {
            if let Some(value) = value {
                flags.push(FlagValue { flag, path, value });
            }
        };
        flag("--data-dir", &["node", "data_dir"], self.data_dir);
        flag("--shards", &["node", "shards"], self.shards);
        flag("--log-level", &["node", "log_level"], self.log_level);
        Sources { file: self.config.or_else(default_file), place: Place::current(), flags, port: self.port }
    }
}

/// Runs the command line. `serve` runs the broker.
pub fn main(serve: impl FnOnce(&Sources) -> Result<(), Failure>) -> ExitCode {
    // clap ends the process itself: 2 for wrong usage, 0 for --help and --version.
    let cli = Cli::parse();
    let done = match cli.command {
        None => match cli.serve.role {
            Role::AllInOne => serve(&cli.serve.config.sources()),
            Role::Core | Role::Edge => Err(Failure::usage(
                "this version has no cluster yet: --role core and edge are not there; leave --role away to run the \
                 whole broker in one process",
            )),
        },
        Some(Command::Config { command }) => config::run(command),
        Some(Command::Passwd(args)) => passwd::run(args),
        Some(Command::Sub(args)) => client::sub(*args),
        Some(Command::Pub(args)) => client::publish(*args),
        Some(Command::Bench(args)) => client::bench(*args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Salvage(args)) => salvage::run(args),
        Some(Command::Tenant(args)) => admin::tenant(args),
        Some(Command::User(args)) => admin::user(*args),
        Some(Command::Token(args)) => admin::token(args),
        Some(Command::Session(args)) => admin::session(args),
        Some(Command::Retained(args)) => admin::retained(args),
        Some(Command::Audit(args)) => admin::audit(args),
        Some(Command::Completion { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "mast", &mut script);
            print(&script)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("mast: {}", failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Writes to standard output. A reader that has gone (`| head`) is no failure.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(e.to_string())),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_settings_with_their_origin() {
        let cli = Cli::try_parse_from(["mast", "--shards", "3", "--log-level", "debug", "--port", "0"]);
        let mut sources = cli.expect("flags").serve.config.sources();
        sources.place = Place { is_root: true, ..Place::default() };
        sources.file = None;
        let (config, layers) = sources.load_layers().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((config.node.shards, config.listeners.len()), (3, 1));
        assert_eq!(layers.origin(&["node", "shards"]).to_string(), "flag --shards");
    }
}
