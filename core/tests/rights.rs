//! Where rules are asked: publishes, wills, filters, deliveries, what was queued when they changed.

mod shard_support;

use mast_core::authz::{Action, Conditions, Effect, OrderedRule, QosSet, RuleList, Template};
use mast_core::codec::Version;
use mast_core::conn::handshake::Claims;
use mast_core::ids::TenantId;
use mast_core::settings::Settings;
use mast_core::sys::Drop;
use mast_core::tenant::rules::Rules;
use shard_support::{Client, Node, WillOf, packet};
use std::sync::Arc;

const DENIED: u8 = 0x87;

fn rule(effect: Effect, action: Action, topic: &str) -> OrderedRule {
    let topics = vec![Template::parse(topic).expect("a template")];
    OrderedRule {
        name: format!("{} {topic}", action.as_str()).into(),
        origin: "".into(),
        effect,
        action,
        topics,
        conditions: Conditions::default(),
        qos: QosSet::ANY,
        retain: None,
    }
}

fn allow(action: Action, topic: &str) -> OrderedRule {
    rule(Effect::Allow, action, topic)
}

fn deny(action: Action, topic: &str) -> OrderedRule {
    rule(Effect::Deny, action, topic)
}

fn rules(list: Vec<OrderedRule>) -> Rules {
    let mut rules = Rules::default();
    rules.give_ordered(TenantId(0), Arc::new(RuleList::new(list)));
    rules
}

/// Everything but `p/#`.
fn closed() -> Rules {
    rules(vec![deny(Action::All, "p/#"), allow(Action::All, "#")])
}

fn settings() -> Settings {
    Settings { max_inflight_out: 1, ..Settings::default() }
}

fn withheld(node: &Node) -> u64 {
    node.counters().iter().map(|c| c.drops[Drop::NotAuthorized as usize]).sum()
}

fn connect(node: &mut Node, client_id: &str, expiry: u32) -> Client {
    node.connect(Version::V5, client_id, expiry)
}

/// SUBSCRIBE of MQTT 5; the whole SUBACK.
fn subscribe(node: &mut Node, client: Client, filter: &str, qos: u8) -> Vec<u8> {
    let text = [&(filter.len() as u16).to_be_bytes(), filter.as_bytes()].concat();
    node.send(client, &packet(0x82, &[&[0, 1, 0], &text, &[qos]]));
    node.take(client).swap_remove(0)
}

#[test]
fn a_forbidden_publish_gets_the_code_of_its_version_and_goes_nowhere() {
    let mut node = Node::new(2, settings());
    let reader = connect(&mut node, "reader", 0);
    node.subscribe(reader, "#", 0);
    node.rules(closed());
    let new = connect(&mut node, "new", 0);
    let old = node.connect(Version::V311, "old", 0);
    assert_eq!(node.publish(new, "p/x", b"1", 1), [[0x40, 3, 0, 7, DENIED]]);
    assert_eq!(node.publish(new, "p/x", b"2", 2), [[0x50, 3, 0, 7, DENIED]]);
    assert_eq!(node.publish(old, "p/x", b"3", 1), [[0x40, 2, 0, 7]]);
    assert!(node.publish(new, "p/x", b"4", 0).is_empty() && node.is_open(new));
    assert!(node.messages(reader).is_empty());
    assert_eq!(withheld(&node), 4);
    assert_eq!(node.publish(new, "q", b"5", 1), [[0x40, 2, 0, 7]]);
    assert_eq!(node.messages(reader), ["5"]);
}

#[test]
fn the_rule_is_named_where_clients_may_know_it() {
    let mut node = Node::new(1, Settings { explain_denials: true, ..settings() });
    node.rules(closed());
    let client = connect(&mut node, "c", 0);
    let text = b"rule all p/#";
    let ack = node.publish(client, "p/x", b"1", 1).swap_remove(0);
    assert!(ack[4] == DENIED && ack.ends_with(text), "{ack:02x?}");
    let ack = subscribe(&mut node, client, "p/x", 1);
    assert_eq!(ack.last(), Some(&DENIED));
    let words = b"p/x: rule all p/#";
    assert!(ack.windows(words.len()).any(|w| w == words), "{ack:02x?}");
    let ack = node.publish(client, "$SYS/x", b"1", 1).swap_remove(0);
    assert!(ack[4] == DENIED && ack.ends_with(b"broker's own"), "{ack:02x?}");
    let old = node.connect(Version::V311, "old", 0);
    assert_eq!(node.publish(old, "p/x", b"3", 1), [[0x40, 2, 0, 7]]);
    node.reconfigure(settings());
    assert_eq!(node.publish(client, "p/x", b"1", 1), [[0x40, 3, 0, 7, DENIED]]);
    assert_eq!(subscribe(&mut node, client, "p/x", 1), [0x90, 4, 0, 1, 0, DENIED]);
}

