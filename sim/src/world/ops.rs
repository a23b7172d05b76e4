//! Executing the scenario: operations of clients, and faults.

use super::World;
use super::event::Event;
use super::store::Told;
use crate::client::Queued;
use crate::draw::Draw;
use crate::facts::{End, Fact};
use crate::scenario::{Fault, Op, WillSpec};
use mast_core::settings::Settings;
use mast_core::shard::input::Input;
use std::sync::Arc;

/// Starts of packets that no client may send.
const GARBAGE: [&[u8]; 6] = [
    &[0x00, 0x00],
    &[0x36, 0x02, 0x00],
    &[0x60, 0x02, 0x00, 0x01],
    &[0x20, 0x02, 0, 0],
    &[0x82, 0x01, 0x00],
    &[0xFF; 5],
];

impl World {
    pub(super) fn op(&mut self, index: usize) {
        let scenario = Arc::clone(&self.scenario);
        let timed = &scenario.ops[index];
        let client = timed.client;
        if self.calm || self.clients[client].gone {
            return;
        }
        if self.clients[client].is_stranger() {
            self.strange_op(client, &timed.op);
            return;
        }
        match &timed.op {
            Op::Connect { clean, will } => self.connect(client, *clean, will.as_ref()),
            Op::Subscribe { filters, id } if self.clients[client].online() => {
                self.with_client(client, |client, ctx| client.subscribe(ctx, filters, *id));
            }
            Op::Unsubscribe { filters } if self.clients[client].online() => {
                self.with_client(client, |client, ctx| client.unsubscribe(ctx, filters));
            }
            Op::Publish { topic, qos, retain, expiry_secs, pad, alias, count, clear } => {
                for _ in 0..*count {
                    self.with_client(client, |client, ctx| {
                        let uid = client.publication(ctx.ledger, topic, *qos, *retain, false);
                        let publication = &mut ctx.ledger.publications[uid as usize];
                        publication.expiry_secs = if client.spec.v5 { *expiry_secs } else { 0 };
                        publication.clear = *clear;
                        client.publish(ctx, Queued { uid, pad: *pad, alias: *alias });
                    });
                }
            }
            Op::Disconnect { with_will } if self.clients[client].online() => {
                self.disconnect(client, *with_will, false);
            }
            Op::Cut => self.part(client, End::Cut),
            Op::Vanish => {
                self.marks.hit("client vanished");
                self.part(client, End::Vanished);
            }
            Op::StopReading { ms } => {
                self.clients[client].deaf_until = self.now + ms * 1000;
                self.add(self.now + ms * 1000, Event::Listen { client });
            }
            Op::StopAcking { ms } => {
                self.clients[client].mute_until = self.now + ms * 1000;
                self.add(self.now + ms * 1000, Event::Unmute { client });
            }
            Op::Garbage { seed } if self.clients[client].online() => self.garbage(client, *seed),
            Op::Ping if self.clients[client].online() => {
                self.with_client(client, |client, ctx| client.ping(ctx));
            }
            Op::Reauthenticate if self.clients[client].online() => {
                self.with_client(client, |client, ctx| client.reauthenticate(ctx));
            }
            // Not connected: nothing to do it on.
            Op::Subscribe { .. }
            | Op::Unsubscribe { .. }
            | Op::Disconnect { .. }
            | Op::Garbage { .. }
            | Op::Ping
            | Op::Reauthenticate => {}
            // For strangers.
            Op::Raw { .. } => {}
        }
    }

    pub(super) fn connect(&mut self, client: usize, clean: bool, will: Option<&WillSpec>) {
        if let Some(old) = self.clients[client].wire.as_ref().map(|w| w.link) {
            self.leave(client, old, End::Abandoned);
        }
        let link = self.open(client);
        let auth = self.auth_start(client);
        self.with_client(client, |client, ctx| client.connect(ctx, link, clean, will, auth));
    }

    pub(super) fn reconnect(&mut self, client: usize) {
        let state = &self.clients[client];
        if state.wire.is_none() && !state.gone {
            let clean = !state.spec.v5 && state.spec.expiry_secs == 0;
            self.connect(client, clean, None);
        }
    }

