//! One MQTT connection of a command line client: CONNECT, packets both ways, keep alive.

use std::time::Duration;

use mast_core::{
    codec::{
        Ack, Connect, Disconnect, Packet, Property, Props, PropsBuf, Reason, Version, Will,
        check_from_server, cut, decode,
    },
    message::QoS,
};
use tokio::time::Instant;

use super::{
    ClientError,
    args::{ClientArgs, Target},
    properties::PacketProps,
    transport::Transport,
};

/// The longest packet a client takes: all of them.
const MAX_PACKET: u32 = u32::MAX;
/// How long the broker may take for CONNACK and PINGRESP.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// An open connection.
pub struct Link {
    transport: Transport,
    pub version: Version,
    id: String,
    debug: bool,
    input: Vec<u8>,
    /// How much of `input` was handed out.
    used: usize,
    output: Vec<u8>,
    queued: Vec<u8>,
    keep_alive: Duration,
    last_sent: Instant,
    ping_sent: Option<Instant>,
    /// QoS 1 and 2 messages that the broker takes unacknowledged.
    pub receive_maximum: u16,
    pub max_qos: u8,
}

/// What came.
pub enum Event {
    /// The bytes of a whole packet that is no PINGRESP.
    Packet(Vec<u8>),
    /// The connection is gone.
    Closed(String),
}

/// QoS of a number that the command line has checked.
pub fn qos(level: u8) -> QoS {
    QoS::from_bits(level).unwrap_or_default()
}

impl Link {
    /// Connects and waits for CONNACK.
    pub async fn open(
        args: &ClientArgs,
        target: &Target,
        id: &str,
        props: &PacketProps,
    ) -> Result<Self, ClientError> {
        let version = args.protocol.version();
        let mut link = Self {
            transport: Transport::connect(args, target).await?,
            version,
            id: id.to_owned(),
            debug: args.debug,
            input: Vec::new(),
            used: 0,
            output: Vec::new(),
            queued: Vec::new(),
            keep_alive: Duration::from_secs(args.keepalive.into()),
            last_sent: Instant::now(),
            ping_sent: None,
            receive_maximum: u16::MAX,
            max_qos: 2,
        };
        let mut connect_props = props.connect.clone();
        if version.is_v5()
            && !props.has_session_expiry
            && let Some(seconds) = args.session_expiry_seconds()?
        {
            connect_props
                .push(&Property::SessionExpiry(seconds))
                .map_err(|e| ClientError::new(e.to_string()))?;
        }
        let will = args.will_topic.as_deref().map(|topic| Will {
            qos: qos(args.will_qos),
            retain: args.will_retain,
            props: props.will.as_props(),
            topic,
            payload: args.will_payload.as_deref().unwrap_or("").as_bytes(),
        });
        let connect = Connect {
            version,
            bridge: false,
            clean_start: !args.keep_session,
            keep_alive: args.keepalive,
            props: connect_props.as_props(),
            client_id: id,
            will,
            username: args.username.as_deref(),
            password: args.password.as_deref().map(str::as_bytes),
        };
        link.send(&Packet::Connect(connect)).await?;
        link.await_connack().await?;
        Ok(link)
    }

