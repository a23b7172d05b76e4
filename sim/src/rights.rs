//! Who may do what at which time, by the rules of the scenario: judged in the most obvious way, apart from
//! the code that is on trial. Rules that were changed reach the shards a moment later, so what was asked
//! around that time may be judged by the old ones or the new.

use crate::ledger::Known;
use crate::scenario::{GrantSpec, RuleSpec, TimedRules};
use mast_core::authz::{Access, Acl, Grant, Rule, Subject};
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
    sets: Vec<(u64, Vec<RuleSpec>)>,
}

impl Rights {
    /// Of a scenario that begins at `start`, µs.
    #[must_use]
    pub fn new(rules: &[TimedRules], start: u64) -> Rights {
        Rights { sets: rules.iter().map(|r| (start + r.at_ms * 1000, r.rules.clone())).collect() }
    }

    /// Whether anything is ever forbidden about a topic that is not the protected ones' business alone.
    #[must_use]
    pub fn is_restricted(&self, topic: &str) -> bool {
        !self.sets.is_empty()
            && (topic.starts_with("p/")
                || self.sets.iter().any(|(_, rules)| {
                    rules.iter().any(|r| r.grant == GrantSpec::Deny && naive_matches(&r.filter, topic))
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
            if allows(rules, user, access, topic) { yes = true } else { no = true }
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
    pub fn always(&self, from: u64, to: u64, holds: impl Fn(&[RuleSpec]) -> bool) -> bool {
        self.any() && self.in_use(from, to).all(|rules| holds(rules))
    }

    fn in_use(&self, from: u64, to: u64) -> impl Iterator<Item = &[RuleSpec]> {
        self.sets.iter().enumerate().filter_map(move |(i, (since, rules))| {
            let until = self.sets.get(i + 1).map_or(u64::MAX, |(next, _)| next + SPREAD);
            // The first ones hold from the beginning.
            let may = (i == 0 || *since <= to) && until >= from;
            may.then_some(rules.as_slice())
        })
    }

    /// The rules in use at a time, as a shard takes them.
    #[must_use]
    pub fn acl(&self, now: u64) -> Option<Arc<Acl>> {
        let (_, rules) = self.sets.iter().rev().find(|(since, _)| *since <= now).or(self.sets.first())?;
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
        Some(Arc::new(Acl::new(rules.collect())))
    }
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
