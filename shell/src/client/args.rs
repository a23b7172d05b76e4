//! Flags that `mast sub` and `mast pub` share: those of mosquitto_sub and mosquitto_pub.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use mast_core::codec::Version;

use super::ClientError;

/// Names of protocol versions as mosquitto's clients take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProtocolName {
    #[value(name = "mqttv31", alias = "31")]
    V31,
    #[value(name = "mqttv311", alias = "311")]
    V311,
    #[value(name = "mqttv5", alias = "5")]
    V5,
}

impl ProtocolName {
    pub fn version(self) -> Version {
        match self {
            Self::V31 => Version::V31,
            Self::V311 => Version::V311,
            Self::V5 => Version::V5,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct ClientArgs {
    /// Print this help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// Broker to connect to.
    #[arg(short = 'h', long, default_value = "localhost")]
    pub host: String,
    /// Port; 1883, with TLS 8883, over WebSocket 8083 or 8084.
    #[arg(short, long)]
    pub port: Option<u16>,
    /// Address, user, password and topic in one: mqtt(s)://[user[:password]@]host[:port]/topic.
    #[arg(short = 'L', long, conflicts_with_all = ["host", "port", "unix"])]
    pub url: Option<String>,
    /// Connect through a unix socket.
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Connect over WebSocket.
    #[arg(long)]
    pub ws: bool,
    /// Path of the WebSocket endpoint.
    #[arg(long, default_value = "/mqtt")]
    pub ws_path: String,
    /// User name.
    #[arg(short, long)]
    pub username: Option<String>,
    /// Password.
    #[arg(short = 'P', long = "pw")]
    pub password: Option<String>,
    /// Client id; a random one without it.
    #[arg(short, long)]
    pub id: Option<String>,
    /// Beginning of a client id; the process's number follows.
    #[arg(short = 'I', long, conflicts_with = "id")]
    pub id_prefix: Option<String>,
    /// Topic, or filter for sub.
    #[arg(short, long = "topic", allow_hyphen_values = true)]
    pub topics: Vec<String>,
    /// Quality of service: 0, 1 or 2.
    #[arg(short, long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub qos: u8,
    /// Keep the session: no clean start. Needs -i.
    #[arg(short = 'c', long = "disable-clean-session")]
    pub keep_session: bool,
    /// Keep alive in seconds.
    #[arg(short, long, default_value_t = 60)]
    pub keepalive: u16,
    /// Protocol version.
    #[arg(short = 'V', long = "protocol-version", value_enum, default_value = "mqttv311")]
    pub protocol: ProtocolName,
    /// Session expiry in seconds, or ∞ (MQTT 5).
    #[arg(short = 'x', long = "session-expiry-interval")]
    pub session_expiry: Option<String>,
    /// Property of a packet (MQTT 5): PACKET NAME VALUE, or PACKET user-property NAME VALUE.
    #[arg(short = 'D', long = "property", num_args = 3..=4, value_names = ["PACKET", "NAME", "VALUE", "VALUE"])]
    pub properties: Vec<String>,
    /// Say what is sent and received.
    #[arg(short, long)]
    pub debug: bool,
    /// Print no errors.
    #[arg(long)]
    pub quiet: bool,
    /// Topic of the will.
    #[arg(long)]
    pub will_topic: Option<String>,
    /// Payload of the will.
    #[arg(long, requires = "will_topic")]
    pub will_payload: Option<String>,
    /// QoS of the will.
    #[arg(long, requires = "will_topic", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub will_qos: u8,
    /// Retain the will.
    #[arg(long, requires = "will_topic")]
    pub will_retain: bool,
    /// PEM file with the authorities that sign the broker's certificate. Turns TLS on.
    #[arg(long)]
    pub cafile: Option<PathBuf>,
    /// Trust the operating system's authorities. Turns TLS on.
    #[arg(long)]
    pub tls_use_os_certs: bool,
    /// PEM file with the client's certificate.
    #[arg(long, requires = "key")]
    pub cert: Option<PathBuf>,
    /// PEM file with the client's key.
    #[arg(long, requires = "cert")]
    pub key: Option<PathBuf>,
    /// Accept a certificate for another host name. For tests only.
    #[arg(long)]
    pub insecure: bool,
    /// Application protocol to offer in TLS.
    #[arg(long)]
    pub tls_alpn: Option<String>,
}

/// Where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    pub port: u16,
    pub tls: bool,
}

impl ClientArgs {
    /// Puts the parts of -L in their places and checks what hangs together.
    pub fn normalise(&mut self) -> Result<Target, ClientError> {
        let mut secure = self.cafile.is_some() || self.tls_use_os_certs || self.cert.is_some();
        if let Some(url) = self.url.clone() {
            secure |= self.take_url(&url)?;
        }
        if self.keep_session && self.id.is_none() && self.id_prefix.is_none() {
            return Err(ClientError::usage("-c keeps the session of a client id: give one with -i"));
        }
        if !self.properties.is_empty() && self.protocol != ProtocolName::V5 {
            return Err(ClientError::usage("-D needs MQTT 5: -V mqttv5"));
        }
        secure |= self.port == Some(8883);
        let port = self.port.unwrap_or(match (self.ws, secure) {
            (false, false) => 1883,
            (false, true) => 8883,
            (true, false) => 8083,
            (true, true) => 8084,
        });
        Ok(Target { host: self.host.clone(), port, tls: secure })
    }

    /// Takes a URL apart; gives whether it asks for TLS.
    fn take_url(&mut self, url: &str) -> Result<bool, ClientError> {
        let wrong =
            || ClientError::usage(format!("{url} is not mqtt(s)://[user[:password]@]host[:port]/topic"));
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (secure, ws) = match scheme {
            "mqtt" => (false, false),
            "mqtts" => (true, false),
            "ws" => (false, true),
            "wss" => (true, true),
            _ => return Err(wrong()),
        };
        self.ws |= ws;
        let (authority, topic) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if let Some(user) = user {
            let (name, password) = user.split_once(':').map_or((user, None), |(n, p)| (n, Some(p)));
            self.username = Some(name.to_owned());
            self.password = password.map(str::to_owned).or(self.password.take());
        }
        // An IPv6 address stands in brackets.
        let (host, port) = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            Some((address, port)) => (address, port.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(h, p)| (h, Some(p))),
        };
        if host.is_empty() {
            return Err(wrong());
        }
        self.host = host.to_owned();
        if let Some(port) = port {
            self.port = Some(port.parse().map_err(|_| wrong())?);
        }
        if !topic.is_empty() {
            self.topics.push(topic.to_owned());
        }
        Ok(secure)
    }

    /// Session expiry in seconds: -x, or without end for a kept session, as mosquitto's clients do.
    pub fn session_expiry_seconds(&self) -> Result<Option<u32>, ClientError> {
        match self.session_expiry.as_deref() {
            None => Ok(self.keep_session.then_some(u32::MAX)),
            Some("∞" | "-1" | "infinity" | "never") => Ok(Some(u32::MAX)),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| ClientError::usage(format!("-x {text}: a number of seconds, or ∞, is wanted"))),
        }
    }

    /// The client id to connect with.
    pub fn client_id(&self, command: &str) -> Result<String, ClientError> {
        if let Some(id) = &self.id {
            return Ok(id.clone());
        }
        if let Some(prefix) = &self.id_prefix {
            return Ok(format!("{prefix}{}", std::process::id()));
        }
        // MQTT 3.1 allows 23 characters: 9 for the name, 12 for 48 random bits.
        let mut random = [0u8; 8];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| ClientError::new("no random bytes for a client id"))?;
        Ok(format!("mast-{command}-{:012x}", u64::from_ne_bytes(random) >> 16))
    }
}
