//! A model client: speaks MQTT 3.1.1 or 5 through the codec, keeps the state machines that the
//! specification asks of a client, and notes facts. Its session state outlives its connections.

mod exchange;
pub mod receive;
pub mod send;
pub mod strange;

pub use self::exchange::{AuthStart, Exchange, METHOD, Spoil};
use crate::facts::{Fact, Publication, Uid};
use crate::ledger::Ledger;
use crate::oracles::Judges;
use crate::oracles::foreign::ForeignReader;
use crate::oracles::wire::LinkWire;
use crate::scenario::{ClientSpec, FilterSpec};
use mast_core::codec::Version;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How far a publish of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutStage {
    /// PUBLISH sent.
    Sent,
    /// PUBREC received, PUBREL sent.
    Released,
}

/// A publish of ours that is not finished.
#[derive(Clone, Debug)]
pub struct OutPublish {
    /// Its packet id.
    pub packet_id: u16,
    /// Which publication.
    pub uid: Uid,
    /// How far it is.
    pub stage: OutStage,
    /// Padding of its payload.
    pub pad: usize,
}

/// A publish that waits for the server's Receive Maximum.
#[derive(Clone, Debug)]
pub struct Queued {
    /// Which publication.
    pub uid: Uid,
    /// Padding of its payload.
    pub pad: usize,
    /// Use an alias.
    pub alias: bool,
}

/// An acknowledgement that the client holds back.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "named as the packets")]
pub enum HeldAck {
    PubAck(u16),
    PubRec(u16),
    PubComp(u16),
}

/// A connection as its client has it.
#[derive(Debug)]
pub struct Wire {
    /// Number of the link.
    pub link: usize,
    /// CONNACK with success came.
    pub online: bool,
    /// Bytes of an incomplete packet.
    pub buf: Vec<u8>,
    /// Judges both directions.
    pub judge: LinkWire,
    /// Reads beside us, if this run has it.
    pub foreign: Option<ForeignReader>,
    /// Aliases that the server set.
    pub aliases_in: BTreeMap<u16, String>,
    /// Aliases that we set.
    pub aliases_out: BTreeMap<String, u16>,
    /// The server's Topic Alias Maximum.
    pub alias_maximum: u16,
    /// The server's Receive Maximum.
    pub receive_maximum: u16,
    /// Enhanced authentication, if the connection began with it.
    pub exchange: Option<Exchange>,
}

/// What a call needs of its surroundings.
pub struct Ctx<'a> {
    /// Facts so far, with their times in µs.
    pub facts: &'a mut Vec<(u64, Fact)>,
    /// Who judges them.
    pub judges: &'a mut Judges,
    /// Publications are numbered here.
    pub ledger: &'a mut Ledger,
    /// Bytes for the server.
    pub out: Vec<u8>,
    /// The rule that the server broke, if it did.
    pub broken: Option<String>,
    /// The server said goodbye: close.
    pub close: bool,
}

impl Ctx<'_> {
    /// Notes a fact.
    pub fn note(&mut self, fact: Fact) {
        self.ledger.take(&fact);
        self.judges.take(&fact, self.ledger);
        self.facts.push((self.ledger.now, fact));
    }
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub index: usize,
    /// What it is like.
    pub spec: ClientSpec,
    /// Its connection.
    pub wire: Option<Wire>,
    /// Unfinished publishes, in order of sending.
    pub out: Vec<OutPublish>,
    /// Publishes that wait.
    pub queue: VecDeque<Queued>,
    /// Received QoS 2 ids that are not released.
    pub inbound: BTreeSet<u16>,
    /// Acknowledgements held back.
    pub held: Vec<HeldAck>,
    /// Until when it does not acknowledge, µs.
    pub mute_until: u64,
    /// Until when it does not read, µs.
    pub deaf_until: u64,
    /// Filters of unanswered SUBSCRIBE and UNSUBSCRIBE, by packet id.
    pub pending: BTreeMap<u16, usize>,
    /// Order of publishes.
    pub numbers: BTreeMap<(String, u8), u32>,
    /// Has left for good.
    pub gone: bool,
    /// Of a stranger: what it has told of itself.
    pub strange: strange::Strange,
    /// A foreign decoder reads all that it gets.
    pub foreign: bool,
    next_id: u16,
}

impl Client {
    /// A client that has never connected.
    #[must_use]
    pub fn new(index: usize, spec: ClientSpec, foreign: bool) -> Client {
        Client {
            index,
            spec,
            wire: None,
            out: Vec::new(),
            queue: VecDeque::new(),
            inbound: BTreeSet::new(),
            held: Vec::new(),
            mute_until: 0,
            deaf_until: 0,
            pending: BTreeMap::new(),
            numbers: BTreeMap::new(),
            gone: false,
            strange: strange::Strange::default(),
            foreign,
            next_id: 1,
        }
    }

    /// Its protocol version.
    #[must_use]
    pub fn version(&self) -> Version {
        if self.spec.v5 { Version::V5 } else { Version::V311 }
    }

    /// CONNACK came and the connection stands.
    #[must_use]
    pub fn online(&self) -> bool {
        self.wire.as_ref().is_some_and(|w| w.online)
    }

    /// Nothing of its own is unfinished.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.out.is_empty() && self.queue.is_empty() && self.pending.is_empty() && self.held.is_empty()
    }

    /// The connection is gone: what belongs to it goes too.
    pub fn lost(&mut self) {
        self.wire = None;
        self.held.clear();
        self.pending.clear();
    }

    fn packet_id(&mut self) -> u16 {
        loop {
            let id = self.next_id;
            self.next_id = if id == u16::MAX { 1 } else { id + 1 };
            if !self.out.iter().any(|o| o.packet_id == id) && !self.pending.contains_key(&id) {
                return id;
            }
        }
    }

    /// Makes a publication.
    pub fn publication(
        &mut self,
        ledger: &mut Ledger,
        topic: &str,
        qos: u8,
        retain: bool,
        will: bool,
    ) -> Uid {
        let seq = self.numbers.entry((topic.to_owned(), qos)).or_default();
        if !will {
            *seq += 1;
        }
        let uid = ledger.publications.len() as Uid;
        ledger.publications.push(Publication {
            uid,
            client: self.index,
            tenant: self.spec.tenant,
            topic: topic.to_owned(),
            qos,
            retain,
            seq: *seq,
            expiry_secs: 0,
            size: 0,
            clear: false,
            will,
            delay_secs: 0,
            sent_at: None,
            link: None,
            acked_at: None,
            refused: false,
            sends: 0,
            doubtful: false,
        });
        uid
    }
}

/// Names of filters.
#[must_use]
pub fn names(filters: &[FilterSpec]) -> Vec<String> {
    filters.iter().map(|f| f.filter.clone()).collect()
}
