//! The evaluator against one that takes every rule by its word; and the meanings that are easy to get wrong.

use super::*;
use crate::conn::identity::Claims;
use crate::message::QoS;
use crate::rng::Rng;
use crate::topic::naive::naive_matches;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

const QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn template(text: &str) -> Template {
    Template::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn templates(texts: &[&str]) -> Vec<Template> {
    texts.iter().map(|t| template(t)).collect()
}

fn rule(effect: Effect, action: Action, topics: &[&str]) -> OrderedRule {
    OrderedRule {
        name: Box::from("r"),
        origin: Box::from(""),
        effect,
        action,
        topics: templates(topics),
        conditions: Conditions::default(),
        qos: QosSet::ANY,
        retain: None,
    }
}

fn allow(action: Action, topics: &[&str]) -> OrderedRule {
    rule(Effect::Allow, action, topics)
}

fn deny(action: Action, topics: &[&str]) -> OrderedRule {
    rule(Effect::Deny, action, topics)
}

fn claims(attributes: &[(&str, &str)], groups: &[&str], source: &str) -> Claims {
    let map = attributes.iter().map(|(k, v)| (Box::from(*k), Box::from(*v))).collect();
    Claims {
        superuser: false,
        attributes: Some(Arc::new(map)),
        groups: Some(groups.iter().map(|g| Box::from(*g)).collect()),
        source: source.parse().ok(),
    }
}

fn who<'a>(user: Option<&'a str>, client_id: &'a str, claims: &'a Claims) -> Who<'a> {
    Who { tenant: "acme", user, client_id, claims }
}

fn decide(rules: &[OrderedRule], who: &Who<'_>, request: &Request<'_>) -> Verdict {
    let list = RuleList::new(rules.to_vec());
    Policy { tenant: Some(&list), ..Policy::default() }.resolve(who).check(request)
}

fn may_publish(rules: &[OrderedRule], who: &Who<'_>, topic: &str) -> bool {
    decide(rules, who, &Request::publish(topic, QoS::AtMostOnce, false)).allowed
}

#[test]
fn the_first_rule_that_matches_decides_and_without_one_the_answer_is_no() {
    let none = Claims::default();
    let ann = who(Some("ann"), "c", &none);
    let rules = [deny(Action::Publish, &["a/b"]), allow(Action::All, &["a/#", "b"]), deny(Action::All, &[])];
    let verdict = |topic| decide(&rules, &ann, &Request::publish(topic, QoS::AtMostOnce, false));
    assert_eq!(verdict("a/b"), Verdict { allowed: false, layer: Layer::Tenant, rule: Some(0) });
    assert_eq!(verdict("a/c").rule, Some(1));
    assert_eq!(verdict("b").rule, Some(1));
    assert_eq!(verdict("$SYS/x"), Verdict { allowed: false, layer: Layer::Tenant, rule: Some(2) });
    assert!(decide(&rules, &ann, &Request::receive("a/b")).allowed, "the first rule is about publishing");
    let verdict = decide(&rules[..1], &ann, &Request::receive("a/b"));
    assert_eq!(verdict, Verdict { allowed: false, layer: Layer::NoRule, rule: None });
}

#[test]
fn the_nodes_rules_come_first_and_bind_superusers_whom_a_tenants_do_not() {
    let node = RuleList::new(vec![deny(Action::Publish, &["node/#"]), allow(Action::Publish, &["open/#"])]);
    let tenant = RuleList::new(vec![deny(Action::All, &["open/#", "t/#"]), allow(Action::All, &["#"])]);
    let policy = Policy { node: Some(&node), tenant: Some(&tenant), ..Policy::default() };
    let plain = Claims::default();
    let root = Claims { superuser: true, ..Claims::default() };
    let ask = |claims, topic| {
        let request = Request::publish(topic, QoS::AtMostOnce, false);
        policy.resolve(&who(None, "c", claims)).check(&request)
    };
    assert_eq!(ask(&plain, "node/x"), Verdict { allowed: false, layer: Layer::Node, rule: Some(0) });
    assert_eq!(ask(&plain, "open/x"), Verdict { allowed: true, layer: Layer::Node, rule: Some(1) });
    assert_eq!(ask(&plain, "t/x"), Verdict { allowed: false, layer: Layer::Tenant, rule: Some(0) });
    assert_eq!(ask(&root, "node/x"), Verdict { allowed: false, layer: Layer::Node, rule: Some(0) });
    assert_eq!(ask(&root, "t/x"), Verdict { allowed: true, layer: Layer::Superuser, rule: None });
    // Without any rule of the node, a superuser has nothing to be checked for.
    let policy = Policy { tenant: Some(&tenant), ..Policy::default() };
    assert!(policy.resolve(&who(None, "c", &root)).is_open());
}

