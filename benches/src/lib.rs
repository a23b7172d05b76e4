//! A shard without sockets for the benches: connections that are admitted at once, bytes in, bytes out, and a
//! subscriber that acknowledges what waits for it.

use mast_core::codec::{
    AckKind, Connect, FiltersBuf, Packet, Props, PublishHead, SubOptions, Subscribe, Version, cut, put_ack,
    put_publish_head,
};
use mast_core::conn::handshake::{AuthAnswer, Handshake, HandshakeConfig, Identity, Progress};
use mast_core::ids::{ConnId, ShardIx, TenantId};
use mast_core::message::QoS;
use mast_core::rng::Rng;
use mast_core::settings::Settings;
use mast_core::shard::input::{Input, Outbox, Step};
use mast_core::shard::{Shard, ShardConfig};
use mast_core::store::port::Restored;
use mast_core::store::position::Position;
use mast_core::tenant::Tenancy;
use mast_core::tenant::registry::Registry;
use mast_core::time::Now;
use std::sync::Arc;

/// The time of all that happens.
pub const NOW: Now = Now { mono: mast_core::time::Mono(1), wall: mast_core::time::Wall(1) };
/// Payload of the messages, bytes.
const PAYLOAD: usize = 64;

/// One shard and what its driver holds.
pub struct Bench {
    /// The shard.
    pub shard: Shard,
    outbox: Outbox,
    handshake: Arc<HandshakeConfig>,
    next: u32,
}

impl Default for Bench {
    fn default() -> Bench {
        let registry = Registry::new(&["default"]).expect("a good name");
        let settings = Settings { sys_interval_ms: 0, ..Settings::default() };
        let handshake = Arc::new(HandshakeConfig {
            settings: Arc::new(settings.clone()),
            max_connect_packet: 1024,
            connect_deadline_ms: 1000,
            auth_methods: Arc::from([]),
        });
        let config = ShardConfig {
            shard: ShardIx(0),
            shards: 1,
            seed: 1,
            interest_seed: 1,
            settings,
            tenancy: Tenancy { registry, ..Tenancy::default() },
        };
        let mut shard = Shard::new(config, NOW);
        shard.handle(NOW, Input::Restore(Restored::End { head: Position::start() }));
        Bench { shard, outbox: Outbox::default(), handshake, next: 0 }
    }
}

impl Bench {
    /// Polls until all work is done.
    pub fn run(&mut self) {
        while self.shard.poll(NOW, &mut self.outbox) == Step::More {}
        self.outbox.effects.clear();
    }

    /// Takes all output, as the sockets would, and returns its length in bytes.
    pub fn drain(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(id) = self.outbox.dirty.pop() {
            let n = self.shard.output(id).map_or(0, |out| out.len());
            bytes += n;
            self.shard.wrote(NOW, id, n);
        }
        bytes
    }

    /// Admits a client, which subscribes if it has a filter.
    ///
    /// # Panics
    /// If the shard refuses it.
    pub fn connect(&mut self, filter: Option<(&str, QoS)>) -> ConnId {
        let id = ConnId { idx: self.next, generation: 0 };
        self.next += 1;
        let name = format!("c{}", id.idx);
        let connect = Packet::Connect(Connect {
            version: Version::V5,
            bridge: false,
            clean_start: true,
            keep_alive: 0,
            props: Props::EMPTY,
            client_id: &name,
            will: None,
            username: None,
            password: None,
        });
        let mut bytes = Vec::new();
        connect.encode(Version::V5, &mut bytes).expect("encodes");
        let mut machine = Handshake::new(Arc::clone(&self.handshake), NOW.mono);
        let mut out = Vec::new();
        let mut rng = Rng::new(1);
        let Progress::Ask(_) = machine.receive(&bytes, &mut rng, &mut out) else { panic!("asks") };
        let identity = Identity::new(TenantId(0), None);
        let Progress::Admit(admission) =
            machine.authenticated(AuthAnswer::Accept { identity, data: None }, &mut out)
        else {
            panic!("admits")
        };
        self.shard.handle(NOW, Input::Admit { conn: id, admission });
        if let Some((filter, qos)) = filter {
            let mut filters = FiltersBuf::new();
            filters.push(filter, SubOptions::new(qos)).expect("fits");
            let subscribe = Packet::Subscribe(Subscribe {
                packet_id: 1,
                props: Props::EMPTY,
                filters: filters.as_filters(),
            });
            let mut bytes = Vec::new();
            subscribe.encode(Version::V5, &mut bytes).expect("encodes");
            self.shard.handle(NOW, Input::Received { conn: id, bytes: &bytes });
        }
        self.run();
        self.drain();
        id
    }
}

/// The bytes of `count` PUBLISH packets.
///
/// # Panics
/// If the topic is too long.
#[must_use]
pub fn publishes(topic: &str, qos: QoS, count: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..count {
        let head = PublishHead {
            dup: false,
            qos,
            retain: false,
            topic,
            packet_id: if qos == QoS::AtMostOnce { 0 } else { i + 1 },
            alias: None,
            expiry: None,
            sub_ids: &[],
            props: &[],
            payload_len: PAYLOAD,
        };
        put_publish_head(&head, Version::V5, &mut bytes).expect("fits");
        bytes.extend_from_slice(&[7; PAYLOAD]);
    }
    bytes
}

/// Puts the subscriber's acknowledgements of what waits for it into `acks`.
pub fn acknowledge(bench: &mut Bench, id: ConnId, acks: &mut Vec<u8>) {
    acks.clear();
    if let Some(out) = bench.shard.output(id) {
        out.for_chunks(64, |chunk| {
            let mut at = 0;
            while let Ok(Some(frame)) = cut(&chunk[at..], u32::MAX) {
                at += frame.total;
                if frame.first & 0x06 != 0 {
                    let topic = usize::from(u16::from_be_bytes([frame.body[0], frame.body[1]]));
                    let id = u16::from_be_bytes([frame.body[2 + topic], frame.body[3 + topic]]);
                    put_ack(AckKind::PubAck, id, mast_core::codec::Reason::SUCCESS, Version::V5, acks);
                }
            }
        });
    }
}
