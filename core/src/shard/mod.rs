//! The shard: one single-threaded state machine that owns many connections and sessions.
//!
//! Driver contract: one [`Shard::handle`], then [`Shard::poll`] until [`Step::Idle`], executing the
//! effects and writing the dirty sockets in between; then wait for the wake-up time or an input.

pub mod input;
pub mod peer;

pub(crate) mod complete;
pub(crate) mod ops;
pub(crate) mod slab;
pub(crate) mod tenants;
pub(crate) mod timers;

use crate::conn::outbuf::OutBuf;
use crate::group::Groups;
use crate::ids::{ConnId, ShardIx};
use crate::publish::batch::RouteBatch;
use crate::publish::cache::{RouteCache, RouteTable};
use crate::publish::fanout::Work;
use crate::rng::Rng;
use crate::session::plane::Plane;
use crate::session::restore::Restoring;
use crate::settings::Settings;
use crate::shard::input::{Effect, Input, LogEvent, Outbox, Step};
use crate::shard::ops::{Op, Ops};
use crate::shard::peer::PeerMsg;
use crate::shard::slab::Slab;
use crate::shard::tenants::TenantState;
use crate::shard::timers::Timer;
use crate::store::port::{Durability, Read, Write};
use crate::store::position::{Partition, Position};
use crate::subscribe::fence::Commits;
use crate::subscribe::gate::Gate;
use crate::subscribe::scan::Scans;
use crate::sys::Counters;
use crate::tenant::Tenancy;
use crate::time::{Mono, Now};
use crate::timer::Wheel;
use crate::topic::ListId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The one partition of the embedded store.
pub(crate) const EMBEDDED: Partition = Partition(0);

/// What a shard is made from.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// This shard.
    pub shard: ShardIx,
    /// Shards of the node.
    pub shards: u16,
    /// Names the node's generation: hashes and random choices follow from it.
    pub seed: u64,
    /// Seed of the coarse interest keys: the same in all shards of a node.
    pub interest_seed: u64,
    /// Settings.
    pub settings: Settings,
    /// Tenants of the node, and what holds for each.
    pub tenancy: Tenancy,
}

/// What a shard holds, by kind. Timers are not counted: they are lazy and run out by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named for what it counts")]
pub struct Census {
    pub connections: usize,
    pub sessions: usize,
    pub operations: usize,
    pub gates: usize,
    pub tokens: usize,
    pub scans: usize,
    pub groups: usize,
    pub work: usize,
    pub clients: usize,
    pub filters: usize,
    pub connected: u64,
    pub counted_sessions: u64,
    pub subscriptions: u64,
    pub own_interest: usize,
    pub remote_interest: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Shard {
    pub(crate) me: ShardIx,
    pub(crate) shards: u16,
    pub(crate) rng: Rng,
    pub(crate) hash_seed: u64,
    pub(crate) interest_seed: u64,
    pub(crate) plane: Plane,
    pub(crate) tenants: Vec<TenantState>,
    pub(crate) tenancy: Tenancy,
    pub(crate) ops: Ops,
    pub(crate) gates: Slab<Gate>,
    pub(crate) tokens: hashbrown::HashMap<u64, (u32, u32), foldhash::fast::FixedState>,
    pub(crate) next_token: u64,
    pub(crate) groups: Groups,
    pub(crate) scans: Scans,
    pub(crate) wheel: Wheel<Timer>,
    pub(crate) work: VecDeque<Work>,
    /// Small unlogged messages for other shards, collected until the end of the turn.
    pub(crate) batches: Vec<RouteBatch>,
    pub(crate) commits: Commits,
    /// Messages of this shard to itself: the same path as to others, without leaving.
    pub(crate) own_mail: VecDeque<PeerMsg>,
    /// Connections whose held bytes may be processed again.
    pub(crate) unheld: Vec<ConnId>,
    /// Admitted connections whose session is free again.
    pub(crate) readmit: Vec<(ConnId, Box<crate::conn::handshake::Admission>)>,
    /// What waits for the word of a tenant's home shard about its limits.
    pub(crate) asking: alloc::collections::BTreeMap<u64, crate::quota::Asking>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) moved: Vec<crate::ids::SessionId>,
    pub(crate) restoring: bool,
    /// Shards whose restored interest is not known yet: until it is, everything counts as wanted.
    pub(crate) unheard: alloc::collections::BTreeSet<ShardIx>,
    pub(crate) restored: Restoring,
    /// Filters of restored shared subscriptions, by the token of the leader's answer.
    pub(crate) rejoining: alloc::collections::BTreeMap<u64, Box<str>>,
    pub(crate) draining: bool,
    pub(crate) flush_armed: bool,
    pub(crate) sweep_armed: bool,
    pub(crate) watermark: Option<Position>,
    pub(crate) flushing: crate::session::storing::Flushing,
    pub(crate) lists: Vec<ListId>,
    /// Cache of the connection whose publish is being handled.
    pub(crate) route_now: Option<Box<RouteCache>>,
    /// Of messages that come without a connection: from other shards, from the log.
    pub(crate) routes: RouteTable,
    /// Counts changes of settings and rules, from 1.
    pub(crate) rules_version: u64,
    pub(crate) fired: Vec<(Mono, Timer)>,
}