#[test]
fn the_list_stands_behind_the_rules_and_the_default_behind_all() {
    let tenant = RuleList::new(vec![deny(Action::All, &["x"])]);
    let list = Acl::new(vec![Rule {
        subject: Subject::Anonymous,
        grant: Grant::ReadWrite,
        filter: "#".into(),
        line: 1,
    }]);
    let none = Claims::default();
    let ask = |policy: &Policy<'_>, topic| {
        policy.resolve(&who(None, "c", &none)).check(&Request::publish(topic, QoS::AtMostOnce, false))
    };
    let both =
        Policy { tenant: Some(&tenant), list: Some(&list), allow_otherwise: true, ..Policy::default() };
    assert_eq!(ask(&both, "x").layer, Layer::Tenant);
    assert_eq!(ask(&both, "y"), Verdict { allowed: true, layer: Layer::List, rule: Some(0) });
    assert!(!ask(&both, "$x").allowed, "the list's own default is no");
    let alone = Policy { tenant: Some(&tenant), allow_otherwise: true, ..Policy::default() };
    assert_eq!(ask(&alone, "y"), Verdict { allowed: true, layer: Layer::NoRule, rule: None });
    assert_eq!(ask(&Policy::default(), "y"), Verdict::OPEN);
}

#[test]
fn conditions_hold_for_whom_they_name() {
    let conditions = |make: fn(&mut Conditions)| {
        let mut rule = allow(Action::All, &[]);
        make(&mut rule.conditions);
        [rule]
    };
    let none = Claims::default();
    let some = claims(&[("site", "berlin"), ("role", "ann")], &["night-shift"], "10.1.2.3");
    let holds = |make: fn(&mut Conditions), user, id: &str, claims: &Claims| {
        may_publish(&conditions(make), &who(user, id, claims), "t")
    };
    let users: fn(&mut Conditions) = |c| c.users = templates(&["a*", "bob"]);
    assert!(holds(users, Some("ann"), "c", &none) && holds(users, Some("bob"), "c", &none));
    assert!(!holds(users, Some("bobby"), "c", &none) && !holds(users, None, "ann", &none));
    let anyone: fn(&mut Conditions) = |c| c.users = templates(&["*"]);
    assert!(holds(anyone, Some("x"), "c", &none) && !holds(anyone, None, "c", &none));
    let nameless: fn(&mut Conditions) = |c| c.users = templates(&[""]);
    assert!(holds(nameless, None, "c", &none) && !holds(nameless, Some("ann"), "c", &none));
    let ids: fn(&mut Conditions) = |c| c.client_ids = templates(&["%u-*"]);
    assert!(holds(ids, Some("ann"), "ann-1", &none) && !holds(ids, Some("ann"), "bob-1", &none));
    assert!(!holds(ids, None, "-1", &none), "a name that is missing allows nothing");
    assert!(!holds(ids, Some("*"), "bob-1", &none), "a star in a name is no pattern");
    let groups: fn(&mut Conditions) = |c| c.groups = templates(&["day", "night-*"]);
    assert!(holds(groups, None, "c", &some) && !holds(groups, None, "c", &none));
    let sources: fn(&mut Conditions) =
        |c| c.sources = ["10.0.0.0/8", "::1"].iter().filter_map(|n| Network::parse(n).ok()).collect();
    assert!(holds(sources, None, "c", &some) && !holds(sources, None, "c", &none));
    let attributes: fn(&mut Conditions) =
        |c| c.attributes = vec![("site".into(), template("berlin")), ("role".into(), template("%u"))];
    assert!(holds(attributes, Some("ann"), "c", &some) && !holds(attributes, Some("bob"), "c", &some));
    let star: fn(&mut Conditions) = |c| c.attributes = vec![("site".into(), template("*"))];
    assert!(!holds(star, None, "c", &some), "attributes are compared, not matched");
    let tenants: fn(&mut Conditions) = |c| c.tenants = templates(&["ac*"]);
    assert!(holds(tenants, None, "c", &none));
}

