//! `when_full = refuse-new`: when an absent session has all that may be kept for it, the publishers of what it would
//! get are refused, and nothing that was acknowledged is dropped.

mod shard_support;

use mast_core::codec::Version;
use mast_core::settings::{OfflineLimits, Settings, WhenFull};
use mast_core::sys::{Drop, Refused};
use shard_support::{Client, Node};

fn settings(max_messages: u64, max_bytes: u64) -> Settings {
    let offline = OfflineLimits { max_messages, max_bytes, when_full: WhenFull::RefuseNew };
    Settings { offline, ..Settings::default() }
}

/// A node with a session "s" that subscribed `t/#` and is away.
fn with_absent(shards: u16, settings: Settings) -> Node {
    let mut node = Node::new(shards, settings);
    let s = node.connect(Version::V5, "s", 1000);
    node.subscribe(s, "t/#", 2);
    node.cut(s);
    node
}

fn code(got: &[Vec<u8>]) -> u8 {
    assert_eq!(got.len(), 1, "{got:02x?}");
    got[0].get(4).copied().unwrap_or(0)
}

fn full_sessions(node: &Node) -> u64 {
    node.counters().iter().map(|c| c.offline_full).sum()
}

fn refused(node: &Node) -> u64 {
    node.counters().iter().map(|c| c.refusals[Refused::OfflineFull as usize]).sum()
}

/// Publishes `from..` until one is refused; how many were taken.
fn fill(node: &mut Node, publisher: Client, from: usize) -> usize {
    (from..from + 100)
        .take_while(|n| code(&node.publish(publisher, "t/x", n.to_string().as_bytes(), 1)) < 0x80)
        .count()
}

#[test]
fn publishes_beyond_the_limit_are_refused_and_the_session_gets_all_that_was_acknowledged() {
    for shards in [1, 4] {
        let mut node = with_absent(shards, settings(5, u64::MAX));
        let publishers: Vec<Client> =
            (0..6).map(|n| node.connect(Version::V5, &format!("p{n}"), 0)).collect();
        assert_eq!(fill(&mut node, publishers[0], 0), 5);
        let appended = node.appends;
        for p in &publishers {
            assert_eq!(code(&node.publish(*p, "t/y", b"no", 1)), 0x97);
            assert_eq!(code(&node.publish(*p, "t/y", b"no", 2)), 0x97);
            assert_eq!(code(&node.publish_with(*p, 0x33, "t", b"no")), 0x97);
            assert_eq!(code(&node.publish(*p, "u", b"elsewhere", 1)), 0x10);
        }
        assert_eq!(node.appends, appended, "nothing refused was stored");
        assert_eq!((full_sessions(&node), refused(&node)), (1, 19));
        let s = node.connect(Version::V5, "s", 1000);
        assert_eq!(node.messages(s), ["0", "1", "2", "3", "4"]);
        assert_eq!(full_sessions(&node), 0);
        assert!(code(&node.publish(publishers[3], "t/y", b"again", 1)) < 0x80);
        assert_eq!(node.messages(s), ["again"]);
        let dropped: u64 = node.counters().iter().map(|c| c.drops[Drop::OfflineLimit as usize]).sum();
        assert_eq!(dropped, 0);
    }
}

#[test]
fn bytes_count_as_messages_do() {
    let mut node = with_absent(1, settings(u64::MAX, 1000));
    let p = node.connect(Version::V5, "p", 0);
    let body = [b'x'; 300];
    let taken = (0..10).take_while(|_| code(&node.publish(p, "t", &body, 1)) < 0x80).count();
    assert_eq!(taken, 4, "the one that reaches the limit is the last");
}