impl Shard {
    /// A shard with nothing in it. Restoring ([`Input::Restore`]) comes first, ended by `Restored::End`.
    #[must_use]
    pub fn new(config: ShardConfig, now: Now) -> Shard {
        // The generator steps by a constant, and drivers derive their shards' seeds by adding: without mixing, one
        // shard's draws would be its neighbour's, one step later, and with them its session identities.
        let mut rng = Rng::new(Rng::new(config.seed ^ u64::from(config.shard.0) << 48).next_u64());
        let hash_seed = rng.next_u64();
        let mut shard = Shard {
            me: config.shard,
            shards: config.shards.max(1),
            rng,
            hash_seed,
            interest_seed: config.interest_seed,
            plane: Plane {
                now,
                settings: Box::new(config.settings),
                sessions: Slab::default(),
                conns: Vec::new(),
                dirty: Vec::new(),
                head: Position::start(),
                counters: Counters::default(),
                followups: Vec::new(),
                rates: Vec::new(),
            },
            tenants: Vec::new(),
            tenancy: Tenancy::default(),
            ops: Ops::default(),
            gates: Slab::default(),
            tokens: hashbrown::HashMap::with_hasher(foldhash::fast::FixedState::with_seed(hash_seed)),
            next_token: 1,
            groups: Groups::default(),
            scans: Scans::default(),
            wheel: Wheel::new(now.mono),
            work: VecDeque::new(),
            batches: (0..config.shards).map(|_| RouteBatch::default()).collect(),
            commits: Commits::default(),
            own_mail: VecDeque::new(),
            unheld: Vec::new(),
            readmit: Vec::new(),
            asking: alloc::collections::BTreeMap::new(),
            effects: Vec::new(),
            moved: Vec::new(),
            restoring: true,
            unheard: (0..config.shards).map(ShardIx).filter(|s| *s != config.shard).collect(),
            restored: Restoring::default(),
            rejoining: alloc::collections::BTreeMap::new(),
            draining: false,
            flush_armed: false,
            sweep_armed: false,
            watermark: None,
            flushing: crate::session::storing::Flushing::default(),
            lists: Vec::new(),
            route_now: None,
            routes: RouteTable::new(hash_seed),
            rules_version: 1,
            fired: Vec::new(),
        };
        shard.take_tenancy(config.tenancy);
        shard.arm_periodic();
        shard
    }

    /// Takes one input in. Everything that follows from it comes out of [`Shard::poll`].
    pub fn handle(&mut self, now: Now, input: Input<'_>) {
        self.plane.now = now;
        match input {
            Input::Received { conn, bytes } => self.received(conn, bytes),
            Input::Admit { conn, admission } => self.admit(conn, admission),
            Input::Closed { conn } => self.closed(conn),
            Input::Peer { from, msg } => self.peer(from, msg),
            Input::Committed(batch) => {
                self.commits.announced += 1;
                self.work.push_back(Work::Committed { batch, next: 0 });
            }
            Input::CommitDone { op, result } => self.commit_done(op, result),
            Input::ReadDone { op, result } => self.read_done(op, result),
            Input::AuthDone { op, answer } => self.auth_done(op, answer),
            Input::Restore(record) => self.restore(record),
            Input::Tick => {}
            Input::Reconfigure { settings, tenancy } => {
                let offline = core::mem::replace(&mut self.plane.settings, settings).offline;
                self.rules_version += 1;
                let limited = self.has_offline_limits();
                self.take_tenancy(tenancy);
                self.refresh_rights();
                if offline != self.plane.settings.offline || limited || self.has_offline_limits() {
                    self.offline_limits_changed();
                }
            }
            Input::Ask { token, ask } => self.ask(token, ask),
            Input::Relieve => self.relieve(),
            Input::Drain { reason } => self.drain(reason),
        }
        self.run_timers();
        self.settle();
    }