#[test]
fn a_value_that_cannot_be_put_in_allows_nothing_and_denies_all_it_could_be() {
    let bad = ["", "+", "#", "a/b", "a\0b", &"x".repeat(1025)];
    let allows = [allow(Action::All, &["dev/${id}/x", "dev/v-${id}/x"])];
    let denies = [deny(Action::All, &["dev/${id}/x", "dev/v-${id}/y"]), allow(Action::All, &["#"])];
    let good = claims(&[("id", "7")], &[], "");
    let who_good = who(None, "c", &good);
    assert!(may_publish(&allows, &who_good, "dev/7/x") && may_publish(&allows, &who_good, "dev/v-7/x"));
    assert!(!may_publish(&allows, &who_good, "dev/8/x") && !may_publish(&denies, &who_good, "dev/7/x"));
    assert!(may_publish(&denies, &who_good, "dev/8/x"));
    let missing = Claims::default();
    let all = bad.map(|value| claims(&[("id", value)], &[], ""));
    for claims in all.iter().chain([&missing]) {
        let who = who(None, "c", claims);
        for topic in ["dev/7/x", "dev/+/x", "dev//x", "dev/v-7/x", "dev/a/b/x"] {
            assert!(!may_publish(&allows, &who, topic), "{topic} {claims:?}");
        }
        for topic in ["dev/7/x", "dev/8/x", "dev//x", "dev/other/y"] {
            assert!(!may_publish(&denies, &who, topic), "{topic} {claims:?}");
        }
        assert!(may_publish(&denies, &who, "dev/7/z"), "only where the value stands");
        let mut rule = deny(Action::All, &[]);
        rule.conditions.client_ids = templates(&["c-${id}-x"]);
        let rules = [rule, allow(Action::All, &["#"])];
        assert!(!may_publish(&rules, &super::Who { client_id: "c-any-x", ..who }, "t"));
        assert!(may_publish(&rules, &super::Who { client_id: "other", ..who }, "t"));
    }
}

#[test]
fn a_name_does_not_lead_to_dollar_topics() {
    let none = Claims::default();
    let rules = [allow(Action::All, &["%c/#", "x/%c/#"])];
    let who = who(None, "$SYS", &none);
    assert!(!decide(&rules, &who, &Request::receive("$SYS/uptime")).allowed);
    assert!(decide(&rules, &who, &Request::receive("x/$SYS/uptime")).allowed);
    let rules = [deny(Action::All, &["%c/#"]), allow(Action::All, &[])];
    assert!(!decide(&rules, &who, &Request::receive("$SYS/uptime")).allowed);
}

