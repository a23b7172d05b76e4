//! One connection from accept to hand-over: PROXY, TLS, WebSocket, CONNECT, authentication; each with a
//! deadline, each bounded in bytes.

use crate::accept::authenticate::{ClientCertificate, refuse};
use crate::accept::failures::Failure;
use crate::accept::{Accepted, Acceptor, InForce};
use crate::auth::{CertificateNameError, CertificateNames};
use crate::config::{Config, Listener};
use crate::driver::mailbox::{Arrival, Mail, Permit};
use crate::driver::socket::{Got, Registered};
use crate::driver::transport::{Flow, Transport};
use crate::listen::admission::{Admitted, Refusal};
use crate::listen::proxy::{self, Parsed};
use crate::listen::tls::{self, TlsListener};
use crate::listen::ws::{Handshake as WsHandshake, Upgrade};
use crate::listen::ws_codec::WsCodec;
use crate::obs::log::ClientText;
use mast_core::codec::{Reason, Violation};
use mast_core::conn::handshake::{Admission, AuthAnswer, Handshake, Progress, shard_of};
use mast_core::rng::Rng;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Bytes read at a time before CONNACK.
const READ: usize = 4096;

/// Greets the connections of one listener.
pub struct Greeter {
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) name: Arc<str>,
    /// The settings it was opened with.
    pub(super) opened: Arc<Listener>,
    pub(super) tls: Option<Arc<TlsListener>>,
}

/// A client certificate that is refused is for the operator to know, like a wrong password; other ends of a TLS
/// handshake are everyday noise.
fn refused_certificate(error: io::Error) -> Ended {
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(why @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) => {
            Ended::Refused(format!("client certificate: {}", tls::explain(why)))
        }
        Some(_) | None => Ended::Io(error),
    }
}

/// Why a connection ended before it was admitted.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0} took too long")]
    Late(&'static str),
    #[error("the peer left")]
    Left,
    #[error("{0}")]
    Refused(String),
    /// A bound was reached after the first bytes.
    #[error("{}", .0.reason())]
    Bound(Refusal),
    #[error("{}", .0.why)]
    Violation(Violation),
}

/// A connection under way.
struct Greeting {
    socket: Registered,
    transport: Transport,
    peer: String,
    ip: Option<IpAddr>,
    /// MQTT bytes that came and were not used.
    mqtt: Vec<u8>,
    certificate: Option<Box<ClientCertificate>>,
    admitted: Admitted,
    listener: Arc<Listener>,
    in_force: Arc<InForce>,
}

impl Greeter {
    /// The listener's settings in `config`; those it was opened with where a restart is needed for a change.
    pub(super) fn listener(&self, config: &Config) -> Arc<Listener> {
        let place = |l: &Listener| (l.name.clone(), l.endpoint.clone(), l.tls.is_some(), l.ws.is_some());
        let opened = place(&self.opened);
        match config.listeners.iter().find(|l| place(l) == opened) {
            Some(listener) if *listener != *self.opened => Arc::new(listener.clone()),
            Some(_) | None => Arc::clone(&self.opened),
        }
    }

