//! Arguments of the commands that administrate a running broker.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Where the broker is, and how to show what it says.
#[derive(Debug, Args)]
pub struct Access {
    /// Address of the broker's administration; else MAST_ADMIN, or admin.bind of the configuration.
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// File with the token; else MAST_TOKEN.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Configuration file that tells the address.
    #[arg(short, long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The tenant that a command is about.
#[derive(Debug, Args)]
pub struct Of {
    /// Tenant; else MAST_TENANT, or `default`.
    #[arg(short, long, global = true)]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
pub struct TenantArgs {
    #[command(flatten)]
    pub access: Access,
    #[command(subcommand)]
    pub command: TenantCommand,
}

#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// The tenants.
    List,
    /// One tenant.
    Show { name: String },
    /// Make a tenant.
    Create {
        name: String,
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Delete a tenant with all that is kept of it.
    Delete {
        name: String,
        /// Come back when nothing of it is left.
        #[arg(long)]
        wait: bool,
    },
    /// What a tenant uses.
    Usage { name: String },
}

#[derive(Debug, Args)]
pub struct UserArgs {
    #[command(flatten)]
    pub access: Access,
    #[command(flatten)]
    pub of: Of,
    #[command(subcommand)]
    pub command: UserCommand,
}

#[derive(Debug, Args)]
pub struct UserFields {
    /// A ready hash, instead of a password on the standard input.
    #[arg(long)]
    pub hash: Option<String>,
    /// What the client id must match: `*` is any text, `%u` the user name.
    #[arg(long, value_name = "PATTERN")]
    pub client_id: Option<String>,
    /// A value for rules, as NAME=VALUE; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub attribute: Vec<String>,
    /// Rules do not bind it.
    #[arg(long)]
    pub superuser: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// The users of a tenant.
    List,
    /// One user.
    Show { name: String },
    /// Make a user; its password is read from the standard input.
    Create {
        name: String,
        #[command(flatten)]
        fields: UserFields,
    },
    /// Change a user.
    Set {
        name: String,
        #[command(flatten)]
        fields: UserFields,
        /// Read a new password from the standard input.
        #[arg(long)]
        password: bool,
    },
    /// Let a user log in again.
    Enable { name: String },
    /// Let a user not log in.
    Disable { name: String },
    /// Delete a user.
    Delete { name: String },
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(flatten)]
    pub access: Access,
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// The tokens, without their secrets.
    List,
    /// Make a token and print it.
    Create {
        /// For this tenant alone.
        #[arg(short, long)]
        tenant: Option<String>,
        /// It may not change anything.
        #[arg(long)]
        read_only: bool,
        /// It ends after so many seconds.
        #[arg(long, value_name = "SECONDS")]
        expires_in: Option<u64>,
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Revoke a token.
    Revoke { id: String },
}

#[derive(Debug, Args)]
pub struct SessionArgs {
    #[command(flatten)]
    pub access: Access,
    #[command(flatten)]
    pub of: Of,
    #[command(subcommand)]
    pub command: SessionCommand,
}

#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// The sessions of a tenant.
    List {
        /// The client id begins so.
        #[arg(long)]
        client_prefix: Option<String>,
        /// The user that owns it.
        #[arg(long)]
        user: Option<String>,
        /// With a connection, or without.
        #[arg(long)]
        connected: Option<bool>,
    },
    /// One session.
    Show { client: String },
    /// Its subscriptions.
    Subscriptions { client: String },
    /// Disconnect a client; its session stays.
    Disconnect { client: String },
    /// Delete the session of a client that is not connected.
    Delete { client: String },
}

#[derive(Debug, Args)]
pub struct RetainedArgs {
    #[command(flatten)]
    pub access: Access,
    #[command(flatten)]
    pub of: Of,
    #[command(subcommand)]
    pub command: RetainedCommand,
}

#[derive(Debug, Subcommand)]
pub enum RetainedCommand {
    /// The retained messages of a tenant.
    List {
        /// Topic filter.
        #[arg(default_value = "#")]
        filter: String,
    },
    /// The payload of a retained message.
    Get { topic: String },
    /// Delete a retained message.
    Delete { topic: String },
}

#[derive(Debug, Args)]
pub struct RuleArgs {
    #[command(flatten)]
    pub access: Access,
    /// Rules of this tenant; without, those of the node.
    #[arg(short, long, global = true)]
    pub tenant: Option<String>,
    #[command(subcommand)]
    pub command: RuleCommand,
}

#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// The rules in their order.
    List,
    /// Put the rules of a JSON file ({"rules": [...]}) in place of the former ones; `-` is the standard input.
    Set { file: PathBuf },
    /// Remove all of them.
    Delete,
    /// What clients of the tenant were denied, and by which rule.
    Denied,
}

#[derive(Debug, Args)]
pub struct ListenerArgs {
    #[command(flatten)]
    pub access: Access,
    #[command(subcommand)]
    pub command: ListenerCommand,
}

#[derive(Debug, Subcommand)]
pub enum ListenerCommand {
    /// All listeners.
    List,
    /// Open a listener.
    Create {
        name: String,
        /// IP address; may be repeated.
        #[arg(long, required = true)]
        bind: Vec<String>,
        #[arg(long)]
        port: u16,
        /// MQTT in WebSocket.
        #[arg(long)]
        ws: bool,
        /// Tenant of all its clients.
        #[arg(short, long)]
        tenant: Option<String>,
        #[arg(long)]
        allow_anonymous: bool,
        /// Certificate file, on the broker's machine.
        #[arg(long, requires = "key")]
        cert: Option<String>,
        /// Key file, on the broker's machine.
        #[arg(long, requires = "cert")]
        key: Option<String>,
        /// File of the authorities of client certificates.
        #[arg(long, requires = "cert")]
        client_ca: Option<String>,
    },
    /// Close a listener; who came in by it stays.
    Delete { name: String },
    /// The authenticators, and which listeners ask them.
    Authenticators,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    pub access: Access,
    /// Show the last so many changes.
    #[arg(short = 'n', long, default_value_t = 50)]
    pub last: u64,
}
