//! A shard's mailbox: what other threads have for it. One lock and one wake-up per batch, however much
//! is in it. Senders look at its length and slow down their own inputs; nothing in it may be dropped.

use crate::driver::socket::Socket;
use crate::driver::transport::Transport;
use crate::store::{Event, Sink};
use mast_core::ask::Ask;
use mast_core::codec::Reason;
use mast_core::conn::handshake::{Admission, AuthAnswer};
use mast_core::ids::{OpId, ShardIx};
use mast_core::settings::Settings;
use mast_core::shard::peer::PeerMsg;
use mast_core::tenant::Tenancy;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// A connection on its way from the acceptor to its shard.
#[derive(Debug)]
pub struct Arrival {
    /// The socket, not registered with any runtime.
    pub socket: Socket,
    /// Layers between socket and MQTT.
    pub transport: Transport,
    /// Who it is.
    pub admission: Box<Admission>,
    /// Bytes that must be written first (WebSocket answer, TLS records).
    pub unwritten: Vec<u8>,
    /// For log lines.
    pub peer: Box<str>,
    /// Gives its place under the connection limits back when the connection is gone.
    pub permit: Option<Permit>,
}

/// A place under the connection limits, given back when dropped.
pub struct Permit(pub Box<dyn Send>);

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permit")
    }
}

/// One piece of mail.
#[derive(Debug)]
pub enum Mail {
    /// From the acceptor.
    Arrival(Box<Arrival>),
    /// From the store.
    Store(Event),
    /// From another shard.
    Peer(ShardIx, PeerMsg),
    /// From authentication.
    Auth(OpId, AuthAnswer),
    /// New settings and tenants.
    Reconfigure(Box<Settings>, Tenancy),
    /// A question of administration.
    Ask(u64, Ask),
    /// Memory is short.
    Relieve,
    /// Say goodbye to all clients.
    Drain(Reason),
}

impl Mail {
    /// Messages in it, for the measure of a backlog.
    fn weight(&self) -> usize {
        match self {
            Mail::Peer(_, PeerMsg::Routes(batch)) => batch.len(),
            Mail::Peer(..)
            | Mail::Arrival(_)
            | Mail::Store(_)
            | Mail::Auth(..)
            | Mail::Reconfigure(..)
            | Mail::Ask(..)
            | Mail::Relieve
            | Mail::Drain(_) => 1,
        }
    }
}

/// The mailbox of one shard.
#[derive(Debug, Default)]
pub struct Mailbox {
    queue: Mutex<Vec<Mail>>,
    /// By weight.
    len: AtomicUsize,
    bell: Notify,
}

impl Mailbox {
    /// Adds mail.
    pub fn push(&self, mail: Mail) {
        self.push_all(std::iter::once(mail));
    }

    /// Adds several pieces with one wake-up.
    pub fn push_all(&self, mail: impl IntoIterator<Item = Mail>) {
        let was_empty = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let was_empty = queue.is_empty();
            let mut weight = if was_empty { 0 } else { self.len.load(Ordering::Relaxed) };
            queue.extend(mail.into_iter().inspect(|m| weight += m.weight()));
            self.len.store(weight, Ordering::Relaxed);
            was_empty
        };
        if was_empty {
            self.bell.notify_one();
        }
    }

    /// Messages and other pieces that wait, about.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// True if nothing waits, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all mail; `into` is swapped in as the next buffer.
    pub fn take(&self, into: &mut Vec<Mail>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *queue, into);
        self.len.store(0, Ordering::Relaxed);
    }

    /// Waits for mail.
    pub async fn wait(&self) {
        self.bell.notified().await;
    }
}

/// The store's way to a shard.
pub struct StoreSink(pub Arc<Mailbox>);

impl Sink for StoreSink {
    fn deliver(&mut self, events: Vec<Event>) {
        self.0.push_all(events.into_iter().map(Mail::Store));
    }
}
