//! Every row of the table of tenants' limits, reached over TCP in MQTT 3.1.1 and 5, enforced and observed. A row
//! without a case here does not compile.

use mast_core::{
    codec::{AckKind, PacketType, SubOptions},
    tenant::limits::{LIMITS, Row},
};
use mast_tests::{
    Broker, Client, Connect, Property, Version,
    client::{Out, qos},
    twin::runs_once,
};
use std::time::Duration;

/// One broker with one limit, and who asks for more.
struct Case {
    broker: Broker,
    version: Version,
    observed: bool,
}

impl Case {
    fn connect(&self, id: &str) -> Connect {
        Connect::new(self.version, id)
    }

    fn client(&self, id: &str) -> Client {
        self.connect(id).open(&self.broker)
    }

    fn v5(&self) -> bool {
        self.version.is_v5()
    }

    fn code(&self, v5: u8, v3: u8) -> u8 {
        if self.v5() { v5 } else { v3 }
    }

    /// A CONNECT over the limit.
    fn refuses(&self, connect: &Connect, v5: u8) {
        if self.observed {
            // It stays until the broker ends.
            std::mem::forget(connect.open(&self.broker));
        } else {
            connect.expect_refusal(&self.broker, self.code(v5, 3));
        }
    }

    /// A SUBSCRIBE over the limit.
    fn refuses_filter(&self, client: &mut Client, filter: &str, v5: u8) {
        let refused = self.code(v5, 0x80);
        assert_eq!(client.subscribe(filter, 1), if self.observed { 1 } else { refused }, "{filter}");
    }

    /// A publish that ends its connection.
    fn ends(&self, client: &mut Client, out: &Out<'_>, reason: u8) {
        if self.observed {
            assert!(client.publish_out(out) < 0x80, "{out:?}");
        } else {
            client.send_publish(out);
            client.expect_end(reason);
        }
    }

    /// What was left for a session: `all`, or fewer if the limit is enforced.
    fn keeps(&self, all: usize, left: impl FnOnce(&Broker)) {
        let mut away = self.connect("away").lasting().open(&self.broker);
        away.subscribe("t", 1);
        away.disconnect();
        let mut sender = self.client("sender");
        for n in 0..all {
            let body = format!("{n:04}{}", "x".repeat(1020));
            assert!(sender.publish("t", body, 1) < 0x80);
        }
        left(&self.broker);
        let mut back = self.connect("away").lasting().open(&self.broker);
        assert_eq!(sender.publish("t", "end", 1) & 0x80, 0);
        let mut got = 0;
        while back.message().text() != "end" {
            got += 1;
        }
        assert_eq!(got < all, !self.observed, "{got} of {all}");
    }
}

/// A number for the row, and what else the configuration says.
fn setting(row: Row) -> (&'static str, &'static str) {
    match row {
        Row::Connections
        | Row::ConnectsPerSecond
        | Row::PersistentSessions
        | Row::Subscriptions
        | Row::SubscriptionsPerClient
        | Row::SharedGroups
        | Row::GroupMembers
        | Row::RetainedMessages
        | Row::ReceiveMaximum
        | Row::TopicAliasMaximum => ("1", ""),
        Row::PublishesPerSecond | Row::DeliveriesPerSecond | Row::TopicLevels | Row::OfflineMessages => {
            ("2", "")
        }
        Row::PublishBytesPerSecond | Row::DeliveryBytesPerSecond | Row::RetainedBytes => ("30", ""),
        Row::TopicBytes => ("5", ""),
        Row::OfflineBytes => ("2500", ""),
        Row::LogBytes => ("\"4KiB\"", ""),
        Row::PacketSize => ("\"1KiB\"", ""),
        Row::MaxQos => ("0", ""),
        Row::SessionExpiry => ("\"1s\"", ""),
        Row::KeepAliveMin => ("\"1m\"", ""),
        Row::KeepAliveMax => ("\"1s\"", ""),
        Row::Wildcards | Row::SharedSubscriptions | Row::Retain => ("false", ""),
    }
}

