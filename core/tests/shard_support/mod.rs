//! A node for tests: real shards, a store that keeps a list and answers at once, and clients that are bytes.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mast_core::ask::{Answer, Ask};
use mast_core::codec::{self, Packet, Version};
use mast_core::conn::handshake::{
    Admission, AuthAnswer, Claims, Handshake, HandshakeConfig, Identity, Progress, shard_of,
};
use mast_core::ids::{ConnId, OpId, ShardIx, TenantId};
use mast_core::rng::Rng;
use mast_core::settings::Settings;
use mast_core::shard::input::{Effect, Input, Outbox, Step};
use mast_core::shard::peer::PeerMsg;
use mast_core::shard::{Census, Shard, ShardConfig};
use mast_core::store::key::Key;
use mast_core::store::port::{
    CommitResult, Committed, CommittedEntry, LogEntry, LogPage, LogRead, Read, ReadResult, Restored, Write,
};
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::sys::{Counters, TenantUsage};
use mast_core::tenant::Tenancy;
use mast_core::tenant::registry::Registry;
use mast_core::time::{Mono, Now, Wall};
use mast_core::topic;

const PARTITION: Partition = Partition(0);

/// A connection: its shard and its slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    pub shard: u16,
    slot: u32,
}

/// A will: its payload is "will".
#[derive(Clone, Debug)]
pub struct WillOf {
    pub topic: String,
    pub qos: u8,
    /// Seconds; of MQTT 5.
    pub delay: u32,
}

/// See the module.
pub struct Node {
    shards: Vec<Shard>,
    pub settings: Settings,
    seed: u64,
    pub now: Now,
    /// Expiry of the proof of clients that connect from now on.
    pub expires: Option<Wall>,
    /// The tenants of the node.
    pub tenancy: Tenancy,
    answer: Option<Answer>,
    /// Tenant of clients that connect from now on.
    pub tenant: TenantId,
    /// User of clients that connect from now on.
    pub user: Option<Box<str>>,
    /// What the proof of clients that connect from now on says besides.
    pub claims: Claims,
    /// Will of clients that connect from now on.
    pub will: Option<WillOf>,
    log: Vec<CommittedEntry>,
    keys: BTreeMap<Key, (bytes::Bytes, u64)>,
    head: u64,
    versions: BTreeMap<Client, Version>,
    /// Bytes that each client received and has not looked at.
    inbox: BTreeMap<Client, Vec<u8>>,
    /// Clients whose sockets take nothing.
    pub stalled: BTreeSet<Client>,
    /// Payloads of messages that the store can never read again.
    pub damaged: BTreeSet<Vec<u8>>,
    /// Commits with an append so far.
    pub appends: usize,
    /// Authentication methods that are offered.
    pub auth_methods: Vec<Box<str>>,
    /// Operations of questions about clients that authenticate again, in order.
    pub asked: Vec<OpId>,
    /// What a shard that does not read its mail has not read.
    unread: BTreeMap<u16, Vec<Unread>>,
}

/// Mail of a shard: what others and the store tell it.
enum Unread {
    Peer(ShardIx, PeerMsg),
    Committed(Arc<Committed>),
}

/// A packet of 3.x or 5 from its first byte and what follows its length.
pub fn packet(first: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let mut out = vec![first];
    let mut left = body.len();
    loop {
        let more = left >= 128;
        out.push((left % 128) as u8 | u8::from(more) << 7);
        left /= 128;
        if !more {
            break;
        }
    }
    out.extend(body);
    out
}

pub fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u16).to_be_bytes(), s.as_bytes()].concat()
}

impl Node {
    pub fn new(shards: u16, settings: Settings) -> Node {
        let settings = Settings { sys_interval_ms: 0, ..settings };
        let mut node = Node {
            shards: Vec::new(),
            settings,
            seed: 0,
            now: Now { mono: Mono(1), wall: Wall(1_000_000) },
            expires: None,
            tenancy: Tenancy {
                registry: Registry::new(&["default"]).expect("a tenant"),
                ..Tenancy::default()
            },
            answer: None,
            tenant: TenantId(0),
            user: None,
            claims: Claims::default(),
            will: None,
            log: Vec::new(),
            keys: BTreeMap::new(),
            head: 0,
            versions: BTreeMap::new(),
            inbox: BTreeMap::new(),
            stalled: BTreeSet::new(),
            damaged: BTreeSet::new(),
            appends: 0,
            auth_methods: Vec::new(),
            asked: Vec::new(),
            unread: BTreeMap::new(),
        };
        node.start(shards);
        node
    }

