//! The ledger: what follows from the facts about publications and sessions. It claims only what a client
//! can know for sure; where an outcome was never seen it says "maybe".

pub use crate::subscription::{SubFacts, inner};

use crate::facts::{AuthVerdict, Delivery, End, Fact, Publication, Uid};
use crate::rights::Rights;
use crate::scenario::{ClientSpec, FilterSpec};
use mast_core::topic::naive::naive_matches;
use std::collections::BTreeMap;

/// Sessions with less to live may be over before their client looks, seconds.
const SOON: u32 = 1_000;
/// Time that the server may need to notice what a client did, µs.
pub const SLACK: u64 = 3_000_000;

/// What is known of something that may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is not there.
    No,
    /// It is there.
    Yes,
    /// Nobody can tell.
    Maybe,
}

/// How often a publication reached a session.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named for what they count")]
pub struct Received {
    pub plain: u32,
    pub retained: u32,
    pub qos2: u32,
    pub qos0: u32,
    pub forgotten: u32,
}

/// Whether a connection that its client gave up may hold the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haunted {
    /// It does not.
    No,
    /// Since the present CONNECT was sent.
    Now,
    /// Until the CONNECT under way takes over.
    Before,
}

/// The session of a client id, from one creation to the next.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// Grows with each creation.
    pub incarnation: u32,
    /// Whether the server has it.
    pub alive: Known,
    /// It was resumed from something that nobody knows: its subscriptions are unknown.
    pub blind: bool,
    /// Its client is connected (CONNACK seen).
    pub online: bool,
    /// The present connection.
    pub link: Option<usize>,
    /// Subscriptions by filter as sent.
    pub subs: BTreeMap<String, SubFacts>,
    /// SUBSCRIBE filters sent in this incarnation: how many retained copies may come.
    pub subscribes: Vec<String>,
    /// Shared filters of this incarnation, without repetition.
    pub ever_shared: Vec<String>,
    /// What came.
    pub received: BTreeMap<Uid, Received>,
    /// When it last came online or lost a connection, µs.
    pub changed_at: u64,
    /// It was without connection in this incarnation.
    pub was_away: bool,
    /// The end of the last connection: when, and whether the server must have noticed soon.
    pub left: Option<(u64, bool)>,
    /// What Session Present had to be in the last CONNACK.
    pub expected_present: Known,
    /// Subscription identifiers that subscriptions of this incarnation had before.
    pub changed_ids: Vec<u32>,
    /// Refused while the store was in trouble: its write may be applied all the same, and come back with a restart.
    pub refused: Vec<SubFacts>,
    /// Highest QoS that each filter of this incarnation was ever asked with.
    pub ever_qos: BTreeMap<String, u8>,
    /// When this incarnation began, µs.
    pub began_at: u64,
    /// Session Expiry Interval that holds, seconds.
    pub expiry: u32,
    /// Authentication refused the connection that is tried.
    auth_refused: bool,
    connect_clean: bool,
    connect_expiry: u32,
    /// A connection that its client gave up took the session over, and may hold it.
    haunted: Haunted,
    /// The client gave its own state up for a clean CONNECT that was not accepted.
    gave_up: bool,
    /// Unanswered SUBSCRIBE (true) and UNSUBSCRIBE, with their order of sending.
    pending: BTreeMap<u16, (Vec<String>, bool, u64)>,
    sent: u64,
}

impl SessionFacts {
    fn new() -> SessionFacts {
        SessionFacts {
            incarnation: 0,
            alive: Known::No,
            blind: false,
            online: false,
            link: None,
            subs: BTreeMap::new(),
            subscribes: Vec::new(),
            ever_shared: Vec::new(),
            received: BTreeMap::new(),
            changed_at: 0,
            was_away: false,
            left: None,
            expected_present: Known::Maybe,
            changed_ids: Vec::new(),
            refused: Vec::new(),
            ever_qos: BTreeMap::new(),
            began_at: 0,
            expiry: 0,
            auth_refused: false,
            connect_clean: false,
            connect_expiry: 0,
            haunted: Haunted::No,
            gave_up: false,
            pending: BTreeMap::new(),
            sent: 0,
        }
    }