fn reach(row: Row, case: &Case) {
    match row {
        Row::Connections => {
            let _first = case.client("first");
            case.refuses(&case.connect("second"), 0x97);
            // A takeover takes its own place.
            case.client("first");
        }
        Row::ConnectsPerSecond => {
            // However slow the machine: of many at once one comes too early.
            let over = (0..50).any(|n| case.connect(&format!("c{n}")).attempt(&case.broker).1.reason() != 0);
            assert_eq!(over, !case.observed);
        }
        Row::PersistentSessions => {
            case.connect("first").lasting().open(&case.broker).disconnect();
            case.refuses(&case.connect("second").lasting(), 0x97);
            assert!(case.connect("first").lasting().open(&case.broker).connack().session_present());
        }
        Row::Subscriptions => {
            case.client("other");
            let mut first = case.client("first");
            assert_eq!(first.subscribe("a", 1), 1);
            let mut second = case.client("second");
            case.refuses_filter(&mut second, "b", 0x97);
            assert_eq!(first.subscribe("a", 0), 0, "a replaced filter takes nothing");
        }
        Row::SubscriptionsPerClient => {
            let mut client = case.client("client");
            assert_eq!(client.subscribe("a", 1), 1);
            case.refuses_filter(&mut client, "b", 0x97);
        }
        Row::SharedGroups => {
            let mut client = case.client("client");
            assert_eq!(client.subscribe("$share/g/a", 1), 1);
            case.refuses_filter(&mut client, "$share/h/a", 0x97);
        }
        Row::GroupMembers => {
            let mut first = case.client("first");
            assert_eq!(first.subscribe("$share/g/a", 1), 1);
            case.refuses_filter(&mut case.client("second"), "$share/g/a", 0x97);
        }
        Row::PublishesPerSecond | Row::PublishBytesPerSecond => {
            let mut client = case.client("client");
            let ids: Vec<u16> = (0..6)
                .map(|n| {
                    let payload = format!("{n:010}");
                    client.send_publish(&Out {
                        topic: "t",
                        payload: payload.as_bytes(),
                        qos: 1,
                        ..Out::default()
                    })
                })
                .collect();
            for id in ids {
                assert!(client.finish_publish(id, 1) < 0x80);
            }
        }
        Row::DeliveriesPerSecond | Row::DeliveryBytesPerSecond => {
            let mut client = case.client("client");
            client.subscribe("t", 1);
            let mut sender = case.client("sender");
            for n in 0..6 {
                assert!(sender.publish("t", format!("{n:010}"), 1) < 0x80);
            }
            let got: Vec<String> = client.messages(6).iter().map(|m| m.text().to_owned()).collect();
            assert_eq!(got, (0..6).map(|n| format!("{n:010}")).collect::<Vec<_>>());
        }
        Row::RetainedMessages | Row::RetainedBytes => {
            let mut client = case.client("client");
            assert!(client.retain("a", "0123456789", 1) < 0x80);
            let out = Out { topic: "b", payload: &[b'x'; 25], qos: 1, retain: true, ..Out::default() };
            if case.observed {
                assert!(client.publish_out(&out) < 0x80);
            } else if case.v5() {
                assert_eq!(client.publish_out(&out), 0x97);
            } else {
                client.send_publish(&out);
                client.expect_end(0);
            }
        }
        Row::OfflineMessages | Row::OfflineBytes => case.keeps(5, |_| {}),
        Row::LogBytes => case.keeps(20, |broker| {
            let mode = if case.observed { "observed" } else { "enforced" };
            broker.until("the log is over its limit", || hits(broker, row, mode) > 0.0);
        }),
        Row::PacketSize => {
            let mut client = case.client("client");
            if case.v5() && !case.observed {
                assert_eq!(client.connack().props().maximum_packet_size(), Some(1024));
            }
            case.ends(
                &mut client,
                &Out { topic: "t", payload: &[b'x'; 1024], qos: 1, ..Out::default() },
                0x95,
            );
        }
        Row::TopicBytes | Row::TopicLevels => {
            let long = if row == Row::TopicBytes { "sixsix" } else { "1/2/3" };
            let mut client = case.client("client");
            case.refuses_filter(&mut client, long, 0x8F);
            case.ends(&mut client, &Out { topic: long, payload: b"x", qos: 1, ..Out::default() }, 0x90);
        }
        Row::MaxQos => {
            let mut client = case.client("client");
            if case.v5() && !case.observed {
                assert_eq!(client.connack().props().maximum_qos(), Some(0));
                case.connect("will").will("w", "w", 1, false).expect_refusal(&case.broker, 0x9B);
            }
            assert_eq!(client.subscribe("t", 1), u8::from(case.observed));
            case.ends(&mut client, &Out { topic: "t", payload: b"x", qos: 1, ..Out::default() }, 0x9B);
        }
        Row::SessionExpiry => {
            let client = case.connect("client").lasting().open(&case.broker);
            if case.v5() && !case.observed {
                assert_eq!(client.connack().props().session_expiry(), Some(1));
            }
            client.disconnect();
            if case.observed {
                return;
            }
            let mut wait = Duration::from_millis(1100);
            case.broker.until("the session is over", || {
                std::thread::sleep(wait);
                wait *= 2;
                let back = case.connect("client").lasting().open(&case.broker);
                let present = back.connack().session_present();
                back.disconnect();
                !present
            });
        }
        Row::KeepAliveMin => {
            let mut client = case.connect("client").keep_alive(1).open(&case.broker);
            if case.v5() {
                let told = client.connack().props().server_keep_alive();
                assert_eq!(told, (!case.observed).then_some(60));
            }
            if !case.observed {
                std::thread::sleep(Duration::from_millis(2500));
                client.ping();
            }
        }
        Row::KeepAliveMax => {
            let mut client = case.connect("client").keep_alive(0).open(&case.broker);
            if case.v5() {
                let told = client.connack().props().server_keep_alive();
                // Observed: what the node grants by itself is told.
                assert_eq!(told == Some(1), !case.observed, "{told:?}");
            }
            if !case.observed {
                client.expect_end(0x8D);
            }
        }
        Row::ReceiveMaximum => {
            let mut client = case.client("client");
            if case.v5() && !case.observed {
                assert_eq!(client.connack().props().receive_maximum(), Some(1));
            }
            // Through the store, so that acknowledgements wait; and in one write, so that they meet.
            let mut burst = Vec::new();
            for id in 1..=50u16 {
                let kind = if case.v5() { 0x35 } else { 0x33 };
                let props: &[u8] = if case.v5() { &[0] } else { &[] };
                let body = [&[0, 1, b't'], &id.to_be_bytes()[..], props, b"x"].concat();
                burst.extend([kind, body.len() as u8]);
                burst.extend(body);
            }
            client.send_bytes(&burst);
            match (case.v5(), case.observed) {
                (true, false) => drop(client.expect_end(0x93)),
                (true, true) => (1..=50).for_each(|id| {
                    client.expect_ack(PacketType::PubRec, id, 0);
                    client.ack(AckKind::PubRel, id);
                    client.expect_ack(PacketType::PubComp, id, 0);
                }),
                (false, _) => (1..=50).for_each(|id| drop(client.expect_ack(PacketType::PubAck, id, 0))),
            }
        }
        Row::TopicAliasMaximum => {
            let mut client = case.client("client");
            if !case.v5() {
                // There are none.
                client.publish("t", "x", 1);
                return;
            }
            if !case.observed {
                assert_eq!(client.connack().props().topic_alias_maximum(), Some(1));
            }
            let props = [Property::TopicAlias(2)];
            case.ends(
                &mut client,
                &Out { topic: "t", payload: b"x", qos: 1, props: &props, ..Out::default() },
                0x94,
            );
        }
        Row::Wildcards => {
            let mut client = case.client("client");
            if case.v5() && !case.observed {
                assert_eq!(client.connack().props().wildcard_available(), Some(false));
            }
            case.refuses_filter(&mut client, "a/+", 0xA2);
        }
        Row::SharedSubscriptions => {
            let mut client = case.client("client");
            if case.v5() && !case.observed {
                assert_eq!(client.connack().props().shared_available(), Some(false));
            }
            case.refuses_filter(&mut client, "$share/g/a", 0x9E);
        }
        Row::Retain => {
            let mut client = case.client("client");
            if case.v5() && !case.observed {
                assert_eq!(client.connack().props().retain_available(), Some(false));
            }
            let options = SubOptions::new(qos(1));
            assert_eq!(client.subscribe_opt("t", options), 1);
            let out = Out { topic: "t", payload: b"x", qos: 1, retain: true, ..Out::default() };
            case.ends(&mut client, &out, 0x9A);
        }
    }
}

