//! The rules of one session, with its names put in: what every publish, filter and delivery is checked with.

use super::cover::{covers, overlap};
use super::ordered::{Action, QosSet};
use crate::message::QoS;
use crate::topic::matches;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a client wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Send a message to a topic (also as its will).
    Publish,
    /// Get a message of a topic.
    Receive,
    /// Subscribe to a filter; of a shared subscription, the filter behind the group's name.
    Subscribe,
}

impl Access {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Access::Publish => "publish",
            Access::Receive => "receive",
            Access::Subscribe => "subscribe",
        }
    }
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is to be done.
    pub access: Access,
    /// The topic, or the filter of [`Access::Subscribe`].
    pub topic: &'a str,
    /// QoS of the publish, or that SUBSCRIBE asks for. Of a delivery it is not looked at.
    pub qos: QoS,
    /// RETAIN of the publish.
    pub retain: bool,
}

impl<'a> Request<'a> {
    /// A publish or a will.
    #[must_use]
    pub const fn publish(topic: &'a str, qos: QoS, retain: bool) -> Request<'a> {
        Request { access: Access::Publish, topic, qos, retain }
    }

    /// A delivery.
    #[must_use]
    pub const fn receive(topic: &'a str) -> Request<'a> {
        Request { access: Access::Receive, topic, qos: QoS::AtMostOnce, retain: false }
    }

    /// A filter of a SUBSCRIBE.
    #[must_use]
    pub const fn subscribe(filter: &'a str, qos: QoS) -> Request<'a> {
        Request { access: Access::Subscribe, topic: filter, qos, retain: false }
    }
}

/// Which list a verdict comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// There are no rules.
    Open,
    /// Topics that are the broker's own.
    Reserved,
    /// The node's ordered rules.
    Node,
    /// The tenant's ordered rules.
    Tenant,
    /// The list in mosquitto's form.
    List,
    /// No rule of the node speaks against a superuser.
    Superuser,
    /// There are rules, and none matches.
    NoRule,
}

/// An answer and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The answer.
    pub allowed: bool,
    /// The list that decided.
    pub layer: Layer,
    /// Index of the rule there that decided, if one did.
    pub rule: Option<u32>,
}

impl Verdict {
    /// What is decided before any rule is asked.
    #[must_use]
    pub fn before_rules(request: &Request<'_>) -> Option<Verdict> {
        let reserved = request.access == Access::Publish && request.topic.starts_with("$SYS");
        reserved.then_some(Verdict::RESERVED)
    }

    /// Where there are no rules.
    pub const OPEN: Verdict = Verdict { allowed: true, layer: Layer::Open, rule: None };
    /// A topic that no client may publish to, whatever rules say.
    pub const RESERVED: Verdict = Verdict { allowed: false, layer: Layer::Reserved, rule: None };
}

/// The rules of one client.
#[derive(Debug, Clone)]
pub struct Principal {
    rules: Box<[ResolvedRule]>,
    reads_all: bool,
    /// Some rule asks for the QoS or RETAIN of a publish.
    by_quality: bool,
    /// What decides where nothing matches.
    otherwise: Verdict,
}

/// A rule whose conditions hold for the client, with its names put in.
#[derive(Debug, Clone)]
pub(super) struct ResolvedRule {
    /// `None` = every topic.
    pub filter: Option<Box<str>>,
    pub allow: bool,
    pub action: Action,
    pub qos: QosSet,
    pub retain: Option<bool>,
    pub layer: Layer,
    pub index: u32,
}

impl ResolvedRule {
    fn matches(&self, request: &Request<'_>) -> bool {
        if !self.action.includes(request.access) || !self.fits_quality(request) {
            return false;
        }
        let Some(filter) = &self.filter else { return true };
        match (request.access, self.allow) {
            (Access::Publish | Access::Receive, _) => matches(filter, request.topic),
            (Access::Subscribe, false) => covers(filter, request.topic),
            (Access::Subscribe, true) => overlap(filter, request.topic),
        }
    }

    fn fits_quality(&self, request: &Request<'_>) -> bool {
        match request.access {
            Access::Publish => {
                self.qos.has(request.qos) && self.retain.is_none_or(|retain| retain == request.retain)
            }
            Access::Subscribe => self.qos.has(request.qos) && self.retain.is_none(),
            // Its QoS was asked when its subscription was made.
            Access::Receive => (self.allow || self.qos == QosSet::ANY) && self.retain.is_none(),
        }
    }
}

impl Principal {
    pub(super) fn new(rules: Vec<ResolvedRule>, otherwise: Verdict) -> Principal {
        let reads_all = reads_all(&rules, otherwise);
        let by_quality = rules.iter().any(|r| r.qos != QosSet::ANY || r.retain.is_some());
        Principal { rules: rules.into_boxed_slice(), reads_all, by_quality, otherwise }
    }

    /// Whether the client may do this.
    #[must_use]
    pub fn check(&self, request: &Request<'_>) -> Verdict {
        let decides = self.rules.iter().find(|rule| rule.matches(request));
        decides.map_or(self.otherwise, |rule| Verdict {
            allowed: rule.allow,
            layer: rule.layer,
            rule: Some(rule.index),
        })
    }

    /// Whether the client may receive every topic, so that deliveries need no check.
    #[must_use]
    pub fn reads_everything(&self) -> bool {
        self.reads_all
    }

    /// Whether it depends on QoS or RETAIN what may be published to a topic.
    #[must_use]
    pub fn asks_quality(&self) -> bool {
        self.by_quality
    }

    /// Whether there is nothing to check.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rules.is_empty() && self.otherwise.allowed
    }
}

/// Only plain cases are recognised: nothing denies receiving, and what is not granted by `#` (`$`-topics) is
/// granted by `$SYS/#`; other `$`-topics are never published. A false answer costs a check, nothing else.
fn reads_all(rules: &[ResolvedRule], otherwise: Verdict) -> bool {
    let reads = |r: &ResolvedRule| r.action.includes(Access::Receive);
    let granted = |filter: &str| {
        rules.iter().any(|r| r.allow && reads(r) && r.filter.as_ref().is_none_or(|f| &**f == filter))
    };
    rules.iter().all(|r| r.allow || !reads(r)) && (otherwise.allowed || granted("#") && granted("$SYS/#"))
}
