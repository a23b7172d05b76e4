//! Ordered rules: the first one that matches decides.

use super::Access;
use super::cover::covers;
use super::network::Network;
use super::policy::Who;
use super::principal::{Layer, ResolvedRule};
use super::template::Template;
use crate::message::QoS;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It may be done.
    Allow,
    /// It may not be done.
    Deny,
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Publishing, also as a will.
    Publish,
    /// Subscribing, and receiving what comes of it.
    Subscribe,
    /// Receiving alone.
    Receive,
    /// All of them.
    All,
}

impl Action {
    /// Whether an access is of this kind.
    #[must_use]
    pub const fn includes(self, access: Access) -> bool {
        match self {
            Action::Publish => matches!(access, Access::Publish),
            Action::Subscribe => matches!(access, Access::Subscribe | Access::Receive),
            Action::Receive => matches!(access, Access::Receive),
            Action::All => true,
        }
    }

    /// Whether everything that `other` is about is of this kind.
    fn contains(self, other: Action) -> bool {
        let all = [Access::Publish, Access::Receive, Access::Subscribe];
        all.into_iter().all(|access| self.includes(access) || !other.includes(access))
    }

    /// Its word in rules.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Publish => "publish",
            Action::Subscribe => "subscribe",
            Action::Receive => "receive",
            Action::All => "all",
        }
    }
}

/// A set of QoS levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosSet(u8);

impl QosSet {
    /// All levels.
    pub const ANY: QosSet = QosSet(0b111);

    /// These levels.
    #[must_use]
    pub fn of(levels: &[QoS]) -> QosSet {
        QosSet(levels.iter().fold(0, |set, qos| set | 1 << *qos as u8))
    }

    /// Whether a level is in it.
    #[must_use]
    pub const fn has(self, qos: QoS) -> bool {
        self.0 & (1 << qos as u8) != 0
    }
}

/// Whom a rule is for. A condition that is empty holds for everybody; of several entries, one must hold, but of
/// attributes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Patterns of tenants; for rules of the node.
    pub tenants: Vec<Template>,
    /// Patterns of user names; the empty one is for clients without.
    pub users: Vec<Template>,
    /// Patterns of client ids.
    pub client_ids: Vec<Template>,
    /// Patterns of groups, of which the client must be in one.
    pub groups: Vec<Template>,
    /// Networks, in one of which the client's address must be.
    pub sources: Vec<Network>,
    /// Attributes and their values.
    pub attributes: Vec<(Box<str>, Template)>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedRule {
    /// Its name, for those who may know.
    pub name: Box<str>,
    /// Where it stands, for the operator.
    pub origin: Box<str>,
    /// What it says.
    pub effect: Effect,
    /// About what.
    pub action: Action,
    /// Topic filters, one of which must match; none = every topic, `$`-topics as well.
    pub topics: Vec<Template>,
    /// Whom it is for.
    pub conditions: Conditions,
    /// QoS of a publish, or QoS that a SUBSCRIBE asks for. Of a delivery nothing is asked: a rule that denies
    /// some QoS alone does not concern it.
    pub qos: QosSet,
    /// RETAIN of a publish. A rule with it concerns nothing but publishes.
    pub retain: Option<bool>,
}

impl OrderedRule {
    /// Whether it is for every client and every QoS.
    fn is_for_all(&self) -> bool {
        self.conditions == Conditions::default() && self.qos == QosSet::ANY && self.retain.is_none()
    }

    /// Whether it decides about whatever `later`, behind it, is about.
    fn hides(&self, later: &OrderedRule) -> bool {
        let covered = |filter: &Template| {
            let inner = filter.widest();
            self.topics.iter().any(|outer| outer.plain().is_some_and(|outer| covers(outer, &inner)))
        };
        self.is_for_all()
            && self.action.contains(later.action)
            && (self.topics.is_empty()
                || !later.topics.is_empty() && later.topics.iter().all(covered)
                || later.topics.is_empty() && self.topics.iter().any(|t| t.plain() == Some("#")))
    }
}

/// A list of rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleList {
    rules: Vec<OrderedRule>,
}

impl RuleList {
    /// A list of these rules. An empty one refuses everything.
    #[must_use]
    pub fn new(rules: Vec<OrderedRule>) -> RuleList {
        RuleList { rules }
    }

    /// All rules in their order; a verdict's index points here.
    #[must_use]
    pub fn rules(&self) -> &[OrderedRule] {
        &self.rules
    }

    /// Rules that are never asked, each with the one before them that decides in their place.
    #[must_use]
    pub fn hidden(&self) -> Vec<(u32, u32)> {
        let mut hidden = Vec::new();
        for (n, later) in (0u32..).zip(&self.rules) {
            let by = (0..n).zip(&self.rules).find(|(_, earlier)| earlier.hides(later));
            hidden.extend(by.map(|(by, _)| (n, by)));
        }
        hidden
    }

    /// The first rule that decides everything for every client, so that nothing behind the list is asked.
    #[must_use]
    pub fn decides_all(&self) -> Option<u32> {
        let all = |r: &OrderedRule| {
            r.is_for_all()
                && r.action == Action::All
                && (r.topics.is_empty() || r.topics.iter().any(|t| t.plain() == Some("#")))
        };
        (0u32..).zip(&self.rules).find(|(_, r)| all(r)).map(|(n, _)| n)
    }

    /// Puts a client's rules behind those that are there.
    pub(super) fn resolve(&self, layer: Layer, who: &Who<'_>, out: &mut Vec<ResolvedRule>) {
        for (index, rule) in (0u32..).zip(&self.rules) {
            let denies = rule.effect == Effect::Deny;
            if !rule.conditions.hold(who, denies) {
                continue;
            }
            let resolved = |filter| ResolvedRule {
                filter,
                allow: !denies,
                action: rule.action,
                qos: rule.qos,
                retain: rule.retain,
                layer,
                index,
            };
            if rule.topics.is_empty() {
                out.push(resolved(None));
            }
            for topic in &rule.topics {
                if let Some(filter) = topic.filter(who, denies) {
                    out.push(resolved(Some(filter)));
                }
            }
        }
    }
}
