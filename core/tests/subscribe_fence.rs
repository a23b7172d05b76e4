//! A SUBSCRIBE comes behind what was acknowledged before it was sent, also where its shard has not read of it yet.

mod shard_support;

use mast_core::codec::Version;
use mast_core::settings::Settings;
use shard_support::{Node, packet, text};

#[test]
fn a_message_that_is_acknowledged_before_the_subscribe_comes_as_a_retained_one_and_once() {
    for shards in [1, 2, 4] {
        for qos in [1, 2] {
            let mut node = Node::new(shards, Settings::default());
            let publisher = node.connect(Version::V5, "p", 0);
            let late = (0..64)
                .map(|n| node.connect(Version::V5, &format!("late{n}"), 0))
                .find(|c| shards == 1 || c.shard != publisher.shard)
                .expect("a client on another shard");
            if shards > 1 {
                node.leave_mail(late.shard);
            }
            let acknowledged = node.publish_with(publisher, 0x31 | qos << 1, "t", b"kept");
            assert!(matches!(acknowledged[0][0], 0x40 | 0x50), "{acknowledged:02x?}");
            // The rest of what was sent waits behind it.
            node.send(late, &packet(0x82, &[&[0, 1], &[0], &text("t"), &[qos]]));
            node.send(late, &packet(0xC0, &[]));
            if shards > 1 {
                assert_eq!(node.take(late), Vec::<Vec<u8>>::new());
                node.read_mail(late.shard);
            }
            let got = node.take(late);
            assert_eq!(got.iter().filter(|p| p[0] == 0x90).count(), 1, "{got:02x?}");
            assert_eq!(got.iter().filter(|p| p[0] == 0xD0).count(), 1, "{got:02x?}");
            let firsts: Vec<u8> = got.iter().map(|p| p[0]).filter(|f| f >> 4 == 3).collect();
            assert_eq!(firsts, [0x31 | qos << 1], "shards {shards}: one copy, and retained: {got:02x?}");
        }
    }
}
