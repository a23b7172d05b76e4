//! A client whose Maximum Packet Size is below the CONNACK cannot be accepted: it hears nothing, and nothing of it
//! stays.

mod shard_support;

use mast_core::codec::{Connect, Packet, Property, PropsBuf, Version, Will};
use mast_core::conn::handshake::{AuthAnswer, Identity, Progress};
use mast_core::ids::TenantId;
use mast_core::message::QoS;
use mast_core::rng::Rng;
use mast_core::settings::Settings;
use mast_core::shard::Census;
use shard_support::Node;

/// Statements that a test shows; the registry of `mast-tests` reads them from this text.
macro_rules! covers {
    ($($id:literal),+) => {};
}

fn connect(session_expiry: u32) -> Vec<u8> {
    let mut props = PropsBuf::new();
    for property in [Property::MaximumPacketSize(1), Property::SessionExpiry(session_expiry)] {
        props.push(&property).expect("fits");
    }
    let will = PropsBuf::new();
    let packet = Packet::Connect(Connect {
        version: Version::V5,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        props: props.as_props(),
        client_id: "c",
        will: Some(Will {
            qos: QoS::AtLeastOnce,
            retain: true,
            props: will.as_props(),
            topic: "w",
            payload: b"x",
        }),
        username: None,
        password: None,
    });
    let mut out = Vec::new();
    packet.encode(Version::V5, &mut out).expect("encodable");
    out
}

#[test]
fn a_client_that_cannot_be_told_of_its_success_is_closed_and_leaves_nothing() {
    covers!("MQTT-3.1.2-24");
    for expiry in [0, 100] {
        let mut node = Node::new(1, Settings::default());
        let (mut handshake, mut out) = (node.handshake(), Vec::new());
        let progress = handshake.receive(&connect(expiry), &mut Rng::new(1), &mut out);
        assert!(matches!(progress, Progress::Ask(_)));
        let accept = AuthAnswer::Accept { identity: Identity::new(TenantId(0), None), data: None };
        let Progress::Admit(admission) = handshake.authenticated(accept, &mut out) else { panic!("admits") };
        let client = node.admit(Version::V5, admission);
        assert!(!node.is_open(client) && node.take(client).is_empty());
        assert_eq!(node.census(), [Census::default()]);
    }
}
