//! Commands that administrate a running broker through its API.

mod http;
mod show;

use super::{ConfigArgs, Failure, print};
use clap::{Args, Subcommand};
use http::{Client, escape};
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Read};
use std::path::PathBuf;

/// Where the broker is, and how to show what it says.
#[derive(Debug, Args)]
pub struct Access {
    /// Address of the broker's administration; else MAST_ADMIN, or admin.bind of the configuration.
    #[arg(long, global = true, value_name = "HOST:PORT")]
    address: Option<String>,
    /// File with the token; else MAST_TOKEN.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Configuration file that tells the address.
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// The tenant that a command is about.
#[derive(Debug, Args)]
pub struct Of {
    /// Tenant; else MAST_TENANT, or `default`.
    #[arg(short, long, global = true)]
    tenant: Option<String>,
}

#[derive(Debug, Args)]
pub struct TenantArgs {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    command: TenantCommand,
}

#[derive(Debug, Subcommand)]
enum TenantCommand {
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
    access: Access,
    #[command(flatten)]
    of: Of,
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, Args)]
struct UserFields {
    /// A ready hash, instead of a password on the standard input.
    #[arg(long)]
    hash: Option<String>,
    /// What the client id must match: `*` is any text, `%u` the user name.
    #[arg(long, value_name = "PATTERN")]
    client_id: Option<String>,
    /// A value for rules, as NAME=VALUE; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    attribute: Vec<String>,
    /// Rules do not bind it.
    #[arg(long)]
    superuser: Option<bool>,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
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
    access: Access,
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
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
    access: Access,
    #[command(flatten)]
    of: Of,
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
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
    access: Access,
    #[command(flatten)]
    of: Of,
    #[command(subcommand)]
    command: RetainedCommand,
}

#[derive(Debug, Subcommand)]
enum RetainedCommand {
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
    access: Access,
    /// Rules of this tenant; without, those of the node.
    #[arg(short, long, global = true)]
    tenant: Option<String>,
    #[command(subcommand)]
    command: RuleCommand,
}

#[derive(Debug, Subcommand)]
enum RuleCommand {
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
    access: Access,
    #[command(subcommand)]
    command: ListenerCommand,
}

#[derive(Debug, Subcommand)]
enum ListenerCommand {
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
    access: Access,
    /// Show the last so many changes.
    #[arg(short = 'n', long, default_value_t = 50)]
    last: u64,
}

/// A command at work.
struct Job {
    client: Client,
    json: bool,
}

impl Access {
    fn job(self) -> Result<Job, Failure> {
        let given = self.address.or_else(|| std::env::var("MAST_ADMIN").ok());
        let address = match given {
            Some(address) => address,
            None => {
                let sources = ConfigArgs::of_file(self.config).sources();
                let config = sources.load().map_err(|e| Failure { message: e.to_string(), code: 78 })?;
                let first = config.admin_addresses.first().ok_or_else(|| {
                    Failure::usage(
                        "admin.bind is empty, so this broker has no API; or name another with --address",
                    )
                })?;
                first.to_string()
            }
        };
        let token = match self.token_file {
            Some(path) => std::fs::read_to_string(&path)
                .map_err(|e| Failure::new(format!("{}: {e}", path.display())))?,
            None => std::env::var("MAST_TOKEN")
                .map_err(|_| Failure::usage("no token: set MAST_TOKEN, or name a file with --token-file"))?,
        };
        let token = token.trim().to_owned();
        if token.contains(char::is_control) || token.is_empty() {
            return Err(Failure::usage("this is no token: it is one line of text"));
        }
        Ok(Job { client: Client { address, token }, json: self.json })
    }
}

impl Of {
    fn base(&self) -> String {
        let given = self.tenant.clone().or_else(|| std::env::var("MAST_TENANT").ok());
        format!("/api/v1/tenants/{}", escape(given.as_deref().unwrap_or("default")))
    }
}

impl Job {
    /// Prints an object, or nothing where there is none.
    fn show(&self, value: &Value) -> Result<(), Failure> {
        if self.json {
            return print(format!("{value}\n").as_bytes());
        }
        if value.is_null() { Ok(()) } else { print(show::object(value).as_bytes()) }
    }