    fn begin(&mut self, blind: bool, now: u64) {
        let incarnation = self.incarnation + 1;
        let (link, connect_clean, connect_expiry) = (self.link, self.connect_clean, self.connect_expiry);
        let haunted = self.haunted;
        *self = SessionFacts {
            incarnation,
            link,
            connect_clean,
            connect_expiry,
            haunted,
            blind,
            changed_at: now,
            began_at: now,
            ..SessionFacts::new()
        };
        self.alive = Known::Yes;
    }

    /// Copies of one live message that may come: one for all ordinary subscriptions, one for each group.
    #[must_use]
    pub fn copies(&self, topic: &str) -> u32 {
        let plain = self.subscribes.iter().any(|f| naive_matches(f, topic));
        let groups = self.ever_shared.iter().filter(|f| naive_matches(inner(f), topic)).count() as u32;
        (u32::from(plain) + groups).max(1)
    }

    /// A shared subscription of this incarnation matched.
    #[must_use]
    pub fn has_shared(&self, topic: &str) -> bool {
        self.ever_shared.iter().any(|f| naive_matches(inner(f), topic))
    }

    /// SUBSCRIBEs of this incarnation that may have brought a retained message of `topic`.
    #[must_use]
    pub fn subscribes_matching(&self, topic: &str) -> usize {
        self.subscribes.iter().filter(|f| naive_matches(f, topic)).count()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    /// Now, µs.
    pub now: u64,
    /// By uid.
    pub publications: Vec<Publication>,
    /// By client.
    pub sessions: Vec<SessionFacts>,
    /// The clients.
    pub clients: Vec<ClientSpec>,
    /// Crashes so far.
    pub crashes: u32,
    /// Times of crashes, µs.
    pub crashed_at: Vec<u64>,
    /// Faults are over.
    pub calm: bool,
    /// What is lost in a crash need not come back: the durability class does not cover it.
    pub crash_excuses: bool,
    /// Sessions that were over when their client came back for them.
    pub expired: u64,
    /// PUBLISH packets that came with a topic alias.
    pub aliased: u64,
    /// Absent sessions keep only a few messages.
    pub offline_limited: bool,
    /// By client: shared filters that it has ever sent.
    worker_filters: Vec<Vec<String>>,
    /// The store has refused or not answered something.
    pub store_harmed: bool,
    /// Who may do what.
    pub rights: Rights,
    /// By how much the wall clock was set forward, and back, in all, µs.
    pub clock_forward: u64,
    /// See `clock_forward`.
    pub clock_back: u64,
    /// The node restarted after its clock was set: only wall time knows how long sessions were away.
    clock_counts: bool,
}

impl Ledger {
    /// Before anything.
    #[must_use]
    pub fn new(clients: &[ClientSpec]) -> Ledger {
        Ledger {
            now: 0,
            publications: Vec::new(),
            sessions: clients.iter().map(|_| SessionFacts::new()).collect(),
            clients: clients.to_vec(),
            crashes: 0,
            crashed_at: Vec::new(),
            calm: false,
            crash_excuses: false,
            expired: 0,
            aliased: 0,
            offline_limited: false,
            worker_filters: clients.iter().map(|_| Vec::new()).collect(),
            store_harmed: false,
            rights: Rights::default(),
            clock_forward: 0,
            clock_back: 0,
            clock_counts: false,
        }
    }

    /// Shared filters that a client has ever asked for.
    #[must_use]
    pub fn worker_filters(&self, client: usize) -> Vec<String> {
        self.worker_filters[client].clone()
    }

    /// True if a member that is gone for good, or can't be asked, may have begun a QoS 2 delivery of it.
    #[must_use]
    pub fn may_hold_begun(&self, filter: &str, tenant: u8, publication: &Publication) -> bool {
        publication.qos == 2
            && (0..self.clients.len()).any(|client| {
                self.clients[client].tenant == tenant
                    && self.worker_filters[client].iter().any(|f| f == filter)
                    && self.sessions[client].began_at > publication.sent_at.unwrap_or(0)
            })
    }

