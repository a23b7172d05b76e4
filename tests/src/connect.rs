//! Building a CONNECT and opening a connection with it.

use mast_core::codec::{Packet, PacketType, Property, PropsBuf, Version, Will};

use crate::{
    broker::Broker,
    client::{Client, Wire, props_buf, qos},
    packet::Got,
};

/// A CONNECT to send. Starts as a clean session with a keep alive of 300 s and nothing else.
#[derive(Clone)]
pub struct Connect {
    version: Version,
    client_id: String,
    clean: bool,
    bridge: bool,
    keep_alive: u16,
    props: PropsBuf,
    username: Option<String>,
    password: Option<Vec<u8>>,
    will: Option<WillMessage>,
}

/// A Will.
#[derive(Clone)]
struct WillMessage {
    topic: String,
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
    props: PropsBuf,
}

impl Connect {
    /// A CONNECT of any version.
    pub fn new(version: Version, client_id: &str) -> Connect {
        Connect {
            version,
            client_id: client_id.to_owned(),
            clean: true,
            bridge: false,
            keep_alive: 300,
            props: PropsBuf::new(),
            username: None,
            password: None,
            will: None,
        }
    }

    /// MQTT 5.
    pub fn v5(client_id: &str) -> Connect {
        Connect::new(Version::V5, client_id)
    }

    /// MQTT 3.1.1.
    pub fn v311(client_id: &str) -> Connect {
        Connect::new(Version::V311, client_id)
    }

    /// MQTT 3.1.
    pub fn v31(client_id: &str) -> Connect {
        Connect::new(Version::V31, client_id)
    }

    /// Clean Start or Clean Session off: resume what is there.
    #[must_use]
    pub fn resume(mut self) -> Connect {
        self.clean = false;
        self
    }

    /// A session that outlives the connection: session expiry (MQTT 5) or Clean Session 0.
    #[must_use]
    pub fn lasting(self) -> Connect {
        let v5 = self.version.is_v5();
        let resume = self.resume();
        if v5 { resume.prop(Property::SessionExpiry(3600)) } else { resume }
    }

    /// The bit by which a bridge shows itself in 3.x.
    #[must_use]
    pub fn bridge(mut self) -> Connect {
        self.bridge = true;
        self
    }

    /// Keep alive in seconds.
    #[must_use]
    pub fn keep_alive(mut self, seconds: u16) -> Connect {
        self.keep_alive = seconds;
        self
    }

    /// A property.
    #[must_use]
    pub fn prop(mut self, property: Property<'_>) -> Connect {
        self.props.push(&property).expect("a property that fits");
        self
    }

    /// User name and password.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Connect {
        self.username = Some(user.to_owned());
        self.password = Some(password.as_bytes().to_vec());
        self
    }

    /// A user name alone.
    #[must_use]
    pub fn user(mut self, user: &str) -> Connect {
        self.username = Some(user.to_owned());
        self
    }

    /// A password alone.
    #[must_use]
    pub fn password(mut self, password: &[u8]) -> Connect {
        self.password = Some(password.to_vec());
        self
    }

    /// A Will.
    #[must_use]
    pub fn will(self, topic: &str, payload: &str, qos: u8, retain: bool) -> Connect {
        self.will_with(topic, payload, qos, retain, &[])
    }

    /// A Will with properties.
    #[must_use]
    pub fn will_with(
        mut self,
        topic: &str,
        payload: &str,
        qos: u8,
        retain: bool,
        props: &[Property<'_>],
    ) -> Connect {
        let (topic, payload) = (topic.to_owned(), payload.as_bytes().to_vec());
        self.will = Some(WillMessage { topic, payload, qos, retain, props: props_buf(props) });
        self
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let packet = Packet::Connect(mast_core::codec::Connect {
            version: self.version,
            bridge: self.bridge,
            clean_start: self.clean,
            keep_alive: self.keep_alive,
            props: self.props.as_props(),
            client_id: &self.client_id,
            will: self.will.as_ref().map(|w| Will {
                qos: qos(w.qos),
                retain: w.retain,
                props: w.props.as_props(),
                topic: &w.topic,
                payload: &w.payload,
            }),
            username: self.username.as_deref(),
            password: self.password.as_deref(),
        });
        packet.encode(self.version, &mut out).expect("an encodable CONNECT");
        out
    }

    /// Connects over TCP; the broker must accept.
    pub fn open(&self, broker: &Broker) -> Client {
        self.open_on(broker.tcp())
    }

    /// Connects over TCP and gives whatever CONNACK comes.
    pub fn attempt(&self, broker: &Broker) -> (Client, Got) {
        self.attempt_on(broker.tcp())
    }

    /// Connects over a stream; the broker must accept.
    pub fn open_on(&self, wire: impl Wire + 'static) -> Client {
        let (client, connack) = self.attempt_on(wire);
        assert_eq!(connack.reason(), 0, "{connack:?}");
        client
    }

    /// Connects over a stream and gives whatever CONNACK comes.
    pub fn attempt_on(&self, wire: impl Wire + 'static) -> (Client, Got) {
        let mut client = self.start_on(wire);
        let connack = client.recv();
        assert_eq!(connack.ty(), PacketType::ConnAck, "{connack:?}");
        client.connack = Some(connack.clone());
        (client, connack)
    }

    /// Sends CONNECT and reads nothing.
    pub fn start_on(&self, wire: impl Wire + 'static) -> Client {
        let mut client = Client::on(wire, self.version);
        client.send_bytes(&self.bytes());
        client
    }

    /// The broker refuses with this code (the return code before MQTT 5) and closes.
    pub fn expect_refusal(&self, broker: &Broker, code: u8) {
        let (mut client, connack) = self.attempt(broker);
        assert_eq!(connack.reason(), code, "{connack:?}");
        assert!(!connack.session_present(), "{connack:?}");
        let seen = client.expect_closed();
        assert!(seen.is_empty(), "{seen:?}");
    }
}

impl Broker {
    /// A MQTT 5 client with a clean session.
    pub fn client(&self, client_id: &str) -> Client {
        Connect::v5(client_id).open(self)
    }

    /// A client of any version with a clean session.
    pub fn client_of(&self, version: Version, client_id: &str) -> Client {
        Connect::new(version, client_id).open(self)
    }
}