#[test]
fn a_forbidden_filter_is_refused_also_behind_a_groups_name() {
    let mut node = Node::new(2, settings());
    node.rules(closed());
    let client = connect(&mut node, "c", 0);
    for filter in ["p/x", "p/#", "$share/g/p/x", "$share/p/p/#"] {
        assert_eq!(subscribe(&mut node, client, filter, 1).last(), Some(&DENIED), "{filter}");
    }
    for filter in ["q", "#", "$share/p/q"] {
        assert_eq!(subscribe(&mut node, client, filter, 1).last(), Some(&1), "{filter}");
    }
    let old = node.connect(Version::V311, "old", 0);
    node.send(old, &packet(0x82, &[&[0, 1], &[0, 3], b"p/x", &[1]]));
    assert_eq!(node.take(old), [[0x90, 3, 0, 1, 0x80]]);
}

#[test]
fn qos_and_retain_decide_for_each_publish_of_a_topic() {
    let mut node = Node::new(1, settings());
    let mut kept = deny(Action::Publish, "t");
    kept.retain = Some(true);
    node.rules(rules(vec![kept, allow(Action::All, "#")]));
    let client = connect(&mut node, "c", 0);
    for _ in 0..2 {
        assert_eq!(node.publish_with(client, 0x33, "t", b"1"), [[0x40, 3, 0, 7, DENIED]]);
        assert_eq!(node.publish_with(client, 0x32, "t", b"1")[0].get(4), Some(&0x10), "nobody listens");
    }
}

#[test]
fn a_forbidden_will_is_refused_with_its_connect() {
    let mut node = Node::new(1, settings());
    node.rules(closed());
    node.will = Some(WillOf { topic: "p/will".into(), qos: 1, delay: 0 });
    let refused = node.try_connect(Version::V5, "c", 0);
    assert!(!node.is_open(refused));
    assert_eq!(node.take(refused)[0][3], DENIED);
    let refused = node.try_connect(Version::V311, "c", 0);
    assert_eq!(node.take(refused), [[0x20, 2, 0, 5]]);
    assert_eq!(node.denials()[0].1, "publish");
    node.will = Some(WillOf { topic: "q".into(), qos: 1, delay: 0 });
    connect(&mut node, "c", 0);
}

#[test]
fn a_will_whose_right_was_taken_away_is_not_sent() {
    let mut node = Node::new(2, settings());
    let reader = connect(&mut node, "reader", 0);
    node.subscribe(reader, "#", 0);
    node.will = Some(WillOf { topic: "p/will".into(), qos: 1, delay: 0 });
    let one = connect(&mut node, "one", 0);
    let two = connect(&mut node, "two", 0);
    node.cut(one);
    assert_eq!(node.messages(reader), ["will"]);
    node.rules(closed());
    node.cut(two);
    assert!(node.messages(reader).is_empty());
    assert_eq!(node.denials()[0].2, "p/will");
}

#[test]
fn an_absent_clients_will_is_judged_by_its_last_proof_also_after_a_restart() {
    for site in ["berlin", "ulm"] {
        let mut node = Node::new(1, settings());
        let mut own = allow(Action::Publish, "p/${site}/#");
        own.conditions.sources = mast_core::authz::Network::parse("192.0.2.0/24").into_iter().collect();
        node.rules(rules(vec![own, allow(Action::Subscribe, "#")]));
        let attributes = [("site".into(), site.into())];
        node.claims = Claims {
            attributes: Some(Arc::new(attributes.into())),
            source: "192.0.2.1".parse().ok(),
            ..Claims::default()
        };
        node.will = Some(WillOf { topic: format!("p/{site}/will"), qos: 1, delay: 5 });
        let client = connect(&mut node, "c", 100);
        node.cut(client);
        node.crash();
        node.will = None;
        node.claims = Claims::default();
        let reader = connect(&mut node, "reader", 0);
        node.subscribe(reader, "#", 0);
        node.pass(6000);
        assert_eq!(node.messages(reader), ["will"], "{site}");
    }
}

#[test]
fn retained_messages_are_withheld_from_who_may_not_read_them() {
    let mut node = Node::new(2, settings());
    let client = connect(&mut node, "c", 0);
    node.publish_with(client, 0x33, "p/x", b"secret");
    node.publish_with(client, 0x33, "q", b"open");
    node.rules(rules(vec![deny(Action::Receive, "p/#"), allow(Action::All, "#")]));
    node.send(client, &packet(0x82, &[&[0, 1, 0], &[0, 1], b"#", &[1]]));
    assert_eq!(node.messages(client), ["open"]);
}

#[test]
fn what_is_queued_for_a_connected_client_is_withheld_once_the_right_is_gone() {
    let mut node = Node::new(2, settings());
    let reader = connect(&mut node, "reader", 0);
    node.subscribe(reader, "#", 1);
    let writer = connect(&mut node, "writer", 0);
    for (topic, text) in [("q", "1"), ("p/x", "2"), ("p/y", "3"), ("q", "4")] {
        node.publish(writer, topic, text.as_bytes(), 1);
    }
    // One is in flight, the others wait for its acknowledgement.
    node.rules(closed());
    assert_eq!(node.messages(reader), ["1", "4"]);
    assert_eq!(withheld(&node), 2);
}

