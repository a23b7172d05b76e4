//! The end of a run: faults stop, everybody comes back and drains, oracles judge what is at rest; then all
//! leave for good, and nothing may remain.

use super::World;
use super::event::Event;
use crate::facts::Fact;
use crate::oracles::Rest;
use crate::scenario::{FilterSpec, Role};
use mast_core::store::key::Space;
use mast_core::sys::{Drop, Refused};

/// Time to come back, µs.
const DRAIN: u64 = 60_000_000;
/// So long nothing must have happened to call it rest, µs.
const QUIET: u64 = 20_000_000;
/// Slow networks may need so long to drain, µs.
const PATIENCE: u64 = 1_200_000_000;
/// Time for the observers' last look, and for leaving, µs.
const LOOK: u64 = 20_000_000;

/// What the shards counted in this life of the node, for the marks.
#[derive(Debug, Default)]
pub(super) struct Seen {
    spilled: u64,
    replayed: u64,
    refused: u64,
    parked: u64,
    replaying: u64,
}

impl World {
    /// The safety phase is over.
    pub(super) fn become_calm(&mut self) {
        self.calm = true;
        self.store.mood = Default::default();
        self.note(Fact::Calm);
        for client in 0..self.clients.len() {
            let state = &mut self.clients[client];
            state.deaf_until = 0;
            state.mute_until = 0;
            if state.is_stranger() {
                self.add(self.now, Event::Listen { client });
                self.strangers_hang_up(client);
                continue;
            }
            state.spec.reconnect_ms = 300;
            self.add(self.now, Event::Listen { client });
            self.add(self.now, Event::Unmute { client });
            self.add(self.now + 10_000, Event::Reconnect { client });
        }
        self.add(self.now + DRAIN, Event::Final(0));
    }

    pub(super) fn final_step(&mut self, step: u8) {
        match step {
            0 => self.look_around(),
            1 => self.say_goodbye(),
            2 => self.sweep(),
            _ => {
                self.inspect();
                self.done = true;
            }
        }
    }

    /// Two clients of 3.1.1 with full sessions: each publishes to the other first thing, and is disconnected for it
    /// because the other, disconnected for the same, has no room (docs/operations.md, "refuse-new").
    fn are_deadlocked(&self) -> bool {
        let stuck = |c: &&crate::client::Client| !c.online() && !c.idle() && !c.spec.v5;
        self.scenario.knobs.offline_refuse_new && self.clients.iter().filter(stuck).count() > 1
    }

    /// Everybody must be there and idle. Then the observers look at what is retained.
    fn look_around(&mut self) {
        let last = self.facts.last().map_or(0, |(at, _)| *at);
        let calm_at = self.scenario.calm_at_ms * 1000;
        let patience = if self.are_deadlocked() { DRAIN + 4 * QUIET } else { PATIENCE };
        if self.now < last + QUIET && self.now < calm_at + patience {
            self.add(self.now + QUIET, Event::Final(0));
            return;
        }
        if self.are_deadlocked() {
            self.marks.hit("full sessions refuse each other's clients");
            self.done = true;
            return;
        }
        for client in 0..self.clients.len() {
            let state = &self.clients[client];
            if state.is_stranger() {
                continue;
            }
            if !state.online() {
                self.fail("liveness", &format!("client {client} could not come back"));
                return;
            }
            if !state.idle() {
                let what = format!(
                    "client {client} is not done: {:?} {:?} {:?} {:?}",
                    state.out, state.queue, state.pending, state.held
                );
                self.fail("liveness", &what);
                return;
            }
        }
        let rest = self.rest();
        self.judges.at_rest(&self.ledger, &rest);
        self.recount();
        let all =
            FilterSpec { filter: "#".to_owned(), qos: 1, no_local: false, rap: false, retain_handling: 0 };
        for client in 0..self.clients.len() {
            if self.clients[client].spec.role == Role::Observer {
                self.with_client(client, |client, ctx| client.subscribe(ctx, std::slice::from_ref(&all), 0));
            }
        }
        self.add(self.now + LOOK, Event::Final(1));
    }

    fn rest(&mut self) -> Rest {
        self.collect_drops();
        let retained = self
            .store
            .state
            .retained
            .iter()
            .filter(|((_, topic), _)| !topic.starts_with('$'))
            .filter(|((tenant, _), _)| !self.is_strange(tenant.0 as u8))
            .map(|((tenant, topic), (_, message))| {
                let uid = crate::facts::parse_payload(message.payload()).map(|(_, _, uid)| uid);
                (tenant.0 as u8, topic.clone(), uid)
            })
            .collect();
        Rest { drops: self.drops, retained }
    }

