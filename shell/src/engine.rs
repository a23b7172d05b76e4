//! The engine of the all-in-one role: store, shard threads, acceptors, and their metrics.

use crate::accept::authenticate::Authenticator;
use crate::accept::{Acceptor, InForce};
use crate::admin::Admin;
use crate::admin::api::wire::Door;
use crate::admin::control::{Control, registry_of};
use crate::admin::desk::{Desk, Questions};
use crate::admin::state::State;
use crate::admin::write::{AnswerSink, Waiting, Writer};
use crate::config::{Config, Durability as ConfigDurability, WhenFull as ConfigWhenFull};
use crate::driver::clock::Clock;
use crate::driver::mailbox::{Mail, Mailbox, StoreSink};
use crate::driver::{ShardHandle, ShardSetup, spawn};
use crate::listen::admission::Admission;
use crate::obs::health::Component;
use crate::obs::log::RateLimited;
use crate::obs::memory::{self, Pressure};
use crate::obs::process;
use crate::serve::{Context, Engine, OpenListener, Pulse};
use crate::store::files::os::OsFiles;
use crate::store::{AdminRecord, Sink, Store, StoreClient, StoreOptions};
use arc_swap::ArcSwap;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use mast_core::codec::Reason;
use mast_core::conn::handshake::{AuthAnswer, HandshakeConfig};
use mast_core::ids::ShardIx;
use mast_core::message::QoS;
use mast_core::settings::{OfflineLimits, Settings, ShareStrategy, WhenFull};
use mast_core::shard::ShardConfig;
use mast_core::store::port::{Durability, Restored};
use mast_core::tenant::Tenancy;
use mast_core::tenant::limits::Limits;
use mast_core::tenant::registry::Registry;
use mast_core::topic::Limits as TopicLimits;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A shard that was not heard of for so long hangs: the service manager's watchdog is to know.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// 64 bits from the operating system's random source.
///
/// # Errors
/// It has none to give.
pub fn entropy() -> io::Result<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random bytes from the system"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// The running broker.
pub struct AllInOne {
    shards: Vec<ShardHandle>,
    /// Open, but not yet accepting.
    closed_doors: Vec<OpenListener>,
    acceptor: Arc<Acceptor>,
    loops: Vec<JoinHandle<()>>,
    mailboxes: Vec<Arc<Mailbox>>,
    context: Shared,
    store: Option<Store>,
}

/// What reload and health need.
struct Shared {
    admin: Arc<Admin>,
    door: Door,
    store: StoreClient,
    store_health: Component,
    shards_health: Component,
    pressure: Arc<Pressure>,
    clock: Clock,
    was_well: bool,
}

/// What all shards of the process share.
struct Common<'a> {
    mailboxes: &'a [Arc<Mailbox>],
    log_limit: Arc<RateLimited<&'static str>>,
    pressure: Arc<Pressure>,
    clock: Clock,
    questions: Arc<Questions>,
}

impl AllInOne {
    /// Opens the store and starts the shards. It blocks on the disk; the doors are opened by
    /// [`Engine::ready`].
    ///
    /// # Errors
    /// What failed, with the way out.
    pub fn start(context: Context) -> Result<AllInOne, String> {
        let Context { config, listeners, auth, metrics, health, admin: door } = context;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = if config.node.shards == 0 { cores } else { config.node.shards }.min(1024) as u16;
        let mailboxes: Vec<Arc<Mailbox>> = (0..shards).map(|_| Arc::default()).collect();
        let (store_health, shards_health) = (health.register("store"), health.register("shards"));
        let answers = Arc::new(Waiting::default());
        let (store, restored, records, registry) = open_store(&config, &mailboxes, &answers)?;
        let client = store.client();
        let pressure = Arc::new(Pressure::default());
        let common = Common {
            mailboxes: &mailboxes,
            log_limit: Arc::new(RateLimited::new(Duration::from_secs(5), 256)),
            pressure: Arc::clone(&pressure),
            clock: Clock::new(),
            questions: Arc::default(),
        };
        client.set_log_limits(&registry, &limits_of(&registry, &config));
        let handles = start_shards(&config, &common, &registry, &auth, &client, restored)?;
        let open_files = process::open_file_limit().unwrap_or(1024);
        let acceptor = Arc::new(Acceptor {
            in_force: ArcSwap::from_pointee(in_force(&config)),
            authenticator: Arc::new(Authenticator::new(Arc::clone(&auth), registry.clone(), &config)),
            admission: Admission::new(&config.limits, open_files, Arc::clone(&pressure)),
            failures: Arc::default(),
            shards: mailboxes.clone(),
            log_limit: common.log_limit,
            clock: common.clock,
        });
        let labels = config.limits.max_tenant_labels;
        crate::obs::broker::register(&metrics, &handles, &client, &auth, labels);
        acceptor.admission.register(&metrics);
        acceptor.failures.register(&metrics);
        let log_limit = Arc::clone(&acceptor.log_limit);
        metrics.register(move |out| {
            let help = "Log lines about clients that were held back.";
            out.counter("mast_log_held_back_total", help, &[], log_limit.held_back());
        });
        pressure.register(&metrics);
        let control = Control::new(
            &config,
            registry,
            &records,
            (auth, client.clone()),
            Arc::clone(&acceptor),
            mailboxes.clone(),
        );
        let writer = Writer::new(client.clone(), ShardIx(shards), answers);
        let desk = Desk::new(mailboxes.clone(), common.questions);
        let admin = Arc::new(Admin::new(records, writer, desk, control, common.clock));
        let context = Shared {
            admin,
            door,
            store: client,
            store_health,
            shards_health,
            pressure,
            clock: common.clock,
            was_well: true,
        };
        Ok(AllInOne {
            shards: handles,
            closed_doors: listeners,
            acceptor,
            loops: Vec::new(),
            mailboxes,
            context,
            store: Some(store),
        })
    }

