//! Shard threads: each owns a [`Shard`], the sockets of its connections, and a current-thread runtime.
//! Reading, handling and writing happen in one turn, without a channel in between.
//!
//! The pattern was measured: one hand-written poll per connection over a shared read block, and one
//! flusher task that runs behind all ready tasks, so that a socket is written once per turn however many
//! readers fed it.

pub mod clock;
pub mod mailbox;
pub mod socket;
pub mod transport;

mod conn;
mod effects;
mod flush;
mod thread;

pub use thread::{ShardHandle, ShardSetup, spawn};

use crate::driver::clock::Clock;
use crate::driver::conn::ConnIo;
use crate::driver::mailbox::{Mail, Mailbox};
use crate::store::StoreClient;
use mast_core::ids::ConnId;
use mast_core::shard::Shard;
use mast_core::shard::input::{Input, Outbox, Step};
use mast_core::time::{Mono, Now};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// Bytes of the read block that all connections of a thread share.
const READ_BLOCK: usize = 64 * 1024;
/// Output of one socket that is written at once instead of at the end of the turn: bounds the memory and
/// the delay that waiting for the end adds.
const EARLY_FLUSH: usize = 128 * 1024;
/// Mail of another shard above which this one stops reading its sockets.
const PEER_BACKLOG: usize = 16 * 1024;
/// Polls of the shard in one go, before sockets get a look again.
const POLLS_PER_TURN: usize = 32;

/// A connection slot: reused, so numbered by generation.
#[derive(Default)]
struct Slot {
    generation: u32,
    io: Option<ConnIo>,
}

/// One shard thread's state. Borrowed for the length of a poll, never across an await.
pub(crate) struct Driver {
    shard: Shard,
    clock: Clock,
    slots: Vec<Slot>,
    free: Vec<u32>,
    block: Vec<u8>,
    outbox: Outbox,
    dirty: Vec<ConnId>,
    /// Where in `dirty` the next look for large output begins.
    look_at: usize,
    flusher: Option<Waker>,
    /// Woken when the shard has more to do than one turn allows.
    worker: Option<Waker>,
    /// Woken when the next wake-up moved forward.
    timer: Option<Waker>,
    wake_at: Option<Mono>,
    /// Connections that wait for the store, another shard or memory, in order of arrival.
    parked: VecDeque<ConnId>,
    /// How many connections the shard does not want to be read.
    paused: usize,
    /// Closing connections and their deadlines, ascending.
    closing: VecDeque<(Mono, ConnId)>,
    peers: Vec<Arc<Mailbox>>,
    /// Mail of this turn, by receiving shard.
    post: Vec<Vec<Mail>>,
    store: StoreClient,
    setup: Arc<ShardSetup>,
    /// An effect fed the shard again.
    again: bool,
    drained: bool,
}

pub(crate) type Shared = Rc<RefCell<Driver>>;

impl Driver {
    fn now(&self) -> Now {
        self.clock.now()
    }

    /// Gives the shard one input and runs it until it is idle, or has used up its turn.
    fn feed(&mut self, input: Input<'_>) {
        let now = self.now();
        self.shard.handle(now, input);
        self.run(now);
    }

    /// Gives the shard one of several inputs; [`Driver::run`] follows behind them.
    fn hand(&mut self, now: Now, input: Input<'_>) {
        self.shard.handle(now, input);
    }

    fn run(&mut self, now: Now) {
        for _ in 0..POLLS_PER_TURN {
            let step = self.shard.poll(now, &mut self.outbox);
            self.execute();
            match step {
                Step::More => {}
                Step::Idle { .. } if std::mem::take(&mut self.again) => {}
                Step::Idle { wake } => {
                    if wake != self.wake_at {
                        let earlier = match (wake, self.wake_at) {
                            (Some(new), Some(old)) => new < old,
                            (Some(_), None) => true,
                            (None, _) => false,
                        };
                        self.wake_at = wake;
                        if earlier && let Some(timer) = &self.timer {
                            timer.wake_by_ref();
                        }
                    }
                    return;
                }
            }
        }
        if let Some(worker) = &self.worker {
            worker.wake_by_ref();
        }
    }

    fn slot(&mut self, id: ConnId) -> Option<&mut ConnIo> {
        let slot = self.slots.get_mut(id.idx as usize)?;
        if slot.generation == id.generation { slot.io.as_mut() } else { None }
    }

    /// Takes a free slot.
    fn allocate(&mut self) -> ConnId {
        let idx = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        ConnId { idx, generation: self.slots[idx as usize].generation }
    }

    /// Frees a slot once the shard knows that the connection is gone.
    fn release(&mut self, id: ConnId) {
        if let Some(slot) = self.slots.get_mut(id.idx as usize)
            && slot.generation == id.generation
        {
            if slot.io.take().is_some_and(|io| io.paused) {
                self.paused -= 1;
            }
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(id.idx);
        }
    }

    /// True while reading on would only pile up work that the store or another shard cannot take.
    fn is_congested(&self) -> bool {
        self.store.is_congested() || self.peers.iter().any(|p| p.len() > PEER_BACKLOG)
    }

    /// True if the connection may not be read now. Memory runs short by publishers alone: the acknowledgements of
    /// consumers are what frees it.
    fn must_wait(&mut self, id: ConnId) -> bool {
        self.is_congested() || (self.setup.pressure.pauses() && self.shard.has_published(id))
    }
}
