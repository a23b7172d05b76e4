//! Two tenants on one broker, with the same client ids, topics, groups and wills: nothing crosses, and neither
//! can tell that the other is there.

use mast_tests::{Broker, Client, Connect, Property, Version, packet::Pub, ws};

/// One listener for all, where the user names the tenant, and one for each tenant's anonymous clients.
fn broker() -> Broker {
    let mut broker = Broker::prepared();
    for (tenant, user) in [("acme", "ann"), ("globex", "gus")] {
        broker.add_user(user, "pw");
        let users = broker.dir().join("users");
        std::fs::rename(users, broker.dir().join(tenant)).expect("the file was just made");
    }
    let listener = "bind = [\"{ip}\"]\nallow_anonymous = ";
    broker.configure(&format!(
        "[mqtt]\nsys_interval = \"100ms\"\n[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n\
         [tenant.acme]\npassword_file = \"{{dir}}/acme\"\n[tenant.globex]\npassword_file = \"{{dir}}/globex\"\n\
         [listener.main]\nport = 1883\n{listener}false\n\
         [listener.acme]\nport = 1884\ntenant = \"acme\"\n{listener}true\n\
         [listener.globex]\nport = 1885\ntenant = \"globex\"\n{listener}true\n"
    ));
    broker.launch();
    broker
}

fn acme(broker: &Broker, connect: Connect) -> Client {
    connect.login("ann", "pw").open(broker)
}

fn globex(broker: &Broker, connect: Connect) -> Client {
    connect.login("gus", "pw").open(broker)
}

fn texts(messages: &[Pub]) -> Vec<(&str, &str)> {
    messages.iter().map(|m| (m.topic.as_str(), m.text())).collect()
}

#[test]
fn equal_client_ids_neither_take_over_nor_resume_each_others_sessions() {
    let broker = broker();
    for version in [Version::V311, Version::V5] {
        let mut a = acme(&broker, Connect::new(version, "c").lasting());
        assert!(a.subscribe("t", 1) < 0x80);
        let mut g = globex(&broker, Connect::new(version, "c").lasting());
        assert!(!g.connack().session_present());
        a.ping();
        a.disconnect();
        assert!(globex(&broker, Connect::v5("p")).publish("t", "for globex", 1) < 0x80);
        assert!(acme(&broker, Connect::v5("p")).publish("t", "for acme", 1) < 0x80);
        g.assert_quiet();
        // A clean start of one is no clean start of the other.
        g.disconnect();
        globex(&broker, Connect::new(version, "c")).disconnect();
        let mut a = acme(&broker, Connect::new(version, "c").lasting());
        assert!(a.connack().session_present());
        assert_eq!(texts(&[a.message()]), [("t", "for acme")]);
        a.assert_quiet();
        a.disconnect();
        acme(&broker, Connect::new(version, "c")).disconnect();
    }
}

#[test]
fn no_filter_reaches_another_tenants_messages() {
    let broker = broker();
    let mut g = globex(&broker, Connect::v5("s"));
    for filter in
        ["#", "+/+", "a/b", "acme/#", "+/acme/#", "$share/group/#", "$SYS/#/x", "$acme/#", "/acme/#"]
    {
        // What is no valid filter is refused; the others hear nothing.
        if filter != "$SYS/#/x" {
            assert!(g.subscribe(filter, 2) < 0x80, "{filter}");
        }
    }
    let mut a = acme(&broker, Connect::v5("s"));
    assert!(a.subscribe("#", 2) < 0x80);
    for topic in ["a/b", "globex/a", "x", "/globex/x"] {
        for qos in 0..3 {
            assert!(a.publish(topic, "secret", qos) < 0x80);
        }
    }
    let seen = a.messages(12);
    assert!(seen.iter().all(|m| m.text() == "secret"));
    g.assert_quiet();
    // 0x10: nobody of one's own tenant listens, whoever else does. Other shards hear of the end of a subscription a
    // moment after its UNSUBACK; what another tenant subscribes to would show for as long as it does.
    let mut p = globex(&broker, Connect::v5("p"));
    assert_eq!(g.unsubscribe(&["#", "+/+", "a/b", "$share/group/#"]).codes(), [0; 4]);
    broker.until("0x10 although another tenant listens", || p.publish("a/b", "x", 1) == 0x10);
}

#[test]
fn shared_groups_of_one_name_are_two_groups() {
    let broker = broker();
    let mut a = acme(&broker, Connect::v5("m"));
    let mut g = globex(&broker, Connect::v5("m"));
    for member in [&mut a, &mut g] {
        assert!(member.subscribe("$share/group/t", 1) < 0x80);
    }
    let mut p = acme(&broker, Connect::v5("p"));
    for n in 0..20 {
        assert_eq!(p.publish("t", n.to_string(), 1), 0);
    }
    assert_eq!(a.messages(20).len(), 20, "no message went to the other tenant's member");
    g.assert_quiet();
    // The last member of one's own is gone: the other's does not stand in.
    a.disconnect();
    p.publish("t", "late", 1);
    g.assert_quiet();
}

