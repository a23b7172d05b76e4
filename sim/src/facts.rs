//! Facts: what clients did and saw, and what befell the node. Oracles judge by them alone; the tail of a
//! failed run is a list of them.

use crate::scenario::FilterSpec;

/// Number of a publication; unique in a run, and part of its payload.
pub type Uid = u32;

/// How a connection ended, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// DISCONNECT 0x00.
    Clean,
    /// DISCONNECT 0x04.
    WithWill,
    /// The client closed without a word, or sent garbage.
    Cut,
    /// The client vanished; the server knows nothing.
    Vanished,
    /// The server closed.
    ByServer,
    /// The client left it for a newer connection of its own.
    Abandoned,
    /// The node died.
    Crash,
}

/// What authentication said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthVerdict {
    /// Known.
    Accept,
    /// Another step.
    Continue,
    /// Refused with this reason.
    Refuse(u8),
    /// Nothing, ever.
    Silence,
}

/// What a PUBLISH was when it reached a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Receiver.
    pub client: usize,
    /// Its connection.
    pub link: usize,
    /// Number in the payload; `None` for an empty payload or one of the broker's own.
    pub uid: Option<Uid>,
    /// Topic, alias resolved.
    pub topic: String,
    /// QoS of the packet.
    pub qos: u8,
    /// DUP.
    pub dup: bool,
    /// RETAIN.
    pub retain: bool,
    /// Packet id; 0 for QoS 0.
    pub packet_id: u16,
    /// Subscription identifiers.
    pub ids: Vec<u32>,
    /// Message Expiry Interval, seconds.
    pub expiry: Option<u32>,
    /// A QoS 2 packet whose id the client has as received: the application does not see it again.
    pub repeated: bool,
}

/// One fact.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields are the packets' own")]
pub enum Fact {
    ConnectSent {
        client: usize,
        link: usize,
        clean: bool,
        will: Option<Uid>,
    },
    Connected {
        client: usize,
        link: usize,
        present: bool,
    },
    Refused {
        client: usize,
        link: usize,
        reason: u8,
    },
    /// The server's DISCONNECT.
    Goodbye {
        client: usize,
        reason: u8,
    },
    Ended {
        client: usize,
        link: usize,
        end: End,
        was_online: bool,
    },
    /// The client's next connection took over before the server had read all of this one.
    Overtaken {
        client: usize,
        link: usize,
    },
    /// A connection that the client gave up was admitted after a newer one: the session has gone through
    /// hands that nobody watches.
    LateConnect {
        client: usize,
        link: usize,
    },
    SubscribeSent {
        client: usize,
        packet_id: u16,
        filters: Vec<FilterSpec>,
        id: u32,
    },
    Subscribed {
        client: usize,
        packet_id: u16,
        codes: Vec<u8>,
    },
    UnsubscribeSent {
        client: usize,
        packet_id: u16,
        filters: Vec<String>,
    },
    Unsubscribed {
        client: usize,
        packet_id: u16,
        codes: Vec<u8>,
    },
    PublishSent {
        client: usize,
        uid: Uid,
        packet_id: u16,
        dup: bool,
    },
    /// PUBACK, or PUBREC.
    PublishAcked {
        client: usize,
        uid: Uid,
        packet_id: u16,
        reason: u8,
    },
    /// PUBCOMP.
    PublishDone {
        client: usize,
        uid: Uid,
    },
    /// The client forgot it with its session.
    PublishForgotten {
        client: usize,
        uid: Uid,
    },
    Delivered(Delivery),
    /// Authentication has decided about a connection.
    AuthDecided {
        client: usize,
        link: usize,
        verdict: AuthVerdict,
    },
    /// The client breaks the rules of the exchange; the server must refuse with this reason.
    AuthSpoiled {
        client: usize,
        link: usize,
        due: u8,
    },
    /// AUTH 0x18 came.
    AuthContinued {
        client: usize,
        link: usize,
    },
    /// AUTH 0x00 came: authenticated again.
    Reauthenticated {
        client: usize,
        link: usize,
    },
    /// The node's wall clock was set.
    ClockSet {
        by_ms: i64,
    },
    Crashed {
        power: bool,
    },
    Restarted,
    /// Faults are over.
    Calm,
    /// Every client has left for good.
    AllGone,
}

/// A publication, will or not, as its publisher knows it.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the packets' own")]
pub struct Publication {
    pub uid: Uid,
    pub client: usize,
    pub tenant: u8,
    pub topic: String,
    pub qos: u8,
    pub retain: bool,
    /// Number in (publisher, topic, QoS).
    pub seq: u32,
    pub expiry_secs: u32,
    /// Payload bytes.
    pub size: usize,
    /// The payload is empty.
    pub clear: bool,
    pub will: bool,
    /// Will Delay Interval, seconds.
    pub delay_secs: u32,
    /// First sent, µs.
    pub sent_at: Option<u64>,
    /// On which connection.
    pub link: Option<usize>,
    /// Acknowledged with success, µs.
    pub acked_at: Option<u64>,
    pub refused: bool,
    /// PUBLISH packets sent.
    pub sends: u32,
    /// Sent again on a session that may not be the one that it was sent on first.
    pub doubtful: bool,
}

/// The payload of a publication.
#[must_use]
pub fn payload(p: &Publication, pad: usize) -> Vec<u8> {
    let text = format!("M|{}|{}|{}|{}|{}|{}|", p.tenant, p.client, p.topic, p.qos, p.seq, p.uid);
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len() + pad, b'.');
    bytes
}

/// What a payload says: tenant, topic, uid. `None` if it isn't one of ours.
#[must_use]
pub fn parse_payload(raw: &[u8]) -> Option<(u8, String, Uid)> {
    let text = std::str::from_utf8(raw).ok()?;
    let parts: Vec<&str> = text.split('|').collect();
    let [mark, tenant, _, topic, _, _, uid, _] = parts.as_slice() else { return None };
    if *mark != "M" {
        return None;
    }
    Some((tenant.parse().ok()?, (*topic).to_owned(), uid.parse().ok()?))
}
