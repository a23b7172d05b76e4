//! Accepting: limits, then the handshakes of each layer, CONNECT and authentication; then the connection is
//! handed once to its shard.

pub mod authenticate;
pub mod failures;
pub mod greet;

use crate::accept::authenticate::Authenticator;
use crate::accept::failures::Failures;
use crate::accept::greet::Greeter;
use crate::config::{Config, Endpoint, Listener};
use crate::driver::clock::Clock;
use crate::driver::mailbox::Mailbox;
use crate::driver::socket::Socket;
use crate::listen::admission::{Admission, Refusal};
use crate::listen::bind::{self, Bound};
use crate::obs::log::RateLimited;
use crate::serve::OpenListener;
use arc_swap::ArcSwap;
use mast_core::conn::handshake::HandshakeConfig;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

/// What a reload changes.
pub struct InForce {
    /// The configuration.
    pub config: Arc<Config>,
    /// What a CONNECT must keep to.
    pub handshake: Arc<HandshakeConfig>,
}

/// What all listeners share.
pub struct Acceptor {
    /// The configuration in use.
    pub in_force: ArcSwap<InForce>,
    /// Who may come in.
    pub authenticator: Arc<Authenticator>,
    /// How many may.
    pub admission: Arc<Admission>,
    /// What ended connections before CONNACK.
    pub failures: Arc<Failures>,
    /// Mailboxes of the shards.
    pub shards: Vec<Arc<Mailbox>>,
    /// Log lines about clients, by cause.
    pub log_limit: Arc<RateLimited<&'static str>>,
    /// Time.
    pub clock: Clock,
}

/// A raw connection, just accepted.
pub struct Accepted {
    /// The socket, non-blocking.
    pub socket: Socket,
    /// The other end; `None` for unix sockets.
    pub ip: Option<IpAddr>,
    /// For log lines.
    pub peer: String,
}

/// Pause after the system ran out of something that only time gives back.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

impl Acceptor {
    /// Lets clients in through a listener and starts its accept loops.
    ///
    /// # Errors
    /// It cannot listen, or the runtime cannot register a socket.
    pub fn listen(self: &Arc<Self>, open: OpenListener) -> io::Result<Vec<JoinHandle<()>>> {
        let OpenListener { settings, sockets, tls } = open;
        let backlog = self.in_force.load().config.limits.backlog;
        bind::listen(&settings, &sockets, backlog).map_err(io::Error::other)?;
        let name = Arc::from(settings.name.as_str());
        let greeter = Arc::new(Greeter { acceptor: Arc::clone(self), name, opened: Arc::new(settings), tls });
        let mut loops = Vec::new();
        match sockets {
            Bound::Tcp(sockets) => {
                for socket in sockets {
                    let socket = TcpListener::from_std(socket)?;
                    loops.push(tokio::spawn(Acceptor::tcp_loop(
                        Arc::clone(self),
                        Arc::clone(&greeter),
                        socket,
                    )));
                }
            }
            Bound::Unix(unix) => {
                let socket = UnixListener::from_std(unix.socket.try_clone()?)?;
                let (acceptor, greeter) = (Arc::clone(self), Arc::clone(&greeter));
                loops.push(tokio::spawn(async move {
                    // Holds the file's guard for as long as it accepts.
                    let _file = unix;
                    Acceptor::unix_loop(acceptor, greeter, socket).await;
                }));
            }
        }
        Ok(loops)
    }

    async fn tcp_loop(self: Arc<Self>, greeter: Arc<Greeter>, socket: TcpListener) {
        loop {
            match socket.accept().await {
                Ok((stream, address)) => {
                    // Small packets must not wait for acknowledgements of earlier ones.
                    let set = stream.set_nodelay(true).and_then(|()| stream.into_std());
                    match set {
                        Ok(stream) => {
                            let ip = canonical(address.ip());
                            let accepted = Accepted {
                                socket: Socket::Tcp(stream),
                                ip: Some(ip),
                                peer: address.to_string(),
                            };
                            self.admit(&greeter, accepted);
                        }
                        Err(error) => tracing::debug!(%error, "a connection was gone before it was greeted"),
                    }
                }
                Err(error) => self.accept_failed(&greeter.name, &error).await,
            }
        }
    }

    async fn unix_loop(self: Arc<Self>, greeter: Arc<Greeter>, socket: UnixListener) {
        loop {
            match socket.accept().await {
                Ok((stream, _)) => match stream.into_std() {
                    Ok(stream) => {
                        let peer = unix_peer(&greeter.opened);
                        self.admit(&greeter, Accepted { socket: Socket::Unix(stream), ip: None, peer });
                    }
                    Err(error) => tracing::debug!(%error, "a connection was gone before it was greeted"),
                },
                Err(error) => self.accept_failed(&greeter.name, &error).await,
            }
        }
    }

    /// Puts a configuration in force for connections that come from now on.
    pub fn reconfigure(&self, in_force: InForce) {
        self.admission.reconfigure(&in_force.config.limits);
        self.authenticator.gate.reconfigure(&in_force.config.limits);
        self.in_force.store(Arc::new(in_force));
    }

    /// Counts a connection in and greets it, or closes it.
    fn admit(&self, greeter: &Arc<Greeter>, accepted: Accepted) {
        let now = Duration::from_micros(self.clock.mono().0);
        let in_force = self.in_force.load_full();
        let listener = greeter.listener(&in_force.config);
        match self.admission.admit(&greeter.name, listener.max_connections, accepted.ip, now) {
            Ok(admitted) => {
                tokio::spawn(Arc::clone(greeter).greet(accepted, admitted, listener, in_force));
            }
            Err(refusal) => self.turn_away(&accepted.peer, refusal),
        }
    }

    fn turn_away(&self, peer: &str, refusal: Refusal) {
        let now = Duration::from_micros(self.clock.mono().0);
        if let Some(held_back) = self.log_limit.permit(refusal.reason(), now) {
            tracing::warn!(%peer, reason = refusal.reason(), held_back, "connection refused");
        }
    }

    async fn accept_failed(&self, listener: &str, error: &io::Error) {
        let now = Duration::from_micros(self.clock.mono().0);
        if let Some(held_back) = self.log_limit.permit("accept", now) {
            tracing::error!(listener, %error, held_back, "accepting failed");
        }
        tokio::time::sleep(EXHAUSTED_PAUSE).await;
    }
}

fn unix_peer(listener: &Listener) -> String {
    match &listener.endpoint {
        Endpoint::Unix { path, .. } => path.display().to_string(),
        Endpoint::Tcp { .. } => String::from("unix"),
    }
}

/// IPv4 clients of a dual-stack socket are IPv4 clients.
fn canonical(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}
