//! From the first byte to an admitted CONNECT: runs where connections are accepted, before any shard
//! knows of them. Finds out who is there (through authentication as an effect) and so the tenant, the
//! client id and thereby the shard.

use crate::codec::{
    self, Auth, ConnAck, Connect, Packet, Property, Props, PropsBuf, Reason, Version, Violation,
};
pub use crate::conn::identity::{Attributes, Claims, Identity};
use crate::ids::TenantId;
use crate::rng::Rng;
use crate::settings::Settings;
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

/// What the handshake must know of its listener.
#[derive(Clone, Debug)]
pub struct HandshakeConfig {
    /// Limits on the CONNECT.
    pub settings: Arc<Settings>,
    /// Largest first packet, bytes.
    pub max_connect_packet: u32,
    /// Time for the whole CONNECT, milliseconds.
    pub connect_deadline_ms: u64,
    /// Authentication methods (MQTT 5, 4.12) that the authenticator speaks.
    pub auth_methods: Arc<[Box<str>]>,
}

/// What authentication is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthQuestion {
    /// User name and password (either may be absent).
    Password {
        /// MQTT client id as sent (may be empty).
        client_id: Box<str>,
        /// User name.
        username: Option<Box<str>>,
        /// Password.
        password: Option<Bytes>,
        /// Version of the protocol.
        version: Version,
        /// Clean Start (3.x: Clean Session).
        clean_start: bool,
    },
    /// A step of enhanced authentication.
    Step {
        /// MQTT client id as sent (may be empty).
        client_id: Box<str>,
        /// Authentication Method.
        method: Box<str>,
        /// Authentication Data.
        data: Option<Bytes>,
    },
}

/// What authentication answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthAnswer {
    /// Known; `data` goes into CONNACK or AUTH as Authentication Data.
    Accept {
        /// Who.
        identity: Identity,
        /// Authentication Data for the client.
        data: Option<Bytes>,
    },
    /// Another step: AUTH 0x18 with this data.
    Continue {
        /// Authentication Data for the client.
        data: Bytes,
    },
    /// Refused with this MQTT 5 reason code.
    Refuse {
        /// 0x86, 0x87, 0x88, 0x97, 0x9F …
        reason: Reason,
    },
}

/// An admitted connection on its way to its shard.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Who it is.
    pub identity: Identity,
    /// The client id, the assigned one if it sent none.
    pub client_id: Box<str>,
    /// The client id was assigned by us.
    pub assigned: bool,
    /// Protocol version.
    pub version: Version,
    /// Body of the CONNECT packet.
    pub connect: Bytes,
    /// Authentication Method of the connection, if it has one.
    pub auth_method: Option<Box<str>>,
    /// Authentication Data for the CONNACK.
    pub auth_data: Option<Bytes>,
    /// Bytes that came behind the CONNECT.
    pub leftover: Vec<u8>,
}

impl Admission {
    /// The CONNECT, decoded again from its bytes.
    ///
    /// # Errors
    /// Never for bytes that the handshake accepted.
    pub fn packet(&self) -> Result<Connect<'_>, Violation> {
        decode_connect(&self.connect)
    }
}

fn decode_connect(body: &[u8]) -> Result<Connect<'_>, Violation> {
    let frame = codec::Frame { first: 0x10, body, total: body.len() };
    match codec::decode(&frame, Version::V5)? {
        Packet::Connect(connect) => Ok(connect),
        _ => Err(not_connect()),
    }
}

const fn not_connect() -> Violation {
    Violation {
        reason: Reason::PROTOCOL_ERROR,
        why: "first packet is not CONNECT",
        statement: "MQTT-3.1.0-1",
    }
}

/// What the acceptor shall do after a call.
#[derive(Debug)]
pub enum Progress {
    /// Read on.
    More,
    /// Ask, then call [`Handshake::authenticated`]. Bytes that arrive meanwhile may be fed as usual.
    Ask(AuthQuestion),
    /// Hand the connection to its shard.
    Admit(Box<Admission>),
    /// Write what is in `out`, then close. The violation is for the log.
    Close(Violation),
}

#[derive(Debug)]
enum State {
    /// Waiting for the whole CONNECT.
    Connect,
    /// Waiting for an answer of authentication.
    Asked,
    /// Waiting for the client's AUTH.
    Auth,
    Done,
}

