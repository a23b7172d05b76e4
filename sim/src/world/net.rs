//! Bytes between clients and the node.

use super::World;
use super::event::Event;
use super::link::{Link, Server};
use crate::client::Ctx;
use crate::facts::{End, Fact};
use mast_core::conn::handshake::{Handshake, Progress, shard_of};
use mast_core::shard::input::Input;
use mast_core::time::Mono;
use std::sync::Arc;

/// Largest piece of a write.
const WRITE: u64 = 4096;

impl World {
    /// A client opens a connection.
    pub(super) fn open(&mut self, client: usize) -> usize {
        let handshake = Handshake::new(Arc::clone(&self.handshake), Mono(self.now));
        let deadline = handshake.deadline();
        let link = self.links.len();
        self.links.push(Link::new(client, handshake, self.now));
        if self.node.is_none() {
            // Connection refused.
            self.marks.hit("nobody answered a connection");
            self.links[link].server = Server::Gone;
            let at = self.now + 1000;
            self.add(at, Event::FinToClient { link });
        }
        self.add(deadline.0, Event::HandshakeDeadline { link });
        link
    }

    /// Sends a client's bytes, in random pieces.
    pub(super) fn send(&mut self, link: usize, bytes: &[u8]) {
        if !self.links[link].open || bytes.is_empty() {
            return;
        }
        self.links[link].c2s.extend(bytes);
        let mut left = bytes.len();
        while left > 0 {
            let n = self.piece(bytes.len()).min(left);
            left -= n;
            let at = self.arrival(link, true);
            self.add(at, Event::ToServer { link, n });
        }
    }

    /// Length of the next piece of `len` bytes: small as the scenario wants it, but not thousands of pieces.
    fn piece(&mut self, len: usize) -> usize {
        let most = self.scenario.world.chunk.max(len / 6) as u64;
        self.draw.range(1, most) as usize
    }

    /// When the next bytes of a direction arrive.
    fn arrival(&mut self, link: usize, to_server: bool) -> u64 {
        let delay = self.draw.delay(self.scenario.world.net_delay_us);
        let link = &mut self.links[link];
        let last = if to_server { &mut link.c2s_last } else { &mut link.s2c_last };
        *last = (*last).max(self.now + delay);
        *last
    }

    /// An end's FIN, strictly behind all its bytes.
    fn fin(&mut self, link: usize, to_server: bool) {
        let at = self.arrival(link, to_server) + 1;
        if to_server {
            self.links[link].c2s_last = at;
            self.add(at, Event::FinToServer { link });
        } else {
            self.links[link].s2c_last = at;
            self.add(at, Event::FinToClient { link });
        }
    }

    pub(super) fn reach_server(&mut self, link: usize, n: usize) {
        if self.links[link].dead {
            return;
        }
        let n = n.min(self.links[link].c2s.len());
        let bytes: Vec<u8> = self.links[link].c2s.drain(..n).collect();
        self.links[link].waiting.extend(bytes);
        self.serve(link);
    }

    /// The server reads what has arrived, if it reads.
    fn serve(&mut self, link: usize) {
        let state = &mut self.links[link];
        if state.paused || state.closing {
            return;
        }
        let bytes = std::mem::take(&mut state.waiting);
        if !bytes.is_empty() {
            self.hash.mix(&bytes);
            match &mut state.server {
                Server::Handshake(handshake) => {
                    let progress = handshake.receive(&bytes, self.draw.rng(), &mut state.hello);
                    self.progress(link, progress);
                }
                Server::Shard { shard, conn } => {
                    let (shard, conn) = (*shard, *conn);
                    self.feed(shard, Input::Received { conn, bytes: &bytes });
                }
                Server::Gone => {}
            }
        }
        if self.links[link].fin_waiting && !self.links[link].paused {
            self.server_closed(link);
        }
    }

    pub(super) fn progress(&mut self, link: usize, progress: Progress) {
        self.flush(link);
        match progress {
            Progress::More => {}
            Progress::Ask(question) => {
                self.links[link].asked = Some(question);
                let at = self.now + self.draw.delay(self.scenario.world.auth_us);
                self.add(at, Event::Authenticated { link });
            }
            Progress::Admit(admission) => {
                let (shards, tenant) = (self.scenario.topology.shards, admission.identity.tenant);
                let spread = self.registry.is_spread(tenant);
                let shard = shard_of(tenant, &admission.client_id, shards, spread).0;
                let Some(conn) = self.take_slot(shard, link) else { return };
                self.note_overtaken(link);
                self.note_late(link);
                self.links[link].server = Server::Shard { shard, conn };
                self.feed(shard, Input::Admit { conn, admission });
                self.serve(link);
            }
            Progress::Close(_) => {
                self.links[link].closing = true;
                self.flush(link);
            }
        }
    }