    fn start(&mut self, shards: u16) {
        self.seed += 1;
        for shard in 0..shards {
            let config = ShardConfig {
                shard: ShardIx(shard),
                shards,
                seed: self.seed,
                interest_seed: 1,
                settings: self.settings.clone(),
                tenancy: self.tenancy.clone(),
            };
            self.shards.push(Shard::new(config, self.now));
        }
        for shard in 0..shards {
            let mut records: Vec<Restored> = self
                .keys
                .iter()
                .map(|(key, (value, revision))| Restored::Key {
                    key: key.clone(),
                    value: value.clone(),
                    revision: Seq(*revision),
                })
                .collect();
            // The last of each topic, unless that took it away.
            let mut last = BTreeMap::new();
            for entry in self.log.iter().filter(|e| e.append.retain) {
                let message = &entry.append.message;
                last.insert((message.tenant, message.topic()), entry);
            }
            last.retain(|_, e| !e.append.message.payload().is_empty());
            let retained = last.values().map(|e| Restored::Retained {
                partition: PARTITION,
                seq: e.seq,
                message: Arc::clone(&e.append.message),
            });
            records.extend(retained);
            records.push(Restored::End { head: Position::at(PARTITION, Seq(self.head)) });
            for record in records {
                self.give(shard, Input::Restore(record));
            }
        }
    }

    /// The process dies and starts again over what was stored.
    pub fn crash(&mut self) {
        let shards = self.shards.len() as u16;
        self.shards.clear();
        self.versions.clear();
        self.inbox.clear();
        self.start(shards);
    }

    /// Starts anew with the tenants as they are now: their places are fixed for the life of a process.
    pub fn restart_with_tenancy(&mut self) {
        self.crash();
    }

    /// What the tenant of new clients uses, by shard.
    pub fn usage(&self) -> Vec<TenantUsage> {
        let name = self.tenancy.registry.name(self.tenant);
        let of = |shard: &Shard| {
            shard.tenant_usage().find(|(n, _)| Some(*n) == name).map(|(_, usage)| usage).unwrap_or_default()
        };
        self.shards.iter().map(of).collect()
    }

    /// New settings come into force on all shards.
    pub fn reconfigure(&mut self, settings: Settings) {
        for shard in 0..self.shards.len() as u16 {
            self.give(
                shard,
                Input::Reconfigure { settings: Box::new(settings.clone()), tenancy: self.tenancy.clone() },
            );
        }
        self.settings = settings;
    }

    /// New rules come into force on all shards.
    pub fn rules(&mut self, rules: mast_core::tenant::rules::Rules) {
        self.tenancy.rules = rules;
        self.reconfigure(self.settings.clone());
    }

