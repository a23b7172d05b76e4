//! A blocking MQTT client on a raw socket. It does what the test says and nothing by itself, so that every
//! packet, also a wrong one, stands in the test.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use mast_core::{
    codec::{
        self, Ack, AckKind, Disconnect, FiltersBuf, NamesBuf, Packet, PacketType, Property, Props, PropsBuf,
        Publish, Reason, SubOptions, Subscribe, Unsubscribe, Version,
    },
    message::QoS,
};

use crate::{
    broker::DEADLINE,
    packet::{Got, Pub},
    transcript::Transcript,
};

/// A byte stream to the broker.
pub trait Wire: Read + Write + Send {
    /// How long a read may wait.
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
    /// Makes the close that follows a reset, where the stream can do so.
    fn reset_on_close(&self) {}
}

impl Wire for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
    fn reset_on_close(&self) {
        socket2::SockRef::from(self).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
    }
}

impl Wire for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
}

impl Wire for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.sock.set_read_timeout(Some(timeout))
    }
    fn reset_on_close(&self) {
        self.sock.reset_on_close();
    }
}

/// What reading gave.
#[derive(Debug)]
pub enum Event {
    /// A packet.
    Packet(Got),
    /// The broker closed the connection.
    Closed,
    /// Nothing within the time.
    Nothing,
}

/// A PUBLISH to send.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the fields are the packet's
pub struct Out<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    /// 0: a fresh one where the QoS needs one.
    pub id: u16,
    pub props: &'a [Property<'a>],
}