    pub(super) fn disconnect(&mut self, client: usize, with_will: bool, for_good: bool) {
        let v5 = self.clients[client].spec.v5;
        let Some(link) = self.clients[client].wire.as_ref().map(|w| w.link) else { return };
        self.with_client(client, |client, ctx| client.disconnect(ctx, with_will, for_good));
        let end = if with_will && v5 { End::WithWill } else { End::Clean };
        self.leave(client, link, end);
    }

    fn part(&mut self, client: usize, end: End) {
        let Some(link) = self.clients[client].wire.as_ref().map(|w| w.link) else { return };
        if end == End::Cut && !self.links[link].c2s.is_empty() {
            self.marks.hit("client cut mid-stream");
        }
        self.leave(client, link, end);
    }

    fn garbage(&mut self, client: usize, seed: u64) {
        let mut draw = Draw::new(seed, 9);
        let Some(link) = self.clients[client].wire.as_ref().map(|w| w.link) else { return };
        let mut bytes = draw.pick(&GARBAGE).to_vec();
        for _ in 0..draw.below(20) {
            bytes.push(draw.below(256) as u8);
        }
        self.send(link, &bytes);
        // It says goodbye uncleanly, with all its bytes.
        self.leave(client, link, End::ByServer);
    }

    pub(super) fn fault(&mut self, index: usize) {
        let scenario = Arc::clone(&self.scenario);
        if self.calm {
            return;
        }
        match &scenario.faults[index].fault {
            Fault::Crash { power, down_ms } => self.crash(*power, *down_ms),
            Fault::StoreFull { ms } => self.store.mood.full_until = self.now + ms * 1000,
            Fault::StoreDown { ms } => self.store.mood.down_until = self.now + ms * 1000,
            Fault::StoreSilent { ms } => self.store.mood.silent_until = self.now + ms * 1000,
            Fault::SlowSync { ms } => self.store.mood.slow_sync = ms * 1000,
            Fault::SetClock { by_ms } => self.set_clock(*by_ms),
        }
        self.remark(format!("fault: {:?}", scenario.faults[index].fault));
    }

    fn set_clock(&mut self, by_ms: i64) {
        let away = self.clients.iter().any(|c| !c.online());
        self.marks.hit(match (by_ms > 0, away) {
            (true, true) => "the clock was set forward over an absent session",
            (false, true) => "the clock was set back under an absent session",
            (_, false) => "the clock was set",
        });
        self.wall_shift += by_ms;
        self.note(Fact::ClockSet { by_ms });
    }

    /// Other rules are in use: each shard hears of it in its own time.
    pub(super) fn rights_changed(&mut self) {
        self.marks.hit("rights changed");
        self.marks.many("ordered rules changed", u64::from(self.ledger.rights.any_ordered()));
        self.reconfigure();
    }

    pub(super) fn limits_changed(&mut self) {
        self.marks.hit("limits changed");
        self.limits_unsettled();
        self.reconfigure();
    }

    /// Tells the shards what holds now.
    fn reconfigure(&mut self) {
        for shard in 0..self.scenario.topology.shards {
            let settings = Box::new(Settings::clone(&self.settings));
            let tenancy = self.tenancy();
            self.tell(Told { shard, input: Input::Reconfigure { settings, tenancy } });
        }
    }

    fn crash(&mut self, power: bool, down_ms: u64) {
        if self.node.is_none() {
            return;
        }
        self.bank_drops();
        if self.clients.iter().any(|c| !c.inbound.is_empty()) {
            self.marks.hit("a crash with QoS 2 in flight");
        }
        if power {
            self.marks.hit("a crash with power cut");
        }
        self.node = None;
        self.life += 1;
        self.store.crash(power, &mut self.draw);
        // What the class did not cover may be gone.
        self.ledger.crash_excuses |= match self.scenario.knobs.durability {
            0 => true,
            1 => power,
            _ => false,
        };
        self.note(Fact::Crashed { power });
        for link in 0..self.links.len() {
            let alive = !self.links[link].dead;
            self.links[link].dead = true;
            self.links[link].server = super::link::Server::Gone;
            if alive {
                let client = self.links[link].client;
                self.leave(client, link, End::Crash);
            }
        }
        self.add(self.now + down_ms * 1000, Event::Restart);
    }

    pub(super) fn restart(&mut self) {
        if self.node.is_none() {
            self.boot();
            self.note(Fact::Restarted);
        }
    }
}
