//! From the keys of `[listener.*]`, `[tls]` and the defaults to the listeners that are opened.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use super::{
    error::ConfigError,
    identity::{self, Authenticator, Available, Jwt, Tenant},
    keys::{Auth, ListenerKeys, ListenerKind, Proxy, ProxyMode, Tls, UsernameFrom},
    kind::Switch,
    layers::Layers,
};
use crate::listen::proxy::{Cidr, ProxyPolicy};

/// Certificate files of a listener, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
    pub crl: Option<PathBuf>,
    pub require_client_cert: bool,
    pub username_from: UsernameFrom,
    pub alpn_required: bool,
}

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Several addresses of one port. `optional` ones may fail (::1 on a machine without IPv6).
    Tcp {
        addresses: Vec<SocketAddr>,
        optional_v6: bool,
    },
    Unix {
        path: PathBuf,
        mode: u32,
    },
}

/// The WebSocket side of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WsSettings {
    pub path: String,
    pub origins: Vec<String>,
}

/// One listener, ready to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    pub name: String,
    pub endpoint: Endpoint,
    pub ws: Option<WsSettings>,
    pub tls: Option<TlsFiles>,
    pub proxy: Option<ProxyPolicy>,
    /// 0 means no bound of its own.
    pub max_connections: usize,
    pub allow_anonymous: bool,
    pub tenant: Option<String>,
    /// Who is asked who a client is, in order.
    pub authenticators: Vec<Authenticator>,
}

impl Listener {
    /// `mqtt`, `mqtts`, `ws`, `wss` or `unix`.
    pub fn scheme(&self) -> &'static str {
        match (&self.endpoint, &self.ws, &self.tls) {
            (Endpoint::Unix { .. }, _, _) => "unix",
            (Endpoint::Tcp { .. }, None, None) => "mqtt",
            (Endpoint::Tcp { .. }, None, Some(_)) => "mqtts",
            (Endpoint::Tcp { .. }, Some(_), None) => "ws",
            (Endpoint::Tcp { .. }, Some(_), Some(_)) => "wss",
        }
    }

    /// Whether only this machine can reach it.
    pub fn local_only(&self) -> bool {
        match &self.endpoint {
            Endpoint::Unix { .. } => true,
            Endpoint::Tcp { addresses, .. } => addresses.iter().all(|a| a.ip().is_loopback()),
        }
    }
}

/// What the listeners share.
pub(super) struct Shared<'a> {
    pub auth: &'a Auth,
    pub tls: &'a Tls,
    pub jwt: &'a Jwt,
    pub tenants: &'a [String],
    pub sections: &'a BTreeMap<String, Tenant>,
}

/// Builds all listeners; problems go to `layers.errors`, what works but has no effect to `remarks`.
pub(super) fn build(
    layers: &mut Layers,
    shared: &Shared<'_>,
    port_flag: Option<u16>,
    remarks: &mut Vec<String>,
) -> Vec<Listener> {
    let mut raw = Vec::new();
    for name in layers.names("listener") {
        let at = ["listener", name.as_str()];
        let keys = ListenerKeys::build(&layers.section(&at, ListenerKeys::KEYS));
        let tls = Tls::build(&layers.section(&["listener", &name, "tls"], Tls::KEYS));
        let proxy = Proxy::build(&layers.section(&["listener", &name, "proxy"], Proxy::KEYS));
        match (keys, tls, proxy) {
            (Ok(keys), Ok(tls), Ok(proxy)) => raw.push(RawListener { name, keys, tls, proxy }),
            (Err(key), _, _) | (_, Err(key), _) | (_, _, Err(key)) => {
                problem(layers, &[&at[..], &[key]].concat(), "the value does not fit its key".into());
            }
        }
    }
    if raw.is_empty() {
        raw = defaults(shared.tls.cert.is_some(), port_flag.is_some());
    }
    if let Some(port) = port_flag {
        let plain = raw.iter_mut().find(|l| l.keys.kind == ListenerKind::Mqtt && !l.is_secure());
        match plain {
            Some(listener) => listener.keys.port = Some(port),
            None => problem(
                layers,
                &["listener"],
                "--port names the port of the plain MQTT listener, and there is none".into(),
            ),
        }
    }
    if shared.tls.cert.is_some() && !raw.iter().any(|l| l.is_secure() && !l.has_own_tls()) {
        remarks.push(
            "no listener uses the certificate of tls.cert: set secure = true for the listeners that are to speak TLS"
                .to_owned(),
        );
    }
    let authenticated = identity::has_passwords(shared.auth, shared.sections, None)
        || shared.jwt.is_configured()
        || raw.iter().any(|l| l.client_ca(shared.tls).is_some());
    let mut listeners = Vec::new();
    for listener in raw {
        if let Some(l) = finish(layers, listener, shared, authenticated) {
            listeners.push(l);
        }
    }
    listeners
}

