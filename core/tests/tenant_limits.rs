//! Limits of tenants: counts, rates and shapes, in both generations of the protocol, for a tenant on one shard and
//! for one that is spread over several.

mod shard_support;

use mast_core::codec::Version;
use mast_core::settings::{Settings, WhenFull};
use mast_core::sys::{Drop, TenantUsage};
use mast_core::tenant::limits::{Limit, Limits, Row, TenantLimits};
use mast_core::tenant::registry::Registry;
use shard_support::{Client, Node, packet};

const VERSIONS: [Version; 2] = [Version::V311, Version::V5];

/// A node of one tenant with these limits.
fn node(shards: u16, spread: bool, rows: &[(&str, Limit)]) -> Node {
    let mut node = Node::new(shards, Settings::default());
    node.tenancy.registry = Registry::placed(&[("t", spread)]).expect("a good name");
    limit(&mut node, rows);
    node.restart_with_tenancy();
    node
}

/// Other limits come into force.
fn limit(node: &mut Node, rows: &[(&str, Limit)]) {
    let mut limits = TenantLimits::default();
    for (name, value) in rows {
        limits.set(name, Some(*value)).expect("a good limit");
    }
    node.tenancy.limits = Limits::shared(limits);
    node.reconfigure(node.settings.clone());
}

fn at(n: u64) -> Limit {
    Limit::enforced(n)
}

/// The places where counts are kept: a tenant alone on a shard, one of several shards, and all of them.
fn placements() -> [(u16, bool); 3] {
    [(1, true), (3, false), (3, true)]
}

/// Tries to connect: the CONNACK's code.
fn code(node: &mut Node, version: Version, id: &str, expiry: u32) -> (Client, u8) {
    let client = node.try_connect(version, id, expiry);
    let got = node.take(client);
    (client, got[0][3])
}

/// What a refusal looks like.
fn refused(version: Version, v5: u8, v3: u8) -> u8 {
    if version == Version::V5 { v5 } else { v3 }
}

fn hits(node: &Node, row: Row) -> (u64, u64) {
    let sum = total(node);
    (sum.hits.enforced[row as usize], sum.hits.observed[row as usize])
}

fn total(node: &Node) -> TenantUsage {
    let mut sum = TenantUsage::default();
    node.usage().iter().for_each(|u| sum.add(u));
    sum
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u16).to_be_bytes(), s.as_bytes()].concat()
}

/// SUBSCRIBE to filters at a QoS; the codes.
fn subscribe(node: &mut Node, client: Client, version: Version, filters: &[&str], qos: u8) -> Vec<u8> {
    let props: &[u8] = if version == Version::V5 { &[0] } else { &[] };
    let list: Vec<u8> = filters.iter().flat_map(|f| [text(f), vec![qos]].concat()).collect();
    node.send(client, &packet(0x82, &[&[0, 9], props, &list]));
    let got = node.take(client);
    let suback = got.iter().find(|p| p[0] == 0x90).expect("a SUBACK");
    suback[suback.len() - filters.len()..].to_vec()
}

fn unsubscribe(node: &mut Node, client: Client, version: Version, filter: &str) {
    let props: &[u8] = if version == Version::V5 { &[0] } else { &[] };
    node.send(client, &packet(0xA2, &[&[0, 9], props, &text(filter)]));
    assert_eq!(node.take(client)[0][0], 0xB0);
}

#[test]
fn one_connection_too_many_is_refused_until_another_ends_and_a_takeover_takes_its_own_place() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            let mut node = node(shards, spread, &[("connections", at(3))]);
            for id in ["a", "b", "c"] {
                assert_eq!(code(&mut node, version, id, 100).1, 0, "{version:?} {id}");
            }
            assert_eq!(code(&mut node, version, "d", 0).1, refused(version, 0x97, 3));
            let (again, accepted) = code(&mut node, version, "a", 100);
            assert_eq!(accepted, 0, "a takeover");
            assert_eq!(total(&node).usage.connections, 3);
            node.cut(again);
            assert_eq!(code(&mut node, version, "d", 0).1, 0);
            assert_eq!((total(&node).usage.connections, hits(&node, Row::Connections)), (3, (1, 0)));
        }
    }
}