    /// Runs a connection until its shard has it, or a newer one needs its place.
    pub async fn greet(
        self: Arc<Self>,
        accepted: Accepted,
        admitted: Admitted,
        listener: Arc<Listener>,
        in_force: Arc<InForce>,
    ) {
        let peer = accepted.peer.clone();
        let cut = admitted.cut();
        let give_way = async {
            match cut {
                Some(cut) => cut.notified().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            done = self.try_greet(accepted, admitted, listener, in_force) => done,
            () = give_way => Err(Ended::Bound(Refusal::Unauthenticated)),
        };
        if let Err(ended) = ended {
            self.note(&peer, &ended);
        }
    }

    fn note(&self, peer: &str, ended: &Ended) {
        let failure = match ended {
            Ended::Io(_) => Some(Failure::Error),
            Ended::Late(_) => Some(Failure::Timeout),
            Ended::Left => Some(Failure::Left),
            Ended::Refused(_) => Some(Failure::Refused),
            Ended::Violation(_) => Some(Failure::Violation),
            // Counted with the bound.
            Ended::Bound(_) => None,
        };
        if let Some(failure) = failure {
            self.acceptor.failures.count(failure);
        }
        let cause = match ended {
            Ended::Io(_) | Ended::Left => {
                tracing::debug!(listener = %self.name, %peer, "ended before CONNACK: {ended}");
                return;
            }
            Ended::Late(_) => "handshake timeout",
            Ended::Refused(_) => "handshake refused",
            Ended::Bound(refusal) => refusal.reason(),
            Ended::Violation(violation) => violation.why,
        };
        let now = Duration::from_micros(self.acceptor.clock.mono().0);
        if let Some(held_back) = self.acceptor.log_limit.permit(cause, now) {
            let reason = match ended {
                Ended::Violation(violation) => violation.reason.0,
                Ended::Io(_) | Ended::Late(_) | Ended::Left | Ended::Refused(_) | Ended::Bound(_) => 0,
            };
            tracing::warn!(listener = %self.name, %peer, reason = format_args!("{reason:#04x}"), held_back, "not admitted: {ended}");
        }
    }

    async fn try_greet(
        &self,
        accepted: Accepted,
        admitted: Admitted,
        listener: Arc<Listener>,
        in_force: Arc<InForce>,
    ) -> Result<(), Ended> {
        let Accepted { socket, ip, peer } = accepted;
        let mut greeting = Greeting {
            socket: socket.register()?,
            transport: Transport::default(),
            peer,
            ip,
            mqtt: Vec::new(),
            certificate: None,
            admitted,
            listener,
            in_force,
        };
        let limits = &greeting.in_force.config.limits;
        let (step, connect_timeout) = (limits.handshake_timeout, limits.connect_timeout);
        let mut early = Vec::new();
        if greeting.listener.proxy.is_some() {
            early = timed("the PROXY header", step, self.proxy(&mut greeting)).await?;
        }
        if let Some(tls) = self.tls.clone() {
            greeting = timed("the TLS handshake", step, self.secure(greeting, &tls, early)).await?;
            early = Vec::new();
        }
        if greeting.listener.ws.is_some() {
            timed("the WebSocket upgrade", step, self.upgrade(&mut greeting, &mut early)).await?;
        }
        let connect = self.connect(&mut greeting, early);
        let admission = timed("CONNECT", connect_timeout, connect).await?;
        self.hand_over(greeting, admission)
    }

    /// PROXY header; returns what came behind it.
    async fn proxy(&self, greeting: &mut Greeting) -> Result<Vec<u8>, Ended> {
        let listener = Arc::clone(&greeting.listener);
        let Some(policy) = &listener.proxy else { return Ok(Vec::new()) };
        if !greeting.ip.is_some_and(|ip| policy.trusts(ip)) {
            return Err(Ended::Refused("PROXY header from an address that is not trusted".into()));
        }
        let mut received = Vec::new();
        loop {
            match proxy::parse(&received, policy.max_body) {
                Ok(Parsed::Incomplete) => {}
                Ok(Parsed::Header { length, source }) => {
                    if let Some(source) = source {
                        greeting.admitted.moved_to(source.ip()).map_err(Ended::Bound)?;
                        greeting.ip = Some(source.ip());
                        greeting.peer = source.to_string();
                    }
                    received.drain(..length);
                    return Ok(received);
                }
                Err(error) => return Err(Ended::Refused(format!("PROXY header: {error}"))),
            }
            if received.len() > policy.max_header() + READ {
                return Err(Ended::Refused("PROXY header too long".into()));
            }
            receive(&greeting.socket, &mut received).await?;
        }
    }

    /// TLS handshake. `early` = bytes read behind a PROXY header.
    async fn secure(&self, greeting: Greeting, tls: &TlsListener, early: Vec<u8>) -> Result<Greeting, Ended> {
        let Greeting { socket, peer, ip, mqtt, admitted, listener, in_force, .. } = greeting;
        let Registered::Tcp(stream) = socket else {
            return Err(Ended::Refused("TLS on a unix socket".into()));
        };
        let stream = tls.accept(Prefixed { early, at: 0, stream }).await.map_err(refused_certificate)?;
        let (prefixed, session) = stream.into_inner();
        let certificate = match session.peer_certificates().and_then(|chain| chain.first()) {
            Some(certificate) => {
                let refused = |e: CertificateNameError| Ended::Refused(format!("client certificate: {e}"));
                let names = CertificateNames::read(certificate).map_err(refused)?;
                let user = names.user_name(tls.username_from()).map_err(refused)?;
                Some(Box::new(ClientCertificate { user, names }))
            }
            None => None,
        };
        let transport = Transport::new(Some(Box::new(session)), None);
        let socket = Registered::Tcp(prefixed.stream);
        Ok(Greeting { socket, transport, peer, ip, mqtt, certificate, admitted, listener, in_force })
    }

    /// WebSocket upgrade.
    async fn upgrade(&self, greeting: &mut Greeting, early: &mut Vec<u8>) -> Result<(), Ended> {
        let listener = Arc::clone(&greeting.listener);
        let Some(settings) = &listener.ws else { return Ok(()) };
        let max_header = greeting.in_force.config.limits.max_http_header as usize;
        let mut machine = WsHandshake::default();
        let mut received = Vec::new();
        take_in(greeting, early, &mut received)?;
        early.clear();
        loop {
            match machine.advance(&received, settings, max_header) {
                Upgrade::Incomplete => {}
                Upgrade::Accepted { length, response, subprotocol: _ } => {
                    let mut out = Vec::new();
                    greeting.transport.seal(&response, &mut out)?;
                    send(&greeting.socket, &out).await?;
                    let max_frame = u64::from(greeting.in_force.handshake.settings.max_packet) + 64 * 1024;
                    let mut codec = WsCodec::new(max_frame);
                    let mut out = Vec::new();
                    let rest = codec.decode(&received[length..], &mut greeting.mqtt, &mut out);
                    rest.map_err(|e| Ended::Refused(e.to_string()))?;
                    greeting.transport.set_ws(codec);
                    return Ok(());
                }
                Upgrade::Refused { response, reason } => {
                    let mut out = Vec::new();
                    greeting.transport.seal(&response, &mut out)?;
                    send(&greeting.socket, &out).await?;
                    return Err(Ended::Refused(reason.into()));
                }
            }
            let mut raw = Vec::new();
            receive(&greeting.socket, &mut raw).await?;
            take_in(greeting, &raw, &mut received)?;
        }
    }

    /// CONNECT and authentication.
    async fn connect(&self, greeting: &mut Greeting, early: Vec<u8>) -> Result<Box<Admission>, Ended> {
        let acceptor = &self.acceptor;
        let mut machine = Handshake::new(Arc::clone(&greeting.in_force.handshake), acceptor.clock.mono());
        let mut rng = Rng::new(random()?);
        let mut mqtt = std::mem::take(&mut greeting.mqtt);
        let mut raw = early;
        loop {
            let mut layer_out = Vec::new();
            let flow = greeting.transport.receive(&raw, &mut mqtt, &mut layer_out);
            send(&greeting.socket, &layer_out).await?;
            let flow = flow?;
            if !mqtt.is_empty() {
                let mut out = Vec::new();
                let mut progress = machine.receive(&mqtt, &mut rng, &mut out);
                mqtt.clear();
                loop {
                    self.answer_client(greeting, &mut out).await?;
                    match progress {
                        Progress::More => break,
                        Progress::Admit(admission) => return Ok(admission),
                        Progress::Close(violation) => {
                            self.say_goodbye(greeting).await?;
                            return Err(Ended::Violation(violation));
                        }
                        Progress::Ask(question) => {
                            let now = acceptor.clock.now();
                            let certificate = greeting.certificate.as_deref();
                            let asked = acceptor.authenticator.answer(
                                question,
                                &greeting.in_force.config,
                                &greeting.listener,
                                certificate,
                                greeting.ip,
                                now,
                            );
                            let mut answer = asked.await;
                            if matches!(answer, AuthAnswer::Accept { .. })
                                && let Err(refusal) = greeting.admitted.known()
                            {
                                acceptor.turn_away(&greeting.peer, refusal);
                                answer = refuse(match refusal {
                                    Refusal::Memory => Reason::SERVER_BUSY,
                                    Refusal::Connections
                                    | Refusal::ListenerConnections
                                    | Refusal::SourceConnections
                                    | Refusal::Rate
                                    | Refusal::SourceRate
                                    | Refusal::Handshakes
                                    | Refusal::Unauthenticated => Reason::QUOTA_EXCEEDED,
                                });
                            }
                            progress = machine.authenticated(answer, &mut out);
                        }
                    }
                }
            }
            if flow == Flow::Closed {
                return Err(Ended::Left);
            }
            raw.clear();
            receive(&greeting.socket, &mut raw).await?;
        }
    }

    async fn answer_client(&self, greeting: &mut Greeting, out: &mut Vec<u8>) -> Result<(), Ended> {
        if out.is_empty() {
            return Ok(());
        }
        let mut raw = Vec::new();
        greeting.transport.send(out, &mut raw)?;
        out.clear();
        send(&greeting.socket, &raw).await
    }

    /// Ends a refused connection so that the refusal arrives: goodbye of the layers, FIN, and then reads what
    /// is still on its way, because a close with unread bytes would be a reset.
    async fn say_goodbye(&self, greeting: &mut Greeting) -> Result<(), Ended> {
        let mut raw = Vec::new();
        greeting.transport.close(&mut raw)?;
        send(&greeting.socket, &raw).await?;
        greeting.socket.finish()?;
        let drain = async {
            let mut waste = Vec::new();
            // Bounded by time, and by bytes against a peer that never stops.
            for _ in 0..64 {
                waste.clear();
                if receive(&greeting.socket, &mut waste).await.is_err() {
                    return;
                }
            }
        };
        // Whether it ended by itself or by the clock: the connection is over.
        tokio::time::timeout(Duration::from_secs(1), drain).await.unwrap_or_default();
        Ok(())
    }

    fn hand_over(&self, greeting: Greeting, admission: Box<Admission>) -> Result<(), Ended> {
        let Greeting { socket, transport, peer, mut admitted, in_force, .. } = greeting;
        let client = ClientText::new(&admission.client_id, in_force.config.limits.max_log_text);
        let peer = format!("{peer} ({client})");
        admitted.established();
        let shards = &self.acceptor.shards;
        let tenant = admission.identity.tenant;
        let spread = self.acceptor.authenticator.is_spread(tenant);
        let shard = shard_of(tenant, &admission.client_id, shards.len() as u16, spread);
        let arrival = Arrival {
            socket: socket.unregister()?,
            transport,
            admission,
            unwritten: Vec::new(),
            peer: peer.into_boxed_str(),
            permit: Some(Permit(Box::new(admitted))),
        };
        if let Some(mailbox) = shards.get(shard.0 as usize) {
            mailbox.push(Mail::Arrival(Box::new(arrival)));
        }
        Ok(())
    }
}

/// Puts raw bytes through TLS, if there is any, for the WebSocket upgrade.
fn take_in(greeting: &mut Greeting, raw: &[u8], received: &mut Vec<u8>) -> Result<(), Ended> {
    let mut out = Vec::new();
    match greeting.transport.receive(raw, received, &mut out)? {
        Flow::Open => Ok(()),
        Flow::Closed => Err(Ended::Left),
    }
}

async fn timed<T>(
    what: &'static str,
    limit: Duration,
    step: impl Future<Output = Result<T, Ended>>,
) -> Result<T, Ended> {
    tokio::time::timeout(limit, step).await.unwrap_or(Err(Ended::Late(what)))
}

/// Waits for bytes and appends them.
async fn receive(socket: &Registered, into: &mut Vec<u8>) -> Result<(), Ended> {
    let from = into.len();
    loop {
        poll_fn(|cx| socket.poll_readable(cx)).await?;
        into.resize(from + READ, 0);
        let got = socket.read(&mut into[from..]);
        match got {
            Ok(Got::Bytes(n) | Got::Last(n)) => {
                into.truncate(from + n);
                return Ok(());
            }
            Ok(Got::Nothing) => into.truncate(from),
            Ok(Got::End) => {
                into.truncate(from);
                return Err(Ended::Left);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes everything.
async fn send(socket: &Registered, bytes: &[u8]) -> Result<(), Ended> {
    let mut at = 0;
    while at < bytes.len() {
        match socket.write(&[IoSlice::new(&bytes[at..])]) {
            Ok(n) => at += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| socket.poll_writable(cx)).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// 64 bits from the operating system.
fn random() -> io::Result<u64> {
    crate::engine::entropy()
}

/// A TCP stream with bytes that were read ahead.
struct Prefixed {
    early: Vec<u8>,
    at: usize,
    stream: TcpStream,
}

impl tokio::io::AsyncRead for Prefixed {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if self.at < self.early.len() {
            let n = buf.remaining().min(self.early.len() - self.at);
            buf.put_slice(&self.early[self.at..self.at + n]);
            self.at += n;
            return std::task::Poll::Ready(Ok(()));
        }
        std::pin::Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl tokio::io::AsyncWrite for Prefixed {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