    fn get(&self, path: &str) -> Result<(), Failure> {
        self.show(&self.client.send("GET", path, None)?)
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(), Failure> {
        self.show(&self.client.send(method, path, body)?)
    }

    /// Prints a list, page by page.
    fn list(&self, path: &str, columns: &[&str], at_most: u64) -> Result<(), Failure> {
        let (mut items, mut after) = (Vec::new(), String::new());
        let mark = if path.contains('?') { '&' } else { '?' };
        loop {
            let left = at_most.saturating_sub(items.len() as u64).min(1000);
            let mut page = self.client.send("GET", &format!("{path}{mark}limit={left}{after}"), None)?;
            if let Value::Array(more) = page["items"].take() {
                items.extend(more);
            }
            match page["next"].as_str() {
                Some(next) if (items.len() as u64) < at_most => after = format!("&after={}", escape(next)),
                _ => break,
            }
        }
        if self.json {
            return print(format!("{}\n", Value::Array(items)).as_bytes());
        }
        print(show::table(&items, columns).as_bytes())
    }
}

/// A password from the standard input: one line.
fn read_password() -> Result<String, Failure> {
    if std::io::stdin().is_terminal() {
        eprint!("password (it is shown): ");
    }
    let mut text = String::new();
    let mut line = std::io::stdin().take(4096);
    let read = if std::io::stdin().is_terminal() {
        std::io::stdin().read_line(&mut text).map(|_| ())
    } else {
        line.read_to_string(&mut text).map(|_| ())
    };
    read.map_err(|e| Failure::new(format!("standard input: {e}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

impl UserFields {
    fn body(self) -> Result<Map<String, Value>, Failure> {
        let mut body = Map::new();
        if let Some(hash) = self.hash {
            body.insert("hash".into(), json!(hash));
        }
        if let Some(pattern) = self.client_id {
            body.insert("client_id".into(), json!(pattern));
        }
        if let Some(superuser) = self.superuser {
            body.insert("superuser".into(), json!(superuser));
        }
        if !self.attribute.is_empty() {
            let mut attributes = Map::new();
            for text in &self.attribute {
                let (name, value) = text
                    .split_once('=')
                    .ok_or_else(|| Failure::usage(format!("--attribute {text}: write NAME=VALUE")))?;
                attributes.insert(name.to_owned(), json!(value));
            }
            body.insert("attributes".into(), Value::Object(attributes));
        }
        Ok(body)
    }
}

pub fn tenant(args: TenantArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    let at = |name: &str| format!("/api/v1/tenants/{}", escape(name));
    match args.command {
        TenantCommand::List => {
            job.list("/api/v1/tenants", &["name", "state", "owner", "description"], u64::MAX)
        }
        TenantCommand::Show { name } => job.get(&at(&name)),
        TenantCommand::Create { name, description } => {
            let body = json!({ "name": name, "description": description });
            job.send("POST", "/api/v1/tenants", Some(&body))
        }
        TenantCommand::Delete { name, wait } => {
            let answer = job.client.send("DELETE", &at(&name), None)?;
            while wait {
                let list = job.client.send(
                    "GET",
                    &format!("/api/v1/tenants?limit=1000&after={}", escape(before(&name))),
                    None,
                )?;
                let there = list["items"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|t| t["name"] == name.as_str()));
                if !there {
                    return Ok(());
                }
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            job.show(&answer)
        }
        TenantCommand::Usage { name } => job.get(&format!("{}/usage", at(&name))),
    }
}

/// Something that stands before a name in a list: the name without its last character.
fn before(name: &str) -> &str {
    let mut chars = name.chars();
    chars.next_back();
    chars.as_str()
}

pub fn user(args: UserArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    let users = format!("{}/users", args.of.base());
    let at = |name: &str| format!("{users}/{}", escape(name));
    match args.command {
        UserCommand::List => {
            job.list(&users, &["name", "enabled", "superuser", "client_id", "attributes"], u64::MAX)
        }
        UserCommand::Show { name } => job.get(&at(&name)),
        UserCommand::Create { name, fields } => {
            let mut body = fields.body()?;
            if !body.contains_key("hash") {
                body.insert("password".into(), json!(read_password()?));
            }
            body.insert("name".into(), json!(name));
            job.send("POST", &users, Some(&Value::Object(body)))
        }
        UserCommand::Set { name, fields, password } => {
            let mut body = fields.body()?;
            if password {
                body.insert("password".into(), json!(read_password()?));
            }
            job.send("PATCH", &at(&name), Some(&Value::Object(body)))
        }
        UserCommand::Enable { name } => job.send("PATCH", &at(&name), Some(&json!({ "enabled": true }))),
        UserCommand::Disable { name } => job.send("PATCH", &at(&name), Some(&json!({ "enabled": false }))),
        UserCommand::Delete { name } => job.send("DELETE", &at(&name), None),
    }
}

pub fn token(args: TokenArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    match args.command {
        TokenCommand::List => {
            let columns = ["id", "tenant", "read_only", "expires", "description"];
            job.list("/api/v1/tokens", &columns, u64::MAX)
        }
        TokenCommand::Create { tenant, read_only, expires_in, description } => {
            let body = json!({
                "tenant": tenant, "read_only": read_only, "expires_in": expires_in, "description": description,
            });
            job.send("POST", "/api/v1/tokens", Some(&body))
        }
        TokenCommand::Revoke { id } => job.send("DELETE", &format!("/api/v1/tokens/{}", escape(&id)), None),
    }
}

pub fn session(args: SessionArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    let sessions = format!("{}/sessions", args.of.base());
    let at = |client: &str| format!("{sessions}/{}", escape(client));
    match args.command {
        SessionCommand::List { client_prefix, user, connected } => {
            let mut query = Vec::new();
            query.extend(client_prefix.map(|p| format!("client_prefix={}", escape(&p))));
            query.extend(user.map(|u| format!("user={}", escape(&u))));
            query.extend(connected.map(|c| format!("connected={c}")));
            let mark = if query.is_empty() { "" } else { "?" };
            let columns = [
                "client",
                "user",
                "connected",
                "subscriptions",
                "queued",
                "inflight",
                "lag",
                "connection.address",
            ];
            job.list(&format!("{sessions}{mark}{}", query.join("&")), &columns, u64::MAX)
        }
        SessionCommand::Show { client } => job.get(&at(&client)),
        SessionCommand::Subscriptions { client } => {
            let columns = ["filter", "qos", "no_local", "retain_as_published", "retain_handling", "id"];
            job.list(&format!("{}/subscriptions", at(&client)), &columns, u64::MAX)
        }
        SessionCommand::Disconnect { client } => {
            job.send("POST", &format!("{}/disconnect", at(&client)), None)
        }
        SessionCommand::Delete { client } => job.send("DELETE", &at(&client), None),
    }
}

pub fn retained(args: RetainedArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    let base = format!("{}/retained", args.of.base());
    let at = |topic: &str| format!("{base}/message?topic={}", escape(topic));
    match args.command {
        RetainedCommand::List { filter } => {
            let columns = ["topic", "qos", "size", "expires"];
            job.list(&format!("{base}?filter={}", escape(&filter)), &columns, u64::MAX)
        }
        RetainedCommand::Get { topic } => {
            if job.json {
                return job.get(&at(&topic));
            }
            let message = job.client.send("GET", &at(&topic), None)?;
            let payload = message["payload"].as_str().unwrap_or_default();
            let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, payload)
                .map_err(|_| Failure::new("the payload did not come as base64"))?;
            print(&bytes)
        }
        RetainedCommand::Delete { topic } => job.send("DELETE", &at(&topic), None),
    }
}

pub fn rule(args: RuleArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    let base = match &args.tenant {
        Some(tenant) => format!("/api/v1/tenants/{}", escape(tenant)),
        None => "/api/v1".to_owned(),
    };
    let rules = format!("{base}/rules");
    match args.command {
        RuleCommand::List => {
            let list = job.client.send("GET", &rules, None)?;
            if job.json {
                return job.show(&list);
            }
            let columns = ["name", "effect", "action", "topics", "users", "client_ids", "qos", "retain"];
            print(show::table(list["rules"].as_array().map_or(&[][..], Vec::as_slice), &columns).as_bytes())
        }
        RuleCommand::Set { file } => {
            let read = if file.as_os_str() == "-" {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map(|_| text)
            } else {
                std::fs::read_to_string(&file)
            };
            let text = read.map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
            let body: Value = serde_json::from_str(&text)
                .map_err(|e| Failure::new(format!("{}: {e}; write {{\"rules\": [...]}}", file.display())))?;
            job.send("PUT", &rules, Some(&body))
        }
        RuleCommand::Delete => job.send("DELETE", &rules, None),
        RuleCommand::Denied if args.tenant.is_none() => {
            Err(Failure::usage("denied attempts are of a tenant: name it with --tenant"))
        }
        RuleCommand::Denied => job.list(
            &format!("{base}/denied"),
            &["client", "action", "topic", "count", "last", "why"],
            u64::MAX,
        ),
    }
}

pub fn listener(args: ListenerArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    let listeners = "/api/v1/listeners";
    match args.command {
        ListenerCommand::List => {
            let columns =
                ["name", "kind", "addresses", "tenant", "allow_anonymous", "authenticators", "owner"];
            job.list(listeners, &columns, u64::MAX)
        }
        ListenerCommand::Create { name, bind, port, ws, tenant, allow_anonymous, cert, key, client_ca } => {
            let tls = cert.map(|cert| json!({ "cert": cert, "key": key, "client_ca": client_ca }));
            let body = json!({
                "name": name, "kind": if ws { "ws" } else { "mqtt" }, "bind": bind, "port": port,
                "tenant": tenant, "allow_anonymous": allow_anonymous, "tls": tls,
            });
            job.send("POST", listeners, Some(&body))
        }
        ListenerCommand::Delete { name } => {
            job.send("DELETE", &format!("{listeners}/{}", escape(&name)), None)
        }
        ListenerCommand::Authenticators => {
            let all = job.client.send("GET", "/api/v1/authenticators", None)?;
            if job.json {
                return job.show(&all["items"]);
            }
            let items = all["items"].as_array().map_or(&[][..], Vec::as_slice);
            print(show::table(items, &["name", "on", "listeners"]).as_bytes())
        }
    }
}

pub fn audit(args: AuditArgs) -> Result<(), Failure> {
    let job = args.access.job()?;
    job.list("/api/v1/audit", &["at", "who", "action", "object"], args.last.max(1))
}
