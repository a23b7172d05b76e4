//! What a client sends of its own accord.

use super::{AuthStart, Client, Ctx, Exchange, OutPublish, OutStage, Queued, Spoil, Wire};
use crate::facts::{Fact, Uid, payload};
use crate::oracles::foreign::ForeignReader;
use crate::oracles::wire::LinkWire;
use crate::scenario::{FilterSpec, WillSpec};
use mast_core::codec::{
    Connect, Disconnect, FiltersBuf, NamesBuf, Packet, Property, Props, PropsBuf, Publish, Reason,
    SubOptions, Subscribe, Unsubscribe, Will,
};
use mast_core::message::QoS;
use std::collections::BTreeMap;

/// The server's Receive Maximum for 3.1.1, where it has none to tell.
const V3_WINDOW: u16 = 20;

fn qos(bits: u8) -> QoS {
    QoS::from_bits(bits).unwrap_or_default()
}

impl Client {
    /// Encodes into the context and shows the packet to the judge.
    pub(super) fn put(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let version = self.version();
        if packet.encode(version, &mut ctx.out).is_err() {
            ctx.broken = Some("model client could not encode its packet".to_owned());
        }
        if let Some(wire) = &mut self.wire {
            wire.judge.sent(packet);
        }
    }

    /// Begins a connection on `link`.
    pub fn connect(
        &mut self,
        ctx: &mut Ctx<'_>,
        link: usize,
        clean: bool,
        will: Option<&WillSpec>,
        auth: Option<AuthStart>,
    ) {
        self.lost();
        if clean {
            // A client that starts clean gives its own state up with the CONNECT, whatever comes of it.
            for entry in std::mem::take(&mut self.out) {
                ctx.note(Fact::PublishForgotten { client: self.index, uid: entry.uid });
            }
            self.inbound.clear();
        }
        self.wire = Some(Wire {
            link,
            online: false,
            buf: Vec::new(),
            judge: LinkWire::new(&self.spec),
            foreign: self.foreign.then(|| ForeignReader::new(self.spec.v5, self.spec.max_packet)),
            aliases_in: BTreeMap::new(),
            aliases_out: BTreeMap::new(),
            alias_maximum: 0,
            receive_maximum: V3_WINDOW,
            exchange: auth.map(Exchange::new),
        });
        let mut props = PropsBuf::new();
        if self.spec.v5 {
            self.connect_properties(&mut props, ctx);
        }
        let will_uid = will.map(|w| self.will_of(ctx, w));
        let mut will_props = PropsBuf::new();
        let body = will_uid.map(|uid| payload(&ctx.ledger.publications[uid as usize], 0));
        if let (Some(w), true) = (will, self.spec.v5)
            && w.delay_secs > 0
            && will_props.push(&Property::WillDelay(w.delay_secs)).is_err()
        {
            ctx.broken = Some("will delay did not encode".to_owned());
        }
        let topic = will_uid.map(|uid| ctx.ledger.publications[uid as usize].topic.clone());
        let username = format!("t{}/{}", self.spec.tenant, self.spec.name);
        let name = self.spec.name.clone();
        let packet = Packet::Connect(Connect {
            version: self.version(),
            bridge: false,
            clean_start: clean,
            keep_alive: self.spec.keep_alive,
            props: props.as_props(),
            client_id: &name,
            will: will.zip(topic.as_deref()).zip(body.as_deref()).map(|((w, topic), payload)| Will {
                qos: qos(w.qos),
                retain: w.retain,
                props: will_props.as_props(),
                topic,
                payload,
            }),
            username: Some(&username),
            password: auth.is_none().then_some(b"right"),
        });
        ctx.note(Fact::ConnectSent { client: self.index, link, clean, will: will_uid });
        if auth.is_some_and(|auth| auth.spoil == Spoil::Method) {
            self.note_spoiled(ctx, link, Spoil::Method);
        }
        self.put(ctx, &packet);
    }