#[test]
fn retained_messages_are_read_replaced_and_deleted_by_their_tenant_alone() {
    let mut broker = broker();
    let (mut a, mut g) = (acme(&broker, Connect::v5("c")), globex(&broker, Connect::v5("c")));
    assert!(a.retain("r", "of acme", 1) < 0x80);
    assert!(g.subscribe("#", 1) < 0x80);
    g.assert_quiet();
    assert!(g.retain("r", "of globex", 1) < 0x80);
    assert_eq!(g.message().text(), "of globex");
    assert!(g.retain("r", "", 1) < 0x80);
    assert_eq!(g.message().text(), "");
    assert!(a.subscribe("#", 1) < 0x80);
    assert_eq!(texts(&[a.message()]), [("r", "of acme")]);
    a.assert_quiet();
    // And after a restart, from the store.
    broker.restart();
    let (mut a, mut g) = (acme(&broker, Connect::v5("c")), globex(&broker, Connect::v5("c")));
    for client in [&mut a, &mut g] {
        assert!(client.subscribe("#", 1) < 0x80);
    }
    assert_eq!(texts(&[a.message()]), [("r", "of acme")]);
    g.assert_quiet();
}

#[test]
fn wills_stay_in_their_tenant_also_when_they_are_delayed_or_outlive_a_crash() {
    let mut broker = broker();
    let (mut a, mut g) = (acme(&broker, Connect::v5("s")), globex(&broker, Connect::v5("s")));
    for watcher in [&mut a, &mut g] {
        assert!(watcher.subscribe("#", 1) < 0x80);
    }
    acme(&broker, Connect::v5("w").will("gone", "now", 1, true)).reset();
    assert_eq!(texts(&[a.message()]), [("gone", "now")]);
    let delay = [Property::WillDelay(1)];
    acme(&broker, Connect::v5("w").lasting().will_with("gone", "later", 1, true, &delay)).reset();
    assert_eq!(texts(&[a.message()]), [("gone", "later")]);
    g.assert_quiet();
    let waiting = acme(&broker, Connect::v5("w2").lasting().will("gone2", "crash", 1, true));
    broker.crash();
    drop(waiting);
    let (mut a, mut g) = (acme(&broker, Connect::v5("s")), globex(&broker, Connect::v5("s")));
    assert!(g.subscribe("#", 1) < 0x80 && a.subscribe("gone2", 1) < 0x80);
    assert_eq!(a.message().text(), "crash");
    g.assert_quiet();
}

#[test]
fn broker_topics_count_ones_own_clients_alone() {
    let broker = broker();
    let _crowd: Vec<Client> = (0..7).map(|n| acme(&broker, Connect::v5(&format!("c{n}")))).collect();
    let mut g = globex(&broker, Connect::v5("s"));
    assert!(g.subscribe("$SYS/#", 0) < 0x80);
    // It shows one client, its own; never one more, although a look at it comes after the crowd.
    let mut connected = 0;
    while connected == 0 {
        let message = g.message();
        if message.topic == "$SYS/broker/clients/connected" {
            connected = message.text().parse().expect("a number");
        }
        assert!(!message.topic.contains("acme") && !message.text().contains("acme"), "{message:?}");
    }
    g.assert_quiet_but_publishes();
    for message in g.waiting() {
        if message.topic == "$SYS/broker/clients/connected" {
            connected = message.text().parse().expect("a number");
        }
    }
    assert_eq!(connected, 1);
    // Nobody writes there.
    assert_eq!(g.publish("$SYS/broker/clients/connected", "0", 1), 0x87);
}

#[test]
fn a_tenants_door_is_shut_for_others_and_anonymous_clients_are_of_the_doors_tenant() {
    let broker = broker();
    let at = |connect: Connect, port| connect.attempt_on(ws::tcp(broker.at(port))).1.reason();
    assert_eq!(at(Connect::v5("c").login("ann", "pw"), 1884), 0);
    // At another's door the name is unknown there, with the right password as with a wrong one.
    assert_eq!(at(Connect::v5("c").login("ann", "pw"), 1885), 0x86);
    assert_eq!(at(Connect::v5("c").login("ann", "no"), 1885), 0x86);
    assert_eq!(at(Connect::v5("c"), 1883), 0x87);
    let mut a = acme(&broker, Connect::v5("s"));
    assert!(a.subscribe("#", 1) < 0x80);
    let mut anonymous = Connect::v5("x").open_on(ws::tcp(broker.at(1885)));
    assert!(anonymous.publish("t", "of globex", 1) < 0x80);
    a.assert_quiet();
    let mut anonymous = Connect::v5("x").open_on(ws::tcp(broker.at(1884)));
    assert!(anonymous.publish("t", "of acme", 1) < 0x80);
    assert_eq!(a.message().text(), "of acme");
}

#[test]
fn nothing_that_a_client_says_chooses_its_tenant() {
    let broker = broker();
    let mut g = globex(&broker, Connect::v5("s"));
    assert!(g.subscribe("#", 1) < 0x80);
    let claims = [Property::UserProperty("tenant", "globex"), Property::UserProperty("tns", "globex")];
    let mut connect = Connect::v5("globex/s");
    for claim in claims {
        connect = connect.prop(claim);
    }
    let mut a = acme(&broker, connect);
    for topic in ["globex/t", "/globex/t", "$globex/t", "../globex/t", "%00globex/t"] {
        a.publish(topic, "secret", 1);
    }
    g.assert_quiet();
    // A tenant in front of the name is no tenant, and no user.
    for user in ["globex/gus", "globex:gus", "gus@globex", "acme/gus"] {
        Connect::v5("c").login(user, "pw").expect_refusal(&broker, 0x86);
    }
}