/// Encodes properties.
pub fn props_buf(props: &[Property<'_>]) -> PropsBuf {
    let mut buf = PropsBuf::new();
    for property in props {
        buf.push(property).expect("a property that fits");
    }
    buf
}

/// QoS of its number.
pub fn qos(n: u8) -> QoS {
    QoS::from_bits(n).expect("QoS 0, 1 or 2")
}

/// A connection to the broker.
pub struct Client {
    wire: Box<dyn Wire>,
    /// Protocol version.
    pub version: Version,
    /// The CONNACK, once it came.
    pub connack: Option<Got>,
    buf: Vec<u8>,
    pending: VecDeque<Got>,
    next_id: u16,
    transcript: Option<(Transcript, String)>,
}

impl Client {
    /// A client on a stream that says nothing yet.
    pub fn on(wire: impl Wire + 'static, version: Version) -> Client {
        let wire: Box<dyn Wire> = Box::new(wire);
        Client {
            wire,
            version,
            connack: None,
            buf: Vec::new(),
            pending: VecDeque::new(),
            next_id: 0,
            transcript: None,
        }
    }

    /// Records what is said from now on under a name.
    pub fn record(&mut self, transcript: &Transcript, name: &str) {
        self.transcript = Some((transcript.clone(), name.to_owned()));
    }

    /// Sends bytes. A broken connection is not an error here: reading shows it.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        if let Some((transcript, name)) = &self.transcript {
            transcript.sends(name, bytes, self.version);
        }
        let sent = self.wire.write_all(bytes).and_then(|()| self.wire.flush());
        if let Err(e) = sent {
            let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted];
            assert!(gone.contains(&e.kind()), "write: {e}");
        }
    }

    /// Sends a packet.
    pub fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes).expect("an encodable packet");
        self.send_bytes(&bytes);
    }

    /// A packet id that this client has not used.
    pub fn fresh_id(&mut self) -> u16 {
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        self.next_id
    }

    /// Reads one packet from the wire, waiting at most `timeout`.
    pub fn read(&mut self, timeout: Duration) -> Event {
        let end = Instant::now() + timeout;
        loop {
            if let Some(total) = codec::needed(&self.buf)
                && self.buf.len() >= total
            {
                let rest = self.buf.split_off(total);
                let got = Got { bytes: std::mem::replace(&mut self.buf, rest), version: self.version };
                if let Some((transcript, name)) = &self.transcript {
                    transcript.answers(name, &got);
                }
                return Event::Packet(got);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Event::Nothing;
            }
            self.wire.set_timeout(left.max(Duration::from_millis(1))).expect("a read timeout");
            let mut chunk = [0u8; 16 * 1024];
            match self.wire.read(&mut chunk) {
                Ok(0) => return self.note_closed(),
                Ok(n) => self.buf.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.note_closed(),
            }
        }
    }

    fn note_closed(&mut self) -> Event {
        assert!(self.buf.is_empty(), "closed inside a packet: {:02x?}", self.buf);
        if let Some((transcript, name)) = self.transcript.take() {
            transcript.closes(&name);
        }
        Event::Closed
    }

    fn read_or_fail(&mut self, what: &str) -> Got {
        match self.read(DEADLINE) {
            Event::Packet(got) => got,
            Event::Closed => panic!("closed while waiting for {what}; before it: {:?}", self.pending),
            Event::Nothing => panic!("waited in vain for {what}; before it: {:?}", self.pending),
        }
    }

    /// The next packet in order.
    pub fn recv(&mut self) -> Got {
        match self.pending.pop_front() {
            Some(got) => got,
            None => self.read_or_fail("any packet"),
        }
    }

    /// The next packet of a type; others before it wait for their own call.
    pub fn expect(&mut self, ty: PacketType) -> Got {
        if let Some(at) = self.pending.iter().position(|g| g.ty() == ty) {
            return self.pending.remove(at).expect("just found");
        }
        loop {
            let got = self.read_or_fail(ty.name());
            if got.ty() == ty {
                return got;
            }
            assert!(got.ty() != PacketType::Disconnect, "{got:?} while waiting for {}", ty.name());
            self.pending.push_back(got);
        }
    }

    /// The next PUBLISH, unacknowledged.
    pub fn expect_publish(&mut self) -> Pub {
        self.expect(PacketType::Publish).publish()
    }

    /// The next PUBLISH, acknowledged as its QoS demands.
    pub fn message(&mut self) -> Pub {
        let message = self.expect_publish();
        self.acknowledge(&message);
        message
    }

    /// The next `n` PUBLISHes, acknowledged.
    pub fn messages(&mut self, n: usize) -> Vec<Pub> {
        (0..n).map(|_| self.message()).collect()
    }

    /// Completes the exchange of a received PUBLISH.
    pub fn acknowledge(&mut self, message: &Pub) {
        match message.qos {
            1 => self.ack(AckKind::PubAck, message.id),
            2 => {
                self.ack(AckKind::PubRec, message.id);
                self.expect_ack(PacketType::PubRel, message.id, 0);
                self.ack(AckKind::PubComp, message.id);
            }
            _ => {}
        }
    }

    /// Sends an acknowledgement with success.
    pub fn ack(&mut self, kind: AckKind, id: u16) {
        self.ack_with(kind, id, 0);
    }

    /// Sends an acknowledgement.
    pub fn ack_with(&mut self, kind: AckKind, packet_id: u16, reason: u8) {
        let ack = Ack { packet_id, reason: Reason(reason), props: Props::EMPTY };
        self.send(&match kind {
            AckKind::PubAck => Packet::PubAck(ack),
            AckKind::PubRec => Packet::PubRec(ack),
            AckKind::PubRel => Packet::PubRel(ack),
            AckKind::PubComp => Packet::PubComp(ack),
        });
    }

    /// The next acknowledgement of a type has this id and reason.
    pub fn expect_ack(&mut self, ty: PacketType, id: u16, reason: u8) -> Got {
        let got = self.expect(ty);
        assert_eq!((got.id(), got.reason()), (id, reason), "{got:?}");
        got
    }

    /// Sends a PUBLISH and gives its packet id.
    pub fn send_publish(&mut self, out: &Out<'_>) -> u16 {
        let id = match (out.qos, out.id) {
            (0, _) => 0,
            (_, 0) => self.fresh_id(),
            (_, id) => id,
        };
        let props = props_buf(out.props);
        self.send(&Packet::Publish(Publish {
            dup: out.dup,
            qos: qos(out.qos),
            retain: out.retain,
            topic: out.topic,
            packet_id: id,
            props: props.as_props(),
            payload: out.payload,
        }));
        id
    }

    /// Publishes, waits for the end of the exchange, gives the reason of PUBACK or PUBREC.
    pub fn publish(&mut self, topic: &str, payload: impl AsRef<[u8]>, qos: u8) -> u8 {
        self.publish_out(&Out { topic, payload: payload.as_ref(), qos, ..Out::default() })
    }

    /// The same with RETAIN.
    pub fn retain(&mut self, topic: &str, payload: impl AsRef<[u8]>, qos: u8) -> u8 {
        self.publish_out(&Out { topic, payload: payload.as_ref(), qos, retain: true, ..Out::default() })
    }

    /// The same with everything.
    pub fn publish_out(&mut self, out: &Out<'_>) -> u8 {
        let id = self.send_publish(out);
        self.finish_publish(id, out.qos)
    }

    /// Waits for the end of the exchange of a PUBLISH that was sent.
    pub fn finish_publish(&mut self, id: u16, qos: u8) -> u8 {
        match qos {
            0 => 0,
            1 => {
                let ack = self.expect(PacketType::PubAck);
                assert_eq!(ack.id(), id, "{ack:?}");
                ack.reason()
            }
            _ => {
                let rec = self.expect(PacketType::PubRec);
                assert_eq!(rec.id(), id, "{rec:?}");
                if rec.reason() < 0x80 {
                    self.ack(AckKind::PubRel, id);
                    self.expect_ack(PacketType::PubComp, id, 0);
                }
                rec.reason()
            }
        }
    }

    /// Subscribes to one filter and gives the SUBACK's code.
    pub fn subscribe(&mut self, filter: &str, max_qos: u8) -> u8 {
        self.subscribe_all(&[(filter, SubOptions::new(qos(max_qos)))], &[]).codes()[0]
    }

    /// Subscribes to one filter with options.
    pub fn subscribe_opt(&mut self, filter: &str, options: SubOptions) -> u8 {
        self.subscribe_all(&[(filter, options)], &[]).codes()[0]
    }

    /// Sends a SUBSCRIBE and gives its SUBACK.
    pub fn subscribe_all(&mut self, filters: &[(&str, SubOptions)], props: &[Property<'_>]) -> Got {
        let id = self.send_subscribe(filters, props);
        let ack = self.expect(PacketType::SubAck);
        assert_eq!(ack.id(), id, "{ack:?}");
        assert_eq!(ack.codes().len(), filters.len(), "{ack:?}");
        ack
    }

    /// Sends a SUBSCRIBE and gives its id.
    pub fn send_subscribe(&mut self, filters: &[(&str, SubOptions)], props: &[Property<'_>]) -> u16 {
        let id = self.fresh_id();
        let props = props_buf(props);
        let mut list = FiltersBuf::new();
        for (filter, options) in filters {
            list.push(filter, *options).expect("a filter that fits");
        }
        self.send(&Packet::Subscribe(Subscribe {
            packet_id: id,
            props: props.as_props(),
            filters: list.as_filters(),
        }));
        id
    }

    /// Unsubscribes and gives the UNSUBACK.
    pub fn unsubscribe(&mut self, filters: &[&str]) -> Got {
        let id = self.fresh_id();
        let mut list = NamesBuf::new();
        for filter in filters {
            list.push(filter).expect("a filter that fits");
        }
        let filters = list.as_names();
        self.send(&Packet::Unsubscribe(Unsubscribe { packet_id: id, props: Props::EMPTY, filters }));
        let ack = self.expect(PacketType::UnsubAck);
        assert_eq!(ack.id(), id, "{ack:?}");
        ack
    }

    /// PINGREQ and its answer.
    pub fn ping(&mut self) {
        self.send(&Packet::PingReq);
        self.expect(PacketType::PingResp);
    }

    /// DISCONNECT 0x00, then waits for the broker's close, so that what follows finds it done.
    pub fn disconnect(self) {
        self.disconnect_with(0, &[]);
    }

    /// DISCONNECT with reason and properties.
    pub fn disconnect_with(mut self, reason: u8, props: &[Property<'_>]) {
        let props = props_buf(props);
        let reason = Reason(reason);
        self.send(&Packet::Disconnect(Disconnect { reason, props: props.as_props() }));
        self.expect_closed();
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.wire.reset_on_close();
    }

    /// The broker closes the connection; gives what it sent before.
    pub fn expect_closed(&mut self) -> Vec<Got> {
        let mut seen: Vec<Got> = self.pending.drain(..).collect();
        loop {
            match self.read(DEADLINE) {
                Event::Packet(got) => seen.push(got),
                Event::Closed => return seen,
                Event::Nothing => panic!("the broker keeps the connection open; it sent {seen:?}"),
            }
        }
    }

    /// The broker ends the connection: a MQTT 5 client is told `reason`, an older one is told nothing.
    pub fn expect_end(&mut self, reason: u8) -> Vec<Got> {
        let mut seen = self.expect_closed();
        if self.version.is_v5() {
            let last = seen.pop().unwrap_or_else(|| panic!("closed without DISCONNECT {reason:#04x}"));
            assert_eq!(last.ty(), PacketType::Disconnect, "{last:?}");
            assert_eq!(last.reason(), reason, "{last:?}, expected {reason:#04x}");
        }
        assert!(seen.iter().all(|g| g.ty() != PacketType::Disconnect), "{seen:?}");
        seen
    }

    /// The broker ends the connection with one of these reasons (MQTT 5) and acknowledged nothing before.
    pub fn expect_end_any(&mut self, reasons: &[u8]) {
        let mut seen = self.expect_closed();
        if self.version.is_v5() {
            let last = seen.pop().expect("a DISCONNECT before the close");
            assert!(reasons.contains(&last.reason()), "{last:?}, expected one of {reasons:02x?}");
        }
        assert!(seen.is_empty(), "{seen:?}");
    }

    /// Nothing but answers to pings comes. A wrong packet may come too late to be seen, a right broker never
    /// fails this.
    pub fn assert_quiet(&mut self) {
        for _ in 0..2 {
            self.ping();
            std::thread::sleep(Duration::from_millis(60));
        }
        self.ping();
        assert!(self.pending.is_empty(), "{:?}", self.pending);
    }

    /// Gives what is on its way time to come; PUBLISHes wait for [`Client::waiting`].
    pub fn assert_quiet_but_publishes(&mut self) {
        for _ in 0..2 {
            self.ping();
            std::thread::sleep(Duration::from_millis(60));
        }
        self.ping();
        assert!(self.pending.iter().all(|g| g.ty() == PacketType::Publish), "{:?}", self.pending);
    }

    /// The broker refuses a SUBSCRIBE: by the code in its SUBACK or by ending the connection with it.
    pub fn expect_end_or_codes(&mut self, code: u8) {
        let got = self.recv();
        match got.ty() {
            PacketType::SubAck => assert!(got.codes().iter().all(|c| *c == code), "{got:?}"),
            PacketType::Disconnect => assert_eq!(got.reason(), code, "{got:?}"),
            _ => panic!("{got:?}"),
        }
    }

    /// PUBLISHes that came so far and nobody asked for.
    pub fn waiting(&mut self) -> Vec<Pub> {
        let mut found = Vec::new();
        self.pending.retain(|got| {
            let publish = got.ty() == PacketType::Publish;
            if publish {
                found.push(got.publish());
            }
            !publish
        });
        found
    }

    /// A property of the CONNACK.
    pub fn connack(&self) -> &Got {
        self.connack.as_ref().expect("connected")
    }
}
