//! A client whose Maximum Packet Size is below the CONNACK cannot be accepted: it hears nothing, and nothing of it
//! stays.

use std::sync::Arc;

use mast_core::codec::{Connect, Packet, Property, PropsBuf, Version, Will};
use mast_core::conn::handshake::{AuthAnswer, Handshake, HandshakeConfig, Identity, Progress};
use mast_core::ids::{ConnId, ShardIx, TenantId};
use mast_core::message::QoS;
use mast_core::rng::Rng;
use mast_core::settings::Settings;
use mast_core::shard::input::{Effect, Input, Outbox, Step};
use mast_core::shard::{Census, Shard, ShardConfig};
use mast_core::store::port::{CommitResult, Restored};
use mast_core::store::position::{Position, Seq};
use mast_core::tenant::Tenancy;
use mast_core::tenant::registry::Registry;
use mast_core::time::{Mono, Now};

/// Statements that a test shows; the registry of `mast-tests` reads them from this text.
macro_rules! covers {
    ($($id:literal),+) => {};
}

const CONN: ConnId = ConnId { idx: 0, generation: 1 };
const NOW: Now = Now { mono: Mono(1), wall: mast_core::time::Wall(1) };

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

fn shard(settings: &Settings) -> Shard {
    let config = ShardConfig {
        shard: ShardIx(0),
        shards: 1,
        seed: 1,
        interest_seed: 1,
        settings: settings.clone(),
        tenancy: Tenancy {
            registry: Registry::new(&["default"]).expect("a good name"),
            ..Tenancy::default()
        },
    };
    let mut shard = Shard::new(config, NOW);
    shard.handle(NOW, Input::Restore(Restored::End { head: Position::start() }));
    shard
}

/// Polls until idle with a store that does all it is asked; returns what was closed.
fn settle(shard: &mut Shard, commits: &mut u64) -> Vec<ConnId> {
    let mut closed = Vec::new();
    loop {
        let mut out = Outbox::default();
        let step = shard.poll(NOW, &mut out);
        let quiet = out.effects.is_empty();
        for effect in out.effects {
            match effect {
                Effect::Close { conn, .. } => closed.push(conn),
                Effect::Commit { op, .. } => {
                    *commits += 1;
                    let result = CommitResult::Done { last: Seq(*commits * 10) };
                    shard.handle(NOW, Input::CommitDone { op, result });
                }
                other => drop(other),
            }
        }
        if quiet && step != Step::More {
            return closed;
        }
    }
}

#[test]
fn a_client_that_cannot_be_told_of_its_success_is_closed_and_leaves_nothing() {
    covers!("MQTT-3.1.2-24");
    for expiry in [0, 100] {
        let settings = Settings { sys_interval_ms: 0, ..Settings::default() };
        let config = HandshakeConfig {
            settings: Arc::new(settings.clone()),
            max_connect_packet: 1000,
            connect_deadline_ms: 1000,
            auth_methods: Arc::from([]),
        };
        let mut handshake = Handshake::new(Arc::new(config), NOW.mono);
        let mut out = Vec::new();
        let progress = handshake.receive(&connect(expiry), &mut Rng::new(1), &mut out);
        assert!(matches!(progress, Progress::Ask(_)));
        let identity = Identity::new(TenantId(0), None);
        let accept = AuthAnswer::Accept { identity, data: None };
        let Progress::Admit(admission) = handshake.authenticated(accept, &mut out) else { panic!("admits") };

        let mut shard = shard(&settings);
        let mut commits = 0;
        shard.handle(NOW, Input::Admit { conn: CONN, admission });
        assert_eq!(settle(&mut shard, &mut commits), [CONN]);
        assert!(shard.output(CONN).is_none_or(|out| out.is_empty()));
        shard.handle(NOW, Input::Closed { conn: CONN });
        settle(&mut shard, &mut commits);
        assert_eq!(shard.census(), Census::default());
    }
}