struct RawListener {
    name: String,
    keys: ListenerKeys,
    tls: Tls,
    proxy: Proxy,
}

impl RawListener {
    fn has_own_tls(&self) -> bool {
        self.tls.cert.is_some() || self.tls.key.is_some()
    }

    fn is_secure(&self) -> bool {
        self.keys.secure || self.has_own_tls()
    }

    /// The section that holds this listener's certificates.
    fn tls_section<'a>(&'a self, shared: &'a Tls) -> &'a Tls {
        if self.has_own_tls() { &self.tls } else { shared }
    }

    fn client_ca<'a>(&'a self, shared: &'a Tls) -> Option<&'a PathBuf> {
        self.is_secure().then(|| self.tls_section(shared).client_ca.as_ref()).flatten()
    }
}

fn defaults(certificate: bool, port_flag: bool) -> Vec<RawListener> {
    let listener = |name: &str, kind: &str, secure: bool| {
        let mut layers = Layers::default();
        layers.add_flag("", &["listener", name, "kind"], kind);
        layers.add_flag("", &["listener", name, "secure"], if secure { "true" } else { "false" });
        let at = ["listener", name];
        Some(RawListener {
            name: name.to_owned(),
            keys: ListenerKeys::build(&layers.section(&at, ListenerKeys::KEYS)).ok()?,
            tls: Tls::build(&layers.section(&[], Tls::KEYS)).ok()?,
            proxy: Proxy::build(&layers.section(&[], Proxy::KEYS)).ok()?,
        })
    };
    let plain = listener("mqtt", "mqtt", false);
    // With --port a second broker is wanted beside the first: it must not collide on the other ports.
    let rest: [Option<RawListener>; 3] = if port_flag {
        [None, None, None]
    } else {
        [
            listener("ws", "ws", false),
            certificate.then(|| listener("mqtts", "mqtt", true)).flatten(),
            certificate.then(|| listener("wss", "ws", true)).flatten(),
        ]
    };
    plain.into_iter().chain(rest.into_iter().flatten()).collect()
}

fn finish(
    layers: &mut Layers,
    raw: RawListener,
    shared: &Shared<'_>,
    authenticated: bool,
) -> Option<Listener> {
    let name = raw.name.clone();
    let at = ["listener", name.as_str()];
    let before = layers.errors.len();
    let secure = raw.is_secure();
    let tls = if secure { tls_files(layers, &at, &raw, shared.tls) } else { None };
    let proxy = proxy_policy(layers, &name, &raw.proxy);
    let anonymous_setting = match raw.keys.allow_anonymous {
        Switch::Auto => shared.auth.allow_anonymous,
        set @ (Switch::On | Switch::Off) => set,
    };
    let open = authenticated || anonymous_setting != Switch::Auto;
    let endpoint = endpoint(layers, &at, &raw.keys, secure, open)?;
    let ws = (raw.keys.kind == ListenerKind::Ws)
        .then(|| WsSettings { path: raw.keys.path.clone(), origins: raw.keys.origins.clone() });
    if ws.as_ref().is_some_and(|w| !w.path.starts_with('/')) {
        problem(layers, &[&at[..], &["path"]].concat(), "the path begins with \"/\"".into());
    }
    if let Some(tenant) = raw.keys.tenant.as_ref().filter(|t| !shared.tenants.contains(t)) {
        let known = shared.tenants.join(", ");
        problem(
            layers,
            &[&at[..], &["tenant"]].concat(),
            format!("no tenant \"{tenant}\"; there are: {known}"),
        );
    }
    let available =
        Available { certificate: raw.client_ca(shared.tls).is_some(), jwt: shared.jwt.is_configured() };
    let authenticators = identity::chain(layers, &name, &raw.keys.authenticators, available);
    let mut listener = Listener {
        name: name.clone(),
        endpoint,
        ws,
        tls,
        proxy,
        max_connections: raw.keys.max_connections,
        allow_anonymous: false,
        tenant: raw.keys.tenant,
        authenticators,
    };
    listener.allow_anonymous = match anonymous_setting {
        Switch::On => true,
        Switch::Off => false,
        Switch::Auto => !authenticated && listener.local_only(),
    };
    if !authenticated && anonymous_setting == Switch::Auto && !listener.local_only() {
        problem(
            layers,
            &[&at[..], &["bind"]].concat(),
            "this address can be reached from other machines and no authentication is configured: set \
             auth.password_file, or auth.allow_anonymous = true if everybody may connect"
                .into(),
        );
    }
    (layers.errors.len() == before).then_some(listener)
}

