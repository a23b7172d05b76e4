//! Bugs that other brokers had, by the ids of `tests/bug-cases.tsv`: shared subscriptions, backpressure, keep
//! alive, rules, credentials, hijacked client ids, tenants.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use mast_core::codec::{AckKind, PacketType};
use mast_tests::{
    Broker, Client, Connect, Property, Version,
    broker::DEADLINE,
    client::{Event, Out},
    raw,
    twin::runs_once,
    ws,
};

const BOTH: [Version; 2] = [Version::V311, Version::V5];
const MIB: u64 = 1 << 20;

/// A broker with users `a` and `b`, whose passwords are `pa` and `pb`, and more configuration.
fn with_users(acl: Option<&str>, config: &str) -> Broker {
    let mut broker = Broker::prepared();
    broker.add_user("a", "pa");
    broker.add_user("b", "pb");
    let mut text = "[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n[auth]\npassword_file = \"{dir}/users\"\n".to_owned();
    if let Some(acl) = acl {
        broker.write("acl", acl);
        text.push_str("acl_file = \"{dir}/acl\"\n");
    }
    broker.configure(&(text + config));
    broker.launch();
    broker
}

#[test]
fn bo_20_a_dead_members_messages_come_back_or_go_to_the_others() {
    let broker = Broker::start();
    for returns in [true, false] {
        let connect = |n: usize| Connect::v5(&format!("m{n}")).resume().prop(Property::SessionExpiry(5));
        let mut members: Vec<Client> = (0..3).map(|n| connect(n).open(&broker)).collect();
        for m in &mut members {
            m.subscribe("$share/g/t", 1);
        }
        let mut p = broker.client("p");
        for n in 0..30 {
            p.publish("t", n.to_string(), 1);
        }
        let mut owner: BTreeMap<String, usize> = BTreeMap::new();
        // Member 0 acknowledges nothing, the others everything.
        for (n, m) in members.iter_mut().enumerate() {
            m.assert_quiet_but_publishes();
            for message in m.waiting() {
                if n > 0 {
                    m.acknowledge(&message);
                    assert!(owner.insert(message.text().to_owned(), n).is_none(), "{message:?} twice");
                }
            }
        }
        assert!(owner.len() < 30, "member 0 has some");
        members.remove(0).reset();
        if returns {
            std::thread::sleep(Duration::from_secs(2));
            members.push(connect(0).open(&broker));
        }
        let end = Instant::now() + DEADLINE;
        while owner.len() < 30 {
            for m in &mut members {
                m.assert_quiet_but_publishes();
                for message in m.waiting() {
                    m.acknowledge(&message);
                    assert!(owner.insert(message.text().to_owned(), 9).is_none(), "{message:?} twice");
                }
            }
            assert!(Instant::now() < end, "only {} of 30 came", owner.len());
        }
        for m in members {
            m.disconnect();
        }
        for n in 0..3 {
            Connect::v5(&format!("m{n}")).open(&broker).disconnect();
        }
    }
}

#[test]
fn bo_21_a_groups_messages_wait_for_whoever_comes_first() {
    let broker = Broker::start();
    let connect = |n: usize| Connect::v5(&format!("m{n}")).lasting();
    let mut one = connect(1).open(&broker);
    let mut two = connect(2).open(&broker);
    one.subscribe("$share/g/t", 1);
    two.subscribe("$share/g/t", 1);
    one.disconnect();
    let mut p = broker.client("p");
    for n in 0..100 {
        p.publish("t", n.to_string(), 1);
    }
    let mut first: Vec<u32> = two.messages(100).iter().map(|m| m.text().parse().expect("a number")).collect();
    first.sort_unstable();
    assert_eq!(first, (0..100).collect::<Vec<_>>());
    two.disconnect();
    for n in 100..200 {
        p.publish("t", n.to_string(), 1);
    }
    let mut three = connect(3).open(&broker);
    three.subscribe("$share/g/t", 1);
    let mut two = connect(2).open(&broker);
    let mut second = Vec::new();
    let end = Instant::now() + DEADLINE;
    while second.len() < 100 {
        for c in [&mut two, &mut three] {
            c.assert_quiet_but_publishes();
            for m in c.waiting() {
                c.acknowledge(&m);
                second.push(m.text().parse::<u32>().expect("a number"));
            }
        }
        assert!(Instant::now() < end, "{} of the second hundred came", second.len());
    }
    second.sort_unstable();
    assert_eq!(second, (100..200).collect::<Vec<_>>());
}

