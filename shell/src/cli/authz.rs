//! `mast authz explain`: whether a client may do something, and which rule says so, by the configuration and the
//! files that it names. A running broker is not asked.

use std::{net::IpAddr, sync::Arc};

use clap::{Args, Subcommand, ValueEnum};
use mast_core::{
    authz::{Access, Request, Verdict, Who},
    conn::identity::Claims,
    message::QoS,
    tenant::registry::Registry,
    topic,
};

use super::{ConfigArgs, Failure, print};
use crate::{
    auth::rights::{Rights, policy_of},
    config::{Config, EXIT_CONFIG},
};

#[derive(Debug, Subcommand)]
pub enum AuthzCommand {
    /// Say whether a client may do something and which rule decides; exit code 1 if it may not.
    Explain(Box<ExplainArgs>),
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Publish to a topic, also as a will.
    Publish,
    /// Subscribe to a filter.
    Subscribe,
    /// Receive a message of a topic.
    Receive,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// What is to be done.
    #[arg(value_enum)]
    action: Action,
    /// The topic; for `subscribe` the filter.
    topic: String,
    /// Tenant of the client; `tenants.default` if none is named.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// User name; a client without one if none is given.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Client id.
    #[arg(long, value_name = "ID", default_value = "")]
    client: String,
    /// A group of the user; may be given several times.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// An attribute of the client; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    attr: Vec<(String, String)>,
    /// Address of the client; over a unix socket if none is given.
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// The client is a superuser.
    #[arg(long)]
    superuser: bool,
    /// QoS of the publish, or that is asked for.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=2), default_value = "0")]
    qos: u8,
    /// The publish has RETAIN set.
    #[arg(long)]
    retain: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

fn attribute(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.into(), value.into())).ok_or_else(|| "it is not like name=value".into())
}

/// `before`: the flags that stood before the command.
pub fn run(command: AuthzCommand, before: ConfigArgs) -> Result<(), Failure> {
    let AuthzCommand::Explain(args) = command;
    let bad = |error: String| Failure { message: error, code: EXIT_CONFIG };
    let config = args.config.clone().behind(before).sources().load().map_err(|e| bad(e.to_string()))?;
    let rights = Rights::read(&config).map_err(|e| bad(format!("access control list {e}")))?;
    let (verdict, why) = explain(&args, &config, &rights)?;
    let word = if verdict.allowed { "allowed" } else { "denied" };
    print(format!("{word}: {why}\n").as_bytes())?;
    if verdict.allowed { Ok(()) } else { Err(Failure::new("")) }
}

/// The verdict and what gave it.
fn explain(args: &ExplainArgs, config: &Config, rights: &Rights) -> Result<(Verdict, String), Failure> {
    let named = args.tenant.as_ref().or(config.default_tenant.as_ref());
    let tenant = named.ok_or_else(|| Failure::usage("there is no default tenant: name one with --tenant"))?;
    let names: Vec<&str> = config.tenants.iter().map(String::as_str).collect();
    let registry = Registry::new(&names).map_err(|(name, _)| Failure::new(format!("bad tenant {name}")))?;
    let rules = rights.rules(&registry);
    let policy = policy_of(&rules, &registry, tenant).ok_or_else(|| {
        Failure::usage(format!("no tenant \"{tenant}\"; there are: {}", config.tenants.join(", ")))
    })?;
    let attributes = args.attr.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    let groups = args.group.iter().map(|group| group.as_str().into());
    let claims = Claims {
        superuser: args.superuser,
        attributes: Some(Arc::new(attributes.collect())),
        groups: Some(groups.collect()),
        source: args.source,
    };
    let who = Who { tenant, user: args.user.as_deref(), client_id: &args.client, claims: &claims };
    let request = request(args)?;
    let verdict = Verdict::before_rules(&request).unwrap_or_else(|| policy.resolve(&who).check(&request));
    Ok((verdict, rights.explain(tenant, verdict)))
}

/// The question; refused where the broker would not come to ask it.
fn request(args: &ExplainArgs) -> Result<Request<'_>, Failure> {
    let qos = QoS::from_bits(args.qos).unwrap_or(QoS::AtMostOnce);
    let limits = topic::Limits::default();
    let wrong =
        |what: &str, why: &str| Failure::usage(format!("\"{}\" is no topic {what}: {why}", args.topic));
    match args.action {
        Action::Publish | Action::Receive => {
            topic::check_name(&args.topic, &limits).map_err(|e| wrong("name", e.why()))?;
            let access = if args.action == Action::Publish { Access::Publish } else { Access::Receive };
            Ok(Request { access, topic: &args.topic, qos, retain: args.retain })
        }
        Action::Subscribe => {
            let shared = topic::split_share(&args.topic).map_err(|e| wrong("filter", e.why()))?;
            let filter = shared.map_or(args.topic.as_str(), |s| s.filter);
            topic::check_filter(filter, &limits).map_err(|e| wrong("filter", e.why()))?;
            Ok(Request::subscribe(filter, qos))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::config::{Place, Sources};
    use clap::Parser;

    const CONFIG: &str = "\
[tenants]
names = [\"default\", \"acme\"]
[auth]
acl_file = \"{dir}/acl\"
[[rule]]
effect = \"deny\"
topics = [\"ops/#\"]
[[tenant.acme.rule]]
name = \"own site\"
effect = \"allow\"
topics = [\"${site}/#\"]
groups = [\"field-*\"]
[[tenant.acme.rule]]
effect = \"deny\"
action = \"publish\"
retain = true
";

    fn asked(flags: &str) -> (bool, String) {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::write(dir.path().join("acl"), "# who\\nuser ann\ntopic read news\n".replace("\\n", "\n"))
            .expect("write");
        let file = dir.path().join("mast.toml");
        std::fs::write(&file, CONFIG.replace("{dir}", &dir.path().display().to_string())).expect("write");
        let words = ["mast", "authz", "explain"].into_iter().chain(flags.split(' '));
        let cli = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
        let Some(crate::cli::Command::Authz { command: AuthzCommand::Explain(args) }) = cli.command else {
            panic!("another command");
        };
        let place = Place { is_root: true, ..Place::default() };
        let sources = Sources { place, file: Some(file), ..Sources::default() };
        let config = sources.load().unwrap_or_else(|e| panic!("{e}"));
        let rights = Rights::read(&config).expect("rights");
        let (verdict, why) = explain(&args, &config, &rights).unwrap_or_else(|e| panic!("{e:?}"));
        (verdict.allowed, why.replace(&dir.path().display().to_string(), ""))
    }

    #[test]
    fn the_verdict_names_the_rule_and_its_place() {
        for (flags, allowed, why) in [
            ("publish ops/x", false, "rule \"1\" (/mast.toml:6, rule.1) of the node"),
            (
                "publish berlin/x --tenant acme --group field-1 --attr site=berlin",
                true,
                "rule \"own site\" (/mast.toml:10, tenant.acme.rule.1)",
            ),
            ("publish x --tenant acme --retain", false, "rule \"2\" (/mast.toml:14, tenant.acme.rule.2)"),
            ("receive news --tenant acme --user ann", true, "/acl:3"),
            ("subscribe $share/g/news --tenant acme --user ann", true, "/acl:3"),
            ("publish news --user ann", false, "no rule matches, and no line of /acl"),
            ("publish news --superuser", true, "a superuser, and no rule of the node matches"),
            ("publish $SYS/x --superuser", false, "$SYS topics are the broker's own"),
        ] {
            assert_eq!(asked(flags), (allowed, why.to_owned()), "{flags}");
        }
    }
}