#[test]
fn connects_beyond_the_rate_are_refused_and_time_lets_more_in() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            let mut node = node(shards, spread, &[("connects_per_second", at(2))]);
            let codes: Vec<u8> = ["a", "b", "c"].map(|id| code(&mut node, version, id, 0).1).to_vec();
            assert_eq!(codes, [0, 0, refused(version, 0x9F, 3)]);
            node.pass(500);
            assert_eq!(code(&mut node, version, "d", 0).1, 0);
            assert_eq!(hits(&node, Row::ConnectsPerSecond), (1, 0));
        }
    }
}

#[test]
fn persistent_sessions_count_while_away_and_over_a_restart_and_one_that_comes_back_counts_once() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            let mut node = node(shards, spread, &[("persistent_sessions", at(2))]);
            for id in ["a", "b"] {
                let (client, accepted) = code(&mut node, version, id, 100);
                assert_eq!(accepted, 0);
                node.cut(client);
            }
            assert_eq!(code(&mut node, version, "c", 100).1, refused(version, 0x97, 3));
            assert_eq!(code(&mut node, version, "clean", 0).1, 0, "it takes no session");
            node.crash();
            assert_eq!(total(&node).usage.persistent_sessions, 2, "{shards} {spread}");
            assert_eq!(code(&mut node, version, "c", 100).1, refused(version, 0x97, 3));
            let (back, accepted) = code(&mut node, version, "a", 100);
            assert_eq!(accepted, 0);
            node.cut(back);
            // A session that ends makes room.
            let (ends, _) = code(&mut node, version, "b", 0);
            node.cut(ends);
            assert_eq!(code(&mut node, version, "c", 100).1, 0, "{version:?} {shards} {spread}");
            assert_eq!(total(&node).usage.persistent_sessions, 2);
        }
    }
}

#[test]
fn filters_beyond_the_tenant_s_or_the_client_s_are_refused_and_a_replaced_one_takes_nothing() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            let over = refused(version, 0x97, 0x80);
            let mut node =
                node(shards, spread, &[("subscriptions", at(3)), ("subscriptions_per_client", at(2))]);
            let a = node.connect(version, "a", 100);
            let b = node.connect(version, "b", 0);
            assert_eq!(subscribe(&mut node, a, version, &["1", "2", "3"], 1), [1, 1, over]);
            assert_eq!(subscribe(&mut node, a, version, &["1", "2"], 0), [0, 0], "replaced");
            assert_eq!(subscribe(&mut node, b, version, &["1", "2"], 0), [0, over], "{shards} {spread}");
            assert_eq!(total(&node).usage.subscriptions, 3);
            unsubscribe(&mut node, a, version, "1");
            assert_eq!(subscribe(&mut node, b, version, &["2"], 0), [0]);
            assert_eq!(hits(&node, Row::Subscriptions), (1, 0));
            assert_eq!(hits(&node, Row::SubscriptionsPerClient), (1, 0));
            // What a session's end frees is there for others; what is stored counts after a restart.
            node.cut(b);
            node.crash();
            assert_eq!(total(&node).usage.subscriptions, 1);
            let c = node.connect(version, "c", 0);
            assert_eq!(subscribe(&mut node, c, version, &["1", "2"], 0), [0, 0], "{shards} {spread}");
            let d = node.connect(version, "d", 0);
            assert_eq!(subscribe(&mut node, d, version, &["1"], 0), [over]);
        }
    }
}

#[test]
fn groups_and_their_members_are_counted_where_they_are_led() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            let over = refused(version, 0x97, 0x80);
            let mut node = node(shards, spread, &[("shared_groups", at(2)), ("group_members", at(2))]);
            let clients: Vec<Client> =
                ["a", "b", "c"].iter().map(|id| node.connect(version, id, 100)).collect();
            let join = |node: &mut Node, n: usize, filter: &str| {
                subscribe(node, clients[n], version, &[filter], 1)[0]
            };
            assert_eq!(join(&mut node, 0, "$share/g/x"), 1);
            assert_eq!(join(&mut node, 1, "$share/g/x"), 1);
            assert_eq!(join(&mut node, 2, "$share/g/x"), over, "two members are all");
            assert_eq!(join(&mut node, 2, "$share/h/x"), 1);
            assert_eq!(join(&mut node, 2, "$share/i/x"), over, "two groups are all");
            assert_eq!(total(&node).usage.shared_groups, 2);
            node.crash();
            assert_eq!(total(&node).usage.shared_groups, 2, "after a restart");
            let c = node.connect(version, "c", 100);
            unsubscribe(&mut node, c, version, "$share/h/x");
            assert_eq!(subscribe(&mut node, c, version, &["$share/i/x"], 1), [1], "{shards} {spread}");
            assert_eq!(hits(&node, Row::SharedGroups), (0, 0), "none since the restart");
        }
    }
}

