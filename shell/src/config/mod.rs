//! Configuration: TOML file, `MAST__SECTION__KEY` environment and flags, strict, with the origin of each value.

pub mod bans;
pub mod error;
pub mod http_auth;
pub mod identity;
pub mod keys;
pub mod kind;
mod layers;
pub mod limits;
pub mod listeners;
mod nearest;
pub mod place;
pub mod reference;
pub mod rules;
pub mod table;
pub mod tenant_limits;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub use bans::Flapping;
pub use error::{ConfigError, ConfigErrors, Origin};
pub use http_auth::{HttpAuth, HttpWire};
pub use identity::{Authenticator, CertificateKeys, Jwt, Tenant};
pub use keys::{
    Admin, Auth, Durability, LogFormat, LogLevel, Mqtt, Node, Offline, Store, UsernameFrom, WhenFull,
};
pub use layers::{Layers, Setting};
pub use limits::Limits;
pub use listeners::{Endpoint, Listener, TlsFiles, WsSettings};
pub use place::Place;
pub use rules::{DefaultAccess, RuleLists};

use crate::auth::{Ban, CertificateRule};
use keys::{Tenants, Tls};
use kind::Switch;
use mast_core::tenant::limits::{Limit, Row, TenantLimits};

/// The exit code for a configuration that cannot be used (`EX_CONFIG`).
pub const EXIT_CONFIG: u8 = 78;

/// The whole configuration, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub node: Node,
    /// `node.name`, or the host's name.
    pub node_name: String,
    /// `node.data_dir`, or the default for this process.
    pub data_dir: PathBuf,
    pub listeners: Vec<Listener>,
    pub auth: Auth,
    pub mqtt: Mqtt,
    pub limits: Limits,
    pub offline: Offline,
    pub store: Store,
    pub admin: Admin,
    /// Addresses of `admin.bind`.
    pub admin_addresses: Vec<std::net::SocketAddr>,
    pub tenants: Vec<String>,
    /// What is configured for single tenants.
    pub tenant_sections: BTreeMap<String, Tenant>,
    /// Limits of every tenant that has none of its own.
    pub tenant_limits: TenantLimits,
    /// Limits of single tenants.
    pub own_limits: BTreeMap<String, TenantLimits>,
    pub certificate_rules: Vec<CertificateRule>,
    /// Rules of the node and of tenants.
    pub rules: RuleLists,
    pub jwt: Jwt,
    pub http_auth: HttpAuth,
    /// Clients that are not let in.
    pub bans: Vec<Ban>,
    pub flapping: Flapping,
    pub default_tenant: Option<String>,
    /// The file it was read from, for a reload.
    pub file: Option<PathBuf>,
    /// What is right by the letter, but hardly meant.
    pub remarks: Vec<String>,
}

/// One value from the command line: the flag as typed, the key's path and the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagValue {
    pub flag: &'static str,
    pub path: &'static [&'static str],
    pub value: String,
}

/// Where a configuration comes from. Kept, so that SIGHUP can read it again.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    pub place: Place,
    pub flags: Vec<FlagValue>,
    /// `--port`: the plain listener's port.
    pub port: Option<u16>,
}

impl Config {
    /// All tenants in the order of their numbers, and whether each is spread over all shards: the default and an only
    /// one are, others sit on one shard, unless their section says otherwise.
    pub fn placed_tenants(&self) -> Vec<(&str, bool)> {
        let placed = |name: &String| {
            let usual = self.tenants.len() == 1 || self.default_tenant.as_ref() == Some(name);
            match self.tenant_sections.get(name).map(|t| t.spread) {
                Some(Switch::On) => true,
                Some(Switch::Off) => false,
                Some(Switch::Auto) | None => usual,
            }
        };
        self.tenants.iter().map(|name| (name.as_str(), placed(name))).collect()
    }
}

impl Sources {
    /// Reads and checks everything; reports every mistake at once.
    pub fn load(&self) -> Result<Config, ConfigErrors> {
        self.load_layers().map(|(config, _)| config)
    }

    /// The same with the origins of all values.
    pub fn load_layers(&self) -> Result<(Config, Layers), ConfigErrors> {
        let text = match &self.file {
            None => None,
            Some(path) => Some((path.as_path(), read(path)?)),
        };
        self.check(text.as_ref().map(|(p, t)| (*p, t.as_str())))
    }

