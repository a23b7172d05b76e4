//! Enhanced authentication (MQTT 5, 4.12) against the handshake and a shard. No built-in authenticator has a
//! method of several steps yet, so only a test can play one.

use std::sync::Arc;

use mast_core::authz::{Action, Conditions, Effect as Says, OrderedRule, QosSet, RuleList, Template};
use mast_core::codec::{self, Auth, Connect, Packet, PacketType, Property, Props, PropsBuf, Reason, Version};
use mast_core::conn::handshake::{
    AuthAnswer, AuthQuestion, Claims, Handshake, HandshakeConfig, Identity, Progress,
};
use mast_core::ids::{ConnId, OpId, ShardIx, TenantId};
use mast_core::rng::Rng;
use mast_core::settings::Settings;
use mast_core::shard::input::{Effect, Input, Outbox, Step};
use mast_core::shard::{Shard, ShardConfig};
use mast_core::tenant::Tenancy;
use mast_core::tenant::registry::Registry;
use mast_core::time::{Mono, Now};

/// Statements that a test shows; the registry of `mast-tests` reads them from this text.
macro_rules! covers {
    ($($id:literal),+) => {};
}

const CONN: ConnId = ConnId { idx: 0, generation: 1 };

fn encode(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(Version::V5, &mut out).expect("encodable");
    out
}

fn auth(reason: Reason, method: &str, data: &[u8]) -> Vec<u8> {
    let mut props = PropsBuf::new();
    props.push(&Property::AuthMethod(method)).expect("fits");
    props.push(&Property::AuthData(data)).expect("fits");
    encode(&Packet::Auth(Auth { reason, props: props.as_props() }))
}

fn connect(method: &str) -> Vec<u8> {
    let mut props = PropsBuf::new();
    props.push(&Property::AuthMethod(method)).expect("fits");
    props.push(&Property::AuthData(b"one")).expect("fits");
    encode(&Packet::Connect(Connect {
        version: Version::V5,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        props: props.as_props(),
        client_id: "c",
        will: None,
        username: None,
        password: None,
    }))
}

fn handshake() -> Handshake {
    let config = HandshakeConfig {
        settings: Arc::new(Settings::default()),
        max_connect_packet: 1000,
        connect_deadline_ms: 1000,
        auth_methods: Arc::from([Box::from("STEPS")]),
    };
    Handshake::new(Arc::new(config), Mono(0))
}

fn identity(name: &str) -> Identity {
    Identity::new(TenantId(0), Some(Box::from(name)))
}

fn accept(name: &str, data: &'static [u8]) -> AuthAnswer {
    AuthAnswer::Accept { identity: identity(name), data: Some(data.into()) }
}

type Said = (PacketType, u8, Option<String>, Option<Vec<u8>>);

/// Type, reason, method and data of the packets in a buffer.
fn said(bytes: &[u8]) -> Vec<Said> {
    let mut rest = bytes;
    let mut all = Vec::new();
    while let Some(frame) = codec::cut(rest, u32::MAX).expect("well-formed") {
        let packet = codec::decode(&frame, Version::V5).expect("well-formed");
        let (reason, props) = match &packet {
            Packet::Auth(p) => (p.reason, p.props),
            Packet::ConnAck(p) => (p.code, p.props),
            Packet::Disconnect(p) => (p.reason, p.props),
            other => panic!("{other:?}"),
        };
        let (method, data) = (props.auth_method().map(str::to_owned), props.auth_data().map(<[u8]>::to_vec));
        all.push((packet.packet_type(), reason.0, method, data));
        rest = &rest[frame.total..];
    }
    all
}

fn steps(ty: PacketType, reason: u8, data: &[u8]) -> (PacketType, u8, Option<String>, Option<Vec<u8>>) {
    (ty, reason, Some("STEPS".to_owned()), Some(data.to_vec()))
}

