//! The command line.

mod admin;
mod authz;
mod client;
mod config;
mod doctor;
mod limits;
mod passwd;
mod salvage;

use std::{ffi::OsString, io::Write, path::PathBuf, process::ExitCode};

use clap::{
    Args, CommandFactory, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};

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
#[command(name = "mast", version)]
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
    /// Explain what clients may do.
    Authz {
        #[command(subcommand)]
        command: authz::AuthzCommand,
    },
    /// Describe the limits of tenants.
    Limits {
        #[command(subcommand)]
        command: limits::LimitsCommand,
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
    /// List and replace rules; what was denied by them.
    Rule(admin::RuleArgs),
    /// List, open and close listeners.
    Listener(Box<admin::ListenerArgs>),
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
    /// What this process is; all-in-one without it.
    #[arg(long, value_enum)]
    role: Option<Role>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Flags that name or change the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
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

    /// With the flags that stood before the subcommand; those behind it win.
    fn behind(self, before: ConfigArgs) -> ConfigArgs {
        ConfigArgs {
            config: self.config.or(before.config),
            data_dir: self.data_dir.or(before.data_dir),
            port: self.port.or(before.port),
            shards: self.shards.or(before.shards),
            log_level: self.log_level.or(before.log_level),
        }
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
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = parse(&arguments).unwrap_or_else(|e| e.exit());
    let done = run(cli, serve);
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

/// Parses a command line. `-h` is the host in the client commands, as in mosquitto's clients; where no host follows,
/// help was meant.
fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(arguments).map_err(|error| {
        let of_host = |value: &ContextValue| matches!(value, ContextValue::String(s) if s.contains("--host"));
        let lacks_host = error.kind() == ErrorKind::InvalidValue
            && error.get(ContextKind::InvalidArg).is_some_and(of_host)
            && arguments.last().is_some_and(|last| last == "-h");
        if !lacks_host {
            return error;
        }
        let mut helped = arguments[..arguments.len() - 1].to_vec();
        helped.push("--help".into());
        Cli::try_parse_from(helped).err().unwrap_or(error)
    })
}

fn run(cli: Cli, serve: impl FnOnce(&Sources) -> Result<(), Failure>) -> Result<(), Failure> {
    let ServeArgs { role, config: before } = cli.serve;
    let Some(command) = cli.command else {
        return match role.unwrap_or(Role::AllInOne) {
            Role::AllInOne => serve(&before.sources()),
            Role::Core | Role::Edge => Err(Failure::usage(
                "this version has no cluster yet: --role core and edge are not there; leave --role away to run the \
                 whole broker in one process",
            )),
        };
    };
    if role.is_some() {
        return Err(Failure::usage("--role is for serving; leave it away with a command"));
    }
    let takes_config = matches!(command, Command::Config { .. } | Command::Authz { .. } | Command::Doctor(_));
    if !takes_config && before != ConfigArgs::default() {
        return Err(Failure::usage(
            "this command reads no configuration: the flags before it have no effect; put its own flags behind it",
        ));
    }
    match command {
        Command::Config { command } => config::run(command, before),
        Command::Authz { command } => authz::run(command, before),
        Command::Limits { command } => limits::run(&command),
        Command::Passwd(args) => passwd::run(args),
        Command::Sub(args) => client::sub(*args),
        Command::Pub(args) => client::publish(*args),
        Command::Bench(args) => client::bench(*args),
        Command::Doctor(args) => doctor::run(args.behind(before)),
        Command::Salvage(args) => salvage::run(args),
        Command::Tenant(args) => admin::tenant(args),
        Command::User(args) => admin::user(*args),
        Command::Token(args) => admin::token(args),
        Command::Rule(args) => admin::rule(args),
        Command::Listener(args) => admin::listener(*args),
        Command::Session(args) => admin::session(args),
        Command::Retained(args) => admin::retained(args),
        Command::Audit(args) => admin::audit(args),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "mast", &mut script);
            print(&script)
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
    fn flags_before_a_command_count_as_those_behind_it_and_the_nearer_one_wins() {
        let cli =
            parse(&["mast", "-c", "a", "--port", "7", "config", "check", "-c", "b"].map(OsString::from));
        let cli = cli.unwrap_or_else(|e| panic!("{e}"));
        let Some(Command::Config { command: config::ConfigCommand::Check(args) }) = cli.command else {
            panic!("not config check")
        };
        let merged = args.behind(cli.serve.config);
        assert_eq!((merged.config, merged.port), (Some("b".into()), Some(7)));
        let cli = parse(&["mast", "-c", "a", "sub", "-c", "-i", "x", "-t", "t"].map(OsString::from));
        let failure = run(cli.unwrap_or_else(|e| panic!("{e}")), |_| Ok(())).map_err(|f| f.code);
        assert_eq!(failure, Err(2), "the flag would silently have no effect");
    }

    #[test]
    fn h_without_a_host_is_help() {
        for command in ["sub", "pub", "bench"] {
            let error = parse(&["mast", command, "-h"].map(OsString::from)).map(|_| ()).expect_err("help");
            assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{command}");
        }
        let cli = parse(&["mast", "sub", "-h", "box", "-t", "t"].map(OsString::from));
        let Ok(Cli { command: Some(Command::Sub(args)), .. }) = cli else { panic!("not sub") };
        assert_eq!(args.client.host, "box");
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
