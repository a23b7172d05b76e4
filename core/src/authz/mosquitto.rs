//! Access control lists with mosquitto's meaning.
//!
//! The rules of a client are, in this order: its user's denials, its user's grants, the denials of patterns, the
//! grants of patterns; the first one that matches decides, and without one the answer is no. A client without a
//! user name has the rules that stand before the first user. Mosquitto accepts every filter and checks each
//! delivery; what we make of filters says [`crate::authz`].

use alloc::{
    borrow::ToOwned,
    boxed::Box,
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

use super::ordered::{Action, QosSet};
use super::policy::{Policy, Who};
use super::principal::{Access, Layer, Principal, Request, ResolvedRule, Verdict};
use crate::conn::identity::Claims;
use crate::message::QoS;

/// What a rule says about the topics that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// May receive.
    Read,
    /// May publish.
    Write,
    /// Both.
    ReadWrite,
    /// Neither.
    Deny,
}

impl Grant {
    const fn action(self) -> Action {
        match self {
            Grant::Read => Action::Subscribe,
            Grant::Write => Action::Publish,
            Grant::ReadWrite | Grant::Deny => Action::All,
        }
    }
}

/// Whom a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Clients without a user name.
    Anonymous,
    /// One user.
    User(String),
    /// Every client; `%c` and `%u` in the filter stand for its client id and user name.
    Pattern,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Whom it is for.
    pub subject: Subject,
    /// What it says.
    pub grant: Grant,
    /// The topics it is about.
    pub filter: String,
    /// The line it came from, for explanations; 0 if from nowhere.
    pub line: u32,
}

/// A list of rules.
#[derive(Debug, Clone, Default)]
pub struct Acl {
    rules: Vec<Rule>,
    /// Indexes into `rules`, denials first.
    anonymous: Vec<u32>,
    users: BTreeMap<String, Vec<u32>>,
    patterns: Vec<u32>,
    /// No list is configured: everything is allowed.
    open: bool,
}

impl Acl {
    /// The list that allows everything, for a broker without an access control list.
    pub fn allow_all() -> Acl {
        Acl { open: true, ..Acl::default() }
    }

    /// A list of these rules. An empty one refuses everything.
    pub fn new(rules: Vec<Rule>) -> Acl {
        let mut acl = Acl { rules, ..Acl::default() };
        for denials in [true, false] {
            for (index, rule) in (0u32..).zip(&acl.rules) {
                if (rule.grant == Grant::Deny) != denials {
                    continue;
                }
                match &rule.subject {
                    Subject::Anonymous => acl.anonymous.push(index),
                    Subject::User(user) => acl.users.entry(user.clone()).or_default().push(index),
                    Subject::Pattern => acl.patterns.push(index),
                }
            }
        }
        acl
    }

    /// All rules, in their own order; a verdict's index points here.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether everything is allowed because there is no list.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Puts the rules of one client behind those that are there; returns what holds where none matches.
    pub(super) fn resolve_into(&self, who: &Who<'_>, out: &mut Vec<ResolvedRule>) -> Verdict {
        let (user, client_id) = (who.user, who.client_id);
        let own = match user {
            None => Some(&self.anonymous),
            Some(user) => self.users.get(user),
        };
        for index in own.into_iter().flatten() {
            if let Some(rule) = self.rules.get(*index as usize) {
                out.push(resolved(rule, rule.filter.as_str().into(), *index));
            }
        }
        // A name that would reach further than one level makes every pattern void, denials and grants alike:
        // what is left is refused.
        let unsafe_pattern = self.patterns.iter().copied().find(|index| {
            self.rules.get(*index as usize).is_some_and(|r| {
                (r.filter.contains("%c") && is_unsafe(client_id))
                    || (r.filter.contains("%u") && user.is_some_and(is_unsafe))
            })
        });
        let patterns = if unsafe_pattern.is_none() { self.patterns.as_slice() } else { &[] };
        for index in patterns {
            let Some(rule) = self.rules.get(*index as usize) else { continue };
            if let Some(filter) = substitute(&rule.filter, user, client_id) {
                out.push(resolved(rule, filter.into(), *index));
            }
        }
        let layer = if unsafe_pattern.is_some() { Layer::List } else { Layer::NoRule };
        Verdict { allowed: false, layer, rule: unsafe_pattern }
    }