#[test]
fn what_was_kept_for_an_absent_client_is_judged_by_the_identity_that_comes_back() {
    for (group, expected) in [(true, vec!["1", "2"]), (false, vec!["2"])] {
        let mut node = Node::new(2, settings());
        let mut friends = allow(Action::All, "p/#");
        friends.conditions.groups = vec![Template::parse("friends").expect("a template")];
        node.rules(rules(vec![friends, deny(Action::Subscribe, "p/#"), allow(Action::All, "#")]));
        let friends = Claims { groups: Some([Box::from("friends")].into()), ..Claims::default() };
        node.claims = friends.clone();
        let reader = connect(&mut node, "reader", 100);
        node.subscribe(reader, "p/x", 1);
        node.subscribe(reader, "q", 1);
        node.cut(reader);
        let writer = connect(&mut node, "writer", 0);
        node.publish(writer, "p/x", b"1", 1);
        node.publish(writer, "q", b"2", 1);
        node.claims = if group { friends } else { Claims::default() };
        let reader = connect(&mut node, "reader", 100);
        assert_eq!(node.messages(reader), expected);
        // The restored subscription brings nothing new either.
        node.publish(writer, "p/x", b"3", 1);
        assert_eq!(node.messages(reader).len(), usize::from(group));
    }
}

#[test]
fn what_is_in_flight_is_not_sent_again_once_the_right_is_gone() {
    for qos in [1, 2] {
        let mut node = Node::new(1, settings());
        let reader = connect(&mut node, "reader", 100);
        node.subscribe(reader, "p/x", qos);
        let writer = connect(&mut node, "writer", 0);
        node.publish(writer, "p/x", b"1", qos);
        let sent = node.take(reader);
        assert_eq!(sent.len(), 1);
        node.cut(reader);
        node.rules(closed());
        let reader = connect(&mut node, "reader", 100);
        let got = node.take(reader);
        if qos == 1 {
            assert!(got.is_empty(), "{got:02x?}");
        } else {
            // The client may know the id: its exchange ends by a PUBREL.
            assert_eq!(got.iter().map(|p| p[0]).collect::<Vec<_>>(), [0x62]);
        }
        assert_eq!(withheld(&node), 1);
    }
}

#[test]
fn a_group_member_that_may_read_nothing_any_more_takes_nothing_from_the_others() {
    let mut node = Node::new(2, Settings { max_inflight_out: 10, ..Settings::default() });
    let mut bob = deny(Action::All, "p/#");
    bob.conditions.users = vec![Template::parse("bob").expect("a template")];
    node.user = Some("bob".into());
    let b = connect(&mut node, "b", 0);
    node.subscribe(b, "$share/g/p/#", 1);
    node.user = Some("ann".into());
    let a = connect(&mut node, "a", 0);
    node.subscribe(a, "$share/g/p/#", 1);
    node.rules(rules(vec![bob, allow(Action::All, "#")]));
    let writer = connect(&mut node, "writer", 0);
    for n in 0..8 {
        node.publish(writer, "p/x", n.to_string().as_bytes(), 0);
    }
    assert_eq!(node.messages(a).len(), 8);
    assert!(node.messages(b).is_empty());
}

#[test]
fn the_nodes_rules_bind_superusers_and_the_tenants_do_not() {
    let mut node = Node::new(1, settings());
    let mut both = rules(vec![deny(Action::All, "t/#")]);
    both.set_node(Some(Arc::new(RuleList::new(vec![deny(Action::Publish, "n/#")]))));
    node.rules(both);
    node.claims = Claims { superuser: true, ..Claims::default() };
    let root = connect(&mut node, "root", 0);
    assert_eq!(node.publish(root, "n/x", b"1", 1), [[0x40, 3, 0, 7, DENIED]]);
    assert_eq!(node.publish(root, "t/x", b"1", 1)[0].get(4), Some(&0x10));
}

#[test]
fn denied_attempts_are_counted_by_client_action_and_topic() {
    let mut node = Node::new(2, Settings { denials_kept: 2, ..settings() });
    node.rules(closed());
    let client = connect(&mut node, "c", 0);
    for _ in 0..3 {
        node.publish(client, "p/x", b"1", 0);
    }
    subscribe(&mut node, client, "$share/g/p/x", 0);
    let why = "rule all p/#".to_owned();
    assert_eq!(
        node.denials(),
        [
            ("c".into(), "publish", "p/x".into(), 3, why.clone()),
            ("c".into(), "subscribe", "$share/g/p/x".into(), 1, why),
        ]
    );
    for n in 0..100 {
        node.publish(client, &format!("p/{n}"), b"1", 0);
    }
    assert_eq!(node.denials().len(), 2);
}
