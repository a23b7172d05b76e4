//! A store that finds messages damaged: sessions go on behind them, and what is lost is counted.

mod shard_support;

use mast_core::codec::Version;
use mast_core::settings::Settings;
use mast_core::sys::Drop;
use shard_support::Node;

fn dropped(node: &Node, reason: Drop) -> u64 {
    node.counters().iter().map(|c| c.drops[reason as usize]).sum()
}

#[test]
fn a_session_gets_all_but_the_damaged_messages_and_each_of_these_is_counted() {
    for qos in [1, 2] {
        let mut node = Node::new(1, Settings::default());
        let s = node.connect(Version::V5, "s", 1000);
        node.subscribe(s, "t/#", qos);
        node.cut(s);
        let p = node.connect(Version::V5, "p", 0);
        for n in 0..6 {
            node.publish(p, "t/x", n.to_string().as_bytes(), 1);
        }
        node.damaged.extend([b"2".to_vec(), b"5".to_vec()]);
        let s = node.connect(Version::V5, "s", 1000);
        assert_eq!(node.messages(s), ["0", "1", "3", "4"]);
        assert_eq!(dropped(&node, Drop::StoreDamaged), 2);
        node.publish(p, "t/x", b"new", 1);
        assert_eq!(node.messages(s), ["new"], "the session is not stuck");
        assert_eq!(dropped(&node, Drop::StoreDamaged), 2, "each is counted once");
        assert_eq!(dropped(&node, Drop::LogTrimmed), 0);
    }
}
