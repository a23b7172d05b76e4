//! Executing what the shard wants. Nothing here decides anything.

use crate::driver::Driver;
use crate::driver::mailbox::Mail;
use mast_core::ask::{Answer, SessionInfo};
use mast_core::shard::input::{Effect, Input, LogEvent};
use mast_core::store::port::{CommitResult, ReadResult};

impl Driver {
    /// Executes one poll's output.
    pub(super) fn execute(&mut self) {
        while let Some(id) = self.outbox.dirty.pop() {
            self.mark(id);
        }
        self.drained |= self.outbox.drained;
        if self.outbox.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.outbox.effects);
        for effect in effects.drain(..) {
            self.effect(effect);
        }
        self.outbox.effects = effects;
        if self.post.iter().any(|mail| !mail.is_empty()) {
            self.wake_flusher();
        }
    }

    /// Sends what other shards get of this turn: one lock and at most one wake-up for each, however much it is.
    pub(super) fn post(&mut self) {
        for (to, mail) in self.post.iter_mut().enumerate() {
            if mail.is_empty() {
                continue;
            }
            if let Some(mailbox) = self.setup.mailboxes.get(to) {
                mailbox.push_all(mail.drain(..));
            }
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Close { conn, flush } => self.close(conn, flush),
            Effect::Pause { conn } => {
                if let Some(io) = self.slot(conn)
                    && !std::mem::replace(&mut io.paused, true)
                {
                    self.paused += 1;
                }
            }
            Effect::Resume { conn } => {
                if let Some(io) = self.slot(conn)
                    && std::mem::take(&mut io.paused)
                {
                    if let Some(waker) = &io.waker {
                        waker.wake_by_ref();
                    }
                    self.paused -= 1;
                }
            }
            Effect::Peer { to, msg } => {
                if let Some(mail) = self.post.get_mut(to.0 as usize) {
                    mail.push(Mail::Peer(self.setup.shard, msg));
                }
            }
            Effect::Commit { op, writes, class } => {
                // What was sent before must arrive before the store's announcement of this does.
                self.post();
                if let Err(refusal) = self.store.commit(self.setup.shard, op, writes, class) {
                    let refused = CommitResult::Refused(refusal);
                    let now = self.now();
                    self.shard.handle(now, Input::CommitDone { op, result: refused });
                    self.again = true;
                }
            }
            Effect::Read { op, read } => {
                if let Err(refusal) = self.store.read(self.setup.shard, op, read) {
                    let failed = ReadResult::Failed(refusal);
                    let now = self.now();
                    self.shard.handle(now, Input::ReadDone { op, result: failed });
                    self.again = true;
                }
            }
            Effect::Auth { op, conn: _, question } => (self.setup.auth)(op, question),
            Effect::Floor { tenant, floor } => self.store.set_floor(self.setup.shard, tenant, Some(floor)),
            Effect::Answer { token, answer } => {
                let peers = self.peers_of(&answer);
                (self.setup.answer)(token, answer, peers);
            }
            Effect::Log(event) => self.log(&event),
        }
    }

    /// The addresses of the connections in an answer, in order.
    fn peers_of(&mut self, answer: &Answer) -> Vec<Box<str>> {
        let mut peer = |session: &SessionInfo| {
            let conn = session.connection.as_ref().map(|c| c.id);
            conn.and_then(|id| self.slot(id)).map(|io| io.peer.clone()).unwrap_or_default()
        };
        match answer {
            Answer::Sessions { sessions, .. } => sessions.iter().map(peer).collect(),
            Answer::Session(session) => vec![peer(session)],
            Answer::Done
            | Answer::Missing
            | Answer::Busy
            | Answer::Failed(_)
            | Answer::Subscriptions { .. }
            | Answer::Retained { .. }
            | Answer::Usage(_)
            | Answer::Denials(_)
            | Answer::Left { .. } => Vec::new(),
        }
    }

    fn log(&mut self, event: &LogEvent) {
        let mut peer_of = |conn| self.slot(conn).map(|io| io.peer.clone()).unwrap_or_default();
        match event {
            LogEvent::Violation { conn, reason, why, statement } => {
                let peer = peer_of(*conn);
                (self.setup.log)("violation", &|| {
                    tracing::warn!(%peer, reason = format_args!("{reason:#04x}"), statement, "disconnected: {why}");
                });
            }
            LogEvent::TakenOver { conn } => {
                let peer = peer_of(*conn);
                (self.setup.log)("taken over", &|| {
                    tracing::info!(%peer, "session taken over by another connection");
                });
            }
            LogEvent::StoreTrouble { what, outcome } => (self.setup.log)("store trouble", &|| {
                tracing::error!(what, outcome, "not stored");
            }),
            LogEvent::BadRecord { space } => (self.setup.log)("bad record", &|| {
                tracing::error!(space, "a stored record makes no sense to this version; it is left alone");
            }),
            LogEvent::Invariant { what } => (self.setup.log)("invariant", &|| {
                tracing::error!(what, "a rule of the code was broken; please report this");
            }),
        }
    }
}