#[test]
fn a_3x_publisher_is_disconnected_qos_0_goes_on_and_others_are_not_concerned() {
    let mut node = with_absent(1, Settings { keep_qos0: true, ..settings(2, u64::MAX) });
    let (p, other) = (node.connect(Version::V5, "p", 0), node.connect(Version::V5, "other", 0));
    node.subscribe(other, "#", 0);
    fill(&mut node, p, 0);
    assert_eq!(node.messages(other), ["0", "1"]);
    let old = node.connect(Version::V311, "old", 0);
    assert!(node.publish(old, "t/x", b"no", 1).is_empty());
    assert!(!node.is_open(old));
    node.publish(p, "t/x", b"zero", 0);
    assert_eq!(node.messages(other), ["zero"]);
    assert_eq!(node.counters()[0].drops[Drop::OfflineLimit as usize], 1);
}

#[test]
fn the_backlog_is_known_after_a_crash() {
    for shards in [1, 3] {
        let mut node = with_absent(shards, settings(5, u64::MAX));
        let p = node.connect(Version::V5, "p", 0);
        for n in 0..3 {
            node.publish(p, "t/x", n.to_string().as_bytes(), 1);
        }
        node.crash();
        let p = node.connect(Version::V5, "p", 0);
        assert_eq!(fill(&mut node, p, 3), 2);
        node.crash();
        let p = node.connect(Version::V5, "p", 0);
        assert_eq!(fill(&mut node, p, 5), 0);
        let s = node.connect(Version::V5, "s", 1000);
        assert_eq!(node.messages(s), ["0", "1", "2", "3", "4"]);
    }
}

#[test]
fn what_a_session_left_unread_when_it_went_counts() {
    let mut node = Node::new(1, settings(100, u64::MAX));
    let s = node.connect(Version::V5, "s", 1000);
    node.subscribe(s, "t/#", 1);
    let p = node.connect(Version::V5, "p", 0);
    // 64 are in its window, the rest waits. A connected session has no limit.
    for n in 0..150 {
        assert!(code(&node.publish(p, "t/x", n.to_string().as_bytes(), 1)) < 0x80);
    }
    node.cut(s);
    assert_eq!(fill(&mut node, p, 150), 14);
    let s = node.connect(Version::V5, "s", 1000);
    assert_eq!(node.messages(s), (0..164).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn room_returns_when_messages_expire_and_when_the_session_does() {
    let mut node = with_absent(2, Settings { message_expiry_max: 20, ..settings(3, u64::MAX) });
    let p = node.connect(Version::V5, "p", 0);
    assert_eq!(fill(&mut node, p, 0), 3);
    node.pass(30_000);
    assert_eq!(full_sessions(&node), 0);
    assert_eq!(fill(&mut node, p, 3), 3);
    node.pass(1_100_000);
    assert_eq!(full_sessions(&node), 0);
    assert_eq!(code(&node.publish(p, "t/x", b"x", 1)), 0x10, "nobody is left");
}

#[test]
fn a_change_of_the_policy_or_the_limit_takes_effect_at_once() {
    let mut node = with_absent(2, settings(3, u64::MAX));
    let p = node.connect(Version::V5, "p", 0);
    assert_eq!(fill(&mut node, p, 0), 3);
    node.reconfigure(settings(5, u64::MAX));
    assert_eq!(fill(&mut node, p, 3), 2);
    let mut old = settings(5, u64::MAX);
    old.offline.when_full = WhenFull::DropOldest;
    node.reconfigure(old);
    assert_eq!(full_sessions(&node), 0);
    assert!(code(&node.publish(p, "t/x", b"5", 1)) < 0x80);
    node.reconfigure(settings(6, u64::MAX));
    assert_eq!(fill(&mut node, p, 6), 0);
}

#[test]
fn a_message_that_two_filters_want_counts_once_and_a_no_local_one_not() {
    let mut node = Node::new(1, settings(3, u64::MAX));
    let s = node.connect(Version::V5, "s", 1000);
    node.subscribe(s, "t/#", 1);
    node.subscribe(s, "t/+", 1);
    node.cut(s);
    let p = node.connect(Version::V5, "p", 0);
    assert_eq!(fill(&mut node, p, 0), 3);
}
