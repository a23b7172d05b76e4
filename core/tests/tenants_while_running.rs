//! Tenants that come and go while the shards run.

mod shard_support;

use mast_core::codec::Version;
use mast_core::ids::TenantId;
use mast_core::settings::Settings;
use mast_core::tenant::registry::Registry;
use shard_support::{Client, Node};

/// Puts another registry in force on all shards.
fn retenant(node: &mut Node, registry: Registry) {
    node.tenancy.registry = registry;
    node.reconfigure(node.settings.clone());
}

fn of(node: &mut Node, tenant: TenantId, id: &str) -> Client {
    node.tenant = tenant;
    node.connect(Version::V5, id, 100)
}

#[test]
fn a_tenant_that_comes_while_running_has_its_own_topics_on_every_shard() {
    let mut node = Node::new(3, Settings::default());
    let old = of(&mut node, TenantId(0), "old");
    node.subscribe(old, "#", 1);
    let registry = node.tenancy.registry.with_placed("late", true).expect("a good name");
    let late = registry.id("late").expect("late");
    retenant(&mut node, registry);
    let clients: Vec<Client> = (0..9).map(|n| of(&mut node, late, &format!("c{n}"))).collect();
    assert!((0..3).all(|shard| clients.iter().any(|c| c.shard == shard)), "clients on every shard");
    for client in &clients {
        node.subscribe(*client, "a/#", 1);
    }
    let publisher = of(&mut node, late, "publisher");
    node.publish(publisher, "a/b", b"x", 1);
    for client in &clients {
        assert_eq!(node.messages(*client), ["x"], "{client:?}");
    }
    assert!(node.messages(old).is_empty());
}

#[test]
fn nobody_of_a_removed_tenant_is_let_in_and_its_name_begins_empty() {
    let mut node = Node::new(2, Settings::default());
    let both = node.tenancy.registry.with("b").expect("a good name");
    retenant(&mut node, both);
    let publisher = of(&mut node, TenantId(1), "p");
    node.publish_with(publisher, 0x33, "kept", b"old");
    node.cut(publisher);
    let without = node.tenancy.registry.without(TenantId(1));
    retenant(&mut node, without.clone());
    let refused = node.try_connect(Version::V5, "p", 0);
    assert!(!node.is_open(refused));
    retenant(&mut node, without.with("b").expect("a good name"));
    let client = of(&mut node, TenantId(2), "p");
    node.subscribe(client, "#", 1);
    assert!(node.messages(client).is_empty(), "nothing retained is left");
}
