//! Who may do what at which time, by the rules of the scenario: judged in the most obvious way, apart from
//! the code that is on trial. Rules that were changed reach the shards a moment later, so what was asked
//! around that time may be judged by the old ones or the new.

use crate::ledger::Known;
use crate::scenario::{AboutSpec, GrantSpec, OrderedSpec, RuleSpec, TimedRules};
use mast_core::authz::{
    Access, Acl, Action, Conditions, Effect, Grant, OrderedRule, QosSet, Rule, RuleList, Subject, Template,
};
use mast_core::conn::handshake::Claims;
use mast_core::tenant::registry::Registry;
use mast_core::tenant::rules::Rules;
use mast_core::topic::naive::naive_matches;
use std::sync::Arc;

/// Rules reach every shard within this time, µs.
pub const SPREAD: u64 = 150_000;

/// Topics that only rules of [`GrantSpec`] open, and that oracles of other promises leave alone.
pub const PROTECTED: [&str; 4] = ["p/0", "p/1", "p/c0/x", "p/c1/x"];

/// All rules of a run.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// From when, µs; ascending.
    sets: Vec<(u64, TimedRules)>,
    /// A user for whom the rules of tenants don't count.
    superuser: Option<&'static str>,
}

impl Rights {
    /// Of a scenario that begins at `start`, µs.
    #[must_use]
    pub fn new(rules: &[TimedRules], start: u64, seed: u64) -> Rights {
        let sets: Vec<_> = rules.iter().map(|r| (start + r.at_ms * 1000, r.clone())).collect();
        let ordered = sets.iter().any(|(_, set)| !set.ordered.is_empty());
        Rights { superuser: (ordered && seed.is_multiple_of(4)).then_some("c2"), sets }
    }

    /// What the proof of a user says.
    #[must_use]
    pub fn claims(&self, user: &str) -> Claims {
        if !self.any_ordered() {
            return Claims::default();
        }
        let home = raw_home(user).map(|home| Arc::new([(Box::from("home"), Box::from(home))].into()));
        let even = is_even(user).then(|| [Box::from("even")].into());
        Claims { superuser: self.is_superuser(user), attributes: home, groups: even, source: None }
    }

    /// Whether there are ordered rules.
    #[must_use]
    pub fn any_ordered(&self) -> bool {
        self.sets.iter().any(|(_, set)| !set.ordered.is_empty())
    }

    /// Whether tenants' rules don't count for a user.
    #[must_use]
    pub fn is_superuser(&self, user: &str) -> bool {
        self.superuser == Some(user)
    }

    /// Whether anything is ever forbidden about a topic that is not the protected ones' business alone.
    #[must_use]
    pub fn is_restricted(&self, topic: &str) -> bool {
        !self.sets.is_empty()
            && (topic.starts_with("p/")
                || self.sets.iter().any(|(_, set)| {
                    set.rules.iter().any(|r| r.grant == GrantSpec::Deny && naive_matches(&r.filter, topic))
                        || set.ordered.iter().any(|r| naive_matches(&widest(&r.filter), topic))
                }))
    }

    /// Whether a user may do `access` to a topic, whenever between two times it was judged.
    #[must_use]
    pub fn verdict(&self, user: &str, access: Access, topic: &str, from: u64, to: u64) -> Known {
        if self.sets.is_empty() {
            return Known::Yes;
        }
        let (mut yes, mut no) = (false, false);
        for rules in self.in_use(from, to) {
            let allowed = ordered(&rules.ordered, user, access, topic, self.is_superuser(user));
            if allowed.unwrap_or_else(|| allows(&rules.rules, user, access, topic)) {
                yes = true;
            } else {
                no = true;
            }
        }
        match (yes, no) {
            (true, false) => Known::Yes,
            (false, _) => Known::No,
            (true, true) => Known::Maybe,
        }
    }

    /// Whether there are rules.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.sets.is_empty()
    }

    /// Whether something holds of all rules that may have been in use between two times.
    #[must_use]
    pub fn always(&self, from: u64, to: u64, holds: impl Fn(&TimedRules) -> bool) -> bool {
        self.any() && self.in_use(from, to).all(holds)
    }

    fn in_use(&self, from: u64, to: u64) -> impl Iterator<Item = &TimedRules> {
        self.sets.iter().enumerate().filter_map(move |(i, (since, rules))| {
            let until = self.sets.get(i + 1).map_or(u64::MAX, |(next, _)| next + SPREAD);
            // The first ones hold from the beginning.
            let may = (i == 0 || *since <= to) && until >= from;
            may.then_some(rules)
        })
    }

    /// The rules in use at a time, as shards take them.
    #[must_use]
    pub fn rules(&self, now: u64, registry: &Registry) -> Rules {
        let set = self.sets.iter().rev().find(|(since, _)| *since <= now).or(self.sets.first());
        let Some((_, set)) = set else { return Rules::default() };
        let mut rules = Rules::shared(Some(acl(&set.rules)));
        let list = |node| {
            let of = set.ordered.iter().filter(|r| r.node == node).map(made).collect();
            Arc::new(RuleList::new(of))
        };
        if !set.ordered.is_empty() {
            rules.set_node(Some(list(true)));
            for tenant in registry.ids() {
                rules.give_ordered(tenant, list(false));
            }
        }
        rules
    }
}