#[test]
fn qos_and_retain_are_asked_of_what_a_client_sends() {
    let none = Claims::default();
    let who = who(None, "c", &none);
    let mut low = allow(Action::All, &["a/#"]);
    low.qos = QosSet::of(&[QoS::AtMostOnce]);
    let mut kept = deny(Action::All, &["a/#"]);
    kept.retain = Some(true);
    let rules = [kept, low];
    let publish = |qos, retain| decide(&rules, &who, &Request::publish("a/b", qos, retain)).allowed;
    assert!(publish(QoS::AtMostOnce, false) && !publish(QoS::AtMostOnce, true));
    assert!(!publish(QoS::AtLeastOnce, false));
    assert!(decide(&rules, &who, &Request::subscribe("a/b", QoS::AtMostOnce)).allowed);
    assert!(!decide(&rules, &who, &Request::subscribe("a/b", QoS::AtLeastOnce)).allowed);
    assert!(decide(&rules, &who, &Request::receive("a/b")).allowed);
    let mut high = deny(Action::Subscribe, &["a/#"]);
    high.qos = QosSet::of(&[QoS::ExactlyOnce]);
    let rules = [high, allow(Action::All, &["#"])];
    assert!(!decide(&rules, &who, &Request::subscribe("a/b", QoS::ExactlyOnce)).allowed);
    assert!(decide(&rules, &who, &Request::receive("a/b")).allowed, "some QoS alone is denied");
}

#[test]
fn rules_that_are_never_asked_are_found() {
    let mut named = deny(Action::All, &[]);
    named.conditions.users = templates(&["bob"]);
    let list = RuleList::new(vec![
        named,
        allow(Action::Publish, &["a/#"]),
        deny(Action::Publish, &["a/b", "a/%c/+"]),
        deny(Action::All, &["a/b"]),
        allow(Action::All, &["#"]),
        deny(Action::Receive, &["b/+"]),
        deny(Action::All, &["$SYS/#"]),
    ]);
    assert_eq!(list.hidden(), [(2, 1), (5, 4)]);
    assert_eq!(list.decides_all(), Some(4));
    let list = RuleList::new(vec![allow(Action::All, &["x/#"]), deny(Action::All, &["%c/#"])]);
    assert_eq!((list.hidden(), list.decides_all()), (vec![], None));
    let list = RuleList::new(vec![deny(Action::All, &[]), allow(Action::All, &["$x"])]);
    assert_eq!((list.hidden(), list.decides_all()), (vec![(1, 0)], Some(0)));
}

#[test]
fn unknown_placeholders_are_refused_and_templates_are_printed_as_they_were_read() {
    assert_eq!(Template::parse("a/%x"), Err(TemplateError::Unknown('x')));
    assert_eq!(Template::parse("a/%"), Err(TemplateError::Ends));
    assert_eq!(Template::parse("${"), Err(TemplateError::Attribute));
    assert_eq!(Template::parse("${}"), Err(TemplateError::Attribute));
    assert_eq!(Template::parse("a\0"), Err(TemplateError::Nul));
    for text in ["", "a", "$SYS/#", "%c/%u/%t", "${a}b${c}", "100%%/$", "%%c"] {
        assert_eq!(template(text).to_string(), text);
    }
    let none = Claims::default();
    let rules = [allow(Action::All, &["100%%/%t/%%c"])];
    assert!(may_publish(&rules, &who(None, "c", &none), "100%/acme/%c"));
}

/// The words that topics are made of here.
const LEVELS: [&str; 3] = ["a", "b", "$s"];

fn topics() -> Vec<String> {
    let one: Vec<String> = LEVELS.iter().map(|l| (*l).into()).collect();
    let two: Vec<String> = one.iter().flat_map(|a| LEVELS.map(|b| alloc::format!("{a}/{b}"))).collect();
    let three: Vec<String> = two.iter().flat_map(|a| LEVELS.map(|b| alloc::format!("{a}/{b}"))).collect();
    [one, two, three].concat()
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[(rng.next_u64() % of.len() as u64) as usize]
}

fn filter(rng: &mut Rng) -> String {
    let depth = 1 + rng.next_u64() % 2;
    let mut levels: Vec<&str> = (0..depth).map(|_| *pick(rng, &["a", "b", "$s", "+", "%c"])).collect();
    if rng.next_u64().is_multiple_of(3) {
        levels.push("#");
    }
    levels.join("/")
}