    fn say_goodbye(&mut self) {
        let rest = self.rest();
        self.judges.at_rest(&self.ledger, &rest);
        for client in 0..self.clients.len() {
            if self.clients[client].is_stranger() {
                self.forget_stranger(client);
                continue;
            }
            let spec = &self.clients[client].spec;
            if !spec.v5 {
                // Only a clean session ends a 3.1.1 session.
                self.connect(client, true, None);
            }
        }
        self.add(self.now + LOOK / 2, Event::Final(2));
    }

    fn sweep(&mut self) {
        for client in 0..self.clients.len() {
            self.clients[client].gone = true;
            self.disconnect(client, false, true);
        }
        self.note(Fact::AllGone);
        self.add(self.now + LOOK, Event::Final(3));
    }

    /// Nothing may remain of anybody.
    fn inspect(&mut self) {
        let Some(node) = &self.node else { return };
        for (index, shard) in node.shards.iter().enumerate() {
            let census = shard.census();
            if census != mast_core::shard::Census::default() {
                let how = format!("shard {index} keeps {census:?}");
                if self.verbose {
                    eprintln!("{shard:#?}");
                }
                self.fail("nothing remains", &how);
                return;
            }
            if shard.counters().canary != 0 {
                self.fail("tenant canary", "a shard stopped a foreign delivery");
                return;
            }
        }
        if self.store.harmed_deletes == 0 {
            let left: Vec<String> = self
                .store
                .state
                .keys
                .keys()
                .filter_map(|key| key.split())
                .filter(|(space, _, _)| *space != Space::Watermark)
                .map(|(space, tenant, rest)| format!("{space:?} {tenant} {}", String::from_utf8_lossy(rest)))
                .collect();
            if !left.is_empty() {
                self.fail("nothing remains", &format!("the store keeps {left:?}"));
            }
        }
    }

    /// Adds the counters of the present shards to what earlier lives of the node dropped.
    pub(super) fn collect_drops(&mut self) {
        let Some(node) = &self.node else { return };
        let mut sum = self.drops_before;
        let mut seen = Seen::default();
        for shard in &node.shards {
            let counters = shard.counters();
            for (total, n) in sum.iter_mut().zip(counters.drops) {
                *total += n;
            }
            seen.spilled += counters.spilled;
            seen.replayed += counters.replayed;
            seen.refused += counters.refusals[Refused::OfflineFull as usize];
            seen.parked += counters.scans_parked;
            seen.replaying += counters.takeovers_replaying;
        }
        self.drops = sum;
        self.seen = seen;
    }

    /// The node is about to die: what it dropped is kept.
    pub(super) fn bank_drops(&mut self) {
        self.collect_drops();
        self.drops_before = self.drops;
        self.bank_marks();
    }

    fn bank_marks(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        self.marks.many("a message was spilled", seen.spilled);
        self.marks.many("messages were replayed", seen.replayed);
        self.marks.many("a publish was refused for a full session", seen.refused);
        self.marks.many("a scan of retained messages was parked", seen.parked);
        self.marks.many("takeover during retained replay", seen.replaying);
    }

    pub(super) fn final_marks(&mut self) {
        self.bank_marks();
        let drops = self.drops;
        self.marks.many("offline limit bound", drops[Drop::OfflineLimit as usize]);
        self.marks.many("QoS 0 was dropped for a slow consumer", drops[Drop::SlowConsumerQos0 as usize]);
        self.marks.many("a message expired", drops[Drop::Expired as usize]);
        self.marks.many("a message was too large for its client", drops[Drop::TooLargeForClient as usize]);
        self.marks.many("the log was trimmed under a reader", drops[Drop::LogTrimmed as usize]);
        self.marks.many("something was withheld for lack of rights", drops[Drop::NotAuthorized as usize]);
        self.marks.many("a power cut lost what was not synced", self.store.lost);
        self.marks.many("a crash met an open commit", self.store.cut_off);
        self.marks.many("a commit met a conflict", self.store.conflicts);
        self.marks.many("commit refused", self.store.harmed);
        self.marks.many("a QoS 2 append stayed unknown", self.store.unknown_qos2);
        let mut resumed = 0;
        let mut wills = 0;
        for (_, fact) in &self.facts {
            match fact {
                Fact::Connected { present: true, .. } => resumed += 1,
                Fact::Delivered(d) if d.topic.starts_with("will/") => wills += 1,
                _ => {}
            }
        }
        self.marks.many("session resumed", resumed);
        self.marks.many("a will was delivered", wills);
        self.marks.many("session expired", self.ledger.expired);
        self.marks.many("topic alias was used towards a client", self.ledger.aliased);
    }
}