/// The list as core takes it.
fn acl(rules: &[RuleSpec]) -> Arc<Acl> {
    let rules = rules.iter().map(|r| Rule {
        subject: r.user.clone().map_or(Subject::Pattern, Subject::User),
        grant: match r.grant {
            GrantSpec::Read => Grant::Read,
            GrantSpec::Write => Grant::Write,
            GrantSpec::ReadWrite => Grant::ReadWrite,
            GrantSpec::Deny => Grant::Deny,
        },
        filter: r.filter.clone(),
        line: 0,
    });
    Arc::new(Acl::new(rules.collect()))
}

/// An ordered rule as core takes it.
fn made(spec: &OrderedSpec) -> OrderedRule {
    let template = |text: &str| Template::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    OrderedRule {
        name: Box::from("r"),
        origin: Box::from(""),
        effect: if spec.allow { Effect::Allow } else { Effect::Deny },
        action: match spec.about {
            AboutSpec::Publish => Action::Publish,
            AboutSpec::Subscribe => Action::Subscribe,
            AboutSpec::Receive => Action::Receive,
            AboutSpec::All => Action::All,
        },
        topics: vec![template(&spec.filter)],
        conditions: Conditions {
            users: spec.user.iter().map(|u| template(u)).collect(),
            groups: spec.group.iter().map(|g| template(g)).collect(),
            ..Conditions::default()
        },
        qos: QosSet::ANY,
        retain: None,
    }
}

/// What a filter can match whoever it is for.
fn widest(filter: &str) -> String {
    filter.replace("%c", "+").replace("%u", "+").replace("${home}", "+")
}

/// Users who have the attribute `home`; one of them one that may not get into a filter.
fn raw_home(user: &str) -> Option<&str> {
    match user {
        "c0" => Some("c0"),
        "c1" => Some("+"),
        "observer" => Some("c1"),
        _ => None,
    }
}

/// Who is in the group "even".
fn is_even(user: &str) -> bool {
    matches!(user, "c0" | "c2")
}

/// The node's rules in their order, then the tenant's, but those not for a superuser. `None`: none matches.
fn ordered(rules: &[OrderedSpec], user: &str, access: Access, topic: &str, superuser: bool) -> Option<bool> {
    for node in [true, false] {
        if !node && superuser {
            return Some(true);
        }
        for rule in rules.iter().filter(|r| r.node == node) {
            let for_user = rule.user.as_deref().is_none_or(|u| u == user);
            let for_group = rule.group.as_deref().is_none_or(|g| g == "even" && is_even(user));
            let about = match rule.about {
                AboutSpec::Publish => access == Access::Publish,
                AboutSpec::Subscribe => access != Access::Publish,
                AboutSpec::Receive => access == Access::Receive,
                AboutSpec::All => true,
            };
            // In a run, a client's user name is its client id.
            let mut filter = rule.filter.replace("%c", user).replace("%u", user);
            if filter.contains("${home}") {
                match raw_home(user).filter(|home| *home != "+") {
                    Some(home) => filter = filter.replace("${home}", home),
                    None if rule.allow => continue,
                    None => filter = filter.replace("${home}", "+"),
                }
            }
            if for_user && for_group && about && naive_matches(&filter, topic) {
                return Some(rule.allow);
            }
        }
    }
    None
}

/// Own denials, own grants, denials for all, grants for all: the first that matches decides; none, no.
fn allows(rules: &[RuleSpec], user: &str, access: Access, topic: &str) -> bool {
    for (own, denials) in [(true, true), (true, false), (false, true), (false, false)] {
        for rule in rules {
            let mine = rule.user.as_deref() == Some(user) || rule.user.is_none();
            if !mine || rule.user.is_some() != own || (rule.grant == GrantSpec::Deny) != denials {
                continue;
            }
            // In a run, a client's user name is its client id.
            let matches = naive_matches(&rule.filter.replace("%c", user), topic);
            let decides = match (access, rule.grant) {
                (_, GrantSpec::Deny | GrantSpec::ReadWrite)
                | (Access::Publish, GrantSpec::Write)
                | (Access::Receive | Access::Subscribe, GrantSpec::Read) => matches,
                (Access::Publish, GrantSpec::Read)
                | (Access::Receive | Access::Subscribe, GrantSpec::Write) => false,
            };
            if decides {
                return !denials;
            }
        }
    }
    false
}