/// A rule taken by its word, with all topics that there are.
fn naive_match(rule: &OrderedRule, client: &str, user: Option<&str>, request: &Request<'_>) -> bool {
    let denies = rule.effect == Effect::Deny;
    let users: Vec<String> = rule.conditions.users.iter().map(ToString::to_string).collect();
    if !users.is_empty() && !users.iter().any(|u| user == Some(u) || u.is_empty() && user.is_none()) {
        return false;
    }
    let in_qos = QOS.iter().any(|q| *q == request.qos && rule.qos.has(*q));
    let (about, quality) = match request.access {
        Access::Publish => (
            matches!(rule.action, Action::All | Action::Publish),
            in_qos && (rule.retain.is_none() || rule.retain == Some(request.retain)),
        ),
        Access::Subscribe => {
            (matches!(rule.action, Action::All | Action::Subscribe), in_qos && rule.retain.is_none())
        }
        Access::Receive => (
            rule.action != Action::Publish,
            rule.retain.is_none() && (!denies || QOS.iter().all(|q| rule.qos.has(*q))),
        ),
    };
    // An id that is no level.
    let usable = !client.contains('+');
    let filters: Vec<String> = rule
        .topics
        .iter()
        .map(ToString::to_string)
        .filter(|f| denies || usable || !f.contains("%c"))
        .map(|f| f.replace("%c", if usable { client } else { "+" }))
        .collect();
    let all = topics();
    let by_rule = |t: &str| rule.topics.is_empty() || filters.iter().any(|f| naive_matches(f, t));
    let each = |f: &String| {
        let mut asked = all.iter().filter(|t| naive_matches(request.topic, t));
        if denies { asked.all(|t| naive_matches(f, t)) } else { asked.any(|t| naive_matches(f, t)) }
    };
    about
        && quality
        && match request.access {
            Access::Publish | Access::Receive => by_rule(request.topic),
            Access::Subscribe => rule.topics.is_empty() || filters.iter().any(each),
        }
}

#[test]
fn random_rules_decide_as_a_naive_evaluator_does() {
    let mut rng = Rng::new(7);
    let all = topics();
    let none = Claims::default();
    for _ in 0..400 {
        let rules: Vec<OrderedRule> = (0..1 + rng.next_u64() % 5)
            .map(|_| {
                let topics: Vec<String> = (0..rng.next_u64() % 3).map(|_| filter(&mut rng)).collect();
                let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
                let effect = *pick(&mut rng, &[Effect::Allow, Effect::Deny]);
                let actions = [Action::Publish, Action::Subscribe, Action::Receive, Action::All];
                let mut made = rule(effect, *pick(&mut rng, &actions), &topics);
                if rng.next_u64().is_multiple_of(4) {
                    made.qos = QosSet::of(&QOS[..1 + (rng.next_u64() % 2) as usize]);
                }
                if rng.next_u64().is_multiple_of(5) {
                    made.retain = Some(rng.next_u64().is_multiple_of(2));
                }
                if rng.next_u64().is_multiple_of(3) {
                    made.conditions.users = templates(&[*pick(&mut rng, &["ann", "bob", ""])]);
                }
                made
            })
            .collect();
        let client = *pick(&mut rng, &["a", "b", "+"]);
        let user = *pick(&mut rng, &[Some("ann"), Some("bob"), None]);
        for _ in 0..40 {
            let qos = *pick(&mut rng, &QOS);
            let topic = pick(&mut rng, &all).clone();
            let asked = filter(&mut rng).replace("%c", "b");
            let request = match rng.next_u64() % 3 {
                0 => Request::publish(&topic, qos, rng.next_u64().is_multiple_of(2)),
                1 => Request::receive(&topic),
                _ => Request::subscribe(&asked, qos),
            };
            let naive = rules.iter().position(|r| naive_match(r, client, user, &request));
            let expected = naive.map(|n| (n as u32, rules[n].effect == Effect::Allow));
            let verdict = decide(&rules, &who(user, client, &none), &request);
            let got = verdict.rule.map(|n| (n, verdict.allowed));
            assert_eq!(got, expected, "{request:?} of {client} {user:?} by {rules:#?}");
        }
    }
}
