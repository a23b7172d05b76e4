//! The end of a turn: mail to other shards, and each dirty socket written once.

use crate::driver::Driver;
use crate::driver::conn::Closing;
use mast_core::ids::ConnId;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// Chunks of one write call.
const CHUNKS: usize = 16;

impl Driver {
    /// The flusher's poll: never ready. It runs behind all tasks that were ready when it was woken.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.flusher.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
            self.flusher = Some(cx.waker().clone());
        }
        // First, so that the other shards work while this one writes.
        self.post();
        let mut batch = std::mem::take(&mut self.dirty);
        for id in batch.drain(..) {
            if let Some(io) = self.slot(id) {
                io.queued = false;
            }
            self.flush_conn(id);
        }
        // Writing made room, and room may have made mail.
        self.post();
        if self.dirty.is_empty() {
            self.dirty = batch;
        } else {
            // Room in a socket let more out of its session.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Writes what a connection has, as far as its socket takes it.
    pub(super) fn flush_conn(&mut self, id: ConnId) {
        loop {
            let Some(slot) = self.slots.get_mut(id.idx as usize) else { return };
            if slot.generation != id.generation {
                return;
            }
            let Some(io) = &mut slot.io else { return };
            if io.blocked || matches!(io.closing, Closing::Lingering | Closing::Now) {
                return;
            }
            let plain = io.transport.is_plain();
            if io.raw_at == io.raw.len() && !plain {
                io.raw.clear();
                io.raw_at = 0;
                let sealed = seal(&mut self.shard, id, io);
                match sealed {
                    Ok(0) => {}
                    Ok(n) => {
                        let now = self.clock.now();
                        self.shard.wrote(now, id, n);
                        self.run(now);
                        continue;
                    }
                    Err(error) => {
                        tracing::debug!(peer = %io.peer, %error, "cannot seal output");
                        io.closing = Closing::Now;
                        wake(io);
                        return;
                    }
                }
            }
            let result = if io.raw_at < io.raw.len() {
                let result = io.socket.write(&[IoSlice::new(&io.raw[io.raw_at..])]);
                if let Ok(n) = result {
                    io.raw_at += n;
                    if io.raw_at == io.raw.len() {
                        io.raw.clear();
                        io.raw_at = 0;
                    }
                }
                result.map(|_| 0)
            } else {
                let Some(out) = self.shard.output(id).filter(|out| plain && !out.is_empty()) else {
                    self.flushed(id);
                    return;
                };
                let mut slices = [IoSlice::new(&[]); CHUNKS];
                let mut n = 0;
                out.for_chunks(CHUNKS, |chunk| {
                    slices[n] = IoSlice::new(chunk);
                    n += 1;
                });
                io.socket.write(&slices[..n])
            };
            match result {
                Ok(0) => {}
                Ok(n) => {
                    let now = self.clock.now();
                    self.shard.wrote(now, id, n);
                    self.run(now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    io.blocked = true;
                    wake(io);
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    io.closing = Closing::Now;
                    wake(io);
                    return;
                }
            }
        }
    }

    /// All output is written.
    fn flushed(&mut self, id: ConnId) {
        let Some(io) = self.slot(id) else { return };
        if io.closing != Closing::Flushing {
            return;
        }
        if !io.transport.is_plain() {
            let mut out = std::mem::take(&mut io.raw);
            let said = io.transport.close(&mut out);
            io.raw = out;
            io.raw_at = 0;
            // One try: a peer that takes no more will not read a goodbye either.
            if said.is_err() || io.socket.write(&[IoSlice::new(&io.raw)]).is_err() {
                io.closing = Closing::Now;
                wake(io);
                return;
            }
        }
        io.closing = if io.socket.finish().is_ok() { Closing::Lingering } else { Closing::Now };
        wake(io);
    }
}

pub(super) fn wake(io: &super::conn::ConnIo) {
    if let Some(waker) = &io.waker {
        waker.wake_by_ref();
    }
}

/// Puts the shard's output through the layers; returns how many of its bytes that took.
fn seal(shard: &mut mast_core::shard::Shard, id: ConnId, io: &mut super::conn::ConnIo) -> io::Result<usize> {
    let Some(out) = shard.output(id) else { return Ok(0) };
    let mut taken = 0;
    let mut result = Ok(());
    let raw = &mut io.raw;
    let transport = &mut io.transport;
    out.for_chunks(CHUNKS, |chunk| {
        if result.is_ok() {
            result = transport.send(chunk, raw);
            taken += chunk.len();
        }
    });
    result.map(|()| taken)
}
