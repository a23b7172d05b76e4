//! Retained messages that a SUBSCRIBE owes to a persistent session survive its connection and the process.

mod shard_support;

use mast_core::codec::{self, Packet, Version};
use mast_core::settings::Settings;
use shard_support::{Client, Node, packet};

const TOPICS: usize = 40;

/// A node with [`TOPICS`] retained messages, small queues, and a window of four.
fn node(shards: u16, qos: u8) -> Node {
    let settings = Settings { queue_messages: 8, max_inflight_out: 4, ..Settings::default() };
    let mut node = Node::new(shards, settings);
    let publisher = node.connect(Version::V5, "publisher", 0);
    for n in 0..TOPICS {
        node.publish_with(publisher, 0x31 | qos << 1, &format!("r/{n:02}"), format!("{n}").as_bytes());
        if qos == 2 {
            node.send(publisher, &packet(0x62, &[&[0, 7]]));
            node.take(publisher);
        }
    }
    node
}

fn subscribe(node: &mut Node, client: Client, qos: u8) -> Vec<Vec<u8>> {
    node.send(client, &packet(0x82, &[&[0, 1], &[0], &[0, 3], b"r/#", &[qos]]));
    let got = node.take(client);
    assert_eq!((got[0][0], got[0].last()), (0x90, Some(&qos)));
    got[1..].to_vec()
}

/// A client that finishes exchanges and knows QoS 2 ids that it has received.
#[derive(Default)]
struct Reader {
    known: Vec<u16>,
    seen: Vec<String>,
}

impl Reader {
    /// Takes in packets; answers at most `answers` of them.
    fn read(&mut self, node: &mut Node, client: Client, mut got: Vec<Vec<u8>>, mut answers: usize) {
        loop {
            for bytes in core::mem::take(&mut got) {
                let frame = codec::cut(&bytes, u32::MAX).expect("well-formed").expect("whole");
                let answer = match codec::decode(&frame, Version::V5).expect("well-formed") {
                    Packet::Publish(p) => {
                        let id = p.packet_id.to_be_bytes();
                        let second = bytes[0] & 4 != 0;
                        if !(second && self.known.contains(&p.packet_id)) {
                            self.seen.push(String::from_utf8(p.payload.to_vec()).expect("text"));
                        }
                        if !second {
                            packet(0x40, &[&id])
                        } else {
                            self.known.push(p.packet_id);
                            packet(0x50, &[&id])
                        }
                    }
                    Packet::PubRel(ack) => {
                        self.known.retain(|id| *id != ack.packet_id);
                        packet(0x70, &[&ack.packet_id.to_be_bytes()])
                    }
                    _ => continue,
                };
                if answers > 0 {
                    answers -= 1;
                    node.send(client, &answer);
                }
            }
            got = node.take(client);
            if got.is_empty() {
                return;
            }
        }
    }

    fn all(&self) -> Vec<String> {
        let mut all = self.seen.clone();
        all.sort_by_key(|s| s.parse::<usize>().expect("a number"));
        all
    }
}

fn expected() -> Vec<String> {
    (0..TOPICS).map(|n| n.to_string()).collect()
}

/// Reads a few, loses the connection by `lose`, and comes back, again and again; what it has read in the end.
fn read_with_losses(shards: u16, qos: u8, lose: impl Fn(&mut Node, Client)) -> Reader {
    let mut node = node(shards, qos);
    let mut reader = Reader::default();
    let client = node.connect(Version::V5, "reader", 1000);
    let got = subscribe(&mut node, client, qos);
    reader.read(&mut node, client, got, 3);
    lose(&mut node, client);
    for round in 0..6 {
        let client = node.connect(Version::V5, "reader", 1000);
        let got = node.take(client);
        reader.read(&mut node, client, got, 2 + round);
        lose(&mut node, client);
    }
    let client = node.connect(Version::V5, "reader", 1000);
    let got = node.take(client);
    reader.read(&mut node, client, got, usize::MAX);
    reader
}

#[test]
fn a_lost_connection_loses_no_retained_message_and_repeats_none_but_what_was_in_flight() {
    for shards in [1, 3] {
        let reader = read_with_losses(shards, 1, |node, client| node.cut(client));
        let mut once = reader.all();
        once.dedup();
        assert_eq!(once, expected(), "{shards} shards");
        let reader = read_with_losses(shards, 2, |node, client| node.cut(client));
        assert_eq!(reader.all(), expected(), "{shards} shards");
    }
}

#[test]
fn a_crash_loses_no_retained_message_and_repeats_none_of_qos_2() {
    for shards in [1, 3] {
        let reader = read_with_losses(shards, 1, |node, _| node.crash());
        let mut once = reader.all();
        once.dedup();
        assert_eq!(once, expected(), "{shards} shards");
        let reader = read_with_losses(shards, 2, |node, _| node.crash());
        assert_eq!(reader.all(), expected(), "{shards} shards");
    }
}

#[test]
fn a_session_that_read_all_of_it_gets_nothing_again() {
    for crash in [false, true] {
        let mut node = node(1, 1);
        let mut reader = Reader::default();
        let client = node.connect(Version::V5, "reader", 1000);
        let got = subscribe(&mut node, client, 1);
        reader.read(&mut node, client, got, usize::MAX);
        node.pass(2000);
        assert_eq!(reader.all(), expected());
        if crash {
            node.crash()
        } else {
            node.cut(client)
        }
        let client = node.connect(Version::V5, "reader", 1000);
        assert!(node.take(client).is_empty());
    }
}

#[test]
fn an_unsubscribe_ends_what_is_owed() {
    let mut node = node(1, 1);
    let client = node.connect(Version::V5, "reader", 1000);
    let got = subscribe(&mut node, client, 1);
    assert!(!got.is_empty() && got.len() < TOPICS);
    node.send(client, &packet(0xa2, &[&[0, 2], &[0], &[0, 3], b"r/#"]));
    node.cut(client);
    let client = node.connect(Version::V5, "reader", 1000);
    let mut reader = Reader::default();
    let again = node.take(client);
    reader.read(&mut node, client, again, usize::MAX);
    // What was in flight is finished [MQTT-3.10.4-3].
    assert_eq!(reader.seen.len(), got.len());
}
