//! Metrics of the broker itself.

use crate::auth::AuthState;
use crate::driver::{ShardHandle, ShardSetup};
use crate::obs::Metrics;
use crate::obs::metrics::Samples;
use crate::store::stats::SYNC_BUCKETS;
use crate::store::{LogUse, StoreClient};
use mast_core::sys::{CUTS, Counters, DROPS, FILTER_REFUSALS, REFUSALS, TenantCounters, TenantUsage};
use mast_core::tenant::limits::{LIMITS, Row};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Registers everything that the engine can tell.
/// At most `max_tenants` tenants have series of their own.
pub fn register(
    metrics: &Metrics,
    shards: &[ShardHandle],
    store: &StoreClient,
    auth: &Arc<AuthState>,
    max_tenants: usize,
) {
    let setups: Vec<Arc<ShardSetup>> = shards.iter().map(|s| Arc::clone(&s.setup)).collect();
    let client = store.clone();
    metrics.register(move |out| shard_samples(&setups, &client, max_tenants, out));
    let client = store.clone();
    metrics.register(move |out| store_samples(&client, out));
    let auth = Arc::clone(auth);
    metrics.register(move |out| {
        let Some(passwords) = auth.passwords() else { return };
        let counts = &passwords.counts;
        for (reason, value) in [
            ("accepted", &counts.accepted),
            ("refused", &counts.refused),
            ("busy", &counts.busy),
            ("cached", &counts.cache_hits),
        ] {
            let value = value.load(Ordering::Relaxed);
            out.counter("mast_logins_total", "Password checks by outcome.", &[("reason", reason)], value);
        }
    });
}

/// The name under which the tenants beyond the bound are summed up. No tenant can have it.
const OTHER: &str = "_other";

fn shard_samples(setups: &[Arc<ShardSetup>], store: &StoreClient, max_tenants: usize, out: &mut Samples) {
    let mut sum = Counters::default();
    let mut tenants: BTreeMap<String, TenantCounters> = BTreeMap::new();
    let mut usage: BTreeMap<String, TenantUsage> = BTreeMap::new();
    for setup in setups {
        let published = setup.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        add(&mut sum, &published.counters);
        // They come in the order of their numbers, so whoever has a series keeps it while others come.
        for (n, (name, counters)) in published.tenants.into_iter().enumerate() {
            let name = if n < max_tenants { name } else { OTHER.to_owned() };
            add_tenant(tenants.entry(name).or_default(), &counters);
        }
        // Limits of several tenants have no sum: beyond the bound they are in the API alone.
        for (name, part) in published.usage {
            usage.entry(name).or_default().add(&part);
        }
    }
    let directions = |out: &mut Samples, name, help, received, sent| {
        out.counter(name, help, &[("direction", "in")], received);
        out.counter(name, help, &[("direction", "out")], sent);
    };
    directions(out, "mast_publish_total", "PUBLISH packets.", sum.publish_in, sum.publish_out);
    directions(out, "mast_bytes_total", "MQTT bytes.", sum.bytes_in, sum.bytes_out);
    for (name, help, value) in [
        ("mast_connects_total", "Connections admitted.", sum.connects),
        ("mast_disconnects_total", "Admitted connections that ended.", sum.disconnects),
        ("mast_connects_refused_total", "CONNECTs refused after authentication.", sum.refused),
        ("mast_takeovers_total", "Connections that lost their session to another.", sum.takeovers),
        ("mast_violations_total", "Connections closed for a protocol error.", sum.violations),
        ("mast_appended_total", "Messages given to the log.", sum.appended),
        ("mast_spilled_total", "Messages put into the log for a slow clean session.", sum.spilled),
        ("mast_replayed_total", "Messages read back from the log.", sum.replayed),
        ("mast_store_failures_total", "Store operations refused or unanswered.", sum.store_failures),
        (
            "mast_match_over_budget_total",
            "Topics whose matching visited more than limits.max_match_nodes nodes.",
            sum.match_over_budget,
        ),
        ("mast_tenant_canary_total", "Deliveries stopped at a tenant border. Must stay 0.", sum.canary),
    ] {
        out.counter(name, help, &[], value);
    }
    for (reason, word) in DROPS {
        let labels = [("reason", word)];
        out.counter("mast_dropped_total", "Messages not delivered.", &labels, sum.drops[reason as usize]);
    }
    for (cut, word) in CUTS {
        let help = "Connections ended that had not broken the protocol.";
        out.counter("mast_connections_cut_total", help, &[("reason", word)], sum.cuts[cut as usize]);
    }
    for (refused, word) in FILTER_REFUSALS {
        let value = sum.filters_refused[refused as usize];
        out.counter("mast_subscribe_refused_total", "Filters refused in SUBACK.", &[("reason", word)], value);
    }
    let help = "Absent sessions with all that may be kept for them (offline.when_full = \"refuse-new\").";
    out.gauge("mast_offline_full_sessions", help, &[], sum.offline_full);
    for (refused, word) in REFUSALS {
        let help = "QoS 1 and 2 publishes refused by a limit, before anything was stored or delivered.";
        let value = sum.refusals[refused as usize];
        out.counter("mast_publish_refused_total", help, &[("reason", word)], value);
    }
    usage.retain(|name, _| tenants.contains_key(name));
    limit_samples(&usage, &store.log_use(), out);
    for (name, counters) in &tenants {
        tenant_samples(name, counters, out);
    }
}