#[test]
fn bo_34_a_stalled_qos0_subscriber_costs_bounded_memory_and_hinders_nobody() {
    let broker = Broker::with("[limits]\nstall_timeout = \"3s\"\n");
    let mut stalled = Connect::v5("stalled").open(&broker);
    stalled.subscribe("#", 0);
    let mut healthy = broker.client("healthy");
    healthy.subscribe("t/9", 0);
    let before = broker.rss();
    let body = vec![b'x'; 10_000];
    let publishers: Vec<_> = (0..10)
        .map(|n| {
            let mut p = broker.client(&format!("p{n}"));
            let body = body.clone();
            std::thread::spawn(move || {
                for _ in 0..500 {
                    p.publish(&format!("t/{n}"), &body, 0);
                }
                p.ping();
            })
        })
        .collect();
    let mut got = 0;
    let end = Instant::now() + DEADLINE;
    while got < 500 && Instant::now() < end {
        match healthy.read(Duration::from_secs(5)) {
            Event::Packet(_) => got += 1,
            Event::Nothing => break,
            Event::Closed => panic!("the healthy subscriber was cut"),
        }
    }
    for p in publishers {
        p.join().expect("a publisher");
    }
    assert!(got > 0, "the healthy subscriber got nothing");
    let after = broker.rss();
    assert!(after < before + 96 * MIB, "{before} -> {after}");
    broker.until("counted drops", || {
        let (_, body) = broker.http("/metrics").expect("metrics");
        let drops = body.lines().filter(|l| l.starts_with("mast_dropped_total{"));
        drops.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() > 0.0
    });
    broker.until("the cut of the stalled subscriber", || {
        broker.metric("mast_disconnects_total") >= 1.0
            && broker.metric("mast_tenant_connections{tenant=\"default\"}") <= 1.0
    });
}

#[test]
fn bo_35_limits_of_offline_sessions_hold_and_payloads_are_shared() {
    let broker = Broker::with("[offline]\nmax_messages = 100\nmax_bytes = \"1MiB\"\n");
    let sessions = 300;
    let connect = |n: usize| Connect::v5(&format!("s{n}")).lasting();
    for n in 0..sessions {
        let mut s = connect(n).open(&broker);
        s.subscribe("t", 1);
        s.disconnect();
    }
    let before = broker.rss();
    let mut p = broker.client("p");
    let body = vec![b'x'; 64 << 10];
    for _ in 0..100 {
        assert_eq!(p.publish("t", &body, 1), 0);
    }
    let after = broker.rss();
    // 300 sessions x 1 MiB would be 300 MiB; the log holds 6.4 MB once, and its ring at most 64 MiB.
    assert!(after < before + 128 * MIB, "{before} -> {after}");
    for n in [0, sessions - 1] {
        let mut s = connect(n).open(&broker);
        s.assert_quiet_but_publishes();
        let mut count = 0;
        loop {
            let batch = s.waiting();
            if batch.is_empty() {
                break;
            }
            count += batch.len();
            batch.iter().for_each(|m| s.acknowledge(m));
            s.assert_quiet_but_publishes();
        }
        assert!((10..=16).contains(&count), "{count} messages of 64 KiB under a limit of 1 MiB");
    }
}

#[test]
fn bo_36_slow_and_boastful_connects_are_cut_and_cost_little() {
    let broker = Broker::with("[limits]\nconnect_timeout = \"2s\"\nmax_unauthenticated_percent = 100\n");
    let before = broker.rss();
    let mut idle = Vec::new();
    for n in 0..500 {
        let mut c = Client::on(broker.tcp(), Version::V5);
        // Half announce 200 MB, half a size that is allowed and then crawl.
        c.send_bytes(if n % 2 == 0 {
            &[0x10, 0x80, 0x84, 0xAF, 0x5F]
        } else {
            &[0x10, 0x80, 0x10, 0, 4, b'M']
        });
        idle.push(c);
    }
    let start = Instant::now();
    broker.client("normal").ping();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(broker.rss() < before + 500 * 32 * 1024, "{} -> {}", before, broker.rss());
    for mut c in idle {
        for got in c.expect_closed() {
            assert!(got.reason() >= 0x80, "{got:?}");
        }
    }
}

