//! Who may publish, receive and subscribe to what: ordered rules with mosquitto's meaning, and a verdict that
//! names the rule that decided.
//!
//! The rules of a client are, in this order: its user's denials, its user's grants, the denials of patterns, the
//! grants of patterns; the first one that matches decides, and without one the answer is no. A client without a
//! user name has the rules that stand before the first user. [`Acl::resolve`] picks them once for a session and
//! puts client id and user name into the patterns; [`Principal::check`] is the hot path and allocates nothing.
//!
//! Subscribing is judged more gently than receiving. Mosquitto accepts every filter and checks each delivery.
//! Here a filter is refused when nothing could ever be delivered through it: a denial covers it whole, or no rule
//! that grants reading has a topic in common with it. Any other filter is accepted, and each delivery is checked
//! with [`Access::Receive`] on its concrete topic.

use alloc::{
    borrow::ToOwned,
    boxed::Box,
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

use crate::topic::matches;

/// What a client wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Send a message to a topic (also as its will).
    Publish,
    /// Get a message of a topic.
    Receive,
    /// Subscribe to a filter; of a shared subscription, the filter behind the group's name.
    Subscribe,
}

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
    fn reads(self) -> bool {
        matches!(self, Grant::Read | Grant::ReadWrite)
    }

    fn writes(self) -> bool {
        matches!(self, Grant::Write | Grant::ReadWrite)
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

/// An answer and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The answer.
    pub allowed: bool,
    /// Index of the rule that decided; `None`: no rule matched, or there are no rules at all.
    pub rule: Option<u32>,
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

/// The rules of one client.
#[derive(Debug, Clone)]
pub struct Principal {
    rules: Box<[ResolvedRule]>,
    open: bool,
    reads_all: bool,
    /// What decides where nothing matches.
    otherwise: Verdict,
}

#[derive(Debug, Clone)]
struct ResolvedRule {
    filter: Box<str>,
    grant: Grant,
    index: u32,
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

    /// The rules of one client. To be kept with its session until the list changes.
    pub fn resolve(&self, user: Option<&str>, client_id: &str) -> Principal {
        let mut rules = Vec::new();
        let own = match user {
            None => Some(&self.anonymous),
            Some(user) => self.users.get(user),
        };
        for index in own.into_iter().flatten() {
            if let Some(rule) = self.rules.get(*index as usize) {
                let filter = rule.filter.as_str().into();
                rules.push(ResolvedRule { filter, grant: rule.grant, index: *index });
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
                rules.push(ResolvedRule { filter: filter.into(), grant: rule.grant, index: *index });
            }
        }
        let reads_all = self.open || reads_all(&rules);
        let otherwise = Verdict { allowed: self.open, rule: unsafe_pattern };
        Principal { rules: rules.into_boxed_slice(), open: self.open, reads_all, otherwise }
    }

    /// Whether this client may do this; for one question. Ask a [`Principal`] where there are many.
    pub fn check(
        &self,
        user: Option<&str>,
        client_id: &str,
        access: Access,
        topic_or_filter: &str,
    ) -> Verdict {
        self.resolve(user, client_id).check(access, topic_or_filter)
    }
}

impl Principal {
    /// Whether the client may do `access` to this topic, or filter for [`Access::Subscribe`].
    pub fn check(&self, access: Access, topic_or_filter: &str) -> Verdict {
        if self.open {
            return self.otherwise;
        }
        let decided = self.rules.iter().find_map(|rule| {
            let allowed = match (access, rule.grant) {
                (Access::Publish | Access::Receive, Grant::Deny) => {
                    matches(&rule.filter, topic_or_filter).then_some(false)
                }
                (Access::Publish, grant) => {
                    (grant.writes() && matches(&rule.filter, topic_or_filter)).then_some(true)
                }
                (Access::Receive, grant) => {
                    (grant.reads() && matches(&rule.filter, topic_or_filter)).then_some(true)
                }
                (Access::Subscribe, Grant::Deny) => covers(&rule.filter, topic_or_filter).then_some(false),
                (Access::Subscribe, grant) => {
                    (grant.reads() && overlap(&rule.filter, topic_or_filter)).then_some(true)
                }
            };
            allowed.map(|allowed| Verdict { allowed, rule: Some(rule.index) })
        });
        decided.unwrap_or(self.otherwise)
    }

    /// Whether the client may receive every topic, so that deliveries need no check.
    pub fn reads_everything(&self) -> bool {
        self.reads_all
    }
}

/// Everything may be read if `#` and `$`-topics are granted before anything is denied. Only the plain case is
/// recognised: `#` alone leaves out `$`-topics, so a `$SYS/#` grant must exist for `$SYS`, and other `$`-topics
/// are never published. A false answer costs a check, nothing else.
fn reads_all(rules: &[ResolvedRule]) -> bool {
    let granted = |filter: &str| rules.iter().any(|r| r.grant.reads() && &*r.filter == filter);
    granted("#") && granted("$SYS/#") && rules.iter().all(|r| r.grant != Grant::Deny)
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

/// Wildcards at the first level do not reach topics that begin with `$` [MQTT-4.7.2-1].
fn wildcard_misses_dollar(wild: &str, other: &str) -> bool {
    (wild.starts_with('#') || wild == "+" || wild.starts_with("+/")) && other.starts_with('$')
}

/// Whether every topic that `inner` (a filter or a topic) matches is matched by `outer`.
fn covers(outer: &str, inner: &str) -> bool {
    if wildcard_misses_dollar(outer, inner) {
        return false;
    }
    // Every topic has a first level, so "+/#" is another name for "#".
    let outer = if outer == "+/#" { "#" } else { outer };
    let (mut outer, mut inner) = (outer.split('/'), inner.split('/'));
    loop {
        match (outer.next(), inner.next()) {
            // "a/#" matches "a" as well.
            (Some("#"), _) | (None, None) => return true,
            (_, Some("#")) | (None, Some(_)) | (Some(_), None) => return false,
            (Some("+"), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            (Some(_), Some(_)) => return false,
        }
    }
}

/// Whether two filters have a topic in common.
fn overlap(a: &str, b: &str) -> bool {
    if wildcard_misses_dollar(a, b) || wildcard_misses_dollar(b, a) {
        return false;
    }
    let (mut a, mut b) = (a.split('/'), b.split('/'));
    loop {
        match (a.next(), b.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(x), Some(y)) if x == y || x == "+" || y == "+" => {}
            (Some(_), Some(_)) => return false,
        }
    }
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
            Verdict { allowed: false, rule: Some(1) }
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

    /// Every topic of up to three levels over a small alphabet.
    fn topics() -> Vec<String> {
        let levels = ["a", "b", "", "$s"];
        let mut all: Vec<String> = levels.iter().map(|l| (*l).to_owned()).collect();
        let mut last = all.clone();
        for _ in 0..2 {
            last = last.iter().flat_map(|t| levels.iter().map(move |l| format!("{t}/{l}"))).collect();
            all.extend(last.clone());
        }
        all
    }

    #[test]
    fn covering_and_overlapping_agree_with_matching_each_topic() {
        let mut filters = vec![];
        let levels = ["a", "$s", "+", "#"];
        for x in levels {
            filters.push(x.to_owned());
            for y in levels.iter().filter(|_| x != "#") {
                filters.push(format!("{x}/{y}"));
            }
        }
        let topics = topics();
        let matched = |f: &str| topics.iter().filter(|t| matches(f, t)).collect::<Vec<_>>();
        for f in &filters {
            for g in &filters {
                let (mf, mg) = (matched(f), matched(g));
                assert_eq!(covers(f, g), mg.iter().all(|t| mf.contains(t)), "{f} covers {g}");
                assert_eq!(overlap(f, g), mg.iter().any(|t| mf.contains(t)), "{f} overlaps {g}");
            }
        }
    }
}