    fn connect_properties(&self, props: &mut PropsBuf, ctx: &mut Ctx<'_>) {
        let spec = &self.spec;
        let mut list = Vec::new();
        if spec.expiry_secs > 0 {
            list.push(Property::SessionExpiry(spec.expiry_secs));
        }
        if spec.receive_maximum > 0 {
            list.push(Property::ReceiveMaximum(spec.receive_maximum));
        }
        if spec.max_packet > 0 {
            list.push(Property::MaximumPacketSize(spec.max_packet));
        }
        if spec.alias_maximum > 0 {
            list.push(Property::TopicAliasMaximum(spec.alias_maximum));
        }
        if let Some(exchange) = self.wire.as_ref().and_then(|wire| wire.exchange.as_ref()) {
            list.push(Property::AuthMethod(exchange.method()));
            list.push(Property::AuthData(b""));
        }
        for property in &list {
            if props.push(property).is_err() {
                ctx.broken = Some("CONNECT property did not encode".to_owned());
            }
        }
    }

    fn will_of(&mut self, ctx: &mut Ctx<'_>, will: &WillSpec) -> Uid {
        let topic = format!("will/{}", self.spec.name);
        let uid = self.publication(ctx.ledger, &topic, will.qos, will.retain, true);
        let publication = &mut ctx.ledger.publications[uid as usize];
        publication.delay_secs = if self.spec.v5 { will.delay_secs } else { 0 };
        publication.size = payload(publication, 0).len();
        uid
    }

    /// SUBSCRIBE.
    pub fn subscribe(&mut self, ctx: &mut Ctx<'_>, filters: &[FilterSpec], id: u32) {
        let v5 = self.spec.v5;
        let packet_id = self.packet_id();
        let mut list = FiltersBuf::new();
        let mut sent = Vec::new();
        for spec in filters {
            let mut spec = spec.clone();
            if !v5 {
                (spec.no_local, spec.rap, spec.retain_handling) = (false, false, 0);
            }
            let options = SubOptions {
                qos: qos(spec.qos),
                no_local: spec.no_local,
                retain_as_published: spec.rap,
                retain_handling: spec.retain_handling,
            };
            if list.push(&spec.filter, options).is_err() {
                ctx.broken = Some("filter did not encode".to_owned());
            }
            sent.push(spec);
        }
        let mut props = PropsBuf::new();
        let id = if v5 { id } else { 0 };
        if id > 0 && props.push(&Property::SubscriptionId(id)).is_err() {
            ctx.broken = Some("subscription id did not encode".to_owned());
        }
        self.pending.insert(packet_id, sent.len());
        ctx.note(Fact::SubscribeSent { client: self.index, packet_id, filters: sent, id });
        let packet =
            Packet::Subscribe(Subscribe { packet_id, props: props.as_props(), filters: list.as_filters() });
        self.put(ctx, &packet);
    }

    /// UNSUBSCRIBE.
    pub fn unsubscribe(&mut self, ctx: &mut Ctx<'_>, filters: &[String]) {
        let packet_id = self.packet_id();
        let mut list = NamesBuf::new();
        for filter in filters {
            if list.push(filter).is_err() {
                ctx.broken = Some("filter did not encode".to_owned());
            }
        }
        self.pending.insert(packet_id, filters.len());
        ctx.note(Fact::UnsubscribeSent { client: self.index, packet_id, filters: filters.to_vec() });
        let packet =
            Packet::Unsubscribe(Unsubscribe { packet_id, props: Props::EMPTY, filters: list.as_names() });
        self.put(ctx, &packet);
    }

    /// Queues a publish and sends what the window allows.
    pub fn publish(&mut self, ctx: &mut Ctx<'_>, queued: Queued) {
        self.queue.push_back(queued);
        self.send_queued(ctx);
    }