    /// Tells health, and the log at every change, how the store is.
    fn look_at_store(&mut self) {
        let store = self.context.store.health();
        let well = store.writable && !store.full;
        let reason = store.reason.as_deref().unwrap_or("it does not take writes");
        if let (true, Some(damaged)) = (well, &store.damaged) {
            let text = format!("{damaged}; what is damaged is left out (mast_store_damage_total)");
            self.context.store_health.not_ready(&text);
        } else if well {
            self.context.store_health.ready();
        } else {
            self.context.store_health.not_ready(reason);
        }
        match (self.context.was_well, well) {
            (true, false) => tracing::error!(reason, "the store takes no messages; QoS 0 goes on"),
            (false, true) => tracing::info!("the store takes messages again"),
            (true, true) | (false, false) => {}
        }
        self.context.was_well = well;
    }

    /// Why the broker cannot go on, if one of its parts ended.
    fn dead_part(&mut self) -> Option<String> {
        if self.loops.iter().any(JoinHandle::is_finished) {
            return Some("a task that accepts connections ended".to_owned());
        }
        self.dead_shard()
    }

    fn dead_shard(&mut self) -> Option<String> {
        let at = self.shards.iter().position(|s| s.thread.is_finished())?;
        let dead = self.shards.swap_remove(at);
        let number = dead.setup.shard.0;
        Some(match dead.thread.join() {
            Ok(()) => format!("shard thread {number} ended"),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text =
                    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
                format!("shard thread {number} panicked: {text}; please report this")
            }
        })
    }
}

/// What a reload puts in force at the doors.
fn in_force(config: &Arc<Config>) -> InForce {
    let handshake = HandshakeConfig {
        max_connect_packet: config.limits.max_connect_packet,
        connect_deadline_ms: u64::try_from(config.limits.connect_timeout.as_millis()).unwrap_or(u64::MAX),
        auth_methods: Arc::from([]),
        settings: Arc::new(settings_of(config)),
    };
    InForce { config: Arc::clone(config), handshake: Arc::new(handshake) }
}

/// Tenants and what holds for them, as the shards are told.
fn tenancy(registry: &Registry, auth: &crate::auth::AuthState, config: &Config) -> Tenancy {
    Tenancy { registry: registry.clone(), rules: auth.rules(registry), limits: limits_of(registry, config) }
}

/// The limits of tenants as the configuration has them.
pub fn limits_of(registry: &Registry, config: &Config) -> Limits {
    let mut limits = Limits::shared(config.tenant_limits.clone());
    for (name, own) in &config.own_limits {
        if let Some(tenant) = registry.id(name) {
            limits.give(tenant, own.clone());
        }
    }
    limits
}