fn hits(broker: &Broker, row: Row, mode: &str) -> f64 {
    let name = row.name();
    let metric =
        format!("mast_tenant_limit_hits_total{{tenant=\"default\",limit=\"{name}\",mode=\"{mode}\"}}");
    broker.metric_sum(&metric)
}

/// Reaches all rows in one version and one mode.
fn reach_all(version: Version, observed: bool) {
    runs_once("limits are of one tenant, and counted by metrics of the whole broker");
    for def in &LIMITS {
        let (value, more) = setting(def.row);
        let name = def.name;
        let observe = if observed { format!("observe = [\"{name}\"]\n") } else { String::new() };
        let config =
            format!("[node]\nshards = 2\n{more}[tenant.default.limits]\n{name} = {value}\n{observe}");
        eprintln!("{name}, {version:?}, observed: {observed}");
        let case = Case { broker: Broker::with(&config), version, observed };
        reach(def.row, &case);
        if def.row == Row::TopicAliasMaximum && !version.is_v5() {
            continue;
        }
        let (counts, other) = if observed { ("observed", "enforced") } else { ("enforced", "observed") };
        case.broker
            .until(&format!("{name} is counted as {counts}"), || hits(&case.broker, def.row, counts) > 0.0);
        assert_eq!(hits(&case.broker, def.row, other), 0.0, "{name}");
    }
}