#[test]
fn publishes_beyond_the_rate_wait_and_none_is_lost() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            for rates in [&[("publishes_per_second", at(4))][..], &[("publish_bytes_per_second", at(80))]] {
                let mut node = node(shards, spread, rates);
                let listener = node.connect(version, "listener", 0);
                node.subscribe(listener, "t", 0);
                let names = ["p1", "p2"];
                let senders = names.map(|id| node.connect(version, id, 0));
                for n in 0..10 {
                    for sender in senders {
                        node.publish(sender, "t", format!("{n:010}").as_bytes(), 1);
                    }
                }
                let mut got = node.messages(listener).len();
                assert!((1..=8).contains(&got), "{got} at once");
                for _ in 0..80 {
                    node.pass(100);
                    let more = node.messages(listener).len();
                    assert!(more <= 4, "{more} in a tenth of a second");
                    got += more;
                }
                assert_eq!(got, 20, "{version:?} {shards} {spread} {rates:?}");
                let acks: Vec<usize> = senders.iter().map(|s| node.take(*s).len()).collect();
                assert!(acks.iter().all(|n| *n >= 5), "both went on: {acks:?}");
            }
        }
    }
}

#[test]
fn a_publish_larger_than_a_second_s_worth_passes_and_delays_those_behind_it() {
    let mut node = node(1, true, &[("publish_bytes_per_second", at(100))]);
    let client = node.connect(Version::V5, "c", 0);
    node.subscribe(client, "t", 0);
    node.publish_with(client, 0x30, "t", &[b'x'; 300]);
    node.publish_with(client, 0x30, "t", b"next");
    assert_eq!(node.messages(client).len(), 0, "its own copy was read by publish_with");
    node.pass(1900);
    assert_eq!(node.messages(client).len(), 0);
    node.pass(600);
    assert_eq!(node.messages(client), ["next"]);
}

#[test]
fn deliveries_beyond_the_rate_come_later_in_order_and_none_of_qos_1_is_lost() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            for rates in [&[("deliveries_per_second", at(5))][..], &[("delivery_bytes_per_second", at(15))]] {
                let mut node = node(shards, spread, rates);
                let one = node.connect(version, "one", 0);
                let two = node.connect(version, "two", 100);
                node.subscribe(one, "t", 0);
                node.subscribe(two, "t", 1);
                let sender = node.connect(version, "sender", 0);
                for n in 0..10 {
                    node.publish(sender, "t", format!("{n:02}").as_bytes(), 1);
                }
                let mut got = [node.messages(one), node.messages(two)];
                assert!(got.iter().flatten().count() <= 6, "{got:?}");
                for _ in 0..60 {
                    node.pass(100);
                    got[0].extend(node.messages(one));
                    got[1].extend(node.messages(two));
                }
                let all: Vec<String> = (0..10).map(|n| format!("{n:02}")).collect();
                assert_eq!(got, [all.clone(), all], "{version:?} {shards} {spread} {rates:?}");
            }
        }
    }
}

#[test]
fn qos_0_that_finds_the_queue_full_for_want_of_tokens_is_dropped_and_counted_as_such() {
    let mut node = node(1, true, &[("deliveries_per_second", at(1))]);
    node.settings.queue_messages = 3;
    node.reconfigure(node.settings.clone());
    let client = node.connect(Version::V5, "c", 0);
    node.subscribe(client, "t", 0);
    let sender = node.connect(Version::V5, "s", 0);
    for n in 0..10 {
        node.publish_with(sender, 0x30, "t", format!("{n}").as_bytes());
    }
    let dropped = node.counters()[0].drops[Drop::RateLimited as usize];
    assert_eq!(dropped, 6);
    node.pass(4000);
    assert_eq!(node.messages(client), ["0", "1", "2", "3"]);
}

