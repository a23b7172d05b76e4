//! One connection's task: a hand-written poll that reads what is there, feeds the shard, and arms
//! writability when the socket is full.

use crate::driver::flush::wake;
use crate::driver::mailbox::{Arrival, Permit};
use crate::driver::socket::{Got, Registered};
use crate::driver::transport::{Flow, Transport};
use crate::driver::{Driver, EARLY_FLUSH, READ_BLOCK};
use mast_core::ids::ConnId;
use mast_core::shard::input::Input;
use std::task::{Context, Poll, Waker};

/// Reads of one connection in one turn: beyond that the others get theirs.
const READS_PER_TURN: usize = 16;
/// Dirty connections that are looked at after one read.
const LOOKS: usize = 16;
/// Waiting connections that try again at one beat of the timer: all at once would be a storm.
const UNPARK: usize = 512;
/// How long a closing connection may take to let its last bytes go, µs.
const LINGER_MICROS: u64 = 2_000_000;

/// How far a close has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Not closing.
    No,
    /// Output is still to be written.
    Flushing,
    /// The FIN is out; the peer's is awaited, so that no reset destroys what it has not read yet.
    Lingering,
    /// Over.
    Now,
}

/// The I/O side of a connection.
pub(super) struct ConnIo {
    pub socket: Registered,
    pub transport: Transport,
    /// Bytes of the layers that wait for the socket, before anything of the shard's.
    pub raw: Vec<u8>,
    pub raw_at: usize,
    pub waker: Option<Waker>,
    /// The socket took no more; writability is awaited.
    pub blocked: bool,
    pub paused: bool,
    /// In the driver's list of those that wait.
    pub parked: bool,
    /// The shard knows that the connection is not read.
    pub unread: bool,
    /// In the driver's dirty list.
    pub queued: bool,
    pub closing: Closing,
    pub peer: Box<str>,
    _permit: Option<Permit>,
}