fn endpoint(
    layers: &mut Layers,
    at: &[&str; 2],
    keys: &ListenerKeys,
    secure: bool,
    open: bool,
) -> Option<Endpoint> {
    if keys.kind == ListenerKind::Unix {
        let Some(path) = keys.socket.clone() else {
            problem(
                layers,
                &[&at[..], &["socket"]].concat(),
                "kind \"unix\" needs the path of its socket".into(),
            );
            return None;
        };
        return Some(Endpoint::Unix { path, mode: keys.socket_mode });
    }
    let port = keys.port.unwrap_or(match (keys.kind, secure) {
        (ListenerKind::Mqtt | ListenerKind::Unix, false) => 1883,
        (ListenerKind::Mqtt | ListenerKind::Unix, true) => 8883,
        (ListenerKind::Ws, false) => 8083,
        (ListenerKind::Ws, true) => 8084,
    });
    let ips: Vec<IpAddr> = if !keys.bind.is_empty() {
        let mut ips = Vec::new();
        for text in &keys.bind {
            match text.trim_start_matches('[').trim_end_matches(']').parse() {
                Ok(ip) => ips.push(ip),
                Err(_) => {
                    let what = format!("\"{text}\" is not an IP address (the port has its own key)");
                    problem(layers, &[&at[..], &["bind"]].concat(), what);
                    return None;
                }
            }
        }
        ips
    } else if open {
        vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
    } else {
        vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
    };
    Some(Endpoint::Tcp {
        addresses: ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        optional_v6: keys.bind.is_empty(),
    })
}

fn tls_files(layers: &mut Layers, at: &[&str; 2], raw: &RawListener, shared: &Tls) -> Option<TlsFiles> {
    let own = raw.has_own_tls();
    let section = raw.tls_section(shared);
    let place: Vec<&str> = if own { vec![at[0], at[1], "tls"] } else { vec!["tls"] };
    let missing = |layers: &mut Layers, key: &'static str| {
        let mut path = place.clone();
        path.push(key);
        let name = at.join(".");
        problem(layers, &path, format!("{name} speaks TLS and needs both cert and key"));
        None
    };
    let Some(cert) = section.cert.clone() else { return missing(layers, "cert") };
    let Some(key) = section.key.clone() else { return missing(layers, "key") };
    if section.client_ca.is_none() && (section.crl.is_some() || section.username_from != UsernameFrom::None) {
        let mut path = place.clone();
        path.push("client_ca");
        problem(layers, &path, "crl and username_from have no meaning without client_ca".into());
    }
    Some(TlsFiles {
        cert,
        key,
        client_ca: section.client_ca.clone(),
        crl: section.crl.clone(),
        require_client_cert: section.require_client_cert,
        username_from: section.username_from,
        alpn_required: section.alpn,
    })
}

fn proxy_policy(layers: &mut Layers, listener: &str, proxy: &Proxy) -> Option<ProxyPolicy> {
    if proxy.mode == ProxyMode::Off {
        return None;
    }
    let mut trusted = Vec::new();
    for text in &proxy.trusted {
        match text.parse::<Cidr>() {
            Ok(cidr) => trusted.push(cidr),
            Err(e) => problem(layers, &["listener", listener, "proxy", "trusted"], e.to_string()),
        }
    }
    if proxy.trusted.is_empty() {
        let what = "mode \"required\" needs the networks of the proxies, such as [\"10.0.0.0/8\"]";
        problem(layers, &["listener", listener, "proxy", "trusted"], what.into());
    }
    Some(ProxyPolicy { trusted, max_body: usize::try_from(proxy.max_header).unwrap_or(usize::MAX) })
}

fn problem(layers: &mut Layers, path: &[&str], problem: String) {
    let origin = layers.origin(path);
    layers.errors.push(ConfigError::Invalid { origin, key: path.join("."), problem });
}