    /// What the server must say about Session Present to the CONNECT that is under way.
    #[must_use]
    pub fn present_expected(&self, client: usize) -> Known {
        let session = &self.sessions[client];
        if session.connect_clean {
            return Known::No;
        }
        self.alive_now(client)
    }

    /// Whether the session is there now, as far as time alone tells.
    #[must_use]
    pub fn alive_now(&self, client: usize) -> Known {
        let session = &self.sessions[client];
        let expiry = u64::from(session.expiry) * 1_000_000;
        if session.haunted != Haunted::No {
            return Known::Maybe;
        }
        match (session.alive, session.left) {
            (Known::Yes, Some((left, noticed))) => {
                let (forward, back) =
                    if self.clock_counts { (self.clock_forward, self.clock_back) } else { (0, 0) };
                if self.now + SLACK + forward < left + expiry {
                    Known::Yes
                } else if noticed && !self.store_harmed && self.now > left + expiry + SLACK + back {
                    Known::No
                } else {
                    Known::Maybe
                }
            }
            (alive, _) => alive,
        }
    }

    /// Takes a fact in.
    pub fn take(&mut self, fact: &Fact) {
        let now = self.now;
        match fact {
            Fact::ConnectSent { client, link, clean, .. } => {
                let alive = self.alive_now(*client);
                let spec = &self.clients[*client];
                let expiry = match (spec.v5, *clean) {
                    (true, _) => spec.expiry_secs,
                    (false, true) => 0,
                    (false, false) => 7 * 24 * 3600,
                };
                let session = &mut self.sessions[*client];
                session.alive = alive;
                if session.haunted == Haunted::Now {
                    session.haunted = Haunted::Before;
                }
                session.link = Some(*link);
                session.auth_refused = false;
                session.connect_clean = *clean;
                session.gave_up |= *clean;
                session.connect_expiry = expiry;
            }
            Fact::Connected { client, present, .. } => self.connected(*client, *present),
            Fact::Refused { client, .. } => self.unsettled(*client),
            Fact::Ended { client, link, end, was_online } => self.ended(*client, *link, *end, *was_online),
            Fact::SubscribeSent { client, packet_id, filters, id } => {
                self.subscribe_sent(*client, *packet_id, filters, *id);
            }
            Fact::Subscribed { client, packet_id, codes } => self.subscribed(*client, *packet_id, codes),
            Fact::UnsubscribeSent { client, packet_id, filters } => {
                let session = &mut self.sessions[*client];
                session.sent += 1;
                session.pending.insert(*packet_id, (filters.clone(), false, session.sent));
                for filter in filters {
                    if let Some(sub) = session.subs.get_mut(filter) {
                        sub.leaving = true;
                        sub.unsure = true;
                        sub.since = None;
                    }
                }
            }
            Fact::Unsubscribed { client, packet_id, codes } => {
                let session = &mut self.sessions[*client];
                let Some((filters, _, order)) = session.pending.remove(packet_id) else { return };
                for (i, filter) in filters.iter().enumerate() {
                    // 3.1.1 has no codes: it worked.
                    let later = |(f, subscribe, at): &(Vec<String>, bool, u64)| {
                        *subscribe && *at > order && f.contains(filter)
                    };
                    let again = session.pending.values().any(later);
                    if again && let Some(sub) = session.subs.get_mut(filter) {
                        // It was away in between: what is owed begins with the new one.
                        sub.since = None;
                    }
                    if codes.get(i).is_none_or(|c| *c < 0x80)
                        && !again
                        && let Some(sub) = session.subs.remove(filter)
                    {
                        session.changed_ids.push(sub.id);
                    }
                }
            }
            Fact::PublishSent { uid, client, dup, .. } => {
                self.publications[*uid as usize].doubtful |= *dup && self.sessions[*client].blind;
                let publication = &mut self.publications[*uid as usize];
                if publication.sent_at.is_none() {
                    publication.sent_at = Some(now);
                    publication.link = self.sessions[*client].link;
                }
                publication.sends += 1;
            }
            Fact::PublishAcked { uid, reason, .. } => {
                let publication = &mut self.publications[*uid as usize];
                if *reason < 0x80 {
                    publication.acked_at.get_or_insert(now);
                } else {
                    publication.refused = true;
                }
            }
            Fact::AuthDecided { client, link, verdict: AuthVerdict::Refuse(_) }
            | Fact::AuthSpoiled { client, link, .. } => {
                let session = &mut self.sessions[*client];
                session.auth_refused |= session.link == Some(*link) && !session.online;
            }
            Fact::ClockSet { by_ms } => {
                let by = by_ms.unsigned_abs() * 1000;
                if *by_ms > 0 { self.clock_forward += by } else { self.clock_back += by }
            }
            Fact::Delivered(delivery) => self.delivered(delivery),
            Fact::Crashed { .. } => self.crashed(),
            Fact::LateConnect { client, .. } => {
                let session = &mut self.sessions[*client];
                session.alive = Known::Maybe;
                session.blind = true;
                session.haunted = Haunted::Now;
            }
            Fact::Calm => self.calm = true,
            Fact::Restarted => self.clock_counts = self.clock_forward + self.clock_back > 0,
            Fact::Goodbye { .. }
            | Fact::Overtaken { .. }
            | Fact::PublishDone { .. }
            | Fact::PublishForgotten { .. }
            | Fact::AuthDecided { .. }
            | Fact::AuthContinued { .. }
            | Fact::Reauthenticated { .. }
            | Fact::AllGone => {}
        }
    }