/// The machine; one per connection until it is admitted.
#[derive(Debug)]
pub struct Handshake {
    config: Arc<HandshakeConfig>,
    state: State,
    deadline: Mono,
    buf: Vec<u8>,
    connect: Bytes,
    version: Version,
    client_id: Box<str>,
    assigned: bool,
    auth_method: Option<Box<str>>,
    max_packet_out: u32,
}

impl Handshake {
    /// A fresh connection, accepted at `now`.
    #[must_use]
    pub fn new(config: Arc<HandshakeConfig>, now: Mono) -> Handshake {
        let deadline = now.after_millis(config.connect_deadline_ms);
        Handshake {
            config,
            state: State::Connect,
            deadline,
            buf: Vec::new(),
            connect: Bytes::new(),
            version: Version::V311,
            client_id: Box::from(""),
            assigned: false,
            auth_method: None,
            max_packet_out: u32::MAX,
        }
    }

    /// When the connection is to be cut if it is not admitted by then.
    #[must_use]
    pub const fn deadline(&self) -> Mono {
        self.deadline
    }

    /// Bytes arrived. `rng` names clients that send no id. Replies go to `out`.
    pub fn receive(&mut self, bytes: &[u8], rng: &mut Rng, out: &mut Vec<u8>) -> Progress {
        if matches!(self.state, State::Connect)
            && self.buf.is_empty()
            && bytes.first().is_some_and(|b| *b != 0x10)
        {
            // [MQTT-3.1.0-1] Decided by the first byte: nothing is buffered for what isn't a CONNECT.
            return self.fail(not_connect());
        }
        // A peer that talks on while we think about its password is bounded like any first packet.
        if self.buf.len() + bytes.len() > self.config.max_connect_packet as usize + 64 * 1024 {
            return self.fail(Violation {
                reason: Reason::PACKET_TOO_LARGE,
                why: "too many bytes before CONNACK",
                statement: "",
            });
        }
        self.buf.extend_from_slice(bytes);
        match self.state {
            State::Connect => self.try_connect(rng, out),
            State::Auth => self.try_auth(out),
            State::Asked | State::Done => Progress::More,
        }
    }

    fn try_connect(&mut self, rng: &mut Rng, out: &mut Vec<u8>) -> Progress {
        let frame = match codec::cut(&self.buf, self.config.max_connect_packet) {
            Ok(None) => return Progress::More,
            Ok(Some(frame)) => frame,
            Err(violation) => return self.fail(violation),
        };
        let body = Bytes::copy_from_slice(frame.body);
        let (first, total) = (frame.first, frame.total);
        self.buf.drain(..total);
        let whole = codec::Frame { first, body: &body, total };
        let connect = match codec::decode(&whole, Version::V5) {
            Ok(Packet::Connect(connect)) => connect,
            Ok(_) => return self.fail(not_connect()),
            Err(violation) => {
                // [MQTT-3.1.2-2] A version that we don't speak is told in the form that all can read.
                if violation.reason == Reason::UNSUPPORTED_PROTOCOL_VERSION {
                    out.extend_from_slice(&[0x20, 0x02, 0x00, 0x01]);
                }
                return self.fail(violation);
            }
        };
        self.version = connect.version;
        self.max_packet_out = connect.props.maximum_packet_size().unwrap_or(u32::MAX);
        if let Err(violation) = self.check_connect(&connect) {
            self.refuse(violation.reason, out);
            return self.fail(violation);
        }
        self.assigned = connect.client_id.is_empty();
        self.client_id = if self.assigned { assign_client_id(rng) } else { Box::from(connect.client_id) };
        let question = match connect.props.auth_method() {
            Some(method) => {
                if !self.config.auth_methods.iter().any(|m| &**m == method) {
                    let violation = Violation {
                        reason: Reason::BAD_AUTHENTICATION_METHOD,
                        why: "authentication method is not supported",
                        statement: "MQTT-4.12.0-1",
                    };
                    self.refuse(violation.reason, out);
                    return self.fail(violation);
                }
                self.auth_method = Some(Box::from(method));
                AuthQuestion::Step {
                    client_id: Box::from(connect.client_id),
                    method: Box::from(method),
                    data: connect.props.auth_data().map(Bytes::copy_from_slice),
                }
            }
            None => AuthQuestion::Password {
                client_id: Box::from(connect.client_id),
                username: connect.username.map(Box::from),
                password: connect.password.map(Bytes::copy_from_slice),
                version: connect.version,
                clean_start: connect.clean_start,
            },
        };
        self.connect = body;
        self.state = State::Asked;
        Progress::Ask(question)
    }