    /// A CONNECT is about to take over from a connection of the same client whose last bytes the server has
    /// not read: a DISCONNECT among them comes too late, as it would on two real TCP connections.
    fn note_overtaken(&mut self, by: usize) {
        let client = self.links[by].client;
        let late: Vec<usize> = (0..self.links.len())
            .filter(|&link| {
                let former = &self.links[link];
                link != by
                    && former.client == client
                    && matches!(former.server, Server::Shard { .. })
                    && (!former.waiting.is_empty() || !former.c2s.is_empty())
            })
            .collect();
        for link in late {
            self.note(Fact::Overtaken { client, link });
        }
    }

    /// A CONNECT that its client gave up long ago arrives behind the one of its next connection.
    fn note_late(&mut self, link: usize) {
        let client = self.links[link].client;
        self.links[link].admitted = true;
        if self.links[link + 1..].iter().any(|newer| newer.client == client && newer.admitted) {
            self.note(Fact::LateConnect { client, link });
        }
    }

    pub(super) fn handshake_deadline(&mut self, link: usize) {
        if matches!(self.links[link].server, Server::Handshake(_)) {
            self.hang_up(link);
        }
    }

    pub(super) fn fin_to_server(&mut self, link: usize) {
        let state = &mut self.links[link];
        if state.dead || matches!(state.server, Server::Gone) {
            return;
        }
        state.fin_waiting = true;
        if matches!(state.server, Server::Handshake(_)) {
            state.server = Server::Gone;
        } else if state.closing {
            self.server_closed(link);
        } else {
            self.serve(link);
        }
    }

    /// Writes what the server has for the client, as far as the socket takes it.
    pub(super) fn flush(&mut self, link: usize) {
        loop {
            let room = self.scenario.world.socket_buffer.saturating_sub(self.links[link].s2c.len());
            let hello = std::mem::take(&mut self.links[link].hello);
            if !hello.is_empty() {
                self.wire_out(link, &hello);
            }
            let wait = self.output_len(link);
            if wait == 0 {
                if self.links[link].closing {
                    self.hang_up(link);
                }
                return;
            }
            if room == 0 {
                self.marks.hit("socket is full");
                return;
            }
            let partial = self.draw.chance(u64::from(self.scenario.world.partial_write));
            let limit = if partial { self.draw.range(1, WRITE) as usize } else { usize::MAX };
            self.write(link, room.min(limit));
            if partial && self.output_len(link) > 0 && !self.links[link].flush_armed {
                self.links[link].flush_armed = true;
                let at = self.now + self.draw.delay(self.scenario.world.net_delay_us);
                self.add(at, Event::Flush { link });
                return;
            }
        }
    }

    fn output_len(&mut self, link: usize) -> usize {
        let Server::Shard { shard, conn } = self.links[link].server else { return 0 };
        let Some(node) = &mut self.node else { return 0 };
        node.shards[shard as usize].output(conn).map_or(0, |out| out.len())
    }

    fn write(&mut self, link: usize, limit: usize) {
        let Server::Shard { shard, conn } = self.links[link].server else { return };
        let now = self.clock();
        let Some(node) = &mut self.node else { return };
        let shard = &mut node.shards[shard as usize];
        let Some(out) = shard.output(conn) else { return };
        let mut bytes = Vec::new();
        out.for_chunks(4, |chunk| bytes.extend_from_slice(chunk));
        bytes.truncate(limit);
        shard.wrote(now, conn, bytes.len());
        self.wire_out(link, &bytes);
    }

    fn wire_out(&mut self, link: usize, bytes: &[u8]) {
        self.hash.mix(bytes);
        let mut left = bytes.len();
        self.links[link].s2c.extend(bytes);
        while left > 0 {
            let n = self.piece(bytes.len()).min(left);
            left -= n;
            let at = self.arrival(link, false);
            self.add(at, Event::ToClient { link, n });
        }
    }

    /// The server's end is closed: FIN behind all bytes; the shard hears of it a moment later.
    pub(super) fn hang_up(&mut self, link: usize) {
        if matches!(self.links[link].server, Server::Gone) {
            return;
        }
        self.fin(link, false);
        if matches!(self.links[link].server, Server::Handshake(_)) {
            self.links[link].server = Server::Gone;
        } else {
            let at = self.now + self.draw.delay(1000);
            self.add(at, Event::ServerClosed { link });
        }
    }

    pub(super) fn linger(&mut self, link: usize) {
        if self.links[link].closing {
            self.hang_up(link);
        }
    }