    /// Does a bounded piece of the waiting work and hands out effects.
    pub fn poll(&mut self, now: Now, out: &mut Outbox) -> Step {
        self.plane.now = now;
        let mut budget = self.plane.settings.step_budget.max(1);
        while budget > 0 && self.do_work(&mut budget) {
            self.settle();
        }
        self.settle();
        out.dirty.append(&mut self.plane.dirty);
        for id in &out.dirty {
            if let Some(conn) = self.plane.conn(*id) {
                conn.dirty = false;
            }
        }
        for peer in self.peers() {
            self.send_batch(peer);
        }
        out.effects.append(&mut self.effects);
        out.drained = self.draining && self.is_quiet();
        if self.has_work() { Step::More } else { Step::Idle { wake: self.wheel.next_wake() } }
    }

    /// The bytes that wait for a socket.
    pub fn output(&mut self, conn: ConnId) -> Option<&mut OutBuf> {
        self.plane.conn(conn).map(|c| &mut c.out)
    }

    /// The driver wrote `n` bytes of a connection's output.
    pub fn wrote(&mut self, now: Now, id: ConnId, n: usize) {
        self.plane.now = now;
        self.plane.counters.bytes_out += n as u64;
        let low = self.plane.settings.out_high_water / 2;
        let Some(conn) = self.plane.conn(id) else { return };
        conn.out.advance(n);
        conn.stalled_since = if conn.out.is_empty() { None } else { Some(now.mono) };
        if conn.out.len() > low {
            return;
        }
        let session = conn.session;
        let waits = self
            .plane
            .session(session)
            .is_some_and(|s| !s.feed.pending.is_empty() || s.feed.behind || s.scans > 0);
        if waits {
            self.plane.pump(session);
            self.settle();
        }
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.plane.counters
    }

    /// Name and counters of every tenant that was not removed.
    pub fn tenant_counters(&self) -> impl Iterator<Item = (&str, &crate::sys::TenantCounters)> {
        let served = self.tenancy.registry.ids().filter_map(|id| self.tenants.get(id.0 as usize));
        served.map(|t| (&*t.name, &t.counters))
    }

    /// Name, limits and use of every tenant that was not removed, as this shard counts them.
    pub fn tenant_usage(&self) -> impl Iterator<Item = (&str, crate::sys::TenantUsage)> {
        self.tenancy.registry.ids().filter_map(|id| {
            let tenant = self.tenants.get(id.0 as usize)?;
            let mut hits = tenant.quota.as_ref().map(|q| q.hits.clone()).unwrap_or_default();
            for (row, [enforced, observed]) in self.delivery_hits(id) {
                hits.enforced[row as usize] += enforced;
                hits.observed[row as usize] += observed;
            }
            let limits = tenant.quota.as_ref().map(|q| q.limits.clone()).unwrap_or_default();
            Some((&*tenant.name, crate::sys::TenantUsage { limits, usage: self.usage(id), hits }))
        })
    }

    /// What a tenant's clients have here, counted anew from connections, sessions, groups and the retained index:
    /// what [`Shard::tenant_usage`] must say whenever nothing is on its way.
    #[must_use]
    pub fn recount(&self, name: &str) -> crate::sys::Usage {
        let mut usage = crate::sys::Usage::default();
        let Some(id) = self.tenancy.registry.id(name) else { return usage };
        let Some(tenant) = self.tenants.get(id.0 as usize) else { return usage };
        let online = |c: &&crate::conn::Conn| c.mount.tenant() == id && c.phase == crate::conn::Phase::Online;
        usage.connections =
            self.plane.conns.iter().filter_map(Option::as_deref).filter(online).count() as u64;
        for (_, _, session) in self.plane.sessions.iter().filter(|(_, _, s)| s.mount.tenant() == id) {
            usage.persistent_sessions += u64::from(session.persistent);
            usage.subscriptions += session.subscriptions.len() as u64;
        }
        usage.shared_groups = self.groups.by_name.keys().filter(|(t, _, _)| *t == id).count() as u64;
        for (_, retained) in tenant.retained.iter().filter(|(topic, _)| !topic.starts_with("$SYS")) {
            usage.retained_messages += 1;
            usage.retained_bytes += retained.message.size() as u64;
        }
        usage
    }