#[test]
fn retained_topics_and_bytes_beyond_the_limit_are_refused_and_a_replaced_or_deleted_one_makes_room() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            let mut node = node(shards, spread, &[("retained_messages", at(2)), ("retained_bytes", at(100))]);
            let mut sender = node.connect(version, "s", 0);
            let ok = |got: Vec<Vec<u8>>| got[0][0] == 0x40 && got[0].get(4).is_none_or(|c| *c < 0x80);
            let retain =
                |node: &mut Node, sender, topic, body: &[u8]| node.publish_with(sender, 0x33, topic, body);
            let refused = |node: &mut Node, sender: &mut Client, topic, body: &[u8]| {
                let got = node.publish_with(*sender, 0x33, topic, body);
                if version == Version::V5 {
                    assert_eq!((got[0][0], got[0][4]), (0x40, 0x97), "{got:02x?}");
                } else {
                    assert!(!node.is_open(*sender), "3.1.1 has no code");
                    *sender = node.connect(version, "s", 0);
                }
            };
            assert!(ok(retain(&mut node, sender, "a", &[b'x'; 40])));
            assert!(ok(retain(&mut node, sender, "b", &[b'x'; 40])));
            refused(&mut node, &mut sender, "c", b"x");
            refused(&mut node, &mut sender, "a", &[b'x'; 70]);
            assert!(ok(retain(&mut node, sender, "a", &[b'x'; 58])), "replaced: as much as fits");
            let used = total(&node).usage;
            assert_eq!((used.retained_messages, used.retained_bytes), (2, 100));
            assert!(ok(retain(&mut node, sender, "a", b"")), "deleted");
            assert!(ok(retain(&mut node, sender, "c", b"x")), "{version:?} {shards} {spread}");
            node.crash();
            let used = total(&node).usage;
            assert_eq!((used.retained_messages, used.retained_bytes), (2, 43));
            let late = node.connect(version, "s", 0);
            node.publish_with(late, 0x31, "d", b"x");
            let dropped: u64 = node.counters().iter().map(|c| c.drops[Drop::RetainedLimit as usize]).sum();
            assert_eq!(dropped, 1, "QoS 0 cannot be told");
            assert_eq!(hits(&node, Row::RetainedMessages), (1, 0));
        }
    }
}

#[test]
fn a_tenant_has_its_own_bounds_on_what_is_kept_for_an_absent_session() {
    for version in VERSIONS {
        for (row, limits) in [
            (Row::OfflineMessages, [("offline_messages", at(3))]),
            (Row::OfflineBytes, [("offline_bytes", at(6))]),
        ] {
            let mut node = node(1, true, &limits);
            let away = node.connect(version, "away", 100);
            node.subscribe(away, "t", 1);
            node.cut(away);
            let sender = node.connect(version, "s", 0);
            for n in 0..5 {
                node.publish(sender, "t", format!("{n}").as_bytes(), 1);
            }
            let back = node.connect(version, "away", 100);
            assert_eq!(node.messages(back), ["2", "3", "4"], "the oldest are missing");
            assert_eq!(hits(&node, row), (1, 0));
            let mut limits = limits;
            limits[0].1.observe = true;
            limit(&mut node, &limits);
            node.cut(back);
            for n in 0..5 {
                node.publish(sender, "t", format!("{n}").as_bytes(), 1);
            }
            let back = node.connect(version, "away", 100);
            assert_eq!(node.messages(back).len(), 5, "only counted");
            assert_eq!(hits(&node, row).1, 1);
        }
    }
}

#[test]
fn with_refuse_new_the_tenant_s_own_bound_refuses_its_publishers() {
    let mut node = Node::new(1, Settings::default());
    node.settings.offline.when_full = WhenFull::RefuseNew;
    limit(&mut node, &[("offline_messages", at(2))]);
    let away = node.connect(Version::V5, "away", 100);
    node.subscribe(away, "t", 1);
    node.cut(away);
    let sender = node.connect(Version::V5, "s", 0);
    let codes: Vec<Option<u8>> =
        (0..3).map(|_| node.publish(sender, "t", b"x", 1)[0].get(4).copied()).collect();
    assert_eq!(codes, [None, None, Some(0x97)]);
    assert_eq!(hits(&node, Row::OfflineMessages), (1, 0));
}

