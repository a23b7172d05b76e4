//! The hardening list, H6 to H13: bounds on topics, filters, properties, windows, queues and wills.

use mast_core::codec::{AckKind, SubOptions};
use mast_tests::{
    Broker, Client, Connect, Property, Version,
    broker::DEADLINE,
    client::{Event, Out, qos},
    twin::runs_once,
};

fn options(max_qos: u8) -> SubOptions {
    SubOptions::new(qos(max_qos))
}

#[test]
fn h06_topics_have_a_greatest_depth_and_length() {
    let broker = Broker::start();
    let (deep, deeper) = (vec!["a"; 128].join("/"), vec!["a"; 129].join("/"));
    let (long, longer) = ("x".repeat(4096), "x".repeat(4097));
    let mut c = broker.client("c");
    for (topic, fits) in [(&deep, true), (&deeper, false), (&long, true), (&longer, false)] {
        let code = c.subscribe(topic, 1);
        assert_eq!(code < 0x80, fits, "{code:#x} for {} bytes", topic.len());
        if fits {
            c.publish(topic, "x", 1);
            assert_eq!(&c.message().topic, topic);
        } else {
            let mut other = broker.client("other");
            other.send_publish(&Out { topic, payload: b"x", qos: 1, ..Out::default() });
            match other.read(DEADLINE) {
                Event::Packet(got) => assert_eq!(got.reason(), 0x90, "{got:?}"),
                event => panic!("{event:?}"),
            }
        }
    }
    // Where the operator allows all that the protocol can say, nothing recurses.
    let broker = Broker::with("[mqtt]\nmax_topic_bytes = \"65535B\"\nmax_topic_levels = 65535\n");
    let mut c = broker.client("c");
    let slashes = "/".repeat(65_534);
    assert_eq!(c.subscribe(&slashes, 1), 1);
    c.publish(&slashes, "x", 1);
    assert_eq!(c.message().topic.len(), 65_534);
    c.unsubscribe(&[&slashes]);
}

#[test]
fn h07_filters_are_bounded_per_packet_per_session_and_in_wildcards() {
    runs_once("it counts by metrics of the whole broker");
    let broker = Broker::start();
    let mut c = broker.client("c");
    let names: Vec<String> = (0..1001).map(|n| format!("f/{n}")).collect();
    let filters: Vec<_> = names.iter().map(|n| (n.as_str(), options(0))).collect();
    let codes = c.subscribe_all(&filters, &[]).codes();
    assert!(codes[..1000].iter().all(|c| *c == 0) && codes[1000] == 0x97);
    let broker = Broker::with("[limits]\nmax_subscriptions_per_session = 5\n");
    let mut c = broker.client("c");
    for n in 0..5 {
        assert_eq!(c.subscribe(&format!("f/{n}"), 0), 0);
    }
    assert_eq!(c.subscribe("f/5", 0), 0x97);
    assert_eq!(c.subscribe("f/4", 1), 1, "replacing needs no room");
    let mut d = broker.client("d");
    assert_eq!(d.subscribe(&vec!["+"; 16].join("/"), 0), 0);
    assert!(d.subscribe(&vec!["+"; 17].join("/"), 0) >= 0x80);
    let count = |reason: &str| broker.metric(&format!("mast_subscribe_refused_total{{reason=\"{reason}\"}}"));
    broker.until("both counted", || count("quota") == 1.0 && count("invalid") == 1.0);

    // Every combination of "a" and "+" on 10 levels: one publish visits them all and still comes once.
    let broker = Broker::start();
    let mut c = broker.client("c");
    for mask in 0..1u32 << 10 {
        let levels: Vec<&str> = (0..10).map(|bit| if mask >> bit & 1 == 1 { "+" } else { "a" }).collect();
        assert_eq!(c.subscribe(&levels.join("/"), 0), 0);
    }
    broker.client("p").publish(&["a"; 10].join("/"), "x", 0);
    assert_eq!(c.message().text(), "x");
    c.assert_quiet();
}

