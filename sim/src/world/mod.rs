//! The world: one heap of events over real shards, real handshakes, model clients and a model store. No
//! clock, no thread, no tokio; everything follows from the scenario.

mod auth;
mod event;
mod finale;
mod limits;
mod link;
mod net;
mod node;
mod ops;
pub mod state;
pub mod store;
mod strange;

use crate::client::{Client, METHOD};
use crate::draw::Draw;
use crate::facts::Fact;
use crate::hash::RunHash;
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::oracles::Judges;
use crate::rights::Rights;
use crate::scenario::{Knobs, Scenario, Topology};
use event::{Agenda, Event};
use link::Link;
use mast_core::conn::handshake::HandshakeConfig;
use mast_core::settings::{OfflineLimits, Settings, ShareStrategy, WhenFull};
use mast_core::store::port::{Durability, ReadResult};
use mast_core::tenant::registry::Registry;
use node::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::SimStore;

/// Events after which a run counts as livelocked.
const MAX_EVENTS: u64 = 3_000_000;
/// Facts and remarks shown of a failed run.
const TAIL: usize = 60;

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which oracle says so.
    pub oracle: String,
    /// How it was broken.
    pub how: String,
    /// What came before, readable.
    pub tail: Vec<String>,
}

/// What a run gives.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first broken promise.
    pub failure: Option<Failure>,
    /// Of all that moved.
    pub hash: u64,
    /// Situations that were met.
    pub marks: Marks,
    /// Events handled.
    pub events: u64,
    /// Publications made.
    pub publications: usize,
    /// PUBLISH packets that clients received.
    pub deliveries: u64,
}

struct World {
    scenario: Arc<Scenario>,
    now: u64,
    /// When the run began.
    started: u64,
    /// What tenants may have of counted limits.
    allowed: limits::Allowed,
    agenda: Agenda,
    draw: Draw,
    ties: Draw,
    /// What authentication does.
    auths: Draw,
    /// By how much the wall clock was set, ms.
    wall_shift: i64,
    registry: Registry,
    settings: Arc<Settings>,
    handshake: Arc<HandshakeConfig>,
    node: Option<Node>,
    life: u32,
    store: SimStore,
    links: Vec<Link>,
    clients: Vec<Client>,
    ledger: Ledger,
    judges: Judges,
    facts: Vec<(u64, Fact)>,
    remarks: Vec<(usize, u64, String)>,
    marks: Marks,
    hash: RunHash,
    failure: Option<Failure>,
    calm: bool,
    done: bool,
    /// Drops so far, over all lives of the node.
    drops: [u64; mast_core::sys::DROPS.len()],
    /// Drops of earlier lives.
    drops_before: [u64; mast_core::sys::DROPS.len()],
    /// Counted in this life.
    seen: finale::Seen,
    verbose: bool,
    shown: usize,
    /// Events by kind.
    kinds: BTreeMap<&'static str, u64>,
}

/// Executes a scenario.
#[must_use]
pub fn run(scenario: &Scenario) -> Report {
    World::new(scenario).run()
}

/// Tenant names.
fn registry(topology: &Topology) -> Registry {
    let names: Vec<String> = (0..topology.tenants).map(|t| format!("tenant{t}")).collect();
    // Where nothing else is drawn the third sits on one shard, the others use all.
    let spread = |t: usize| !topology.one_shard.get(t).copied().unwrap_or(t == 2);
    let names: Vec<(&str, bool)> = names.iter().enumerate().map(|(t, n)| (n.as_str(), spread(t))).collect();
    Registry::placed(&names).unwrap_or_default()
}

fn settings(knobs: &Knobs) -> Settings {
    Settings {
        receive_maximum: knobs.receive_maximum,
        max_inflight_out: knobs.max_inflight_out,
        topic_alias_max: knobs.topic_alias_max,
        topic_alias_out_max: knobs.topic_alias_out_max,
        out_high_water: knobs.out_high_water,
        queue_messages: knobs.queue_messages,
        queue_bytes: knobs.queue_bytes,
        step_budget: knobs.step_budget,
        gate_deadline_ms: knobs.gate_deadline_ms,
        cursor_flush_ms: knobs.cursor_flush_ms,
        stall_ms: knobs.stall_ms,
        durability: match knobs.durability {
            0 => Durability::Memory,
            1 => Durability::Stored,
            _ => Durability::Synced,
        },
        offline: OfflineLimits {
            max_messages: knobs.offline_messages,
            max_bytes: 64 * 1024 * 1024,
            when_full: if knobs.offline_refuse_new { WhenFull::RefuseNew } else { WhenFull::DropOldest },
        },
        share_strategy: match knobs.share_strategy {
            0 => ShareStrategy::RoundRobin,
            1 => ShareStrategy::Random,
            2 => ShareStrategy::Sticky,
            3 => ShareStrategy::HashClient,
            _ => ShareStrategy::HashTopic,
        },
        share_absence_ms: knobs.share_absence_ms,
        sys_interval_ms: knobs.sys_interval_ms,
        ..Settings::default()
    }
}

