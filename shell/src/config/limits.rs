//! The section `[limits]`: every bound that protects the broker from its clients.

use std::time::Duration;

use super::{kind::Kind, table::section};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MANY: u64 = 100_000_000;

section! {
    /// Bounds that protect the broker.
    Limits {
        /// Largest first packet (CONNECT).
        max_connect_packet: u32 = "128KiB", Kind::Size { min: 128, max: 16 * MIB };
        /// Time from accept to a complete CONNECT.
        connect_timeout: Duration = "10s", Kind::Time { min_ms: 100, max_ms: 300 * SECOND };
        /// Time for each of the TLS, WebSocket and PROXY handshakes.
        handshake_timeout: Duration = "5s", Kind::Time { min_ms: 100, max_ms: 300 * SECOND };
        /// Time that a packet may take from its first to its last byte, within what keep alive allows. It is looked at in steps of this length.
        packet_timeout: Duration = "30s", Kind::Time { min_ms: SECOND, max_ms: HOUR };
        /// Connections in all; 0 means what the limit on open files allows.
        max_connections: usize = "0", Kind::Int { min: 0, max: MANY };
        /// Connections of one tenant; the older name of `tenant_limits.connections`, which stands before it. 0 means no bound of its own.
        max_connections_per_tenant: usize = "0", Kind::Int { min: 0, max: MANY };
        /// Connections from one IPv4 address or one IPv6 /64 network; 0 means no bound of its own.
        max_connections_per_source: usize = "0", Kind::Int { min: 0, max: MANY };
        /// Connections accepted per second, before any handshake.
        accept_rate: u32 = "5000", Kind::Int { min: 1, max: 10_000_000 };
        /// Connections accepted at once beyond the rate.
        accept_burst: u32 = "10000", Kind::Int { min: 1, max: 10_000_000 };
        /// Connections accepted per second from one source; 0 means no bound of its own.
        accept_rate_per_source: u32 = "0", Kind::Int { min: 0, max: 10_000_000 };
        /// Handshakes (TLS, WebSocket, CONNECT) in flight.
        max_handshakes: usize = "4096", Kind::Int { min: 1, max: 1_000_000 };
        /// Share of open files that connections before CONNACK may hold, in percent; beyond it the oldest of them gives way.
        max_unauthenticated_percent: u8 = "10", Kind::Int { min: 1, max: 100 };
        /// Open files kept back for the store, the log and administration.
        reserved_files: usize = "128", Kind::Int { min: 16, max: 65_536 };
        /// Connections waiting in the kernel to be accepted.
        backlog: u32 = "4096", Kind::Int { min: 16, max: 65_535 };
        /// Filters in one SUBSCRIBE or UNSUBSCRIBE.
        max_filters_per_subscribe: usize = "1000", Kind::Int { min: 1, max: 65_536 };
        /// Subscriptions of one session.
        max_subscriptions_per_session: usize = "100000", Kind::Int { min: 1, max: MANY };
        /// Levels with `+` in one filter.
        max_plus_per_filter: usize = "16", Kind::Int { min: 0, max: 65_535 };
        /// Nodes of the topic index that the matching of one publish may visit; beyond it the publish is refused with 0x97 (MQTT 3.x: disconnected; QoS 0: dropped and counted).
        max_match_nodes: u32 = "10000", Kind::Int { min: 100, max: 1_000_000_000 };
        /// User properties in one packet.
        max_user_properties: usize = "64", Kind::Int { min: 0, max: 65_536 };
        /// Bytes of user properties in one packet.
        max_user_property_bytes: u32 = "8KiB", Kind::Size { min: 0, max: 16 * MIB };
        /// Members of a shared subscription group.
        max_group_members: usize = "1024", Kind::Int { min: 1, max: 1_000_000 };
        /// Bytes that wait for one socket before QoS 0 messages are dropped; QoS 1 and 2 stay in the queue.
        socket_buffer: u32 = "256KiB", Kind::Size { min: 4 * KIB, max: 256 * MIB };
        /// Time that a socket may take nothing before a clean session is disconnected with 0x97. A persistent session is not cut before its keep alive says so.
        stall_timeout: Duration = "30s", Kind::Time { min_ms: SECOND, max_ms: HOUR };
        /// Messages that wait in memory for a connected client before it reads from the log.
        max_queued_messages: usize = "1000", Kind::Int { min: 1, max: 1_000_000 };
        /// Bytes that wait in memory for a connected client before it reads from the log.
        max_queued_bytes: u64 = "8MiB", Kind::Size { min: 64 * KIB, max: GIB };
        /// Bytes of offline messages of one tenant; 0 means no bound of its own.
        max_offline_bytes_per_tenant: u64 = "0", Kind::Size { min: 0, max: u64::MAX };
        /// Largest will: topic, properties and payload together.
        max_will_size: u32 = "128KiB", Kind::Size { min: 0, max: 16 * MIB };
        /// Longest will delay; a longer one is replaced by it.
        will_delay_max: Duration = "1d", Kind::Time { min_ms: 0, max_ms: 4_294_967_294 * SECOND };
        /// Password checks per second from one source address; 0 means no bound of its own.
        login_rate_per_source: u32 = "10", Kind::Int { min: 0, max: 1_000_000 };
        /// Password checks per second for one user name; 0 means no bound of its own.
        login_rate_per_user: u32 = "10", Kind::Int { min: 0, max: 1_000_000 };
        /// Bytes of a client's certificate chain.
        max_cert_chain: u32 = "16KiB", Kind::Size { min: KIB, max: 64 * KIB };
        /// Bytes of a WebSocket upgrade request.
        max_http_header: u32 = "8KiB", Kind::Size { min: KIB, max: 64 * KIB };
        /// Body of a request to the administration endpoint.
        max_admin_body: u32 = "1MiB", Kind::Size { min: KIB, max: 64 * MIB };
        /// Tenants with series of their own in the metrics. The rest is summed up as the tenant `_other`; each tenant's own figures are at /metrics for a token of that tenant.
        max_tenant_labels: usize = "200", Kind::Int { min: 0, max: 100_000 };
        /// Connections to the administration endpoint, over all its addresses. A further one takes the place of the one that waits longest. Taken over by a restart.
        max_admin_connections: usize = "64", Kind::Int { min: 4, max: 65_536 };
        /// How long the administration endpoint waits for a request's head, also on a connection that has had an answer. Taken over by a restart.
        admin_timeout: Duration = "10s", Kind::Time { min_ms: 100, max_ms: 300 * SECOND };
        /// Characters of a client's text in one log line.
        max_log_text: usize = "256", Kind::Int { min: 16, max: 65_536 };
        /// Memory budget; 0 means the control group's limit, or the machine's memory.
        memory_budget: u64 = "0", Kind::Size { min: 0, max: u64::MAX };
        /// Percent of the budget from which CONNECT is answered with 0x89 (server busy).
        memory_refuse_percent: u8 = "80", Kind::Int { min: 1, max: 100 };
        /// Percent of the budget from which connections that have published are not read.
        memory_pause_percent: u8 = "90", Kind::Int { min: 1, max: 100 };
        /// Percent of the budget from which the QoS 0 consumers with most bytes waiting are cut, twice a second an eighth of them.
        memory_cut_percent: u8 = "95", Kind::Int { min: 1, max: 100 };
    }
}
