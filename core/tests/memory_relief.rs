//! When memory is short, consumers to whom nothing is owed are cut, those with most waiting bytes first (H24).

mod shard_support;

use mast_core::codec::Version;
use mast_core::settings::Settings;
use mast_core::sys::Cut;
use shard_support::{Client, Node};

/// A node whose clients read nothing.
fn stalled(filters: &[(&str, &str, u8, u32)]) -> (Node, Vec<Client>) {
    let mut node = Node::new(1, Settings::default());
    let clients: Vec<Client> = filters
        .iter()
        .map(|(id, filter, qos, expiry)| {
            let client = node.connect(Version::V5, id, *expiry);
            node.subscribe(client, filter, *qos);
            client
        })
        .collect();
    node.stalled.extend(&clients);
    (node, clients)
}

#[test]
fn the_largest_qos_0_consumer_is_cut_and_whoever_is_owed_something_is_not() {
    let (mut node, clients) =
        stalled(&[("a", "t/#", 0, 0), ("b", "t/big/#", 0, 0), ("c", "t/#", 1, 0), ("d", "t/#", 1, 100)]);
    let publisher = node.connect(Version::V5, "p", 0);
    let body = [b'x'; 10_000];
    for topic in ["t/x", "t/x", "t/big/x", "t/big/x"] {
        node.publish(publisher, topic, &body, 0);
    }
    for gone in [0, 1] {
        node.relieve();
        for (n, client) in clients.iter().enumerate() {
            assert_eq!(node.is_open(*client), n > gone, "client {n} after cut {gone}");
        }
    }
    node.relieve();
    assert!(node.is_open(clients[2]) && node.is_open(clients[3]) && node.is_open(publisher));
    assert_eq!(node.counters()[0].cuts[Cut::Memory as usize], 2);
}

#[test]
fn an_eighth_is_cut_at_a_time_and_small_buffers_are_left_alone() {
    let ids: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let all: Vec<_> = ids.iter().map(|id| (id.as_str(), "t", 0, 0)).collect();
    let (mut node, clients) = stalled(&all);
    let publisher = node.connect(Version::V5, "p", 0);
    node.publish(publisher, "t", &[b'x'; 1000], 0);
    node.relieve();
    let open = |node: &Node| clients.iter().filter(|c| node.is_open(**c)).count();
    assert_eq!(open(&node), 20);
    node.publish(publisher, "t", &[b'x'; 20_000], 0);
    node.relieve();
    assert_eq!(open(&node), 17);
    node.relieve();
    assert_eq!(open(&node), 14);
}