    /// Sends queued publishes as far as the server's window allows.
    pub fn send_queued(&mut self, ctx: &mut Ctx<'_>) {
        while self.online()
            && let Some(next) = self.queue.front()
        {
            let level = ctx.ledger.publications[next.uid as usize].qos;
            let window = self.wire.as_ref().map_or(0, |w| w.receive_maximum);
            if level > 0 && self.out.len() >= window as usize {
                return;
            }
            let Some(next) = self.queue.pop_front() else { return };
            let packet_id = if level > 0 { self.packet_id() } else { 0 };
            if level > 0 {
                let (uid, pad) = (next.uid, next.pad);
                self.out.push(OutPublish { packet_id, uid, stage: OutStage::Sent, pad });
            }
            self.send_publish(ctx, next.uid, packet_id, next.pad, next.alias, false);
        }
    }

    fn send_publish(
        &mut self,
        ctx: &mut Ctx<'_>,
        uid: Uid,
        packet_id: u16,
        pad: usize,
        alias: bool,
        dup: bool,
    ) {
        let publication = ctx.ledger.publications[uid as usize].clone();
        let body = if publication.clear { Vec::new() } else { payload(&publication, pad) };
        ctx.ledger.publications[uid as usize].size = body.len();
        let mut props = PropsBuf::new();
        let mut topic = publication.topic.as_str();
        let mut broken = false;
        if self.spec.v5 {
            if publication.expiry_secs > 0 {
                broken |= props.push(&Property::MessageExpiry(publication.expiry_secs)).is_err();
            }
            if let Some(wire) = self.wire.as_mut().filter(|_| alias) {
                let next = wire.aliases_out.len() as u16 + 1;
                if let Some(known) = wire.aliases_out.get(topic) {
                    broken |= props.push(&Property::TopicAlias(*known)).is_err();
                    topic = "";
                } else if next <= wire.alias_maximum {
                    broken |= props.push(&Property::TopicAlias(next)).is_err();
                    wire.aliases_out.insert(topic.to_owned(), next);
                }
            }
            broken |= props.push(&Property::UserProperty("uid", &uid.to_string())).is_err();
        }
        if broken {
            ctx.broken = Some("PUBLISH property did not encode".to_owned());
        }
        let packet = Packet::Publish(Publish {
            dup,
            qos: qos(publication.qos),
            retain: publication.retain,
            topic,
            packet_id,
            props: props.as_props(),
            payload: &body,
        });
        ctx.note(Fact::PublishSent { client: self.index, uid, packet_id, dup });
        self.put(ctx, &packet);
    }

    /// The session was resumed: what is unfinished is sent again, in order [MQTT-4.4.0-1].
    pub(super) fn resend(&mut self, ctx: &mut Ctx<'_>) {
        for entry in self.out.clone() {
            match entry.stage {
                OutStage::Sent => self.send_publish(ctx, entry.uid, entry.packet_id, entry.pad, false, true),
                OutStage::Released => self.put_ack(ctx, super::receive::AckPacket::PubRel, entry.packet_id),
            }
        }
        self.send_queued(ctx);
    }

    /// The server has no session: what was unfinished is forgotten with it.
    pub(super) fn forget(&mut self, ctx: &mut Ctx<'_>) {
        for entry in std::mem::take(&mut self.out) {
            ctx.note(Fact::PublishForgotten { client: self.index, uid: entry.uid });
        }
        self.inbound.clear();
        self.send_queued(ctx);
    }

    /// DISCONNECT.
    pub fn disconnect(&mut self, ctx: &mut Ctx<'_>, with_will: bool, for_good: bool) {
        let mut props = PropsBuf::new();
        let expire = for_good && self.spec.v5 && self.spec.expiry_secs > 0;
        if expire && props.push(&Property::SessionExpiry(0)).is_err() {
            ctx.broken = Some("DISCONNECT property did not encode".to_owned());
        }
        let reason = if with_will && self.spec.v5 { Reason::DISCONNECT_WITH_WILL } else { Reason::SUCCESS };
        let packet = Packet::Disconnect(Disconnect { reason, props: props.as_props() });
        self.put(ctx, &packet);
    }

    /// PINGREQ.
    pub fn ping(&mut self, ctx: &mut Ctx<'_>) {
        self.put(ctx, &Packet::PingReq);
    }
}