/// Adds a shard's counters of a tenant.
pub fn add_tenant(total: &mut TenantCounters, counters: &TenantCounters) {
    total.connected += counters.connected;
    total.sessions += counters.sessions;
    total.subscriptions += counters.subscriptions;
    total.retained += counters.retained;
    total.publish_in += counters.publish_in;
    total.publish_bytes_in += counters.publish_bytes_in;
    total.publish_out += counters.publish_out;
}

/// The series of one tenant.
pub fn tenant_samples(name: &str, t: &TenantCounters, out: &mut Samples) {
    let labels = [("tenant", name)];
    out.gauge("mast_tenant_connections", "Connected clients.", &labels, t.connected);
    out.gauge("mast_tenant_sessions", "Sessions, connected or not.", &labels, t.sessions);
    out.gauge("mast_tenant_subscriptions", "Subscriptions.", &labels, t.subscriptions);
    out.gauge("mast_tenant_retained", "Retained messages.", &labels, t.retained);
    out.counter("mast_tenant_publish_total", "PUBLISH packets received.", &labels, t.publish_in);
    out.counter("mast_tenant_bytes_total", "Payload bytes received.", &labels, t.publish_bytes_in);
    out.counter("mast_tenant_sent_total", "PUBLISH packets sent.", &labels, t.publish_out);
}

/// Limits of tenants: what is set, what there is, how often they were met. `log` = bytes in the log.
fn limit_samples(usage: &BTreeMap<String, TenantUsage>, log: &BTreeMap<String, LogUse>, out: &mut Samples) {
    for (name, tenant) in usage {
        let own_log = log.get(name).copied().unwrap_or_default();
        for def in &LIMITS {
            let labels = [("tenant", name.as_str()), ("limit", def.name)];
            let (mut enforced, mut observed) =
                (tenant.hits.enforced[def.row as usize], tenant.hits.observed[def.row as usize]);
            let mut used = tenant.usage.of(def.row);
            if def.row == Row::LogBytes {
                (used, enforced, observed) = (Some(own_log.bytes), own_log.enforced, own_log.observed);
            }
            let limit = tenant.limit(def.row);
            if let Some(limit) = limit {
                out.gauge("mast_tenant_limit", "Limits of tenants.", &labels, limit.value);
            }
            if let Some(used) = used {
                out.gauge("mast_tenant_usage", "What tenants with limits use.", &labels, used);
            }
            if limit.is_none() && enforced == 0 && observed == 0 {
                continue;
            }
            for (mode, value) in [("enforced", enforced), ("observed", observed)] {
                let help = "Times that a tenant met a limit; observed: nothing was refused or slowed.";
                let labels = [("tenant", name.as_str()), ("limit", def.name), ("mode", mode)];
                out.counter("mast_tenant_limit_hits_total", help, &labels, value);
            }
        }
    }
}

