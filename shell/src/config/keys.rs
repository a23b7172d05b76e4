//! Every key of the configuration, except those of limits (`limits.rs`). The reference in
//! `docs/configuration.md` is generated from here.

use std::{path::PathBuf, time::Duration};

use super::{
    bans::{BanKeys, Flapping},
    http_auth::HttpAuth,
    identity::{CertificateKeys, Jwt, Tenant},
    kind::{Kind, Switch},
    limits::Limits,
    rules::{DefaultAccess, RuleKeys},
    table::{SectionDef, choice, section},
    tenant_limits,
};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

choice! {
    /// How a log line looks.
    LogFormat {
        /// Text on a terminal, JSON otherwise.
        Auto = "auto", Text = "text", Json = "json",
    }
}
choice! {
    /// The least severe level that is logged.
    LogLevel { Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace" }
}
choice! {
    /// What a listener speaks before TLS is added.
    ListenerKind { Mqtt = "mqtt", Ws = "ws", Unix = "unix" }
}
choice! {
    /// Whether a listener expects a PROXY protocol header. There is no "optional": a client could then choose
    /// its own address.
    ProxyMode { Off = "off", Required = "required" }
}
choice! {
    /// Which part of a client certificate is the user name.
    UsernameFrom { None = "none", Cn = "cn", San = "san" }
}
choice! {
    /// What an acknowledgement promises.
    Durability { Memory = "memory", Stored = "stored", Synced = "synced" }
}

section! {
    /// This process.
    Node {
        /// Name of this node, in the first log line and in `mast_build_info`. Empty: the host name.
        name: Option<String> = "", Kind::Text;
        /// Directory of the store. Empty: the service manager's state directory, `/var/lib/mast` as root, else `$XDG_STATE_HOME/mast`.
        data_dir: Option<PathBuf> = "", Kind::Text;
        /// Number of shard threads; 0 means one for each core.
        shards: usize = "0", Kind::Int { min: 0, max: 1024 };
        /// Least severe level that is logged.
        log_level: LogLevel = "info", Kind::Choice(LogLevel::WORDS);
        /// Form of log lines; `auto` is text on a terminal and JSON otherwise.
        log_format: LogFormat = "auto", Kind::Choice(LogFormat::WORDS);
        /// At SIGTERM: time to hand clients their DISCONNECT and flush cursors before the process ends.
        drain_timeout: Duration = "30s", Kind::Time { min_ms: 0, max_ms: HOUR };
    }
}

section! {
    /// A listener. The part after the dot is its name, which appears in logs and metrics. One such section
    /// replaces the default listeners.
    ListenerKeys {
        /// `mqtt` is TCP, `ws` is WebSocket, `unix` is a unix socket.
        kind: ListenerKind = "mqtt", Kind::Choice(ListenerKind::WORDS);
        /// Addresses to listen on. Empty: all of them, or 127.0.0.1 and ::1 alone where no authentication is configured.
        bind: Vec<String> = "", Kind::List;
        /// TCP port; 0 means any free one, which the log names; `auto` is 1883, 8883 with TLS, 8083 for `ws`, 8084 for `ws` with TLS.
        port: Option<u16> = "auto", Kind::Port;
        /// Path of the unix socket.
        socket: Option<PathBuf> = "", Kind::Text;
        /// Permissions of the unix socket.
        socket_mode: u32 = "0660", Kind::Mode;
        /// Speak TLS with the certificate of the section `[tls]`. A certificate of the listener's own turns it on as well.
        secure: bool = "false", Kind::Bool;
        /// Path of the WebSocket endpoint.
        path: String = "/mqtt", Kind::Text;
        /// Values of the Origin header that are accepted. Empty: any; `same` means the request's own host.
        origins: Vec<String> = "", Kind::List;
        /// Greatest number of connections on this listener; 0 means only `limits.max_connections` counts.
        max_connections: usize = "0", Kind::Int { min: 0, max: 100_000_000 };
        /// Whether clients without a user name may connect here; `auto` takes the value of `auth.allow_anonymous`.
        allow_anonymous: Switch = "auto", Kind::Switch;
        /// The one tenant of this listener: anonymous clients, and users whose proof names no tenant, are of it; users of other tenants are refused. Empty: what the proof names, else `tenants.default`.
        tenant: Option<String> = "", Kind::Text;
        /// Who says who a client is, in this order: `certificate`, `jwt`, `password`, `http`. Each lets in, refuses, or hands on what is not its own. Empty: all that are configured, in this order.
        authenticators: Vec<String> = "", Kind::List;
    }
}

section! {
    /// Certificates. `[tls]` serves the default secure listeners and every `secure` listener that has none of its own.
    Tls {
        /// PEM file with the server's certificate chain.
        cert: Option<PathBuf> = "", Kind::Text;
        /// PEM file with the private key.
        key: Option<PathBuf> = "", Kind::Text;
        /// PEM file with the authorities that sign client certificates. Empty: clients are not asked for one.
        client_ca: Option<PathBuf> = "", Kind::Text;
        /// PEM file with certificate revocation lists of those authorities.
        crl: Option<PathBuf> = "", Kind::Text;
        /// Refuse clients without a certificate.
        require_client_cert: bool = "true", Kind::Bool;
        /// Which part of the client certificate is the user name: subject common name or first alternative name.
        username_from: UsernameFrom = "none", Kind::Choice(UsernameFrom::WORDS);
        /// Refuse a client that offers application protocols without `mqtt` among them.
        alpn: bool = "false", Kind::Bool;
    }
}

section! {
    /// PROXY protocol in front of a listener.
    Proxy {
        /// `required` expects a header (version 1 or 2) as the first bytes of every connection.
        mode: ProxyMode = "off", Kind::Choice(ProxyMode::WORDS);
        /// Networks whose headers are believed, such as "10.0.0.0/8". Connections from elsewhere are closed.
        trusted: Vec<String> = "", Kind::List;
        /// Greatest length of a version 2 header's body.
        max_header: u32 = "536B", Kind::Size { min: 36, max: 16_384 };
    }
}

section! {
    /// Who may connect and what they may do.
    Auth {
        /// Password file in mosquitto's format, written by `mast passwd` or `mosquitto_passwd`. Its users are of the listener's tenant, or of `tenants.default`.
        password_file: Option<PathBuf> = "", Kind::Text;
        /// Access control list in mosquitto's format, for tenants without one of their own. Empty: every client may use every topic of its tenant.
        acl_file: Option<PathBuf> = "", Kind::Text;
        /// What holds in a tenant for which there are rules, its own or the node's, where none of them matches. Where an access control list stands, it decides: no.
        default_access: DefaultAccess = "deny", Kind::Choice(DefaultAccess::WORDS);
        /// Tell MQTT 5 clients in a Reason String which rule denied them something.
        explain_denials: bool = "false", Kind::Bool;
        /// Denied attempts (of one client, action and topic) that each shard remembers of a tenant; 0 means none.
        denials_kept: u16 = "64", Kind::Int { min: 0, max: 65_535 };
        /// Whether clients without a user name may connect; `auto` means only on loopback and only while no authentication is configured.
        allow_anonymous: Switch = "auto", Kind::Switch;
        /// How long a successful password check is remembered, so that a reconnect storm costs no hashing; 0 never.
        hash_cache_ttl: Duration = "5m", Kind::Time { min_ms: 0, max_ms: DAY };
        /// Number of remembered checks.
        hash_cache_entries: usize = "10000", Kind::Int { min: 0, max: 10_000_000 };
        /// Password checks that run at the same time; 0 means one less than there are cores.
        hash_parallel: usize = "0", Kind::Int { min: 0, max: 256 };
        /// Password checks that may wait; beyond it CONNECT is answered with 0x97 (quota exceeded).
        hash_queue: usize = "64", Kind::Int { min: 0, max: 65_536 };
    }
}

section! {
    /// What the broker offers and accepts in the protocol.
    Mqtt {
        /// Largest packet a client may send, header included.
        max_packet_size: u32 = "1MiB", Kind::Size { min: 128, max: 268_435_460 };
        /// QoS 1 and 2 messages that a client may have unacknowledged towards the broker.
        receive_maximum: u16 = "64", Kind::Int { min: 1, max: 65_535 };
        /// QoS 1 and 2 messages that the broker keeps unacknowledged towards a client, which may ask for fewer.
        max_inflight: u16 = "64", Kind::Int { min: 1, max: 65_535 };
        /// Highest QoS offered.
        max_qos: u8 = "2", Kind::Int { min: 0, max: 2 };
        /// Topic aliases that a client may use towards the broker.
        topic_alias_max: u16 = "16", Kind::Int { min: 0, max: 65_535 };
        /// Topic aliases that the broker uses towards a client, which may ask for fewer.
        topic_alias_max_out: u16 = "16", Kind::Int { min: 0, max: 65_535 };
        /// Longest keep alive; a longer one, or none, is replaced by it (MQTT 5).
        keep_alive_max: Duration = "1h", Kind::Time { min_ms: SECOND, max_ms: 65_535 * SECOND };
        /// Whether a client may turn keep alive off.
        keep_alive_off: bool = "false", Kind::Bool;
        /// Longest session expiry; a longer one is replaced by it.
        session_expiry_max: Duration = "7d", Kind::Time { min_ms: 0, max_ms: 4_294_967_294 * SECOND };
        /// Longest message expiry, also for messages that have none; 0 means no bound.
        message_expiry_max: Duration = "0s", Kind::Time { min_ms: 0, max_ms: 4_294_967_294 * SECOND };
        /// Levels in a topic or filter.
        max_topic_levels: u16 = "128", Kind::Int { min: 1, max: 65_535 };
        /// Bytes in a topic or filter.
        max_topic_bytes: u16 = "4KiB", Kind::Size { min: 1, max: 65_535 };
        /// Offer retained messages.
        retain_available: bool = "true", Kind::Bool;
        /// Offer filters with `+` and `#`.
        wildcard_available: bool = "true", Kind::Bool;
        /// Offer shared subscriptions.
        shared_available: bool = "true", Kind::Bool;
        /// Offer subscription identifiers.
        subscription_id_available: bool = "true", Kind::Bool;
        /// Refuse payloads that say they are UTF-8 and are not.
        payload_format_check: bool = "true", Kind::Bool;
        /// Accept MQTT 3.1 and 3.1.1.
        accept_v3: bool = "true", Kind::Bool;
        /// Accept MQTT 5.
        accept_v5: bool = "true", Kind::Bool;
        /// Accept an empty client id and assign one.
        assign_client_id: bool = "true", Kind::Bool;
        /// Time between updates of `$SYS` topics; 0 turns them off.
        sys_interval: Duration = "10s", Kind::Time { min_ms: 0, max_ms: DAY };
    }
}

choice! {
    /// What happens when an absent session has all that may be kept for it.
    WhenFull { DropOldest = "drop-oldest", RefuseNew = "refuse-new" }
}

section! {
    /// Messages for sessions whose client is away. The limits apply to each session.
    Offline {
        /// Greatest number of messages.
        max_messages: u64 = "10000", Kind::Int { min: 0, max: u64::MAX };
        /// Greatest number of payload and topic bytes.
        max_bytes: u64 = "64MiB", Kind::Size { min: 0, max: u64::MAX };
        /// What happens beyond: `drop-oldest` drops the session's oldest messages when its client returns, and counts them; `refuse-new` refuses publishes of QoS 1 and 2 that the session would get with 0x97 (MQTT 3.x: disconnected).
        when_full: WhenFull = "drop-oldest", Kind::Choice(WhenFull::WORDS);
        /// Greatest age.
        max_age: Duration = "7d", Kind::Time { min_ms: SECOND, max_ms: 3_650 * DAY };
        /// Keep QoS 0 messages for subscriptions of QoS 1 and 2 as well.
        keep_qos0: bool = "false", Kind::Bool;
    }
}

section! {
    /// The embedded store.
    Store {
        /// What holds when a publish is acknowledged: `memory` it is routed, `stored` it is written to a file, `synced` the file is on the disk.
        durability: Durability = "synced", Kind::Choice(Durability::WORDS);
        /// Size of a journal file.
        segment_size: u64 = "64MiB", Kind::Size { min: MIB, max: GIB };
        /// A checkpoint of keyed state follows after this many journal bytes.
        checkpoint_bytes: u64 = "32MiB", Kind::Size { min: MIB, max: 4 * GIB };
        /// A checkpoint of keyed state follows at the latest after this time.
        checkpoint_interval: Duration = "5s", Kind::Time { min_ms: 100, max_ms: HOUR };
        /// Greatest size of the journal on disk; beyond it publishes that must be stored are answered with 0x97. At least four journal files; 0 means until the disk is full.
        max_bytes: u64 = "0", Kind::Size { min: 0, max: u64::MAX };
        /// Free space on the disk that the store leaves alone.
        reserve_bytes: u64 = "128MiB", Kind::Size { min: 0, max: u64::MAX };
        /// Memory for messages that sessions read again soon.
        tail_ring: u64 = "32MiB", Kind::Size { min: MIB, max: 64 * GIB };
        /// Time that the log keeps messages even when every session has them.
        min_age: Duration = "10m", Kind::Time { min_ms: 0, max_ms: 3_650 * DAY };
        /// Time after which an operation of the store counts as unknown.
        deadline: Duration = "15s", Kind::Time { min_ms: 100, max_ms: HOUR };
    }
}

section! {
    /// Metrics, health and administration over HTTP.
    Admin {
        /// Addresses with port. Empty: no such endpoint.
        bind: Vec<String> = "127.0.0.1:18083", Kind::List;
        /// Bearer token that `/metrics` asks for. Empty: none.
        token: Option<String> = "", Kind::Secret;
    }
}

section! {
    /// Tenants of this deployment.
    Tenants {
        /// Names of the tenants, besides those that have a section `[tenant.<name>]`.
        names: Vec<String> = "default", Kind::List;
        /// Tenant of clients for whom authentication names none. Empty: they are refused.
        default: Option<String> = "default", Kind::Text;
    }
}

const RULES_OF_TENANTS: &str = "Rules of a tenant (`[[tenant.<name>.rule]]`); they are asked after those of the node (`[[rule]]`) and before its \
     access control list.";

/// All sections, in the order of the reference.
pub const SECTIONS: &[SectionDef] = &[
    SectionDef { path: &["node"], doc: Node::DOC, keys: Node::KEYS },
    SectionDef { path: &["listener", "*"], doc: ListenerKeys::DOC, keys: ListenerKeys::KEYS },
    SectionDef { path: &["listener", "*", "tls"], doc: Tls::DOC, keys: Tls::KEYS },
    SectionDef { path: &["listener", "*", "proxy"], doc: Proxy::DOC, keys: Proxy::KEYS },
    SectionDef { path: &["tls"], doc: Tls::DOC, keys: Tls::KEYS },
    SectionDef { path: &["auth"], doc: Auth::DOC, keys: Auth::KEYS },
    SectionDef { path: &["mqtt"], doc: Mqtt::DOC, keys: Mqtt::KEYS },
    SectionDef { path: &["limits"], doc: Limits::DOC, keys: Limits::KEYS },
    SectionDef { path: &["offline"], doc: Offline::DOC, keys: Offline::KEYS },
    SectionDef { path: &["store"], doc: Store::DOC, keys: Store::KEYS },
    SectionDef { path: &["admin"], doc: Admin::DOC, keys: Admin::KEYS },
    SectionDef { path: &["tenants"], doc: Tenants::DOC, keys: Tenants::KEYS },
    SectionDef { path: &["tenant_limits"], doc: tenant_limits::DOC_ALL, keys: &tenant_limits::KEYS },
    SectionDef { path: &["tenant", "*"], doc: Tenant::DOC, keys: Tenant::KEYS },
    SectionDef { path: &["tenant", "*", "limits"], doc: tenant_limits::DOC_OWN, keys: &tenant_limits::KEYS },
    SectionDef { path: &["tenant", "*", "rule", "*"], doc: RULES_OF_TENANTS, keys: RuleKeys::KEYS },
    SectionDef { path: &["rule", "*"], doc: RuleKeys::DOC, keys: RuleKeys::KEYS },
    SectionDef { path: &["certificate", "*"], doc: CertificateKeys::DOC, keys: CertificateKeys::KEYS },
    SectionDef { path: &["jwt"], doc: Jwt::DOC, keys: Jwt::KEYS },
    SectionDef { path: &["http_auth"], doc: HttpAuth::DOC, keys: HttpAuth::KEYS },
    SectionDef { path: &["ban", "*"], doc: BanKeys::DOC, keys: BanKeys::KEYS },
    SectionDef { path: &["flapping"], doc: Flapping::DOC, keys: Flapping::KEYS },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_accepted_by_its_own_kind_and_documented() {
        for section in SECTIONS {
            for key in section.keys {
                assert!(key.default_value().is_some(), "{:?}.{}", section.path, key.name);
                assert!(key.doc.trim().ends_with('.'), "{:?}.{}", section.path, key.name);
            }
        }
    }
}
