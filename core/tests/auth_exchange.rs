//! Enhanced authentication (MQTT 5, 4.12) against the handshake and a shard. No built-in authenticator has a
//! method of several steps yet, so only a test can play one.

mod shard_support;

use mast_core::authz::{Action, Conditions, Effect, OrderedRule, QosSet, RuleList, Template};
use mast_core::codec::{self, Auth, Connect, Packet, PacketType, Property, Props, PropsBuf, Reason, Version};
use mast_core::conn::handshake::{AuthAnswer, AuthQuestion, Claims, Handshake, Identity, Progress};
use mast_core::ids::TenantId;
use mast_core::rng::Rng;
use mast_core::settings::Settings;
use mast_core::tenant::rules::Rules;
use shard_support::{Client, Node};

/// Statements that a test shows; the registry of `mast-tests` reads them from this text.
macro_rules! covers {
    ($($id:literal),+) => {};
}

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

/// A node that offers a method of several steps.
fn node() -> Node {
    let mut node = Node::new(1, Settings::default());
    node.auth_methods = vec![Box::from("STEPS")];
    node
}

fn handshake() -> Handshake {
    node().handshake()
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

/// A node with one client that authenticated in steps as user `u`.
fn running() -> (Node, Client) {
    let (mut node, mut machine) = (node(), handshake());
    let (mut rng, mut out) = (Rng::new(1), Vec::new());
    machine.receive(&connect("STEPS"), &mut rng, &mut out);
    let Progress::Admit(admission) = machine.authenticated(accept("u", b"done"), &mut out) else {
        panic!("not admitted")
    };
    let client = node.admit(Version::V5, admission);
    assert_eq!(said(&node.take(client).concat()), [steps(PacketType::ConnAck, 0, b"done")]);
    (node, client)
}

#[test]
fn a_client_may_authenticate_again_with_the_same_method() {
    covers!["MQTT-4.12.1-1", "MQTT-4.12.0-2", "MQTT-4.12.0-5"];
    let (mut node, client) = running();
    node.send(client, &auth(Reason::REAUTHENTICATE, "STEPS", b"again"));
    node.answer(client, AuthAnswer::Continue { data: b"more".as_slice().into() });
    assert_eq!(said(&node.take(client).concat()), [steps(PacketType::Auth, 0x18, b"more")]);
    node.send(client, &auth(Reason::CONTINUE_AUTHENTICATION, "STEPS", b"x"));
    node.answer(client, accept("u", b"fine"));
    assert_eq!(said(&node.take(client).concat()), [steps(PacketType::Auth, 0, b"fine")]);
}

#[test]
fn re_authentication_brings_the_rights_of_the_new_proof() {
    let (mut node, client) = running();
    let mut rule = OrderedRule {
        name: "crew".into(),
        origin: "".into(),
        effect: Effect::Allow,
        action: Action::Publish,
        topics: vec![Template::parse("t").expect("a filter")],
        conditions: Conditions::default(),
        qos: QosSet::ANY,
        retain: None,
    };
    rule.conditions.groups = vec![Template::parse("crew").expect("a pattern")];
    let mut rules = Rules::default();
    rules.give_ordered(TenantId(0), std::sync::Arc::new(RuleList::new(vec![rule])));
    node.rules(rules);
    let crew = Claims { groups: Some([Box::from("crew")].into()), ..Claims::default() };
    // The same topic each time: what was found out about it holds for one proof.
    for (claims, code) in [(None, 0x87), (Some(crew), 0x10), (Some(Claims::default()), 0x87)] {
        if let Some(claims) = claims {
            node.send(client, &auth(Reason::REAUTHENTICATE, "STEPS", b""));
            let identity = Identity { claims, ..identity("u") };
            node.answer(client, AuthAnswer::Accept { identity, data: None });
            node.take(client);
        }
        assert_eq!(node.publish(client, "t", b"", 1), [[0x40, 3, 0, 7, code]]);
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
        let (mut node, client) = running();
        node.send(client, &auth(Reason::REAUTHENTICATE, "STEPS", b"again"));
        node.answer(client, answer);
        assert_eq!(said(&node.take(client).concat()), [(PacketType::Disconnect, code, None, None)]);
        assert!(!node.is_open(client));
    }
    // Another method.
    let (mut node, client) = running();
    node.send(client, &auth(Reason::REAUTHENTICATE, "OTHER", b"again"));
    assert!(node.asked.is_empty());
    let said = said(&node.take(client).concat());
    assert_eq!(said.last().map(|s| (s.0, s.1)), Some((PacketType::Disconnect, 0x82)));
}

#[test]
fn an_empty_property_list_stays_out_of_a_plain_auth() {
    let bytes = encode(&Packet::Auth(Auth { reason: Reason::SUCCESS, props: Props::EMPTY }));
    assert_eq!(bytes, [0xF0, 0]);
}
