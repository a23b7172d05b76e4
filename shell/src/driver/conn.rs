//! One connection's task: a hand-written poll that reads what is there, feeds the shard, and arms
//! writability when the socket is full.

use crate::driver::mailbox::{Arrival, Permit};
use crate::driver::socket::{Got, Registered};
use crate::driver::transport::{Flow, Transport};
use crate::driver::{Driver, EARLY_FLUSH, READ_BLOCK};
use mast_core::ids::ConnId;
use mast_core::shard::input::Input;
use std::task::{Context, Poll, Waker};

/// Reads of one connection in one turn: beyond that the others get theirs.
const READS_PER_TURN: usize = 16;
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
    /// In the driver's dirty list.
    pub queued: bool,
    pub closing: Closing,
    pub close_by: mast_core::time::Mono,
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
            queued: false,
            closing: Closing::No,
            close_by: mast_core::time::Mono::NEVER,
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
            if self.slot(id).is_some_and(|io| !io.paused) && self.is_congested() {
                self.parked.push(cx.waker().clone());
                self.wake_timer();
                break;
            }
            let Some(io) = self.slot(id) else {
                result = Poll::Ready(());
                break;
            };
            if io.paused && io.closing == Closing::No {
                break;
            }
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
                Ok(Got::End) | Err(_) => {
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

    /// A layer ended: the shard is told now, the socket follows when its last bytes are out.
    fn start_close(&mut self, id: ConnId) {
        let by = self.clock.mono().after_micros(LINGER_MICROS);
        if let Some(io) = self.slot(id)
            && io.closing == Closing::No
        {
            io.closing = Closing::Flushing;
            io.close_by = by;
            self.mark(id);
        }
        self.wake_timer();
    }

    /// The shard wants the connection closed.
    pub(super) fn close(&mut self, id: ConnId, flush: bool) {
        let by = self.clock.mono().after_micros(LINGER_MICROS);
        let Some(io) = self.slot(id) else { return };
        if !flush {
            io.closing = Closing::Now;
        } else if io.closing == Closing::No {
            io.closing = Closing::Flushing;
            io.close_by = by;
        }
        if let Some(waker) = &io.waker {
            waker.wake_by_ref();
        }
        self.mark(id);
        self.wake_timer();
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
        let mut waiting = false;
        for slot in &mut self.slots {
            if let Some(io) = &mut slot.io
                && io.closing != Closing::No
            {
                if io.close_by <= now {
                    io.closing = Closing::Now;
                    if let Some(waker) = &io.waker {
                        waker.wake_by_ref();
                    }
                } else {
                    waiting = true;
                }
            }
        }
        self.reaping = waiting;
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

    pub(super) fn wake_timer(&mut self) {
        self.reaping = true;
        if let Some(timer) = &self.timer {
            timer.wake_by_ref();
        }
    }

    /// Writes at once what has grown large, instead of at the end of the turn.
    fn flush_large(&mut self) {
        for at in 0..self.dirty.len() {
            let id = self.dirty[at];
            let large = self.shard.output(id).is_some_and(|out| out.len() >= EARLY_FLUSH);
            if large {
                self.flush_conn(id);
            }
        }
    }
}