fn add(sum: &mut Counters, other: &Counters) {
    sum.publish_in += other.publish_in;
    sum.publish_out += other.publish_out;
    sum.bytes_in += other.bytes_in;
    sum.bytes_out += other.bytes_out;
    sum.appended += other.appended;
    sum.spilled += other.spilled;
    sum.replayed += other.replayed;
    sum.connects += other.connects;
    sum.disconnects += other.disconnects;
    sum.refused += other.refused;
    sum.takeovers += other.takeovers;
    sum.violations += other.violations;
    sum.store_failures += other.store_failures;
    sum.canary += other.canary;
    sum.match_over_budget += other.match_over_budget;
    sum.offline_full += other.offline_full;
    for (mine, theirs) in sum.drops.iter_mut().zip(other.drops) {
        *mine += theirs;
    }
    let others = other.refusals.iter().chain(&other.cuts).chain(&other.filters_refused);
    let mine = sum.refusals.iter_mut().chain(&mut sum.cuts).chain(&mut sum.filters_refused);
    for (mine, theirs) in mine.zip(others) {
        *mine += theirs;
    }
}

fn store_samples(client: &StoreClient, out: &mut Samples) {
    let stats = client.stats();
    for (name, help, value) in [
        ("mast_store_commits_total", "Commits applied.", stats.commits),
        ("mast_store_appends_total", "Messages appended.", stats.appends),
        ("mast_store_batches_total", "Writes to the journal; each holds all that waited.", stats.batches),
        ("mast_store_journal_bytes_total", "Bytes written to the journal.", stats.journal_bytes),
        ("mast_store_moved_bytes_total", "Bytes rewritten to free segments.", stats.moved_bytes),
        ("mast_store_checkpoint_bytes_total", "Bytes written to the checkpoint.", stats.state_bytes),
        ("mast_store_checkpoints_total", "Checkpoints.", stats.checkpoints),
        ("mast_store_checkpoint_failures_total", "Checkpoints that failed.", stats.checkpoint_failures),
        ("mast_store_reads_total", "Reads answered.", stats.reads),
        ("mast_store_read_entries_total", "Messages given to readers.", stats.read_entries),
        ("mast_store_damage_total", "Places of the journal found damaged.", stats.damage),
        ("mast_store_read_disk_total", "Messages of these that came from disk.", stats.read_from_disk),
    ] {
        out.counter(name, help, &[], value);
    }
    for (reason, value) in [
        ("conflict", stats.conflicts),
        ("full", stats.refused_full),
        ("unavailable", stats.refused_unavailable),
        ("unknown", stats.unknown),
    ] {
        let labels = [("reason", reason)];
        out.counter("mast_store_refused_total", "Commits not applied, or not known to be.", &labels, value);
    }
    for (name, help, value) in [
        ("mast_store_segments", "Journal segments in use.", stats.segments),
        ("mast_store_log_messages", "Messages in the log.", stats.log_entries),
        ("mast_store_index_bytes", "Memory of the log's index.", stats.index_bytes),
        ("mast_store_keys", "Keys.", stats.keys),
        ("mast_store_queue_bytes", "Bytes of requests that wait.", stats.queue_bytes),
    ] {
        out.gauge(name, help, &[], value);
    }
    let bounds: Vec<f64> = SYNC_BUCKETS.iter().map(|us| *us as f64 / 1e6).collect();
    let sum = stats.sync_micros as f64 / 1e6;
    let help = "Time of one sync of the journal.";
    out.histogram("mast_store_sync_seconds", help, &[], &bounds, &stats.sync_buckets, sum);
    let health = client.health();
    let takes = u64::from(health.writable && !health.full);
    out.gauge("mast_store_writable", "1 if the store takes messages.", &[], takes);
}