fn start_shards(
    config: &Config,
    common: &Common<'_>,
    registry: &Registry,
    auth: &crate::auth::AuthState,
    store: &StoreClient,
    restored: Vec<Restored>,
) -> Result<Vec<ShardHandle>, String> {
    let shards = common.mailboxes.len() as u16;
    let seed = entropy().map_err(|e| e.to_string())?;
    let restored = Arc::new(restored);
    let start = |index: u16| {
        let shard_config = ShardConfig {
            shard: ShardIx(index),
            shards,
            seed: seed.wrapping_add(u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            interest_seed: seed,
            settings: settings_of(config),
            tenancy: tenancy(registry, auth, config),
        };
        let setup = shard_setup(index, common);
        spawn(shard_config, setup, store.clone(), Arc::clone(&restored))
            .map_err(|e| format!("cannot start a shard thread: {e}"))
    };
    (0..shards).map(start).collect()
}

fn shard_setup(index: u16, common: &Common<'_>) -> Arc<ShardSetup> {
    let own = Arc::clone(&common.mailboxes[index as usize]);
    let limit = Arc::clone(&common.log_limit);
    let clock = common.clock;
    let questions = Arc::clone(&common.questions);
    Arc::new(ShardSetup {
        shard: ShardIx(index),
        mailboxes: common.mailboxes.to_vec(),
        pressure: Arc::clone(&common.pressure),
        clock,
        beat: AtomicU64::new(0),
        // No authentication method is offered, so re-authentication has nothing to say yes to.
        auth: Box::new(move |op, _question| {
            let refused = AuthAnswer::Refuse { reason: Reason::BAD_AUTHENTICATION_METHOD };
            own.push(Mail::Auth(op, refused));
        }),
        answer: Box::new(move |token, answer, peers| questions.answered(token, answer, peers)),
        log: Box::new(move |cause, write| {
            let now = Duration::from_micros(clock.mono().0);
            if let Some(held_back) = limit.permit(cause, now) {
                if held_back > 0 {
                    tracing::info!(cause, held_back, "log lines were held back");
                }
                write();
            }
        }),
        published: std::sync::Mutex::default(),
    })
}

/// Opens the store, and reads what it holds of administration, which tells the tenants.
fn open_store(
    config: &Config,
    mailboxes: &[Arc<Mailbox>],
    answers: &Arc<Waiting>,
) -> Result<(Store, Vec<Restored>, State, Registry), String> {
    let entropy = entropy().map_err(|e| e.to_string())?;
    let mut options = StoreOptions::new(Arc::new(Clock::wall), entropy);
    options.shards = mailboxes.len();
    options.segment_bytes = config.store.segment_size;
    options.max_commit_bytes = options.max_commit_bytes.min(options.segment_bytes / 2);
    if config.store.max_bytes > 0 {
        options.max_bytes = config.store.max_bytes;
    }
    options.ring_bytes = usize::try_from(config.store.tail_ring).unwrap_or(usize::MAX);
    options.checkpoint_interval = config.store.checkpoint_interval;
    options.checkpoint_bytes = usize::try_from(config.store.checkpoint_bytes).unwrap_or(usize::MAX);
    options.min_free_bytes = config.store.reserve_bytes;
    options.trim.min_retention = config.store.min_age;
    options.trim.max_age = config.offline.max_age;
    if config.limits.max_offline_bytes_per_tenant > 0 {
        options.trim.tenant_bytes = config.limits.max_offline_bytes_per_tenant;
    }
    let dir = config.data_dir.join("store");
    let files = OsFiles::new(&dir).map_err(|e| format!("store {}: {e}", dir.display()))?;
    let mut sinks: Vec<Box<dyn Sink>> =
        mailboxes.iter().map(|m| Box::new(StoreSink(Arc::clone(m))) as Box<dyn Sink>).collect();
    sinks.push(Box::new(AnswerSink(Arc::clone(answers))));
    let (mut state, mut registry) = (State::default(), Registry::default());
    let mut tenants = |records: &[AdminRecord]| {
        state = State::read(records)?;
        registry = registry_of(config, &state).map_err(|(name, e)| format!("tenant {name:?}: {e:?}"))?;
        Ok(registry.clone())
    };
    let opened = Store::open_with(options, Arc::new(files), &mut tenants, sinks);
    let (store, restored) = opened.map_err(|e| format!("store {}: {e}", dir.display()))?;
    Ok((store, restored, state, registry))
}

/// The core's settings of a configuration.
#[must_use]
pub fn settings_of(config: &Config) -> Settings {
    let (mqtt, limits, offline) = (&config.mqtt, &config.limits, &config.offline);
    let seconds = |d: Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
    let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Settings {
        explain_denials: config.auth.explain_denials,
        denials_kept: config.auth.denials_kept,
        max_packet: mqtt.max_packet_size,
        receive_maximum: mqtt.receive_maximum,
        max_inflight_out: mqtt.max_inflight,
        max_qos: QoS::from_bits(mqtt.max_qos).unwrap_or(QoS::ExactlyOnce),
        retain_available: mqtt.retain_available,
        wildcard_available: mqtt.wildcard_available,
        subscription_id_available: mqtt.subscription_id_available,
        shared_available: mqtt.shared_available,
        topic_alias_max: mqtt.topic_alias_max,
        topic_alias_out_max: mqtt.topic_alias_max_out,
        keep_alive_max: if mqtt.keep_alive_off { 0 } else { seconds(mqtt.keep_alive_max).min(65_535) as u16 },
        session_expiry_max: seconds(mqtt.session_expiry_max),
        v3_session_expiry: seconds(mqtt.session_expiry_max),
        message_expiry_max: seconds(mqtt.message_expiry_max),
        topic_limits: TopicLimits {
            max_bytes: mqtt.max_topic_bytes,
            max_levels: mqtt.max_topic_levels,
            max_plus: u16::try_from(limits.max_plus_per_filter).unwrap_or(u16::MAX),
        },
        max_filters_per_subscribe: count(limits.max_filters_per_subscribe),
        max_filters_per_session: count(limits.max_subscriptions_per_session),
        max_match_nodes: limits.max_match_nodes,
        max_user_properties: count(limits.max_user_properties),
        max_user_property_bytes: limits.max_user_property_bytes,
        out_high_water: limits.socket_buffer as usize,
        queue_messages: limits.max_queued_messages,
        queue_bytes: usize::try_from(limits.max_queued_bytes).unwrap_or(usize::MAX),
        stall_ms: millis(limits.stall_timeout),
        gate_deadline_ms: millis(config.store.deadline),
        cursor_flush_ms: 1000,
        durability: match config.store.durability {
            ConfigDurability::Memory => Durability::Memory,
            ConfigDurability::Stored => Durability::Stored,
            ConfigDurability::Synced => Durability::Synced,
        },
        offline: OfflineLimits {
            max_messages: offline.max_messages,
            max_bytes: offline.max_bytes,
            when_full: match offline.when_full {
                ConfigWhenFull::DropOldest => WhenFull::DropOldest,
                ConfigWhenFull::RefuseNew => WhenFull::RefuseNew,
            },
        },
        keep_qos0: offline.keep_qos0,
        accept_v3: mqtt.accept_v3,
        accept_v5: mqtt.accept_v5,
        assign_client_id: mqtt.assign_client_id,
        max_will_size: limits.max_will_size,
        will_delay_max: seconds(limits.will_delay_max),
        packet_timeout_ms: millis(limits.packet_timeout),
        payload_format_check: mqtt.payload_format_check,
        share_strategy: ShareStrategy::RoundRobin,
        share_absence_ms: 30_000,
        max_group_members: count(limits.max_group_members),
        step_budget: 4096,
        sys_interval_ms: millis(mqtt.sys_interval),
    }
}

impl Engine for AllInOne {
    async fn ready(&mut self) -> Result<(), String> {
        for shard in &mut self.shards {
            if (&mut shard.restored).await.is_err() {
                let number = shard.setup.shard.0;
                return Err(self.dead_shard().unwrap_or_else(|| format!("shard thread {number} ended")));
            }
        }
        self.context.shards_health.ready();
        self.look_at_store();
        // Before anyone is let in: what administration had changed, and the tenants that are being deleted.
        self.context.admin.control.tell_shards();
        if let Err(problem) = self.context.admin.begin().await {
            return Err(format!("administration: {}; {}", problem.what, problem.way_out));
        }
        self.context.door.store(Some(Arc::clone(&self.context.admin)));
        for listener in self.closed_doors.drain(..) {
            self.loops.extend(self.acceptor.listen(listener).map_err(|e| e.to_string())?);
        }
        self.context.admin.open_doors();
        let acceptor = Arc::clone(&self.acceptor);
        let limits = move || acceptor.in_force.load().config.limits.clone();
        let shards = self.mailboxes.clone();
        let cut = move || shards.iter().for_each(|shard| shard.push(Mail::Relieve));
        self.loops.push(tokio::spawn(memory::watch(Arc::clone(&self.context.pressure), limits, cut)));
        Ok(())
    }

    fn pulse(&self) -> Pulse {
        let setups: Vec<Arc<ShardSetup>> = self.shards.iter().map(|s| Arc::clone(&s.setup)).collect();
        let clock = self.context.clock;
        Box::new(move || {
            let now = clock.mono().0;
            let age = |s: &Arc<ShardSetup>| {
                Duration::from_micros(now.saturating_sub(s.beat.load(Ordering::Relaxed)))
            };
            setups.iter().all(|s| age(s) < HANGS_AFTER)
        })
    }

    fn reload(&mut self, config: &Arc<Config>) -> Vec<String> {
        self.context.admin.control.reload(config, in_force(config));
        Vec::new()
    }

    async fn drain(&mut self) {
        self.context.admin.doors.close_all();
        for accept in self.loops.drain(..) {
            accept.abort();
        }
        for mailbox in &self.mailboxes {
            mailbox.push(Mail::Drain(Reason::SERVER_SHUTTING_DOWN));
        }
        for shard in &mut self.shards {
            // An error: the shard's thread has ended, so there is nothing to wait for.
            (&mut shard.drained).await.unwrap_or_default();
        }
        if let Some(store) = self.store.take() {
            // Off this thread: it waits for the disk.
            tokio::task::spawn_blocking(move || store.shutdown()).await.unwrap_or_default();
        }
    }

    async fn failed(&mut self) -> String {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let Some(reason) = self.dead_part() {
                self.context.shards_health.not_ready(&reason);
                return reason;
            }
            self.look_at_store();
        }
    }
}