#[test]
fn bo_37_keep_alive_counts_what_the_client_sends_and_nothing_else() {
    let broker = Broker::with("[mqtt]\nkeep_alive_off = true\n");
    let mut watcher = Connect::v5("watcher").keep_alive(0).open(&broker);
    watcher.subscribe("w/#", 0);
    let mut silent = Connect::v5("silent").keep_alive(2).will("w/silent", "gone", 0, false).open(&broker);
    let mut served = Connect::v5("served").keep_alive(2).will("w/served", "gone", 0, false).open(&broker);
    served.subscribe("feed", 0);
    let mut off = Connect::v5("off").keep_alive(0).open(&broker);
    let mut busy = Connect::v5("busy").keep_alive(2).open(&broker);
    let start = Instant::now();
    for n in 0..8 {
        // Half the keep alive apart, so that a loaded machine does not decide.
        busy.publish("feed", n.to_string(), 0);
        std::thread::sleep(Duration::from_millis(1000));
    }
    for c in [&mut silent, &mut served] {
        c.expect_end(0x8D);
    }
    let wills = [watcher.message().topic, watcher.message().topic];
    assert!(wills.contains(&"w/silent".into()) && wills.contains(&"w/served".into()), "{wills:?}");
    std::thread::sleep(Duration::from_secs(12).saturating_sub(start.elapsed()));
    off.ping();
}

#[test]
fn bo_46_a_will_needs_the_right_to_publish_at_connect_and_when_it_is_sent() {
    let acl = "user a\ntopic write a/#\nuser b\ntopic read #\n";
    let broker = with_users(Some(acl), "");
    let mut watcher = Connect::v5("watcher").login("b", "pb").open(&broker);
    watcher.subscribe("#", 0);
    let will = |topic: &str| Connect::v5("x").login("a", "pa").will(topic, "gone", 0, false);
    for topic in ["b/x", "$SYS/x", "default/b/x", "other/b/x"] {
        let (client, connack) = will(topic).attempt(&broker);
        assert!([0, 0x87].contains(&connack.reason()), "{connack:?}");
        client.reset();
    }
    watcher.assert_quiet();
    will("a/x").open(&broker).reset();
    assert_eq!(watcher.message().topic, "a/x");
    let client = will("a/x").open(&broker);
    broker.write("acl", "user a\ntopic write z/#\nuser b\ntopic read #\n");
    assert!(broker.reload());
    // The rules reach the shards in order with everything else that is said to them.
    let mut other = Connect::v5("y").login("a", "pa").open(&broker);
    broker.until("the new rules", || other.publish("a/x", "no", 1) == 0x87);
    client.reset();
    watcher.assert_quiet_but_publishes();
    assert!(watcher.waiting().iter().all(|m| m.text() != "gone"));
}

#[test]
fn bo_47_wildcards_deliver_only_what_the_rules_allow() {
    let acl = "user a\ntopic readwrite #\nuser b\ntopic read a/#\n";
    let broker = with_users(Some(acl), "");
    let mut p = Connect::v5("p").login("a", "pa").open(&broker);
    for topic in ["a/1", "b/1"] {
        p.retain(topic, "kept", 1);
    }
    let connect = Connect::v5("r").login("b", "pb").lasting();
    let mut reader = connect.open(&broker);
    for filter in ["#", "+/+", "+/1", "b/1"] {
        reader.subscribe(filter, 1);
    }
    p.publish("a/1", "live", 1);
    p.publish("b/1", "live", 1);
    reader.assert_quiet_but_publishes();
    let got = reader.waiting();
    assert!(!got.is_empty() && got.iter().all(|m| m.topic == "a/1"), "{got:?}");
    got.iter().for_each(|m| reader.acknowledge(m));
    reader.ping();
    reader.disconnect();
    p.publish("a/1", "queued", 1);
    p.publish("b/1", "queued", 1);
    let mut reader = connect.open(&broker);
    assert_eq!(reader.message().topic, "a/1");
    reader.assert_quiet();
}