    async fn await_connack(&mut self) -> Result<(), ClientError> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.next()).await;
        let bytes = match answer {
            Err(_) => return Err(ClientError::new("the broker does not answer CONNECT")),
            Ok(Event::Closed(why)) => {
                return Err(ClientError::new(format!("the broker closed the connection: {why}")));
            }
            Ok(Event::Packet(bytes)) => bytes,
        };
        match parse(&bytes, self.version)? {
            Packet::ConnAck(ack) if ack.code == Reason::SUCCESS => {
                self.receive_maximum = ack.props.receive_maximum().unwrap_or(u16::MAX);
                self.max_qos = ack.props.maximum_qos().unwrap_or(2);
                if let Some(seconds) = ack.props.server_keep_alive() {
                    self.keep_alive = Duration::from_secs(seconds.into());
                }
                Ok(())
            }
            Packet::ConnAck(ack) => {
                let why = refusal(ack.code, self.version, ack.props);
                Err(ClientError { message: format!("Connection error: {why}"), code: ack.code.0 })
            }
            other => Err(ClientError::new(format!(
                "the broker answers CONNECT with {}",
                other.packet_type().name()
            ))),
        }
    }

    /// Sends one packet.
    pub async fn send(&mut self, packet: &Packet<'_>) -> Result<(), ClientError> {
        if self.debug {
            println!("Client {} sending {}", self.id, describe(packet));
        }
        self.output.clear();
        let encoded = packet.encode(self.version, &mut self.output);
        encoded.map_err(|e| ClientError::usage(format!("{}: {e}", packet.packet_type().name())))?;
        let sent = self.transport.write(&self.output).await;
        self.last_sent = Instant::now();
        sent.map_err(|e| ClientError::new(format!("the connection is gone: {e}")))
    }

    /// Encodes a packet for the next [`Link::flush`]: many packets, one write.
    pub fn queue(&mut self, packet: &Packet<'_>) -> Result<(), ClientError> {
        let encoded = packet.encode(self.version, &mut self.queued);
        encoded.map_err(|e| ClientError::usage(format!("{}: {e}", packet.packet_type().name())))
    }

    /// Bytes that wait for [`Link::flush`].
    pub fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Sends what was queued.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        if self.queued.is_empty() {
            return Ok(());
        }
        let sent = self.transport.write(&self.queued).await;
        self.queued.clear();
        self.last_sent = Instant::now();
        sent.map_err(|e| ClientError::new(format!("the connection is gone: {e}")))
    }

    /// Sends one of the four acknowledgements.
    pub async fn acknowledge(
        &mut self,
        packet: fn(Ack<'static>) -> Packet<'static>,
        packet_id: u16,
    ) -> Result<(), ClientError> {
        self.send(&packet(Ack { packet_id, reason: Reason::SUCCESS, props: Props::EMPTY })).await
    }

    /// Whether the next packet is here already.
    pub fn has_packet(&self) -> bool {
        matches!(cut(&self.input[self.used..], MAX_PACKET), Ok(Some(_)) | Err(_))
    }

    /// Waits for the next packet and keeps the connection alive meanwhile. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Event {
        loop {
            match cut(&self.input[self.used..], MAX_PACKET) {
                Err(violation) => return Event::Closed(violation.to_string()),
                Ok(Some(frame)) => {
                    let bytes = self.input[self.used..self.used + frame.total].to_vec();
                    self.used += bytes.len();
                    if let Some(event) = self.sort(bytes) {
                        return event;
                    }
                }
                Ok(None) => {
                    self.input.drain(..self.used);
                    self.used = 0;
                    if let Err(why) = self.fill().await {
                        return Event::Closed(why);
                    }
                }
            }
        }
    }

    /// `None` for PINGRESP, which is for the link itself.
    fn sort(&mut self, bytes: Vec<u8>) -> Option<Event> {
        match parse(&bytes, self.version) {
            Err(e) => Some(Event::Closed(e.message)),
            Ok(packet) => {
                if self.debug {
                    println!("Client {} received {}", self.id, describe(&packet));
                }
                match packet {
                    Packet::PingResp => {
                        self.ping_sent = None;
                        None
                    }
                    Packet::Disconnect(d) => Some(Event::Closed(format!(
                        "disconnected by the broker: {}",
                        explain(d.reason, d.props)
                    ))),
                    _ => Some(Event::Packet(bytes)),
                }
            }
        }
    }

    /// Reads once, or sends a ping when it is time.
    async fn fill(&mut self) -> Result<(), String> {
        let deadline = match self.ping_sent {
            _ if self.keep_alive.is_zero() => None,
            Some(sent) => Some(sent + ANSWER_TIMEOUT),
            None => Some(self.last_sent + self.keep_alive),
        };
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = self.transport.read(&mut self.input) => match read {
                Ok(0) => Err("the broker closed the connection".to_owned()),
                Ok(_) => Ok(()),
                Err(e) => Err(e.to_string()),
            },
            () = timer => {
                if self.ping_sent.is_some() {
                    return Err("the broker does not answer PINGREQ".to_owned());
                }
                self.send(&Packet::PingReq).await.map_err(|e| e.message)?;
                self.ping_sent = Some(Instant::now());
                Ok(())
            }
        }
    }

    /// Sends DISCONNECT and closes. That the broker was faster with closing is no failure.
    pub async fn disconnect(mut self, props: &PropsBuf) -> Result<(), ClientError> {
        let reason = Reason::NORMAL_DISCONNECTION;
        self.send(&Packet::Disconnect(Disconnect { reason, props: props.as_props() })).await?;
        match self.transport.close().await {
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Decodes a whole packet of the broker.
pub fn parse(bytes: &[u8], version: Version) -> Result<Packet<'_>, ClientError> {
    let broken = |e: &dyn std::fmt::Display| ClientError::new(format!("the broker breaks the protocol: {e}"));
    let frame = cut(bytes, MAX_PACKET).map_err(|e| broken(&e))?;
    let frame = frame.ok_or_else(|| broken(&"a packet is not whole"))?;
    let packet = decode(&frame, version).map_err(|e| broken(&e))?;
    check_from_server(&packet, version).map_err(|e| broken(&e))?;
    Ok(packet)
}

/// The words of mosquitto's clients for the codes of MQTT 3; the reason's name for MQTT 5.
fn refusal(code: Reason, version: Version, props: Props<'_>) -> String {
    if version.is_v5() {
        return explain(code, props);
    }
    match code.0 {
        1 => "Connection Refused: unacceptable protocol version.".to_owned(),
        2 => "Connection Refused: identifier rejected.".to_owned(),
        3 => "Connection Refused: broker unavailable.".to_owned(),
        4 => "Connection Refused: bad user name or password.".to_owned(),
        5 => "Connection Refused: not authorised.".to_owned(),
        other => format!("Connection Refused: unknown reason {other}."),
    }
}

/// A reason's name and what the broker says to it.
pub fn explain(reason: Reason, props: Props<'_>) -> String {
    match props.reason_string() {
        Some(text) => format!("{} ({})", reason.name(), crate::obs::log::ClientText::new(text, 256)),
        None => reason.name().to_owned(),
    }
}

fn describe(packet: &Packet<'_>) -> String {
    let name = packet.packet_type().name().to_ascii_uppercase();
    match packet {
        Packet::Publish(p) => format!(
            "{name} (d{}, q{}, r{}, m{}, '{}', ... ({} bytes))",
            u8::from(p.dup),
            p.qos as u8,
            u8::from(p.retain),
            p.packet_id,
            p.topic,
            p.payload.len()
        ),
        Packet::PubAck(a) | Packet::PubRec(a) | Packet::PubRel(a) | Packet::PubComp(a) => {
            format!("{name} (m{}, rc{})", a.packet_id, a.reason.0)
        }
        Packet::ConnAck(c) => format!("{name} ({})", c.code.0),
        Packet::SubAck(s) | Packet::UnsubAck(s) => format!("{name} (m{}, {:?})", s.packet_id, s.codes),
        Packet::Connect(_)
        | Packet::Subscribe(_)
        | Packet::Unsubscribe(_)
        | Packet::PingReq
        | Packet::PingResp
        | Packet::Disconnect(_)
        | Packet::Auth(_) => name,
    }
}