    fn connected(&mut self, client: usize, present: bool) {
        let now = self.now;
        let expected = self.present_expected(client);
        let session = &mut self.sessions[client];
        if !present && !session.connect_clean && session.incarnation > 0 && session.expiry > 0 {
            self.expired += 1;
        }
        if !present {
            session.begin(false, now);
        } else if expected != Known::Yes {
            session.begin(true, now);
        }
        session.alive = Known::Yes;
        if session.haunted == Haunted::Before {
            session.haunted = Haunted::No;
        }
        session.blind |= session.haunted == Haunted::Now;
        session.expected_present = expected;
        session.expiry = session.connect_expiry;
        session.online = true;
        session.left = None;
        session.changed_at = now;
        session.pending.clear();
        for sub in session.subs.values_mut() {
            // What was never answered stays unknown.
            if sub.since.is_none() || sub.leaving {
                sub.unsure = true;
                sub.ever = true;
            }
        }
    }

    /// A CONNECT was sent and not accepted, or nobody knows.
    fn unsettled(&mut self, client: usize) {
        let now = self.now;
        let session = &mut self.sessions[client];
        if session.auth_refused {
            // Authentication comes before anything that touches a session.
            return;
        }
        let expiry = session.expiry;
        let clean = session.connect_clean;
        session.alive = match session.alive {
            // A resumed session may have been resumed and left once more: its time begins anew.
            Known::Yes if !clean && expiry > 0 => Known::Yes,
            Known::Yes | Known::Maybe | Known::No => Known::Maybe,
        };
        if session.alive == Known::Yes {
            session.left = session.left.map(|(left, _)| (left, false)).or(Some((now, false)));
        }
    }

    fn ended(&mut self, client: usize, link: usize, end: End, was_online: bool) {
        let now = self.now;
        if self.sessions[client].link != Some(link) {
            return;
        }
        if !was_online {
            self.unsettled(client);
            return;
        }
        let session = &mut self.sessions[client];
        let expiry = session.expiry;
        session.online = false;
        session.was_away = true;
        session.changed_at = now;
        let noticed = match end {
            End::Clean | End::WithWill | End::Cut | End::ByServer => true,
            End::Vanished | End::Abandoned | End::Crash => false,
        };
        session.left = Some((now, noticed));
        if end == End::ByServer && expiry < SOON {
            // A client that did not read for a while learns late that the server left it.
            session.alive = Known::Maybe;
        }
        if expiry == 0 {
            // Gone as soon as the server notices; a takeover ends it at the latest.
            session.alive = Known::Maybe;
        }
    }