#[test]
fn bo_48_a_qos2_message_whose_right_was_revoked_before_pubrel() {
    // QoS 2 goes onward when it is stored, so the right at PUBLISH decides: the message was delivered before the
    // revocation, and the PUBREL that follows delivers nothing more.
    let open = "user a\ntopic readwrite #\nuser b\ntopic read #\n";
    let broker = with_users(Some(open), "");
    let mut s = Connect::v5("s").login("b", "pb").open(&broker);
    s.subscribe("t", 2);
    let connect = Connect::v5("p").login("a", "pa").lasting();
    let mut p = connect.open(&broker);
    p.send_publish(&Out { topic: "t", payload: b"x", qos: 2, id: 5, ..Out::default() });
    p.expect_ack(PacketType::PubRec, 5, 0);
    assert_eq!(s.message().text(), "x");
    p.reset();
    broker.write("acl", "user a\ntopic read #\nuser b\ntopic read #\n");
    assert!(broker.reload());
    let mut p = connect.open(&broker);
    broker.until("the new rules", || p.publish("u", "no", 1) == 0x87);
    p.ack(AckKind::PubRel, 5);
    p.expect_ack(PacketType::PubComp, 5, 0);
    s.assert_quiet();
    // A new exchange is refused.
    assert_eq!(p.publish("t", "no", 2), 0x87);
}

#[test]
fn bo_49_wrong_credentials_of_every_form() {
    let broker = with_users(None, "");
    for version in BOTH {
        let (bad, none) = if version.is_v5() { ([0x86, 0x87], 0x87) } else { ([4, 5], 5) };
        let connect = Connect::new(version, "c");
        let long = "p".repeat(65_535);
        for attempt in [
            connect.clone().user("a"),
            connect.clone().login("a", ""),
            connect.clone().login("A", "pa"),
            connect.clone().login("a", "pa "),
            connect.clone().login("a ", "pa"),
            connect.clone().login("nobody", "pa"),
            connect.clone().login("a", &long),
            connect.clone().login("", ""),
        ] {
            let (mut client, connack) = attempt.attempt(&broker);
            assert!(bad.contains(&connack.reason()), "{connack:?}");
            assert!(client.expect_closed().is_empty());
        }
        connect.expect_refusal(&broker, none);
        connect.clone().login("a", "pa").open(&broker).ping();
    }
    Connect::v5("c").password(b"pa").expect_refusal(&broker, 0x87);
    // In 3.1.1 a password without a user name breaks the protocol; a field without its flag does everywhere.
    let password_alone = raw::connect(4, 0x42, &raw::cat(&[&raw::field("c"), &raw::field("pa")]));
    let unflagged =
        raw::connect(4, 0x82, &raw::cat(&[&raw::field("c"), &raw::field("a"), &raw::field("pa")]));
    for bytes in [password_alone, unflagged] {
        let mut c = Client::on(broker.tcp(), Version::V311);
        c.send_bytes(&bytes);
        assert!(c.expect_closed().is_empty());
    }
}

#[test]
fn bo_50_broken_password_and_rule_files_let_nobody_in() {
    runs_once("the broker does not start");
    let config = "[auth]\npassword_file = \"{dir}/users\"\nallow_anonymous = false\n";
    for (file, starts) in
        [("", true), ("\n", true), ("a\n", false), ("a:\n", false), ("a:$9$x$y\n", false), (":x\n", false)]
    {
        let mut broker = Broker::prepared();
        broker.write("users", file);
        broker.configure(config);
        broker.spawn();
        if !starts {
            let status = broker.wait_exit();
            assert_eq!(status.code(), Some(78), "{file:?}: {}", broker.log());
            continue;
        }
        broker.wait_ready();
        for user in ["", "a", "anybody"] {
            let (_, connack) = Connect::v5("c").login(user, "").attempt(&broker);
            assert!([0x86, 0x87].contains(&connack.reason()), "{user:?}: {connack:?}");
        }
        Connect::v5("c").expect_refusal(&broker, 0x87);
    }
    for acl in ["", "# nothing\n\n"] {
        let broker = with_users(Some(acl), "");
        let mut c = Connect::v5("c").login("a", "pa").open(&broker);
        assert_eq!(c.publish("t", "x", 1), 0x87);
        assert_eq!(c.subscribe("#", 1), 0x87);
    }
    let mut broker = Broker::prepared();
    broker.write("acl", "topic readwite #\n");
    broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
    broker.spawn();
    assert_eq!(broker.wait_exit().code(), Some(78));
}