    pub(super) fn reach_client(&mut self, link: usize, n: usize) {
        self.links[link].unread += n;
        self.listen(link);
    }

    /// The client reads, if it reads.
    pub(super) fn listen(&mut self, link: usize) {
        let state = &mut self.links[link];
        if state.dead {
            return;
        }
        let client = state.client;
        let current = self.clients[client].wire.as_ref().is_some_and(|w| w.link == link);
        if current && self.now < self.clients[client].deaf_until {
            return;
        }
        let n = std::mem::take(&mut state.unread).min(state.s2c.len());
        let bytes: Vec<u8> = state.s2c.drain(..n).collect();
        if n > 0 && current {
            let was_online = self.clients[client].online();
            self.with_client(client, |client, ctx| client.receive(ctx, &bytes));
            let period = u64::from(self.clients[client].spec.keep_alive) * 700_000;
            if !was_online && self.clients[client].online() && period > 0 {
                self.add(self.now + period, Event::KeepAlive { client, link });
            }
        }
        // A socket is writable again when a good part of it is free, not with every byte.
        if n > 0 && self.links[link].s2c.len() <= self.scenario.world.socket_buffer / 2 {
            self.flush_and_settle(link);
        }
        if std::mem::take(&mut self.links[link].fin_unread) {
            self.fin_to_client(link);
        }
    }

    /// Keep alive, in good time.
    pub(super) fn keep_alive(&mut self, client: usize, link: usize) {
        if self.clients[client].wire.as_ref().is_some_and(|w| w.link == link) {
            self.with_client(client, |client, ctx| client.ping(ctx));
            let period = u64::from(self.clients[client].spec.keep_alive) * 700_000;
            self.add(self.now + period, Event::KeepAlive { client, link });
        }
    }

    /// The socket has room again.
    pub(super) fn flush_and_settle(&mut self, link: usize) {
        self.links[link].flush_armed = false;
        self.flush(link);
        if let Server::Shard { shard, .. } = self.links[link].server {
            self.settle(shard);
        }
    }

    pub(super) fn fin_to_client(&mut self, link: usize) {
        let state = &mut self.links[link];
        if state.dead {
            return;
        }
        if state.unread > 0 {
            state.fin_unread = true;
            return;
        }
        if state.open {
            let client = state.client;
            self.leave(client, link, End::ByServer);
        }
    }

    /// Runs a client's code and does what it asks for.
    pub(super) fn with_client<R>(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut crate::client::Client, &mut Ctx<'_>) -> R,
    ) -> R {
        self.ledger.now = self.now;
        let mut ctx = Ctx {
            facts: &mut self.facts,
            judges: &mut self.judges,
            ledger: &mut self.ledger,
            out: Vec::new(),
            broken: None,
            close: false,
        };
        let before = self.clients[index].wire.as_ref().map(|w| w.link);
        let result = f(&mut self.clients[index], &mut ctx);
        let (out, broken, close) = (ctx.out, ctx.broken, ctx.close);
        let link = self.clients[index].wire.as_ref().map(|w| w.link).or(before);
        if let Some(link) = link {
            self.send(link, &out);
            if let Some(rule) = broken {
                let oracle = if rule.starts_with("CANARY") { "tenant canary" } else { "wire" };
                self.fail(oracle, &format!("client {index}, link {link}: {rule}"));
            } else if close {
                self.leave(index, link, End::ByServer);
            }
        }
        self.judge();
        result
    }

    /// A client's end of a connection closes.
    pub(super) fn leave(&mut self, index: usize, link: usize, end: End) {
        if !self.links[link].open {
            return;
        }
        self.links[link].open = false;
        match end {
            End::Vanished | End::Crash => self.links[link].dead = true,
            // An old connection of a takeover stays; its client just does not look at it any more.
            End::Abandoned => {}
            End::Cut => {
                let kept = self.draw.below(self.links[link].c2s.len() as u64 + 1) as usize;
                self.links[link].c2s.truncate(kept);
                self.fin(link, true);
            }
            End::Clean | End::WithWill | End::ByServer => {
                self.fin(link, true);
            }
        }
        let client = &mut self.clients[index];
        let Some(wire) = &client.wire else { return };
        if wire.link != link {
            return;
        }
        let was_online = wire.online;
        client.lost();
        if client.is_stranger() {
            return;
        }
        self.note(Fact::Ended { client: index, link, end, was_online });
        let again = self.clients[index].spec.reconnect_ms;
        if again > 0 && end != End::Abandoned && !self.clients[index].gone {
            let at = self.now + again * 1000 + self.draw.below(again * 1000 + 1);
            self.add(at, Event::Reconnect { client: index });
        }
    }
}
