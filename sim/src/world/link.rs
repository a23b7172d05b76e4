//! A TCP connection between a client and the node: bytes in both directions, with delays, cuts, a bounded
//! socket buffer, and ends that each side learns of in its own time.

use mast_core::conn::handshake::{AuthQuestion, Handshake};
use mast_core::ids::ConnId;
use std::collections::VecDeque;

/// Who reads on the server's side.
#[derive(Debug)]
pub enum Server {
    /// The acceptor.
    Handshake(Box<Handshake>),
    /// A shard.
    Shard {
        /// Which.
        shard: u16,
        /// Under this handle.
        conn: ConnId,
    },
    /// Nobody.
    Gone,
}

/// See the module.
#[derive(Debug)]
pub struct Link {
    /// Whose.
    pub client: usize,
    /// The server's end.
    pub server: Server,
    /// On their way to the server.
    pub c2s: VecDeque<u8>,
    /// When the last of them arrives, µs.
    pub c2s_last: u64,
    /// Arrived, but the server does not read.
    pub waiting: Vec<u8>,
    /// The end arrived while the server did not read.
    pub fin_waiting: bool,
    /// The server does not read.
    pub paused: bool,
    /// The acceptor's bytes for the client.
    pub hello: Vec<u8>,
    /// On their way to the client, or in its socket.
    pub s2c: VecDeque<u8>,
    /// When the last of them arrives, µs.
    pub s2c_last: u64,
    /// Of `s2c`, arrived and unread.
    pub unread: usize,
    /// The server's FIN is behind `s2c`: arrived and unseen.
    pub fin_unread: bool,
    /// What authentication was asked last.
    pub asked: Option<AuthQuestion>,
    /// Challenges since CONNECT, or since the client asked for re-authentication.
    pub challenges: u8,
    /// The server closes once its output is written.
    pub closing: bool,
    /// A flush is scheduled.
    pub flush_armed: bool,
    /// Its CONNECT reached a shard.
    pub admitted: bool,
    /// The client's end is open.
    pub open: bool,
    /// Nothing passes any more, and nobody is told.
    pub dead: bool,
}

impl Link {
    /// A fresh connection.
    #[must_use]
    pub fn new(client: usize, handshake: Handshake, now: u64) -> Link {
        Link {
            client,
            server: Server::Handshake(Box::new(handshake)),
            c2s: VecDeque::new(),
            c2s_last: now,
            waiting: Vec::new(),
            fin_waiting: false,
            paused: false,
            hello: Vec::new(),
            s2c: VecDeque::new(),
            s2c_last: now,
            unread: 0,
            fin_unread: false,
            asked: None,
            challenges: 0,
            closing: false,
            flush_armed: false,
            admitted: false,
            open: true,
            dead: false,
        }
    }
}