#[test]
fn every_counted_limit_and_rate_has_a_mode_that_refuses_nothing_and_counts() {
    for version in VERSIONS {
        for (shards, spread) in placements() {
            let low = [
                "connections",
                "connects_per_second",
                "persistent_sessions",
                "subscriptions",
                "subscriptions_per_client",
                "shared_groups",
                "group_members",
                "publishes_per_second",
                "publish_bytes_per_second",
                "deliveries_per_second",
                "delivery_bytes_per_second",
                "retained_messages",
                "retained_bytes",
            ];
            let rows = low.map(|name| (name, Limit::observed(1)));
            let mut node = node(shards, spread, &rows);
            let a = node.connect(version, "a", 100);
            let b = node.connect(version, "b", 100);
            for client in [a, b] {
                let filters = ["x", "$share/g/x", "$share/h/x"];
                assert_eq!(subscribe(&mut node, client, version, &filters, 1), [1, 1, 1]);
            }
            for topic in ["x", "y"] {
                let got = node.publish_with(a, 0x33, topic, b"12");
                assert!(got.iter().any(|p| p[0] == 0x40 && p.get(4).is_none_or(|c| *c < 0x80)), "{got:02x?}");
            }
            node.pass(1);
            for name in low {
                let row = Row::named(name).expect("a row");
                let (enforced, observed) = hits(&node, row);
                assert!(enforced == 0 && observed > 0, "{name} {shards} {spread}: {enforced} {observed}");
            }
        }
    }
}

#[test]
fn a_limit_below_what_there_is_disconnects_nobody_and_lets_nobody_new_in() {
    for (shards, spread) in placements() {
        let mut node = node(shards, spread, &[]);
        let clients = ["a", "b", "c"].map(|id| node.connect(Version::V5, id, 100));
        for client in clients {
            node.subscribe(client, "x", 1);
        }
        limit(&mut node, &[("connections", at(2)), ("subscriptions", at(2)), ("persistent_sessions", at(2))]);
        assert!(clients.iter().all(|c| node.is_open(*c)));
        assert_eq!(code(&mut node, Version::V5, "d", 0).1, 0x97);
        assert_eq!(
            subscribe(&mut node, clients[0], Version::V5, &["y", "x"], 1),
            [0x97, 1],
            "{shards} {spread}"
        );
        let used = total(&node).usage;
        assert_eq!((used.connections, used.subscriptions, used.persistent_sessions), (3, 3, 3));
        // A takeover, and a reconnect once there is room.
        let a = node.connect(Version::V5, "a", 100);
        node.cut(clients[1]);
        node.cut(clients[2]);
        assert_eq!(code(&mut node, Version::V5, "b", 100).1, 0);
        assert!(node.is_open(a));
        limit(&mut node, &[]);
        assert_eq!(code(&mut node, Version::V5, "d", 100).1, 0);
        limit(&mut node, &[("connections", at(4))]);
        assert_eq!(code(&mut node, Version::V5, "e", 0).1, 0);
        assert_eq!(code(&mut node, Version::V5, "f", 0).1, 0x97, "{shards} {spread}");
    }
}

#[test]
fn who_waits_for_tokens_goes_on_when_the_limit_is_lifted() {
    for (shards, spread) in placements() {
        let rows = [("publishes_per_second", at(1)), ("deliveries_per_second", at(1))];
        let mut node = node(shards, spread, &rows);
        let client = node.connect(Version::V5, "c", 0);
        node.subscribe(client, "t", 1);
        let mut got = 0;
        for _ in 0..5 {
            got += node.publish(client, "t", b"x", 0).iter().filter(|p| p[0] & 0xF0 == 0x30).count();
        }
        assert!(got < 3);
        limit(&mut node, &[]);
        node.pass(100);
        got += node.messages(client).len();
        assert_eq!(got, 5, "{shards} {spread}");
    }
}
