//! A publish may visit so many nodes of the topic index (H7). Beyond, it is refused before anything of it is stored or
//! delivered.

mod shard_support;

use mast_core::codec::Version;
use mast_core::settings::Settings;
use mast_core::sys::{Drop, Refused};
use shard_support::Node;

const LEVELS: usize = 8;

/// A node whose one subscriber has every combination of "a" and "+" on eight levels, and a topic that all match.
fn crowded(max_match_nodes: u32, expiry: u32) -> (Node, shard_support::Client, String) {
    let mut node = Node::new(1, Settings { max_match_nodes, ..Settings::default() });
    let subscriber = node.connect(Version::V5, "s", expiry);
    for mask in 0..1u32 << LEVELS {
        let levels: Vec<&str> = (0..LEVELS).map(|bit| if mask >> bit & 1 == 1 { "+" } else { "a" }).collect();
        node.subscribe(subscriber, &levels.join("/"), 2);
    }
    (node, subscriber, ["a"; LEVELS].join("/"))
}

/// The nodes of all levels, 1 + 2 + 4 and so on, but for the one filter without a wildcard.
const VISITS: u32 = (2 << LEVELS) - 2;

#[test]
fn a_publish_within_the_budget_is_delivered_and_one_node_over_it_is_not() {
    for (budget, fits) in [(VISITS, true), (VISITS - 1, false)] {
        let (mut node, subscriber, topic) = crowded(budget, 0);
        let publisher = node.connect(Version::V5, "p", 0);
        node.publish(publisher, &topic, b"x", 1);
        assert_eq!(node.messages(subscriber).len(), usize::from(fits), "budget {budget}");
        assert_eq!(node.counters()[0].match_over_budget, u64::from(!fits));
    }
}

#[test]
fn an_mqtt_5_publisher_is_told_0x97_and_why_and_may_go_on() {
    for expiry in [0, 100] {
        let (mut node, subscriber, topic) = crowded(100, expiry);
        let publisher = node.connect(Version::V5, "p", 0);
        for (qos, ack) in [(1, 0x40), (2, 0x50)] {
            let got = node.publish(publisher, &topic, b"x", qos);
            assert_eq!((got.len(), got[0][0], &got[0][2..5]), (1, ack, &[0, 7, 0x97][..]), "{got:02x?}");
            let words = String::from_utf8_lossy(&got[0][9..]).into_owned();
            assert!(words.contains("filters"), "{words}");
        }
        assert_eq!(node.counters()[0].refusals[Refused::MatchBudget as usize], 2);
        assert_eq!(node.appends, 0, "nothing was stored");
        // A refused QoS 2 id is free again, and another topic goes.
        assert_eq!(node.publish(publisher, "other", b"y", 2)[0][..4], [0x50, 3, 0, 7]);
        assert!(node.messages(subscriber).is_empty());
    }
}

#[test]
fn a_retained_publish_over_the_budget_is_not_kept_either() {
    let (mut node, _, topic) = crowded(100, 0);
    let publisher = node.connect(Version::V5, "p", 0);
    assert_eq!(node.publish_with(publisher, 0x33, &topic, b"x")[0][4], 0x97);
    assert_eq!(node.publish_with(publisher, 0x31, &topic, b"x").len(), 0);
    assert_eq!(node.appends, 0);
}

#[test]
fn qos_0_over_the_budget_is_dropped_and_counted() {
    let (mut node, subscriber, topic) = crowded(100, 0);
    let publisher = node.connect(Version::V5, "p", 0);
    assert!(node.publish(publisher, &topic, b"x", 0).is_empty());
    assert!(node.messages(subscriber).is_empty());
    assert_eq!(node.counters()[0].drops[Drop::MatchBudget as usize], 1);
    assert!(node.is_open(publisher));
}

#[test]
fn a_3x_publisher_is_disconnected() {
    let (mut node, subscriber, topic) = crowded(100, 0);
    for qos in [1, 2] {
        let publisher = node.connect(Version::V311, "p", 0);
        assert!(node.publish(publisher, &topic, b"x", qos).is_empty());
        assert!(!node.is_open(publisher));
    }
    assert!(node.messages(subscriber).is_empty());
}

#[test]
fn what_the_cache_knows_costs_nothing_and_is_forgotten_with_the_filters() {
    let (mut node, subscriber, topic) = crowded(VISITS, 0);
    let publisher = node.connect(Version::V5, "p", 0);
    node.publish(publisher, &topic, b"x", 1);
    node.publish(publisher, &topic, b"x", 1);
    assert_eq!(node.messages(subscriber).len(), 2);
    // Nodes that the topic does not reach do not count; one more that it reaches is one too many.
    node.subscribe(subscriber, "+/a/a/b/#", 0);
    assert_eq!(node.publish(publisher, &topic, b"x", 1), [[0x40, 2, 0, 7]]);
    assert_eq!(node.messages(subscriber).len(), 1);
    node.subscribe(subscriber, &format!("{topic}/#"), 0);
    assert_eq!(node.publish(publisher, &topic, b"x", 1)[0][4], 0x97);
}
