//! A connection ends when what its client proved itself with does, by the wall clock.

mod shard_support;

use mast_core::codec::Version;
use mast_core::settings::Settings;
use mast_core::sys::Cut;
use mast_core::time::Wall;
use shard_support::Node;

fn node_with_expiry_in(millis: u64) -> Node {
    let mut node = Node::new(1, Settings::default());
    node.expires = Some(Wall(node.now.wall.0 + millis));
    node
}

#[test]
fn an_expired_credential_ends_the_connection_with_not_authorized() {
    let mut node = node_with_expiry_in(5_000);
    let v5 = node.connect(Version::V5, "a", 100);
    let v3 = node.connect(Version::V311, "b", 100);
    node.pass(4_900);
    assert!(node.is_open(v5) && node.is_open(v3));
    node.pass(300);
    assert!(!node.is_open(v5) && !node.is_open(v3));
    // DISCONNECT 0x87 for MQTT 5; 3.1.1 has no such packet.
    assert_eq!(node.take(v5), [[0xE0, 1, 0x87]]);
    assert!(node.take(v3).is_empty());
    assert_eq!(node.counters()[0].cuts[Cut::Expired as usize], 2);
}

#[test]
fn whoever_connects_without_an_expiry_stays() {
    let mut node = node_with_expiry_in(5_000);
    node.expires = None;
    let client = node.connect(Version::V5, "a", 0);
    node.pass(60_000);
    assert!(node.is_open(client));
}

#[test]
fn a_wall_clock_that_is_set_forward_is_noticed_within_half_a_minute() {
    let mut node = node_with_expiry_in(3_600_000);
    let client = node.connect(Version::V5, "a", 0);
    node.pass(1_000);
    assert!(node.is_open(client));
    node.now.wall = Wall(node.now.wall.0 + 3_600_000);
    node.pass(30_000);
    assert!(!node.is_open(client));
}