impl Driver {
    /// Takes an admitted connection in; its task is to be spawned.
    pub(super) fn arrive(&mut self, arrival: Arrival) -> Option<ConnId> {
        let Arrival { socket, transport, admission, unwritten, peer, permit } = arrival;
        let socket = match socket.register() {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be registered with its shard");
                return None;
            }
        };
        let id = self.allocate();
        let io = ConnIo {
            socket,
            transport,
            raw: unwritten,
            raw_at: 0,
            waker: None,
            blocked: false,
            paused: false,
            parked: false,
            unread: false,
            queued: false,
            closing: Closing::No,
            peer,
            _permit: permit,
        };
        self.slots[id.idx as usize].io = Some(io);
        self.feed(Input::Admit { conn: id, admission });
        self.mark(id);
        Some(id)
    }

    /// The connection's poll. Ready when it is over.
    pub(super) fn poll_conn(&mut self, id: ConnId, cx: &mut Context<'_>) -> Poll<()> {
        let Some(io) = self.slot(id) else { return Poll::Ready(()) };
        if io.waker.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
            io.waker = Some(cx.waker().clone());
        }
        if io.blocked {
            match io.socket.poll_writable(cx) {
                Poll::Ready(Ok(())) => {
                    io.blocked = false;
                    self.mark(id);
                }
                Poll::Ready(Err(_)) => return self.gone(id),
                Poll::Pending => {}
            }
        }
        let Some(io) = self.slot(id) else { return Poll::Ready(()) };
        match io.closing {
            Closing::Now => return self.gone(id),
            Closing::No | Closing::Flushing | Closing::Lingering => {}
        }
        self.read_some(id, cx)
    }

    fn read_some(&mut self, id: ConnId, cx: &mut Context<'_>) -> Poll<()> {
        let mut block = std::mem::take(&mut self.block);
        block.resize(READ_BLOCK, 0);
        let mut result = Poll::Pending;
        for turn in 0.. {
            let Some(io) = self.slot(id) else {
                result = Poll::Ready(());
                break;
            };
            // One that closes is read to its end, whatever else is going on: nothing of it reaches the shard.
            if io.closing == Closing::No {
                if io.paused {
                    break;
                }
                if self.must_wait(id) {
                    self.park(id);
                    break;
                }
                self.read_again(id);
            }
            let Some(io) = self.slot(id) else { break };
            match io.socket.poll_readable(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(_)) => {
                    result = self.gone(id);
                    break;
                }
                Poll::Ready(Ok(())) => {}
            }
            if turn == READS_PER_TURN {
                cx.waker().wake_by_ref();
                break;
            }
            match io.socket.read(&mut block) {
                Ok(Got::Bytes(n)) => self.bytes(id, &block[..n]),
                Ok(Got::Last(n)) => self.bytes(id, &block[..n]),
                Ok(Got::Nothing) => {}
                Ok(Got::End) => {
                    // The peer may only have shut its own direction: what there is for it, it gets.
                    self.flush_conn(id);
                    result = self.gone(id);
                    break;
                }
                Err(_) => {
                    result = self.gone(id);
                    break;
                }
            }
        }
        self.block = block;
        if result.is_pending() && !self.dirty.is_empty() {
            self.wake_flusher();
        }
        result
    }

    /// Received bytes: through the layers, to the shard.
    fn bytes(&mut self, id: ConnId, raw: &[u8]) {
        let Some(io) = self.slot(id) else { return };
        if io.closing != Closing::No {
            return;
        }
        if io.transport.is_plain() {
            self.feed(Input::Received { conn: id, bytes: raw });
        } else {
            let mut mqtt = Vec::new();
            let mut out = std::mem::take(&mut io.raw);
            let flow = io.transport.receive(raw, &mut mqtt, &mut out);
            let answers = out.len() > io.raw_at;
            io.raw = out;
            if !mqtt.is_empty() {
                self.feed(Input::Received { conn: id, bytes: &mqtt });
            }
            if answers {
                self.mark(id);
            }
            match flow {
                Ok(Flow::Open) => {}
                Ok(Flow::Closed) => self.start_close(id),
                Err(error) => {
                    let peer = self.slot(id).map(|io| io.peer.clone()).unwrap_or_default();
                    tracing::debug!(%peer, %error, "transport error");
                    self.start_close(id);
                }
            }
        }
        self.flush_large();
    }

    /// A layer ended: the shard is told now, the socket follows when the layers' last bytes are out.
    fn start_close(&mut self, id: ConnId) {
        let begins = self.slot(id).is_some_and(|io| io.closing == Closing::No);
        if begins {
            self.close(id, true);
            self.feed(Input::Closed { conn: id });
        }
    }

    /// The shard wants the connection closed.
    pub(super) fn close(&mut self, id: ConnId, flush: bool) {
        let by = self.clock.mono().after_micros(LINGER_MICROS);
        let Some(io) = self.slot(id) else { return };
        let begins = flush && io.closing == Closing::No;
        if !flush {
            io.closing = Closing::Now;
        } else if begins {
            io.closing = Closing::Flushing;
        }
        if let Some(waker) = &io.waker {
            waker.wake_by_ref();
        }
        if begins {
            self.closing.push_back((by, id));
            if self.closing.len() == 1 {
                self.wake_timer();
            }
        }
        self.mark(id);
    }

    /// Leaves a connection unread until there is room for what it may bring.
    fn park(&mut self, id: ConnId) {
        let now = self.now();
        let Some(io) = self.slot(id) else { return };
        if io.parked {
            return;
        }
        io.parked = true;
        if !std::mem::replace(&mut io.unread, true) {
            self.shard.set_unread(now, id, true);
        }
        self.parked.push_back(id);
        if self.parked.len() == 1 {
            self.wake_timer();
        }
    }

    fn read_again(&mut self, id: ConnId) {
        if self.slot(id).is_some_and(|io| std::mem::take(&mut io.unread)) {
            let now = self.now();
            self.shard.set_unread(now, id, false);
        }
    }

    /// Lets some of those that wait try again; the timer comes back for the others.
    pub(super) fn unpark(&mut self) {
        if self.is_congested() {
            return;
        }
        for _ in 0..self.parked.len().min(UNPARK) {
            let Some(id) = self.parked.pop_front() else { return };
            if let Some(io) = self.slot(id) {
                io.parked = false;
                wake(io);
            }
        }
    }

    /// Ends connections that are not read and whose peer has reset them: nothing else would notice.
    pub(super) fn end_dead(&mut self) {
        if self.paused == 0 && self.parked.is_empty() {
            return;
        }
        for idx in 0..self.slots.len() {
            let slot = &self.slots[idx];
            let id = ConnId { idx: idx as u32, generation: slot.generation };
            let unread = slot.io.as_ref().is_some_and(|io| (io.paused || io.parked) && io.socket.is_dead());
            if unread {
                self.close(id, false);
            }
        }
    }

    /// The connection is over: the shard hears of it, the slot is free.
    fn gone(&mut self, id: ConnId) -> Poll<()> {
        self.feed(Input::Closed { conn: id });
        self.release(id);
        if !self.dirty.is_empty() {
            self.wake_flusher();
        }
        Poll::Ready(())
    }

    /// Closing connections whose time is over; called by the timer.
    pub(super) fn reap(&mut self) {
        let now = self.clock.mono();
        while let Some((by, id)) = self.closing.front().copied()
            && by <= now
        {
            self.closing.pop_front();
            if let Some(io) = self.slot(id) {
                io.closing = Closing::Now;
                wake(io);
            }
        }
    }

    /// Puts a connection on the dirty list.
    pub(super) fn mark(&mut self, id: ConnId) {
        if let Some(io) = self.slot(id)
            && !io.queued
        {
            io.queued = true;
            self.dirty.push(id);
            self.wake_flusher();
        }
    }

    pub(super) fn wake_flusher(&self) {
        if let Some(flusher) = &self.flusher {
            flusher.wake_by_ref();
        }
    }

    pub(super) fn wake_timer(&self) {
        if let Some(timer) = &self.timer {
            timer.wake_by_ref();
        }
    }

    /// Writes at once what has grown large, instead of at the end of the turn.
    fn flush_large(&mut self) {
        // A few at a time: a look at all of them after every read would cost more than it saves.
        for _ in 0..self.dirty.len().min(LOOKS) {
            self.look_at = if self.look_at >= self.dirty.len() { 0 } else { self.look_at };
            let id = self.dirty[self.look_at];
            self.look_at += 1;
            let large = self.shard.output(id).is_some_and(|out| out.len() >= EARLY_FLUSH);
            if large {
                self.flush_conn(id);
            }
        }
    }
}