#[test]
fn every_limit_is_reached_in_3_1_1() {
    reach_all(Version::V311, false);
}

#[test]
fn every_limit_is_reached_in_5() {
    reach_all(Version::V5, false);
}

#[test]
fn every_limit_only_counts_in_3_1_1_when_it_is_observed() {
    reach_all(Version::V311, true);
}

#[test]
fn every_limit_only_counts_in_5_when_it_is_observed() {
    reach_all(Version::V5, true);
}

#[test]
fn a_reload_puts_limits_in_force_and_counts_hold_over_a_crash() {
    runs_once("it counts by metrics of the whole broker");
    let mut broker = Broker::with("[tenant.default.limits]\n");
    for id in ["a", "b"] {
        let mut client = Connect::v5(id).lasting().open(&broker);
        client.subscribe("x", 1);
        client.retain(id, "kept", 1);
        client.disconnect();
    }
    let limits =
        "[tenant.default.limits]\npersistent_sessions = 2\nsubscriptions = 2\nretained_messages = 2\n";
    broker.configure(limits);
    assert!(broker.reload());
    let refuses = |broker: &Broker| {
        Connect::v5("c").lasting().expect_refusal(broker, 0x97);
        let mut clean = broker.client("clean");
        assert_eq!(clean.subscribe("y", 1), 0x97);
        assert_eq!(clean.retain("c", "no", 1), 0x97);
    };
    refuses(&broker);
    broker.crash();
    refuses(&broker);
    let usage =
        |limit: &str| broker.metric(&format!("mast_tenant_usage{{tenant=\"default\",limit=\"{limit}\"}}"));
    broker.until("usage is shown", || usage("persistent_sessions") == 2.0);
    assert_eq!((usage("subscriptions"), usage("retained_messages")), (2.0, 2.0));
}

#[test]
fn one_tenant_at_its_limits_takes_nothing_from_another() {
    runs_once("it has tenants of its own");
    let broker = Broker::with(
        "[tenants]\nnames = [\"one\", \"two\"]\ndefault = \"\"\n[tenant.one.limits]\nconnections = 1\n\
         subscriptions = 1\n[listener.main]\nbind = [\"{ip}\"]\nport = 1883\ntenant = \"one\"\n\
         [listener.other]\nbind = [\"{ip}\"]\nport = 1884\ntenant = \"two\"\n",
    );
    let mut one = broker.client("c");
    assert_eq!((one.subscribe("a", 0), one.subscribe("b", 0)), (0, 0x97));
    Connect::v5("d").expect_refusal(&broker, 0x97);
    let others: Vec<Client> = (0..3)
        .map(|n| {
            let wire = std::net::TcpStream::connect(broker.at(1884)).expect("the other listener");
            let mut client = Connect::v5(&format!("c{n}")).open_on(wire);
            assert_eq!((client.subscribe("a", 0), client.subscribe("b", 0)), (0, 0));
            client
        })
        .collect();
    drop(others);
}