    /// On the home shard of a tenant with limits that is spread: what the ledger says that all shards have of
    /// connections, persistent sessions, subscriptions and groups; `None` for a row without a limit.
    #[must_use]
    pub fn ledger(&self, tenant: crate::ids::TenantId) -> Option<[Option<u64>; 4]> {
        if !self.is_ledgered(tenant) || self.home(tenant) != self.me {
            return None;
        }
        let quota = self.tenants.get(tenant.0 as usize)?.quota.as_ref()?;
        Some(quota.held())
    }

    /// How much of everything there is: at the end of all sessions it must be all zeroes.
    #[must_use]
    pub fn census(&self) -> Census {
        Census {
            connections: self.plane.conns.iter().flatten().count(),
            sessions: self.plane.sessions.len(),
            operations: self.ops.len(),
            gates: self.gates.len(),
            tokens: self.tokens.len() + self.rejoining.len() + self.groups.waiting.len() + self.asking.len(),
            scans: self.scans.len(),
            groups: self.groups.slab.len() + self.groups.by_name.len(),
            work: self.work.len(),
            clients: self.tenants.iter().map(|t| t.clients.len()).sum(),
            filters: self
                .tenants
                .iter()
                .map(|t| {
                    t.index.subscriber_count()
                        + t.durable.subscriber_count()
                        + t.away.subscriber_count()
                        + t.full.subscriber_count()
                })
                .sum(),
            connected: self.tenants.iter().map(|t| t.counters.connected).sum(),
            counted_sessions: self.tenants.iter().map(|t| t.counters.sessions).sum(),
            subscriptions: self.tenants.iter().map(|t| t.counters.subscriptions).sum(),
            own_interest: self
                .tenants
                .iter()
                .filter(|t| !t.own_live.is_empty() || !t.own_durable.is_empty())
                .count(),
            remote_interest: self
                .tenants
                .iter()
                .flat_map(|t| &t.remote)
                .filter(|r| !r.live.is_empty() || !r.durable.is_empty())
                .count(),
        }
    }

    /// Follow-ups, own mail and held bytes until nothing is left that needs no budget.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(conn) = self.unheld.pop() {
                self.process_held(conn);
            } else if let Some((conn, admission)) = self.readmit.pop() {
                self.choose_again(conn, &admission);
            } else if let Some(msg) = self.own_mail.pop_front() {
                self.peer(self.me, msg);
            } else if !self.plane.followups.is_empty() {
                let batch = core::mem::take(&mut self.plane.followups);
                for followup in batch {
                    self.follow_up(followup);
                }
            } else {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        !self.work.is_empty() || self.scans.has_ready() || !self.plane.followups.is_empty()
    }

    fn do_work(&mut self, budget: &mut u32) -> bool {
        if !self.work.is_empty() {
            self.step_fanout(budget);
            return true;
        }
        if self.scans.has_ready() {
            self.step_scans(budget);
            return true;
        }
        false
    }

    fn is_quiet(&self) -> bool {
        self.ops.is_empty() && self.work.is_empty() && self.plane.conns.iter().all(Option::is_none)
    }

    /// Begins a commit.
    pub(crate) fn commit(&mut self, op: Op, writes: Vec<Write>, class: Durability) -> crate::ids::OpId {
        let id = self.begin(op);
        self.effects.push(Effect::Commit { op: id, writes, class });
        id
    }

    /// Begins a read.
    pub(crate) fn read(&mut self, op: Op, read: Read) -> crate::ids::OpId {
        let id = self.begin(op);
        self.effects.push(Effect::Read { op: id, read });
        id
    }

    pub(crate) fn begin(&mut self, op: Op) -> crate::ids::OpId {
        let deadline = self.plane.now.mono.after_millis(self.plane.settings.gate_deadline_ms);
        self.arm_sweep();
        self.ops.begin(deadline, op)
    }

    /// Sends to a shard, which may be this one.
    pub(crate) fn send(&mut self, to: ShardIx, msg: PeerMsg) {
        if to == self.me {
            self.own_mail.push_back(msg);
        } else {
            self.send_batch(to);
            self.effects.push(Effect::Peer { to, msg });
        }
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = ShardIx> + use<> {
        let me = self.me;
        (0..self.shards).map(ShardIx).filter(move |s| *s != me)
    }

    pub(crate) fn log(&mut self, event: LogEvent) {
        self.effects.push(Effect::Log(event));
    }

    /// The class that acknowledgements wait for.
    pub(crate) fn class(&self) -> Durability {
        self.plane.settings.durability
    }
}