#[test]
fn h07_a_publish_that_visits_too_many_nodes_of_the_index_is_refused_before_it_is_stored() {
    runs_once("it counts by metrics of the whole broker");
    let broker = Broker::with("[node]\nshards = 1\n[limits]\nmax_match_nodes = 200\n");
    let connect = Connect::v5("s").lasting();
    let mut s = connect.open(&broker);
    let filters: Vec<String> = (0..1u32 << 8)
        .map(|mask| {
            (0..8).map(|bit| if mask >> bit & 1 == 1 { "+" } else { "a" }).collect::<Vec<_>>().join("/")
        })
        .collect();
    let filters: Vec<_> = filters.iter().map(|f| (f.as_str(), options(1))).collect();
    assert!(s.subscribe_all(&filters, &[]).codes().iter().all(|c| *c == 1));
    s.subscribe("other", 1);
    let topic = ["a"; 8].join("/");
    let mut p = broker.client("p");
    p.send_publish(&Out { topic: &topic, payload: b"x", qos: 1, ..Out::default() });
    let ack = p.recv();
    assert_eq!(ack.reason(), 0x97);
    assert!(ack.props().reason_string().is_some_and(|why| why.contains("filters")), "{ack:?}");
    assert_eq!(p.publish(&topic, "x", 2), 0x97);
    p.publish(&topic, "x", 0);
    let mut old = broker.client_of(Version::V311, "old");
    old.send_publish(&Out { topic: &topic, payload: b"x", qos: 1, ..Out::default() });
    old.expect_end(0);
    assert!(p.publish("other", "still", 1) < 0x80);
    assert_eq!(s.message().text(), "still");
    s.assert_quiet();
    let refused = "mast_publish_refused_total{reason=\"match_budget\"}";
    broker.until("counted refusals", || broker.metric(refused) == 3.0);
    assert_eq!(broker.metric("mast_match_over_budget_total"), 4.0);
    assert_eq!(broker.metric("mast_dropped_total{reason=\"match_budget\"}"), 1.0);
}

#[test]
fn h08_user_properties_are_bounded_in_number_and_bytes() {
    let broker = Broker::start();
    let big = "v".repeat(9000);
    let many = [Property::UserProperty("k", "v"); 65];
    for props in [&many[..], &[Property::UserProperty("k", &big)]] {
        let mut c = broker.client("c");
        c.send_publish(&Out { topic: "t", payload: b"x", qos: 1, props, ..Out::default() });
        match c.read(DEADLINE) {
            Event::Packet(got) => assert!([0x95, 0x97].contains(&got.reason()), "{got:?}"),
            event => panic!("{event:?}"),
        }
    }
    let mut c = broker.client("c");
    let few = [Property::UserProperty("k", "v"); 64];
    assert!(c.publish_out(&Out { topic: "t", payload: b"x", qos: 1, props: &few, ..Out::default() }) < 0x80);
}

#[test]
fn h09_windows_are_bounded_in_both_directions() {
    let broker = Broker::start();
    let mut c = broker.client("c");
    assert_eq!(c.connack().props().receive_maximum(), Some(64));
    for _ in 0..65 {
        c.send_publish(&Out { topic: "t", payload: b"x", qos: 2, ..Out::default() });
    }
    c.expect_end(0x93);
    let mut c = Connect::v5("c").prop(Property::ReceiveMaximum(65_535)).open(&broker);
    c.subscribe("t", 1);
    let mut p = broker.client("p");
    for n in 0..80 {
        p.publish("t", n.to_string(), 1);
    }
    c.assert_quiet_but_publishes();
    assert_eq!(c.waiting().len(), 64);
}

#[test]
fn h10_an_absent_sessions_queue_is_bounded_and_the_oldest_give_way() {
    let broker = Broker::with("[offline]\nmax_messages = 10\n");
    let connect = Connect::v5("s").lasting();
    let mut s = connect.open(&broker);
    s.subscribe("t", 1);
    s.disconnect();
    let mut p = broker.client("p");
    for n in 0..25 {
        assert_eq!(p.publish("t", n.to_string(), 1), 0);
    }
    let mut s = connect.open(&broker);
    let got: Vec<u32> = s.messages(10).iter().map(|m| m.text().parse().expect("a number")).collect();
    s.assert_quiet();
    assert_eq!(got, (15..25).collect::<Vec<_>>());
    broker.until("counted drops", || broker.metric_sum("mast_dropped_total") >= 15.0);
}