#[test]
fn more_data_is_asked_for_with_auth_0x18_and_the_same_method() {
    covers!["MQTT-4.12.0-2", "MQTT-4.12.0-3", "MQTT-4.12.0-5"];
    let (mut machine, mut rng, mut out) = (handshake(), Rng::new(1), Vec::new());
    let asked = machine.receive(&connect("STEPS"), &mut rng, &mut out);
    let Progress::Ask(AuthQuestion::Step { method, data, .. }) = asked else { panic!("{asked:?}") };
    assert_eq!((&*method, data.as_deref()), ("STEPS", Some(&b"one"[..])));
    let more = machine.authenticated(AuthAnswer::Continue { data: b"two".as_slice().into() }, &mut out);
    assert!(matches!(more, Progress::More), "{more:?}");
    assert_eq!(said(&out), [steps(PacketType::Auth, 0x18, b"two")]);
    let asked =
        machine.receive(&auth(Reason::CONTINUE_AUTHENTICATION, "STEPS", b"three"), &mut rng, &mut out);
    let Progress::Ask(AuthQuestion::Step { data, .. }) = asked else { panic!("{asked:?}") };
    assert_eq!(data.as_deref(), Some(&b"three"[..]));
    let admitted = machine.authenticated(accept("u", b"four"), &mut out);
    let Progress::Admit(admission) = admitted else { panic!("{admitted:?}") };
    assert_eq!(admission.auth_method.as_deref(), Some("STEPS"));
}

#[test]
fn another_method_or_another_packet_inside_the_exchange_ends_it() {
    covers!["MQTT-3.1.2-30", "MQTT-4.12.0-3", "MQTT-4.12.0-4", "MQTT-4.12.0-5"];
    for bytes in [
        auth(Reason::CONTINUE_AUTHENTICATION, "OTHER", b"x"),
        auth(Reason::REAUTHENTICATE, "STEPS", b"x"),
        encode(&Packet::PingReq),
    ] {
        let (mut machine, mut rng, mut out) = (handshake(), Rng::new(1), Vec::new());
        machine.receive(&connect("STEPS"), &mut rng, &mut out);
        machine.authenticated(AuthAnswer::Continue { data: b"two".as_slice().into() }, &mut out);
        out.clear();
        let end = machine.receive(&bytes, &mut rng, &mut out);
        assert!(matches!(end, Progress::Close(_)), "{end:?}");
        assert!(said(&out).iter().all(|(ty, code, ..)| *ty == PacketType::ConnAck && *code >= 0x80));
    }
    let (mut machine, mut rng, mut out) = (handshake(), Rng::new(1), Vec::new());
    machine.receive(&connect("STEPS"), &mut rng, &mut out);
    let end = machine.authenticated(AuthAnswer::Refuse { reason: Reason::NOT_AUTHORIZED }, &mut out);
    assert!(matches!(end, Progress::Close(_)), "{end:?}");
    assert_eq!(said(&out), [(PacketType::ConnAck, 0x87, None, None)]);
}

struct Running {
    shard: Shard,
    effects: Vec<Effect>,
}

impl Running {
    /// A shard with one connection that authenticated in steps as user `u`.
    fn start() -> Running {
        let config = ShardConfig {
            shard: ShardIx(0),
            shards: 1,
            seed: 1,
            interest_seed: 1,
            settings: Settings { sys_interval_ms: 0, ..Settings::default() },
            tenancy: Tenancy {
                registry: Registry::new(&["default"]).expect("a good name"),
                ..Tenancy::default()
            },
        };
        let mut running = Running { shard: Shard::new(config, Now::default()), effects: Vec::new() };
        let (mut machine, mut rng, mut out) = (handshake(), Rng::new(1), Vec::new());
        machine.receive(&connect("STEPS"), &mut rng, &mut out);
        let Progress::Admit(admission) = machine.authenticated(accept("u", b"done"), &mut out) else {
            panic!("not admitted")
        };
        running.give(Input::Restore(mast_core::store::port::Restored::End { head: Default::default() }));
        running.give(Input::Admit { conn: CONN, admission });
        assert_eq!(said(&running.output()), [steps(PacketType::ConnAck, 0, b"done")]);
        running
    }

    fn give(&mut self, input: Input<'_>) {
        self.shard.handle(Now::default(), input);
        let mut outbox = Outbox::default();
        while self.shard.poll(Now::default(), &mut outbox) == Step::More {}
        self.effects.append(&mut outbox.effects);
    }

    fn output(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let Some(out) = self.shard.output(CONN) else { return all };
        out.for_chunks(usize::MAX, |chunk| all.extend_from_slice(chunk));
        let n = all.len();
        self.shard.wrote(Now::default(), CONN, n);
        all
    }

    fn asked(&mut self) -> Option<OpId> {
        let found = self.effects.iter().find_map(|e| match e {
            Effect::Auth { op, .. } => Some(*op),
            _ => None,
        });
        self.effects.clear();
        found
    }
}