    /// What clients were denied: client, action, topic, how often, why; in order.
    pub fn denials(&self) -> Vec<(String, &'static str, String, u64, String)> {
        let all = self.shards.iter().flat_map(Shard::denials).flat_map(|(_, denials)| denials.iter());
        let mut all: Vec<_> = all
            .map(|d| {
                (d.client_id.to_string(), d.access.as_str(), d.topic.to_string(), d.count, d.why.to_string())
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// Time passes, in steps in which timers run.
    pub fn pass(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(100) {
            self.now.mono = self.now.mono.after_millis(100);
            self.now.wall = Wall(self.now.wall.0 + 100);
            for shard in 0..self.shards.len() as u16 {
                self.give(shard, Input::Tick);
            }
        }
    }

    pub fn counters(&self) -> Vec<&Counters> {
        self.shards.iter().map(Shard::counters).collect()
    }

    fn give(&mut self, shard: u16, input: Input<'_>) {
        let at = usize::from(shard);
        self.shards[at].handle(self.now, input);
        let mut outbox = Outbox::default();
        while self.shards[at].poll(self.now, &mut outbox) == Step::More {}
        for id in outbox.dirty {
            self.flush(shard, id);
        }
        for effect in outbox.effects {
            self.execute(shard, effect);
        }
    }

    /// What a shard answers.
    pub fn ask(&mut self, shard: u16, ask: Ask) -> Answer {
        self.give(shard, Input::Ask { token: 1, ask });
        self.answer.take().expect("an answer")
    }

    /// Keys of the store.
    pub fn stored(&self) -> usize {
        self.keys.len()
    }

    /// The shard reads its sockets from now on, but not its mail.
    pub fn leave_mail(&mut self, shard: u16) {
        self.unread.insert(shard, Vec::new());
    }

    /// The shard reads its mail again.
    pub fn read_mail(&mut self, shard: u16) {
        for mail in self.unread.remove(&shard).unwrap_or_default() {
            self.mail(shard, mail);
        }
    }

    fn mail(&mut self, shard: u16, mail: Unread) {
        match (self.unread.get_mut(&shard), mail) {
            (Some(unread), mail) => unread.push(mail),
            (None, Unread::Peer(from, msg)) => self.give(shard, Input::Peer { from, msg }),
            (None, Unread::Committed(batch)) => self.give(shard, Input::Committed(batch)),
        }
    }

    /// Memory is short.
    pub fn relieve(&mut self) {
        for shard in 0..self.shards.len() as u16 {
            self.give(shard, Input::Relieve);
        }
    }

    fn flush(&mut self, shard: u16, id: ConnId) {
        if self.stalled.contains(&Client { shard, slot: id.idx }) {
            return;
        }
        let Some(out) = self.shards[usize::from(shard)].output(id) else { return };
        let mut bytes = Vec::new();
        out.for_chunks(usize::MAX, |chunk| bytes.extend_from_slice(chunk));
        self.shards[usize::from(shard)].wrote(self.now, id, bytes.len());
        self.inbox.entry(Client { shard, slot: id.idx }).or_default().extend(bytes);
    }

    fn execute(&mut self, shard: u16, effect: Effect) {
        match effect {
            Effect::Close { conn, .. } => {
                self.flush(shard, conn);
                self.versions.remove(&Client { shard, slot: conn.idx });
                self.give(shard, Input::Closed { conn });
            }
            Effect::Peer { to, msg } => self.mail(to.0, Unread::Peer(ShardIx(shard), msg)),
            Effect::Commit { op, writes, .. } => {
                let result = self.commit(writes);
                self.give(shard, Input::CommitDone { op, result });
            }
            Effect::Read { op, read } => {
                let result = self.read(&read);
                self.give(shard, Input::ReadDone { op, result });
            }
            Effect::Auth { op, .. } => self.asked.push(op),
            Effect::Pause { .. } | Effect::Resume { .. } | Effect::Floor { .. } | Effect::Log(_) => {}
            Effect::Answer { answer, .. } => self.answer = Some(answer),
        }
    }

    fn commit(&mut self, writes: Vec<Write>) -> CommitResult {
        let appends = writes.iter().any(|w| matches!(w, Write::Append(_)));
        self.appends += usize::from(appends);
        let mut entries = Vec::new();
        for write in writes {
            match write {
                Write::Append(append) => {
                    self.head += 1;
                    let entry = CommittedEntry { seq: Seq(self.head), append };
                    self.log.push(entry.clone());
                    entries.push(entry);
                }
                Write::Put { key, value, .. } => {
                    self.head += 1;
                    self.keys.insert(key, (value, self.head));
                }
                Write::Delete { key, .. } => {
                    self.head += 1;
                    self.keys.remove(&key);
                }
                Write::Check { .. } => {}
            }
        }
        let upto = Seq(self.head);
        let committed = Arc::new(Committed { partition: PARTITION, entries, upto });
        for shard in 0..self.shards.len() as u16 {
            self.mail(shard, Unread::Committed(Arc::clone(&committed)));
        }
        CommitResult::Done { last: upto }
    }

    fn wanted(&self, read: &LogRead) -> Vec<LogEntry> {
        let for_session = |e: &&CommittedEntry| {
            e.append.log
                && e.seq > read.after
                && !e.append.message.is_expired(read.now)
                && read.filters.iter().any(|f| {
                    !f.start.covers(PARTITION, e.seq) && topic::matches(&f.filter, e.append.message.topic())
                })
        };
        let entry = |e: &CommittedEntry| LogEntry {
            seq: e.seq,
            message: Arc::clone(&e.append.message),
            spilled: false,
        };
        self.log.iter().filter(for_session).map(entry).collect()
    }

    /// A page without what is damaged.
    fn page(&self, mut entries: Vec<LogEntry>) -> ReadResult {
        let is_lost = |e: &LogEntry| self.damaged.contains(e.message.payload());
        let lost = entries.iter().filter(|e| is_lost(e)).map(|e| e.seq).collect();
        entries.retain(|e| !is_lost(e));
        ReadResult::Page(LogPage { entries, lost, upto: Seq(self.head), first: Seq(0) })
    }

    fn read(&self, read: &Read) -> ReadResult {
        match read {
            Read::Log(read) => self.page(self.wanted(read)),
            Read::At { seqs, .. } => {
                // As in a real store, what is only retained is not in the log.
                let found = self.log.iter().filter(|e| e.append.log && seqs.contains(&e.seq));
                let entry = |e: &CommittedEntry| LogEntry {
                    seq: e.seq,
                    message: Arc::clone(&e.append.message),
                    spilled: false,
                };
                self.page(found.map(entry).collect())
            }
            Read::Bound { read, max_count, max_bytes } => {
                let mut kept = self.wanted(read);
                let bytes = |all: &[LogEntry]| all.iter().map(|e| e.message.size() as u64).sum::<u64>();
                let (mut floor, mut dropped, mut dropped_bytes) = (Seq(0), 0, 0);
                while kept.len() as u64 > *max_count || bytes(&kept) > *max_bytes {
                    let gone = kept.remove(0);
                    (floor, dropped) = (gone.seq, dropped + 1);
                    dropped_bytes += gone.message.size() as u64;
                }
                let kept_bytes = bytes(&kept);
                ReadResult::Bound {
                    floor,
                    dropped,
                    dropped_bytes,
                    kept: kept.len() as u64,
                    kept_bytes,
                    upto: Seq(self.head),
                }
            }
        }
    }

    /// Connects a client on the shard that its id belongs to; `expiry` is its Session Expiry Interval (in 3.1.1, 0
    /// is a clean session).
    pub fn connect(&mut self, version: Version, client_id: &str, expiry: u32) -> Client {
        let client = self.try_connect(version, client_id, expiry);
        assert!(self.is_open(client));
        let inbox = self.inbox.entry(client).or_default();
        let connack = codec::cut(inbox, u32::MAX).expect("well-formed").expect("whole").total;
        inbox.drain(..connack);
        client
    }

    /// The same, where the shard may refuse.
    pub fn try_connect(&mut self, version: Version, client_id: &str, expiry: u32) -> Client {
        let mut machine = self.handshake();
        let (mut rng, mut out) = (Rng::new(1), Vec::new());
        let v5 = version == Version::V5;
        let props = if v5 { [&[5, 0x11][..], &expiry.to_be_bytes()].concat() } else { Vec::new() };
        let mut flags = if expiry == 0 { 2 } else { 0 };
        let mut will = Vec::new();
        if let Some(WillOf { topic, qos, delay }) = &self.will {
            flags |= 4 | qos << 3;
            if v5 {
                will = [&[5, 0x18][..], &delay.to_be_bytes()].concat();
            }
            will.extend([text(topic), text("will")].concat());
        }
        let level = if v5 { 5 } else { 4 };
        let body: [&[u8]; 5] = [&text("MQTT"), &[level, flags, 0, 0], &props, &text(client_id), &will];
        let asked = machine.receive(&packet(0x10, &body), &mut rng, &mut out);
        assert!(matches!(asked, Progress::Ask(_)), "{asked:?}");
        let identity = Identity { expires: self.expires, ..Identity::new(self.tenant, self.user.clone()) };
        let identity = Identity { claims: self.claims.clone(), ..identity };
        let answer = machine.authenticated(AuthAnswer::Accept { identity, data: None }, &mut out);
        let Progress::Admit(admission) = answer else { panic!("{answer:?}") };
        self.admit(version, admission)
    }

    /// A handshake with the node's settings.
    pub fn handshake(&self) -> Handshake {
        let config = HandshakeConfig {
            settings: Arc::new(self.settings.clone()),
            max_connect_packet: 1000,
            connect_deadline_ms: 1000,
            auth_methods: self.auth_methods.clone().into(),
        };
        Handshake::new(Arc::new(config), self.now.mono)
    }

    /// Gives a client whose handshake is over to its shard.
    pub fn admit(&mut self, version: Version, admission: Box<Admission>) -> Client {
        let shards = self.shards.len() as u16;
        let shard = shard_of(
            admission.identity.tenant,
            &admission.client_id,
            shards,
            self.tenancy.registry.is_spread(admission.identity.tenant),
        )
        .0;
        let slot =
            (0..).find(|slot| !self.versions.contains_key(&Client { shard, slot: *slot })).expect("a slot");
        let client = Client { shard, slot };
        self.versions.insert(client, version);
        self.inbox.remove(&client);
        self.give(shard, Input::Admit { conn: client.id(), admission });
        client
    }

    /// Answers the oldest question about a client of its shard that authenticates again.
    pub fn answer(&mut self, client: Client, answer: AuthAnswer) {
        assert!(!self.asked.is_empty(), "nothing was asked");
        let op = self.asked.remove(0);
        self.give(client.shard, Input::AuthDone { op, answer });
    }

    /// What each shard holds.
    pub fn census(&self) -> Vec<Census> {
        self.shards.iter().map(Shard::census).collect()
    }

    pub fn is_open(&self, client: Client) -> bool {
        self.versions.contains_key(&client)
    }

    pub fn send(&mut self, client: Client, bytes: &[u8]) {
        self.give(client.shard, Input::Received { conn: client.id(), bytes });
    }

    /// The client's socket ends.
    pub fn cut(&mut self, client: Client) {
        self.versions.remove(&client);
        self.give(client.shard, Input::Closed { conn: client.id() });
    }

    pub fn subscribe(&mut self, client: Client, filter: &str, qos: u8) {
        let props: &[u8] = if self.versions.get(&client) == Some(&Version::V5) { &[0] } else { &[] };
        self.send(client, &packet(0x82, &[&[0, 1], props, &text(filter), &[qos]]));
        let got = self.take(client);
        let code = *got.first().and_then(|p| p.last()).expect("a SUBACK");
        assert_eq!((got[0][0], code), (0x90, qos), "{got:02x?}");
    }

    /// Sends a PUBLISH under packet id 7; what the client gets upon it.
    pub fn publish(&mut self, client: Client, topic: &str, payload: &[u8], qos: u8) -> Vec<Vec<u8>> {
        self.publish_with(client, 0x30 | qos << 1, topic, payload)
    }

    /// As [`Node::publish`] with the first byte as it is.
    pub fn publish_with(&mut self, client: Client, first: u8, topic: &str, payload: &[u8]) -> Vec<Vec<u8>> {
        let v5 = self.versions.get(&client) == Some(&Version::V5);
        let id: &[u8] = if first & 6 == 0 { &[] } else { &[0, 7] };
        let props: &[u8] = if v5 { &[0] } else { &[] };
        self.send(client, &packet(first, &[&text(topic), id, props, payload]));
        self.take(client)
    }

    /// The packets that came since the last look.
    pub fn take(&mut self, client: Client) -> Vec<Vec<u8>> {
        let bytes = self.inbox.remove(&client).unwrap_or_default();
        let mut rest = &bytes[..];
        let mut all = Vec::new();
        while let Some(frame) = codec::cut(rest, u32::MAX).expect("well-formed") {
            all.push(rest[..frame.total].to_vec());
            rest = &rest[frame.total..];
        }
        assert!(rest.is_empty());
        all
    }

    /// Payloads of the PUBLISH packets that came, each acknowledged if it has QoS 1.
    pub fn messages(&mut self, client: Client) -> Vec<String> {
        let version = self.versions.get(&client).copied().unwrap_or(Version::V5);
        let mut texts = Vec::new();
        loop {
            let got = self.take(client);
            if got.is_empty() {
                return texts;
            }
            for bytes in got {
                let frame = codec::cut(&bytes, u32::MAX).expect("well-formed").expect("whole");
                if let Packet::Publish(publish) = codec::decode(&frame, version).expect("well-formed") {
                    texts.push(String::from_utf8(publish.payload.to_vec()).expect("text"));
                    if publish.packet_id != 0 {
                        let id = publish.packet_id.to_be_bytes();
                        self.send(client, &packet(0x40, &[&id]));
                    }
                }
            }
        }
    }
}

impl Client {
    fn id(self) -> ConnId {
        ConnId { idx: self.slot, generation: 1 }
    }
}