#[test]
fn h10_with_refuse_new_publishers_are_refused_and_nothing_acknowledged_is_lost() {
    runs_once("it counts by metrics of the whole broker");
    let mut broker = Broker::with("[offline]\nmax_messages = 10\nwhen_full = \"refuse-new\"\n");
    let connect = Connect::v5("s").lasting();
    let mut s = connect.open(&broker);
    s.subscribe("t/#", 1);
    s.disconnect();
    let taken = |broker: &Broker, from: u32| {
        // Publishers on every shard; the limit binds as soon as the shards have heard of it.
        let mut publishers: Vec<Client> = (0..4).map(|n| broker.client(&format!("p{n}"))).collect();
        let mut acked = Vec::new();
        broker.until("a refusal for each", || {
            let codes: Vec<u8> = publishers
                .iter_mut()
                .map(|p| {
                    let n = from + acked.len() as u32;
                    let code = p.publish("t/x", n.to_string(), 1);
                    if code < 0x80 {
                        acked.push(n);
                    }
                    code
                })
                .collect();
            assert!(codes.iter().all(|c| [0, 0x97].contains(c)), "{codes:02x?}");
            codes.iter().all(|c| *c == 0x97)
        });
        acked
    };
    let first = taken(&broker, 0);
    assert!((10..30).contains(&first.len()), "{} messages", first.len());
    broker.until("the full session", || broker.metric("mast_offline_full_sessions") == 1.0);
    assert!(broker.metric("mast_publish_refused_total{reason=\"offline_full\"}") >= 4.0);
    let mut old = broker.client_of(Version::V311, "old");
    old.send_publish(&Out { topic: "t/x", payload: b"no", qos: 1, ..Out::default() });
    old.expect_end(0);
    assert_eq!(broker.client("q").publish("u", "elsewhere", 1), 0x10);
    broker.crash();
    broker.until("the full session again", || broker.metric("mast_offline_full_sessions") == 1.0);
    assert_eq!(taken(&broker, 1000), [0u32; 0]);
    let mut s = connect.open(&broker);
    let got: Vec<u32> = s.messages(first.len()).iter().map(|m| m.text().parse().expect("a number")).collect();
    assert_eq!(got, first);
    s.assert_quiet();
    broker.until("room", || broker.metric("mast_offline_full_sessions") == 0.0);
    let mut p = broker.client("p");
    broker.until("publishing again", || p.publish("t/x", "again", 1) == 0);
    assert_eq!(s.message().text(), "again");
    assert_eq!(broker.metric("mast_dropped_total{reason=\"offline_limit\"}"), 0.0);
}

#[test]
fn h11_a_stalled_clean_session_is_cut_and_a_lasting_one_is_not() {
    runs_once("it counts by metrics of the whole broker");
    let broker = Broker::with("[limits]\nstall_timeout = \"2s\"\n");
    let mut clean = Connect::v5("clean").keep_alive(3600).open(&broker);
    let mut lasting = Connect::v5("lasting").lasting().keep_alive(3600).open(&broker);
    clean.subscribe("t", 0);
    lasting.subscribe("t", 1);
    let mut p = broker.client("p");
    let body = vec![b'x'; 100_000];
    for _ in 0..200 {
        p.publish("t", &body, 1);
    }
    broker.until("the cut", || broker.metric("mast_tenant_connections{tenant=\"default\"}") == 2.0);
    broker.until("its count", || broker.metric("mast_connections_cut_total{reason=\"stall\"}") == 1.0);
    broker.until("counted drops", || broker.metric_sum("mast_dropped_total") > 0.0);
    for _ in 0..200 {
        let m = lasting.expect_publish();
        lasting.ack(AckKind::PubAck, m.id);
    }
    lasting.ping();
}

#[test]
fn h12_wills_are_checked_at_connect() {
    let broker = Broker::with("[limits]\nmax_will_size = \"1KiB\"\nmax_connect_packet = \"64KiB\"\n");
    Connect::v5("c").will("$SYS/x", "gone", 0, false).expect_refusal(&broker, 0x87);
    Connect::v5("c").will("a/#", "gone", 0, false).expect_refusal(&broker, 0x90);
    Connect::v5("c").will("w", &"x".repeat(1024), 0, false).expect_refusal(&broker, 0x95);
    Connect::v5("c").will("w", &"x".repeat(1000), 0, false).open(&broker).ping();
}

#[test]
fn h13_what_a_client_may_ask_for_is_capped_and_it_is_told() {
    let broker = Broker::with(
        "[mqtt]\nkeep_alive_max = \"100s\"\nsession_expiry_max = \"50s\"\nmessage_expiry_max = \"30s\"\n\
         [limits]\nmax_group_members = 2\n",
    );
    let c = Connect::v5("c").keep_alive(0).prop(Property::SessionExpiry(u32::MAX)).open(&broker);
    let connack = c.connack().clone();
    assert_eq!(connack.props().server_keep_alive(), Some(100));
    assert_eq!(connack.props().session_expiry(), Some(50));
    assert_eq!(connack.props().topic_alias_maximum(), Some(16));
    let mut s = broker.client("s");
    s.subscribe("t", 1);
    broker.client("p").publish("t", "x", 1);
    assert!(s.message().props.expiry.is_some_and(|e| e <= 30));
    let mut members: Vec<Client> = (0..3).map(|n| broker.client(&format!("m{n}"))).collect();
    let codes: Vec<u8> = members.iter_mut().map(|m| m.subscribe("$share/g/t", 1)).collect();
    assert_eq!(codes, [1, 1, 0x97]);
}