#[test]
fn bo_51_a_session_cannot_be_taken_by_another_user() {
    let broker = with_users(None, "");
    let mut watcher = Connect::v5("watcher").login("b", "pb").open(&broker);
    watcher.subscribe("w", 0);
    let owner = Connect::v5("x").login("a", "pa").lasting();
    let mut s = owner.open(&broker);
    s.subscribe("t", 1);
    s.disconnect();
    watcher.publish("t", "queued", 1);
    for online in [false, true] {
        let held = online.then(|| owner.clone().will("w", "gone", 0, false).open(&broker));
        for thief in [Connect::v5("x"), Connect::v5("x").lasting()] {
            let (_, connack) = thief.login("b", "pb").attempt(&broker);
            assert!([0x85, 0x87].contains(&connack.reason()), "{connack:?}");
        }
        let Some(mut held) = held else { continue };
        assert_eq!(held.message().text(), "queued");
        held.ping();
        watcher.publish("t", "live", 1);
        assert_eq!(held.message().text(), "live");
        watcher.assert_quiet();
    }
}

#[test]
fn bo_52_tenants_do_not_see_each_other() {
    runs_once("it has two tenants already");
    let broker = Broker::with(
        "[mqtt]\nsys_interval = \"1s\"\n[tenants]\nnames = [\"t1\", \"t2\"]\ndefault = \"\"\n\
         [listener.one]\nbind = [\"{ip}\"]\nport = 1883\ntenant = \"t1\"\n\
         [listener.two]\nbind = [\"{ip}\"]\nport = 1884\ntenant = \"t2\"\n",
    );
    let one = |c: Connect| c.open_on(ws::tcp(broker.at(1883)));
    let two = |c: Connect| c.open_on(ws::tcp(broker.at(1884)));
    let mut spies: Vec<Client> = Vec::new();
    let filters =
        ["w", "r", "t", "#", "+/#", "$share/g/#", "t1/#", "+/t1/#", "/t1/#", "0/#", "$tenant/t1/#", "$t1/#"];
    for (n, filter) in filters.iter().enumerate() {
        let mut spy = two(Connect::v5(&format!("spy{n}")).lasting());
        spy.subscribe(filter, 1);
        spies.push(spy);
    }
    let mut reader = one(Connect::v5("reader"));
    for filter in ["#", "$share/g/#"] {
        reader.subscribe(filter, 1);
    }
    one(Connect::v5("dies").will("w", "gone", 1, true)).reset();
    let mut p = one(Connect::v5("p"));
    let props = [Property::ResponseTopic("r")];
    p.publish_out(&Out { topic: "t", payload: b"x", qos: 1, retain: true, props: &props, ..Out::default() });
    p.publish("r", "answer", 2);
    let got = reader.messages(6);
    assert!(got.iter().all(|m| ["w", "t", "r"].contains(&m.topic.as_str())), "{got:?}");
    assert!(got.iter().filter(|m| m.topic == "t").all(|m| m.props.response_topic.as_deref() == Some("r")));
    for spy in &mut spies {
        spy.assert_quiet();
    }
    // The same client id is another session there; retained messages and $SYS are the tenant's own.
    let mut namesake = two(Connect::v5("reader").lasting());
    assert!(!namesake.connack().session_present());
    namesake.subscribe("#", 1);
    namesake.assert_quiet();
    reader.ping();
    reader.subscribe("$SYS/broker/retained messages/count", 0);
    namesake.subscribe("$SYS/broker/retained messages/count", 0);
    let count = |c: &mut Client, expected: &str| {
        let end = Instant::now() + DEADLINE;
        while c.message().text() != expected {
            assert!(Instant::now() < end);
        }
    };
    count(&mut reader, "2");
    count(&mut namesake, "0");
}