#[test]
fn a_client_may_authenticate_again_with_the_same_method() {
    covers!["MQTT-4.12.1-1", "MQTT-4.12.0-2", "MQTT-4.12.0-5"];
    let mut running = Running::start();
    running.give(Input::Received { conn: CONN, bytes: &auth(Reason::REAUTHENTICATE, "STEPS", b"again") });
    let op = running.asked().expect("a question");
    running.give(Input::AuthDone { op, answer: AuthAnswer::Continue { data: b"more".as_slice().into() } });
    assert_eq!(said(&running.output()), [steps(PacketType::Auth, 0x18, b"more")]);
    running
        .give(Input::Received { conn: CONN, bytes: &auth(Reason::CONTINUE_AUTHENTICATION, "STEPS", b"x") });
    let op = running.asked().expect("a question");
    running.give(Input::AuthDone { op, answer: accept("u", b"fine") });
    assert_eq!(said(&running.output()), [steps(PacketType::Auth, 0, b"fine")]);
}

#[test]
fn re_authentication_brings_the_rights_of_the_new_proof() {
    let mut running = Running::start();
    let mut rule = OrderedRule {
        name: "crew".into(),
        origin: "".into(),
        effect: Says::Allow,
        action: Action::Publish,
        topics: vec![Template::parse("t").expect("a filter")],
        conditions: Conditions::default(),
        qos: QosSet::ANY,
        retain: None,
    };
    rule.conditions.groups = vec![Template::parse("crew").expect("a pattern")];
    let mut tenancy =
        Tenancy { registry: Registry::new(&["default"]).expect("a good name"), ..Tenancy::default() };
    tenancy.rules.give_ordered(TenantId(0), Arc::new(RuleList::new(vec![rule])));
    let settings = Box::new(Settings { sys_interval_ms: 0, ..Settings::default() });
    running.give(Input::Reconfigure { settings, tenancy });
    let crew = Claims { groups: Some([Box::from("crew")].into()), ..Claims::default() };
    // The same topic each time: what was found out about it holds for one proof.
    for (claims, code) in [(None, 0x87), (Some(crew), 0x10), (Some(Claims::default()), 0x87)] {
        if let Some(claims) = claims {
            running.give(Input::Received { conn: CONN, bytes: &auth(Reason::REAUTHENTICATE, "STEPS", b"") });
            let op = running.asked().expect("a question");
            let identity = Identity { claims, ..identity("u") };
            running.give(Input::AuthDone { op, answer: AuthAnswer::Accept { identity, data: None } });
            running.output();
        }
        running.give(Input::Received { conn: CONN, bytes: &[0x32, 6, 0, 1, b't', 0, 7, 0] });
        assert_eq!(running.output(), [0x40, 3, 0, 7, code]);
    }
}

#[test]
fn failed_re_authentication_ends_the_connection() {
    covers!["MQTT-4.12.1-1", "MQTT-4.12.1-2"];
    // Refused, or somebody else.
    for (answer, code) in [
        (AuthAnswer::Refuse { reason: Reason::NOT_AUTHORIZED }, 0x87),
        (AuthAnswer::Refuse { reason: Reason::SERVER_BUSY }, 0x89),
        // CONNACK's alone.
        (AuthAnswer::Refuse { reason: Reason::BANNED }, 0x87),
        (AuthAnswer::Refuse { reason: Reason::BAD_USER_NAME_OR_PASSWORD }, 0x87),
        (accept("somebody else", b""), 0x87),
    ] {
        let mut running = Running::start();
        running.give(Input::Received { conn: CONN, bytes: &auth(Reason::REAUTHENTICATE, "STEPS", b"again") });
        let op = running.asked().expect("a question");
        running.give(Input::AuthDone { op, answer });
        assert_eq!(said(&running.output()), [(PacketType::Disconnect, code, None, None)]);
        assert!(running.effects.iter().any(|e| matches!(e, Effect::Close { .. })));
    }
    // Another method.
    let mut running = Running::start();
    running.give(Input::Received { conn: CONN, bytes: &auth(Reason::REAUTHENTICATE, "OTHER", b"again") });
    assert!(running.asked().is_none());
    let said = said(&running.output());
    assert_eq!(said.last().map(|s| (s.0, s.1)), Some((PacketType::Disconnect, 0x82)));
}

#[test]
fn an_empty_property_list_stays_out_of_a_plain_auth() {
    let bytes = encode(&Packet::Auth(Auth { reason: Reason::SUCCESS, props: Props::EMPTY }));
    assert_eq!(bytes, [0xF0, 0]);
}
