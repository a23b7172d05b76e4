//! What can happen, and when: a heap by time, ties broken by draws.

use mast_core::ids::OpId;
use mast_core::store::port::Read;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An event. `life` is the node's life it belongs to: events of a dead one are void.
#[derive(Debug)]
pub enum Event {
    /// An operation of the scenario.
    Op(usize),
    /// A fault of the scenario.
    Fault(usize),
    /// Rules of the scenario come into use.
    Rights,
    /// Other limits are in force.
    Limits,
    /// The safety phase ends.
    Calm,
    /// The node is back.
    Restart,
    /// `n` bytes reach the server.
    ToServer { link: usize, n: usize },
    /// The client's FIN reaches the server.
    FinToServer { link: usize },
    /// `n` bytes reach the client.
    ToClient { link: usize, n: usize },
    /// The server's FIN reaches the client.
    FinToClient { link: usize },
    /// The server writes on.
    Flush { link: usize },
    /// The server's socket is gone.
    ServerClosed { link: usize },
    /// A closing socket is waited for no longer.
    Linger { link: usize },
    /// Authentication answers.
    Authenticated { link: usize },
    /// The handshake has taken too long.
    HandshakeDeadline { link: usize },
    /// The client reads again.
    Listen { client: usize },
    /// The client acknowledges again.
    Unmute { client: usize },
    /// The client sends PINGREQ.
    KeepAlive { client: usize, link: usize },
    /// The client comes back by itself.
    Reconnect { client: usize },
    /// The store's queue is applied.
    Apply { life: u32 },
    /// The store's batch is done.
    Applied { life: u32, synced: bool },
    /// A read is looked up.
    Look { life: u32, shard: u16, op: OpId, read: Box<Read> },
    /// The next of a shard's inbox reaches it.
    Tell { life: u32, shard: u16 },
    /// A shard's timer.
    Wake { life: u32, shard: u16, at: u64 },
    /// A step of the end of the run.
    Final(u8),
}

impl Event {
    /// Its kind, for counting.
    pub const fn kind(&self) -> &'static str {
        match self {
            Event::Op(_) => "operation",
            Event::Fault(_) => "fault",
            Event::Rights => "rights",
            Event::Limits => "limits",
            Event::Calm | Event::Restart | Event::Final(_) => "phase",
            Event::ToServer { .. } => "bytes to server",
            Event::FinToServer { .. } => "fin to server",
            Event::ToClient { .. } => "bytes to client",
            Event::FinToClient { .. } => "fin to client",
            Event::Flush { .. } => "flush",
            Event::ServerClosed { .. } => "server closed",
            Event::Linger { .. } => "linger",
            Event::Authenticated { .. } => "authenticated",
            Event::HandshakeDeadline { .. } => "handshake deadline",
            Event::Listen { .. } => "listen",
            Event::Unmute { .. } => "unmute",
            Event::KeepAlive { .. } => "keep alive",
            Event::Reconnect { .. } => "reconnect",
            Event::Apply { .. } => "apply",
            Event::Applied { .. } => "applied",
            Event::Look { .. } => "look",
            Event::Tell { .. } => "tell",
            Event::Wake { .. } => "wake",
        }
    }
}

struct Entry {
    at: u64,
    tie: u64,
    nth: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest; we want the earliest.
        (other.at, other.tie, other.nth).cmp(&(self.at, self.tie, self.nth))
    }
}

/// Events to come.
#[derive(Default)]
pub struct Agenda {
    heap: BinaryHeap<Entry>,
    nth: u64,
}

impl Agenda {
    /// Adds an event.
    pub fn add(&mut self, at: u64, tie: u64, event: Event) {
        self.nth += 1;
        self.heap.push(Entry { at, tie, nth: self.nth, event });
    }

    /// Takes the next one.
    pub fn next(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}