    fn crashed(&mut self) {
        self.crashes += 1;
        self.crashed_at.push(self.now);
        for client in 0..self.sessions.len() {
            let session = &mut self.sessions[client];
            session.was_away = true;
            for sub in std::mem::take(&mut session.refused) {
                session.subs.entry(sub.spec.filter.clone()).or_insert(sub);
            }
            if self.crash_excuses {
                session.alive = Known::Maybe;
                session.blind = true;
            }
        }
    }

    fn subscribe_sent(&mut self, client: usize, packet_id: u16, filters: &[FilterSpec], id: u32) {
        let now = self.now;
        let session = &mut self.sessions[client];
        session.sent += 1;
        let names = filters.iter().map(|f| f.filter.clone()).collect();
        session.pending.insert(packet_id, (names, true, session.sent));
        for spec in filters {
            if spec.filter.starts_with("$share/") {
                if !session.ever_shared.contains(&spec.filter) {
                    session.ever_shared.push(spec.filter.clone());
                }
                if !self.worker_filters[client].contains(&spec.filter) {
                    self.worker_filters[client].push(spec.filter.clone());
                }
            } else {
                session.subscribes.push(spec.filter.clone());
            }
            let ever = session.ever_qos.entry(spec.filter.clone()).or_default();
            *ever = (*ever).max(spec.qos);
            match session.subs.get_mut(&spec.filter) {
                Some(sub) => {
                    if sub.spec.no_local != spec.no_local || spec.qos == 0 || sub.granted == 0 {
                        // What is owed under the old options and under the new ones may differ.
                        sub.since = None;
                    }
                    sub.spec = spec.clone();
                    session.changed_ids.push(sub.id);
                    sub.id = id;
                    sub.unsure = true;
                }
                None => {
                    let sub = SubFacts {
                        spec: spec.clone(),
                        id,
                        asked: now,
                        since: None,
                        granted: 0,
                        ever: false,
                        leaving: false,
                        unsure: true,
                    };
                    session.subs.insert(spec.filter.clone(), sub);
                }
            }
        }
    }

    fn subscribed(&mut self, client: usize, packet_id: u16, codes: &[u8]) {
        let (now, harmed) = (self.now, self.store_harmed);
        let session = &mut self.sessions[client];
        let Some((filters, _, _)) = session.pending.remove(&packet_id) else { return };
        for (filter, code) in filters.iter().zip(codes) {
            if *code >= 0x80 {
                // Refused; if it was there before, nobody can say what is there now.
                let again =
                    session.pending.values().any(|(f, subscribe, _)| *subscribe && f.contains(filter));
                match session.subs.get_mut(filter) {
                    Some(sub) if sub.ever || again => {
                        sub.since = None;
                        sub.unsure = true;
                    }
                    Some(_) | None => {
                        let refused = session.subs.remove(filter).filter(|_| harmed);
                        session.refused.extend(refused.map(|sub| SubFacts { unsure: true, ..sub }));
                    }
                }
                continue;
            }
            let again = session.pending.values().any(|(f, _, _)| f.contains(filter));
            if let Some(sub) = session.subs.get_mut(filter) {
                sub.granted = *code;
                sub.ever = true;
                if !again {
                    sub.unsure = false;
                    sub.leaving = false;
                    sub.since.get_or_insert(now);
                }
            }
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        let Some(uid) = delivery.uid else { return };
        if delivery.repeated {
            return;
        }
        // A resend of QoS 2 that says so: that its receiver has given its state up is not the server's doing.
        let gave_up = self.sessions[delivery.client].gave_up;
        let received = self.sessions[delivery.client].received.entry(uid).or_default();
        if gave_up && delivery.dup && delivery.qos == 2 && received.qos2 > 0 {
            received.forgotten += 1;
            return;
        }
        if delivery.retain {
            received.retained += 1;
        } else {
            received.plain += 1;
        }
        match delivery.qos {
            0 => received.qos0 += 1,
            2 => received.qos2 += 1,
            _ => {}
        }
    }
}