impl World {
    fn new(scenario: &Scenario) -> World {
        let settings = Arc::new(settings(&scenario.knobs));
        let handshake = HandshakeConfig {
            settings: Arc::clone(&settings),
            max_connect_packet: 64 * 1024,
            connect_deadline_ms: 10_000,
            auth_methods: Arc::from([Box::from(METHOD)]),
        };
        let clients = scenario.topology.clients.iter().cloned().enumerate();
        let mut world = World {
            now: 1_000_000,
            started: 1_000_000,
            allowed: limits::Allowed::default(),
            agenda: Agenda::default(),
            draw: Draw::new(scenario.seed, 1),
            ties: Draw::new(scenario.seed, 2),
            auths: Draw::new(scenario.seed, 4),
            wall_shift: 0,
            registry: registry(&scenario.topology),
            settings,
            handshake: Arc::new(handshake),
            node: None,
            life: 0,
            store: SimStore::default(),
            links: Vec::new(),
            clients: clients.map(|(i, spec)| Client::new(i, spec, scenario.world.foreign)).collect(),
            ledger: Ledger::new(&scenario.topology.clients),
            judges: Judges::default(),
            facts: Vec::new(),
            remarks: Vec::new(),
            marks: Marks::default(),
            hash: RunHash::default(),
            failure: None,
            calm: false,
            done: false,
            drops: Default::default(),
            drops_before: Default::default(),
            seen: finale::Seen::default(),
            verbose: std::env::var_os("MAST_SIM_TRACE").is_some(),
            shown: 0,
            kinds: BTreeMap::new(),
            scenario: Arc::new(scenario.clone()),
        };
        let scenario = Arc::clone(&world.scenario);
        for (i, op) in scenario.ops.iter().enumerate() {
            world.add(world.now + op.at_ms * 1000, Event::Op(i));
        }
        for (i, fault) in scenario.faults.iter().enumerate() {
            world.add(world.now + fault.at_ms * 1000, Event::Fault(i));
        }
        world.add(world.now + scenario.calm_at_ms * 1000, Event::Calm);
        for rules in scenario.rights.iter().skip(1) {
            world.add(world.now + rules.at_ms * 1000, Event::Rights);
        }
        for limits in scenario.limits.iter().filter(|l| l.at_ms > 0) {
            world.add(world.now + limits.at_ms * 1000, Event::Limits);
        }
        world.ledger.rights = Rights::new(&scenario.rights, world.now, scenario.seed);
        world.ledger.offline_limited = scenario.knobs.offline_messages < 1_000;
        world.boot();
        world
    }