    /// What can be refused from the CONNECT alone.
    fn check_connect(&self, connect: &Connect<'_>) -> Result<(), Violation> {
        let settings = &self.config.settings;
        let violation = |reason, why, statement| Err(Violation { reason, why, statement });
        let spoken = if connect.version == Version::V5 { settings.accept_v5 } else { settings.accept_v3 };
        if !spoken {
            let why = "this protocol version is turned off";
            return violation(Reason::UNSUPPORTED_PROTOCOL_VERSION, why, "MQTT-3.1.2-2");
        }
        if connect.client_id.is_empty() && !settings.assign_client_id {
            let why = "an empty client id, and none is assigned";
            return violation(Reason::CLIENT_IDENTIFIER_NOT_VALID, why, "MQTT-3.1.3-8");
        }
        if connect.client_id.is_empty() && connect.version < Version::V5 && !connect.clean_start {
            return violation(
                Reason::CLIENT_IDENTIFIER_NOT_VALID,
                "an empty client id needs clean session 1",
                "MQTT-3.1.3-8",
            );
        }
        if connect.client_id.is_empty() && connect.version == Version::V31 {
            return violation(Reason::CLIENT_IDENTIFIER_NOT_VALID, "MQTT 3.1 needs a client id", "");
        }
        let will_props = connect.will.as_ref().map_or(Props::EMPTY, |w| w.props);
        let (mut count, mut bytes) = (0, 0);
        for (name, value) in connect.props.user_properties().chain(will_props.user_properties()) {
            count += 1;
            bytes += name.len() + value.len();
        }
        if count > settings.max_user_properties as usize || bytes > settings.max_user_property_bytes as usize
        {
            return violation(Reason::QUOTA_EXCEEDED, "too many user properties", "");
        }
        let Some(will) = &connect.will else { return Ok(()) };
        if let Err(error) = crate::topic::check_name(will.topic, &settings.topic_limits) {
            return violation(Reason::TOPIC_NAME_INVALID, error.why(), "MQTT-3.1.3-11");
        }
        if will.topic.len() + will.props.raw().len() + will.payload.len() > settings.max_will_size as usize {
            return violation(Reason::PACKET_TOO_LARGE, "the will is larger than allowed", "");
        }
        if will.topic.starts_with('$') {
            return violation(Reason::NOT_AUTHORIZED, "a will may not go to a $ topic", "");
        }
        if will.qos > settings.max_qos {
            return violation(Reason::QOS_NOT_SUPPORTED, "will QoS above Maximum QoS", "MQTT-3.2.2-12");
        }
        if will.retain && !settings.retain_available {
            return violation(
                Reason::RETAIN_NOT_SUPPORTED,
                "retained will, but retain is off",
                "MQTT-3.2.2-13",
            );
        }
        if settings.payload_format_check
            && will.props.payload_format() == Some(1)
            && core::str::from_utf8(will.payload).is_err()
        {
            return violation(Reason::PAYLOAD_FORMAT_INVALID, "will payload is not UTF-8 as it says", "");
        }
        Ok(())
    }

    /// Authentication answered the last [`Progress::Ask`].
    pub fn authenticated(&mut self, answer: AuthAnswer, out: &mut Vec<u8>) -> Progress {
        if !matches!(self.state, State::Asked) {
            return Progress::More;
        }
        match answer {
            AuthAnswer::Refuse { reason } => {
                self.refuse(reason, out);
                self.fail(Violation { reason, why: "authentication refused", statement: "MQTT-3.1.4-2" })
            }
            AuthAnswer::Continue { data } => {
                self.state = State::Auth;
                let mut props = PropsBuf::new();
                let method = self.auth_method.as_deref().unwrap_or_default();
                let fits = props.push(&Property::AuthMethod(method)).is_ok()
                    && props.push(&Property::AuthData(&data)).is_ok();
                let auth =
                    Packet::Auth(Auth { reason: Reason::CONTINUE_AUTHENTICATION, props: props.as_props() });
                if !fits || auth.encode(self.version, out).is_err() {
                    return self.fail(Violation {
                        reason: Reason::UNSPECIFIED_ERROR,
                        why: "authentication data is too long for AUTH",
                        statement: "",
                    });
                }
                self.try_auth(out)
            }
            AuthAnswer::Accept { identity, data } => {
                self.state = State::Done;
                Progress::Admit(Box::new(Admission {
                    identity,
                    client_id: core::mem::take(&mut self.client_id),
                    assigned: self.assigned,
                    version: self.version,
                    connect: core::mem::take(&mut self.connect),
                    auth_method: self.auth_method.take(),
                    auth_data: data,
                    leftover: core::mem::take(&mut self.buf),
                }))
            }
        }
    }