    /// The rules of one client of a tenant that has no others.
    #[must_use]
    pub fn resolve(&self, user: Option<&str>, client_id: &str) -> Principal {
        let claims = Claims::default();
        let policy = Policy { list: Some(self), ..Policy::default() };
        policy.resolve(&Who { tenant: "", user, client_id, claims: &claims })
    }

    /// Whether this client may do this; for one question. Ask a [`Principal`] where there are many.
    #[must_use]
    pub fn check(&self, user: Option<&str>, client_id: &str, access: Access, topic: &str) -> Verdict {
        let request = Request { access, topic, qos: QoS::AtMostOnce, retain: false };
        self.resolve(user, client_id).check(&request)
    }
}

fn resolved(rule: &Rule, filter: Box<str>, index: u32) -> ResolvedRule {
    ResolvedRule {
        filter: Some(filter),
        allow: rule.grant != Grant::Deny,
        action: rule.grant.action(),
        qos: QosSet::ANY,
        retain: None,
        layer: Layer::List,
        index,
    }
}

/// Whether a name contains what must not get into a filter.
fn is_unsafe(name: &str) -> bool {
    name.contains(['+', '#', '/', '\0'])
}

/// The filter with the names put in as they are; `None` where it asks for a user name that the client lacks.
fn substitute(filter: &str, user: Option<&str>, client_id: &str) -> Option<String> {
    if !filter.contains('%') {
        return Some(filter.to_owned());
    }
    let mut out = String::with_capacity(filter.len() + client_id.len());
    let mut rest = filter;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        let used = if tail.starts_with("%c") {
            out.push_str(client_id);
            2
        } else if tail.starts_with("%u") {
            out.push_str(user?);
            2
        } else {
            out.push('%');
            1
        };
        rest = &tail[used..];
    }
    out.push_str(rest);
    Some(out.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};

    fn rule(subject: Subject, grant: Grant, filter: &str) -> Rule {
        Rule { subject, grant, filter: filter.to_owned(), line: 0 }
    }

    fn user(name: &str) -> Subject {
        Subject::User(name.to_owned())
    }

    fn allowed(acl: &Acl, who: Option<&str>, access: Access, topic: &str) -> bool {
        acl.check(who, "dev1", access, topic).allowed
    }

    #[test]
    fn without_a_list_everything_is_allowed_and_with_an_empty_one_nothing() {
        assert!(allowed(&Acl::allow_all(), None, Access::Publish, "a"));
        assert!(Acl::allow_all().resolve(None, "c").reads_everything());
        assert!(!allowed(&Acl::new(vec![]), None, Access::Publish, "a"));
        assert!(!allowed(&Acl::new(vec![]), Some("ann"), Access::Subscribe, "#"));
    }

    #[test]
    fn a_user_has_its_own_rules_and_not_those_of_anonymous_clients() {
        let acl = Acl::new(vec![
            rule(Subject::Anonymous, Grant::Read, "public/#"),
            rule(user("ann"), Grant::ReadWrite, "ann/+"),
        ]);
        assert!(allowed(&acl, None, Access::Receive, "public"));
        assert!(!allowed(&acl, None, Access::Publish, "public/x"));
        assert!(!allowed(&acl, Some("ann"), Access::Receive, "public/x"));
        assert!(allowed(&acl, Some("ann"), Access::Publish, "ann/x"));
        assert!(!allowed(&acl, Some("ann"), Access::Publish, "ann/x/y"));
        assert!(!allowed(&acl, Some("bob"), Access::Publish, "ann/x"));
        assert_eq!(acl.check(Some("ann"), "c", Access::Publish, "ann/x").rule, Some(1));
    }

    #[test]
    fn a_denial_wins_over_a_grant_wherever_it_stands() {
        let acl = Acl::new(vec![
            rule(user("ann"), Grant::ReadWrite, "#"),
            rule(user("ann"), Grant::Deny, "secret/#"),
        ]);
        assert!(allowed(&acl, Some("ann"), Access::Publish, "open"));
        assert_eq!(
            acl.check(Some("ann"), "c", Access::Publish, "secret/x"),
            Verdict { allowed: false, layer: Layer::List, rule: Some(1) }
        );
        assert!(!allowed(&acl, Some("ann"), Access::Receive, "secret"));
    }

    #[test]
    fn a_subscription_is_refused_only_if_nothing_could_come_through_it() {
        let acl = Acl::new(vec![
            rule(user("ann"), Grant::Read, "a/+/c"),
            rule(user("ann"), Grant::Write, "w/#"),
            rule(user("ann"), Grant::Deny, "a/secret/#"),
        ]);
        for filter in ["#", "a/#", "a/b/c", "+/+/+", "a/+/#"] {
            assert!(allowed(&acl, Some("ann"), Access::Subscribe, filter), "{filter}");
        }
        for filter in ["w/x", "a/secret/c", "a/secret/#", "b/#", "a", "+/+", "$SYS/#"] {
            assert!(!allowed(&acl, Some("ann"), Access::Subscribe, filter), "{filter}");
        }
    }

    #[test]
    fn patterns_take_names_literally_within_one_level() {
        let acl = Acl::new(vec![
            rule(Subject::Pattern, Grant::ReadWrite, "dev/%c/u-%u/#"),
            rule(Subject::Pattern, Grant::Write, "log/%c/100%"),
        ]);
        let check = |user, id: &str, topic: &str| acl.check(user, id, Access::Publish, topic).allowed;
        assert!(check(Some("ann"), "d1", "dev/d1/u-ann/x"));
        assert!(!check(Some("ann"), "d1", "dev/d2/u-ann/x"));
        assert!(check(None, "d1", "log/d1/100%"), "no user name is needed where none is named");
        assert!(!check(None, "d1", "dev/d1/u-/x"));
        for id in ["+", "#", "a/b", "d+"] {
            assert!(!check(Some("ann"), id, &format!("log/{id}/100%")), "{id}");
            assert_eq!(acl.check(Some("ann"), id, Access::Publish, "x").rule, Some(0));
        }
        assert!(!check(Some("+"), "d1", "dev/d1/u-ann/x"));
        assert!(check(Some("ann"), "%u", "dev/%u/u-ann/x"), "a name is not expanded again");
    }

    #[test]
    fn a_users_own_grant_stands_before_a_patterns_denial() {
        let acl = Acl::new(vec![
            rule(Subject::Pattern, Grant::Deny, "x/#"),
            rule(Subject::Pattern, Grant::ReadWrite, "#"),
            rule(user("ann"), Grant::ReadWrite, "x/y"),
        ]);
        assert!(allowed(&acl, Some("ann"), Access::Publish, "x/y"));
        assert!(!allowed(&acl, Some("ann"), Access::Publish, "x/z"));
        assert!(!allowed(&acl, Some("bob"), Access::Publish, "x/y"));
        assert!(allowed(&acl, Some("bob"), Access::Publish, "z"));
    }

    #[test]
    fn wildcards_do_not_reach_dollar_topics() {
        let acl = Acl::new(vec![rule(Subject::Anonymous, Grant::ReadWrite, "#")]);
        assert!(!allowed(&acl, None, Access::Receive, "$SYS/x"));
        assert!(!acl.resolve(None, "c").reads_everything());
        let acl = Acl::new(vec![
            rule(Subject::Anonymous, Grant::ReadWrite, "#"),
            rule(Subject::Anonymous, Grant::Read, "$SYS/#"),
        ]);
        assert!(allowed(&acl, None, Access::Receive, "$SYS/x"));
        assert!(acl.resolve(None, "c").reads_everything());
    }
}