    fn check(&self, file: Option<(&Path, &str)>) -> Result<(Config, Layers), ConfigErrors> {
        let mut layers = Layers::default();
        if let Some((path, text)) = file {
            layers.add_file(path, text);
        }
        layers.add_env(self.place.variables.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        for flag in &self.flags {
            layers.add_flag(flag.flag, flag.path, &flag.value);
        }
        match self.build(&mut layers) {
            Some(config) if layers.errors.is_empty() => Ok((config, layers)),
            Some(_) | None => Err(ConfigErrors(layers.errors)),
        }
    }

    fn build(&self, layers: &mut Layers) -> Option<Config> {
        macro_rules! section {
            ($ty:ty, $name:literal) => {
                match <$ty>::build(&layers.section(&[$name], <$ty>::KEYS)) {
                    Ok(section) => section,
                    Err(key) => {
                        invalid(layers, &[$name, key], "the value does not fit its key".into());
                        return None;
                    }
                }
            };
        }
        let node = section!(Node, "node");
        let auth = section!(Auth, "auth");
        let tls = section!(Tls, "tls");
        let mqtt = section!(Mqtt, "mqtt");
        let limits = section!(Limits, "limits");
        let offline = section!(Offline, "offline");
        let store = section!(Store, "store");
        let admin = section!(Admin, "admin");
        let tenants = section!(Tenants, "tenants");
        let jwt = section!(Jwt, "jwt");
        let http_auth = section!(HttpAuth, "http_auth");
        let flapping = section!(Flapping, "flapping");
        let (names, tenant_sections) = identity::tenants(layers, &tenants);
        let mut tenant_limits = tenant_limits::build(layers, &["tenant_limits"]);
        if limits.max_connections_per_tenant > 0 {
            // The older key for the same thing.
            let limit = Limit::enforced(limits.max_connections_per_tenant as u64);
            tenant_limits.rows[Row::Connections as usize].get_or_insert(limit);
        }
        let own_limits = tenant_sections
            .keys()
            .map(|name| (name.clone(), tenant_limits::build(layers, &["tenant", name, "limits"])))
            .filter(|(_, own)| *own != TenantLimits::default())
            .collect();
        let certificate_rules = identity::certificate_rules(layers, &names);
        let rules = rules::rules(layers, &names);
        identity::check_jwt(layers, &jwt);
        http_auth::check(layers, &http_auth);
        let bans = bans::bans(layers, &names);
        check_memory(layers, &limits);
        check_store(layers, &store);
        if !mqtt.accept_v3 && !mqtt.accept_v5 {
            invalid(layers, &["mqtt", "accept_v5"], "no MQTT version is left".into());
        }
        let admin_addresses = admin_addresses(layers, &admin);
        let shared = listeners::Shared {
            auth: &auth,
            tls: &tls,
            jwt: &jwt,
            http: &http_auth,
            tenants: &names,
            sections: &tenant_sections,
        };
        let mut remarks = Vec::new();
        let listeners = listeners::build(layers, &shared, self.port, &mut remarks);
        let data_dir = node.data_dir.clone().or_else(|| self.place.data_dir());
        if data_dir.is_none() {
            let what = "there is no home directory to put the data in; name a directory";
            invalid(layers, &["node", "data_dir"], what.into());
        }
        Some(Config {
            node_name: node.name.clone().unwrap_or_else(|| self.place.node_name()),
            data_dir: data_dir?,
            node,
            listeners,
            auth,
            mqtt,
            limits,
            offline,
            store,
            admin,
            admin_addresses,
            tenants: names,
            tenant_sections,
            tenant_limits,
            own_limits,
            certificate_rules,
            rules,
            jwt,
            http_auth,
            bans,
            flapping,
            default_tenant: tenants.default,
            file: self.file.clone(),
            remarks,
        })
    }
}

fn read(path: &Path) -> Result<String, ConfigErrors> {
    std::fs::read_to_string(path).map_err(|e| {
        let path = path.display().to_string();
        ConfigErrors(vec![ConfigError::Unreadable { path, reason: e.to_string() }])
    })
}

fn check_memory(layers: &mut Layers, limits: &Limits) {
    let (refuse, pause) = (limits.memory_refuse_percent, limits.memory_pause_percent);
    let cut = limits.memory_cut_percent;
    if pause > cut {
        let what = format!("pausing publishers ({pause}) comes before cutting consumers ({cut})");
        invalid(layers, &["limits", "memory_pause_percent"], what);
    }
    if refuse > pause {
        let what = format!("refusing connections ({refuse}) comes before pausing publishers ({pause})");
        invalid(layers, &["limits", "memory_refuse_percent"], what);
    }
}

fn check_store(layers: &mut Layers, store: &Store) {
    if store.max_bytes != 0 && store.max_bytes / 4 < store.segment_size {
        let what = format!(
            "{} bytes hold fewer than four journal files of {}; raise it, or lower store.segment_size",
            store.max_bytes, store.segment_size
        );
        invalid(layers, &["store", "max_bytes"], what);
    }
}

fn admin_addresses(layers: &mut Layers, admin: &Admin) -> Vec<std::net::SocketAddr> {
    let mut addresses = Vec::new();
    for text in &admin.bind {
        match text.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => {
                let what = format!("\"{text}\" is not an address with a port, such as \"127.0.0.1:18083\"");
                invalid(layers, &["admin", "bind"], what);
            }
        }
    }
    addresses
}

fn invalid(layers: &mut Layers, path: &[&str], problem: String) {
    let origin = layers.origin(path);
    layers.errors.push(ConfigError::Invalid { origin, key: path.join("."), problem });
}

/// The configuration file used where `-c` names none: `/etc/mast/mast.toml` if it exists.
pub fn default_file() -> Option<PathBuf> {
    let path = PathBuf::from("/etc/mast/mast.toml");
    path.exists().then_some(path)
}