    /// The client's next AUTH, or anything else, which is an error here [MQTT-3.1.2-30].
    fn try_auth(&mut self, out: &mut Vec<u8>) -> Progress {
        let cut = codec::cut(&self.buf, self.config.max_connect_packet);
        let frame = match cut {
            Ok(None) => return Progress::More,
            Ok(Some(frame)) => frame,
            Err(violation) => return self.fail(violation),
        };
        let total = frame.total;
        let outcome = match codec::decode(&frame, self.version) {
            Ok(Packet::Auth(auth)) => {
                let same = auth.props.auth_method() == self.auth_method.as_deref();
                if auth.reason == Reason::CONTINUE_AUTHENTICATION && same {
                    Ok(auth.props.auth_data().map(Bytes::copy_from_slice))
                } else {
                    Err(Violation {
                        reason: Reason::PROTOCOL_ERROR,
                        why: "AUTH with another method or reason than the exchange has",
                        statement: "MQTT-4.12.0-3",
                    })
                }
            }
            Ok(Packet::Disconnect(_)) => {
                Err(Violation { reason: Reason::SUCCESS, why: "client gave up", statement: "" })
            }
            Ok(_) => Err(Violation {
                reason: Reason::PROTOCOL_ERROR,
                why: "packet other than AUTH or DISCONNECT before CONNACK",
                statement: "MQTT-3.1.2-30",
            }),
            Err(violation) => Err(violation),
        };
        self.buf.drain(..total);
        match outcome {
            Err(violation) => {
                if violation.reason.is_error() {
                    self.refuse(violation.reason, out);
                }
                self.fail(violation)
            }
            Ok(data) => {
                self.state = State::Asked;
                let connect_id = decode_connect(&self.connect).map(|c| Box::from(c.client_id));
                Progress::Ask(AuthQuestion::Step {
                    client_id: connect_id.unwrap_or_default(),
                    method: self.auth_method.clone().unwrap_or_default(),
                    data,
                })
            }
        }
    }

    /// CONNACK with an error [MQTT-3.2.2-6], without extras, so it fits any Maximum Packet Size.
    fn refuse(&self, code: Reason, out: &mut Vec<u8>) {
        put_refusal(code, self.version, self.max_packet_out, out);
    }

    fn fail(&mut self, violation: Violation) -> Progress {
        self.state = State::Done;
        self.buf = Vec::new();
        Progress::Close(violation)
    }
}

/// Writes a refusing CONNACK, unless even that is larger than the client takes [MQTT-3.1.2-24], or the client's
/// version has no code for the reason (3.1.1, [MQTT-3.2.2-6]).
pub fn put_refusal(code: Reason, version: Version, max_packet: u32, out: &mut Vec<u8>) {
    if !version.is_v5() && code.v3_return_code().is_none() {
        return;
    }
    let packet = Packet::ConnAck(ConnAck { session_present: false, code, props: Props::EMPTY });
    if packet.encoded_len(version) <= max_packet as usize {
        // Cannot fail: there are no strings in it.
        let written = packet.encode(version, out);
        debug_assert!(written.is_ok());
    }
}

/// A client id nobody else has: 20 characters of the alphabet that every server must accept [MQTT-3.1.3-5], [MQTT-3.1.3-6].
fn assign_client_id(rng: &mut Rng) -> Box<str> {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    let mut id = String::with_capacity(24);
    id.push_str("mast");
    let mut bits = rng.next_u64();
    for i in 0..20 {
        if i == 10 {
            bits = rng.next_u64();
        }
        id.push(char::from(ALPHABET[(bits & 31) as usize]));
        bits >>= 5;
    }
    id.into_boxed_str()
}

/// The shard of a session: by tenant and client id, the same on every node of equal shard count.
/// `spread` = the tenant uses all shards; otherwise it sits on one.
#[must_use]
pub fn shard_of(tenant: TenantId, client_id: &str, shards: u16, spread: bool) -> crate::ids::ShardIx {
    let mut hash = fnv(0xcbf2_9ce4_8422_2325, &tenant.0.to_be_bytes());
    if spread {
        hash = fnv(hash, client_id.as_bytes());
    }
    // Finalise: FNV's low bits alone are weak for short keys.
    let mixed = Rng::new(hash).next_u64();
    crate::ids::ShardIx((mixed % u64::from(shards.max(1))) as u16)
}

fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