    fn run(mut self) -> Report {
        let mut events = 0;
        while !self.done
            && self.failure.is_none()
            && let Some((at, event)) = self.agenda.next()
        {
            self.now = self.now.max(at);
            self.ledger.now = self.now;
            self.hash.number(self.now);
            if self.verbose {
                self.show_new();
            }
            events += 1;
            if events > MAX_EVENTS {
                let counts = format!("the run does not end: {:?}", self.kinds);
                self.fail("liveness", &counts);
            }
            *self.kinds.entry(event.kind()).or_default() += 1;
            let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.happen(event)));
            if let Err(cause) = happened {
                let text = cause
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| cause.downcast_ref::<&str>().copied())
                    .unwrap_or("?");
                self.fail("panic", text);
                break;
            }
            self.judge();
        }
        self.collect_drops();
        self.final_marks();
        let deliveries = self.facts.iter().filter(|(_, f)| matches!(f, Fact::Delivered(_))).count() as u64;
        Report {
            failure: self.failure,
            hash: self.hash.value(),
            marks: self.marks,
            events,
            publications: self.ledger.publications.len(),
            deliveries,
        }
    }

    fn add(&mut self, at: u64, event: Event) {
        let tie = self.ties.bits();
        self.agenda.add(at, tie, event);
    }

    fn happen(&mut self, event: Event) {
        let life = self.life;
        match event {
            Event::Op(index) => self.op(index),
            Event::Fault(index) => self.fault(index),
            Event::Rights => self.rights_changed(),
            Event::Limits => self.limits_changed(),
            Event::Calm => self.become_calm(),
            Event::Restart => self.restart(),
            Event::ToServer { link, n } => self.reach_server(link, n),
            Event::FinToServer { link } => self.fin_to_server(link),
            Event::ToClient { link, n } => self.reach_client(link, n),
            Event::FinToClient { link } => self.fin_to_client(link),
            Event::Flush { link } => self.flush_and_settle(link),
            Event::ServerClosed { link } => self.server_closed(link),
            Event::Linger { link } => self.linger(link),
            Event::Authenticated { link } => self.authenticated(link),
            Event::HandshakeDeadline { link } => self.handshake_deadline(link),
            Event::Listen { client } => {
                if let Some(link) = self.clients[client].wire.as_ref().map(|w| w.link) {
                    self.listen(link);
                }
            }
            Event::Unmute { client } => self.with_client(client, |client, ctx| client.unmute(ctx)),
            Event::KeepAlive { client, link } => self.keep_alive(client, link),
            Event::Reconnect { client } => self.reconnect(client),
            Event::Apply { life: of } if of == life => self.apply_batch(),
            Event::Applied { life: of, synced } if of == life => self.batch_applied(synced),
            Event::Look { life: of, shard, op, read } if of == life => self.look(shard, op, &read),
            Event::Tell { life: of, shard } if of == life => self.told(shard),
            Event::Wake { life: of, shard, at } if of == life => self.woke(shard, at),
            // Of a life that ended.
            Event::Apply { .. }
            | Event::Applied { .. }
            | Event::Look { .. }
            | Event::Tell { .. }
            | Event::Wake { .. } => {}
            Event::Final(step) => self.final_step(step),
        }
    }

    fn look(&mut self, shard: u16, op: mast_core::ids::OpId, read: &mast_core::store::port::Read) {
        let result = self.store.read(self.now, read);
        if matches!(result, ReadResult::Failed(_)) {
            self.marks.hit("a read met a store that was down");
        }
        if self.verbose {
            self.remark(format!("shard {shard} reads {read:?} -> {result:?}"));
        }
        self.tell(store::Told { shard, input: mast_core::shard::input::Input::ReadDone { op, result } });
    }

    fn note(&mut self, fact: Fact) {
        self.ledger.now = self.now;
        self.ledger.take(&fact);
        self.judges.take(&fact, &self.ledger);
        self.facts.push((self.now, fact));
    }

    fn remark(&mut self, text: String) {
        if self.verbose {
            eprintln!("{:>10.3} ms  # {text}", self.now as f64 / 1000.0);
        }
        self.remarks.push((self.facts.len(), self.now, text));
    }

    /// Prints facts as they come.
    fn show_new(&mut self) {
        for (at, fact) in &self.facts[self.shown..] {
            eprintln!("{:>10.3} ms  {fact:?}", *at as f64 / 1000.0);
        }
        self.shown = self.facts.len();
    }

    /// Takes over what an oracle found.
    fn judge(&mut self) {
        if let Some((oracle, how)) = self.judges.failure.take() {
            self.fail(oracle, &how);
        }
    }

    fn fail(&mut self, oracle: &str, how: &str) {
        if self.failure.is_some() {
            return;
        }
        let mut tail = Vec::new();
        let mut remarks = self.remarks.iter().peekable();
        for (i, (at, fact)) in self.facts.iter().enumerate() {
            while let Some((_, at, text)) = remarks.next_if(|(before, _, _)| *before <= i) {
                tail.push(format!("{:>10.3} ms  # {text}", *at as f64 / 1000.0));
            }
            tail.push(format!("{:>10.3} ms  {fact:?}", *at as f64 / 1000.0));
        }
        tail.extend(remarks.map(|(_, at, text)| format!("{:>10.3} ms  # {text}", *at as f64 / 1000.0)));
        if !self.verbose {
            tail.drain(..tail.len().saturating_sub(TAIL));
        }
        tail.push(format!("{:>10.3} ms  now", self.now as f64 / 1000.0));
        self.failure = Some(Failure { oracle: oracle.to_owned(), how: how.to_owned(), tail });
    }
}
