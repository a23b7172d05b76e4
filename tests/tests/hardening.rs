//! The hardening list H1 to H28: each item against the running broker. What concerns the store's faults (H25) is
//! tested more deeply in `store_faults.rs`, password hashes (H14) in the shell's own tests.

use std::{
    io::{Read, Write},
    process::Command,
    time::{Duration, Instant},
};

use mast_core::codec::{AckKind, SubOptions};
use mast_tests::{
    Broker, Client, Connect, Property, Version,
    broker::{DEADLINE, binary, workspace},
    certs::{self, Authority},
    client::{Event, Out, qos},
    raw,
    ws::{self, Ws},
};

const MIB: u64 = 1 << 20;

fn options(max_qos: u8) -> SubOptions {
    SubOptions::new(qos(max_qos))
}

fn add_user(broker: &Broker, user: &str, password: &str) {
    let file = broker.dir().join("users");
    if !file.exists() {
        broker.write("users", "");
    }
    let status = Command::new(binary()).args(["passwd", "-b"]).arg(file).args([user, password]).status();
    assert!(status.expect("mast passwd runs").success());
}

/// Reads to the end of a stream that the broker closes.
fn until_closed(stream: &mut impl Read) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => rest,
        Err(e) => panic!("not closed: {e}"),
    }
}

#[test]
fn h01_a_socket_before_connack_costs_what_it_sent_not_what_it_announced() {
    let broker = Broker::with("[limits]\nmax_unauthenticated_percent = 100\n");
    broker.client("warm").ping();
    let before = broker.rss();
    let held: Vec<Client> = (0..500)
        .map(|_| {
            let mut c = Client::on(broker.tcp(), Version::V5);
            // A CONNECT of 100,000 bytes of which 100 come.
            c.send_bytes(&raw::cat(&[
                &[0x10],
                &raw::varint(100_000),
                &raw::field("MQTT"),
                &[5, 2, 0, 60],
                &[0; 90],
            ]));
            c
        })
        .collect();
    broker.until("500 sockets", || broker.metric_sum("mast_connections_open") >= 500.0);
    let grown = broker.rss().saturating_sub(before);
    assert!(grown < 500 * 16 * 1024, "{grown} bytes for 500 sockets");
    drop(held);
}

#[test]
fn h02_the_first_packet_and_every_other_have_a_greatest_size() {
    let broker = Broker::start();
    let mut c = Client::on(broker.tcp(), Version::V5);
    c.send_bytes(&raw::cat(&[&[0x10], &raw::varint(129 * 1024), &raw::field("MQTT"), &[5, 2]]));
    assert!(c.expect_closed().iter().all(|g| g.reason() == 0x95));
    let mut c = broker.client("c");
    c.send_bytes(&raw::cat(&[&[0x30], &raw::varint(1 << 20)]));
    c.expect_end(0x95);
}

#[test]
fn h03_connects_handshakes_and_packets_have_a_deadline() {
    let mut broker = Broker::prepared();
    let authority = Authority::new("ca");
    certs::write(broker.dir(), "s", &authority.server(broker.address().ip()));
    broker.configure(
        "[mqtt]\nkeep_alive_off = true\n[limits]\nconnect_timeout = \"1s\"\nhandshake_timeout = \"1s\"\npacket_timeout = \"2s\"\n\
         [listener.main]\nbind = [\"{ip}\"]\nport = 1883\n\
         [listener.ws]\nkind = \"ws\"\nbind = [\"{ip}\"]\nport = 8083\n\
         [listener.tls]\nbind = [\"{ip}\"]\nport = 8883\n\
         [listener.tls.tls]\ncert = \"{dir}/s.crt\"\nkey = \"{dir}/s.key\"\n\
         [listener.proxied]\nbind = [\"{ip}\"]\nport = 1884\n\
         [listener.proxied.proxy]\nmode = \"required\"\ntrusted = [\"127.0.0.0/8\"]\n",
    );
    broker.launch();
    for (port, start) in [
        (1883, &b""[..]),
        (1883, b"\x10\x20\0\x04MQ"),
        (8083, b"GET /mqtt HTTP/1.1\r\n"),
        (8883, b"\x16\x03\x01"),
        (1884, b"PROXY TCP4 1"),
    ] {
        let mut tcp = ws::tcp(broker.at(port));
        tcp.write_all(start).expect("sent");
        until_closed(&mut tcp);
    }
    // A packet that never ends, on a connection without keep alive; with one, keep alive ends it.
    let mut c = Connect::v5("c").keep_alive(0).open(&broker);
    c.send_bytes(&raw::cat(&[&[0x30], &raw::varint(1000), &raw::field("t"), &[0]]));
    c.expect_closed();
}

#[test]
fn h04_connections_are_bounded_in_all_per_source_and_in_rate() {
    for (config, most) in [
        ("max_connections = 5", 5),
        ("max_connections_per_source = 3", 3),
        ("accept_rate_per_source = 2", 6),
        ("accept_rate = 2\naccept_burst = 4", 9),
    ] {
        let broker = Broker::with(&format!("[limits]\n{config}\n"));
        let mut open = Vec::new();
        for n in 0..30 {
            let mut c = Connect::v311(&format!("c{n}")).start_on(broker.tcp());
            match c.read(Duration::from_secs(1)) {
                Event::Packet(_) => open.push(c),
                Event::Closed | Event::Nothing => {}
            }
            if open.len() + 5 < n {
                break;
            }
        }
        assert!(!open.is_empty() && open.len() <= most + 2, "{config}: {} connections", open.len());
        assert!(broker.metric_sum("mast_connections_refused_total") > 0.0, "{config}");
        open.iter_mut().for_each(Client::ping);
    }
}

#[test]
fn h05_sockets_that_say_nothing_have_a_pool_of_their_own_and_the_oldest_gives_way() {
    let mut broker = Broker::prepared();
    broker.limit_files(1000);
    broker.configure("[limits]\nmax_unauthenticated_percent = 1\nconnect_timeout = \"60s\"\n");
    broker.launch();
    let mut idle: Vec<_> = (0..30).map(|_| ws::tcp(broker.address())).collect();
    broker.client("real").ping();
    until_closed(&mut idle[0]);
    let last = &mut idle[29];
    last.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let waits = last.read(&mut [0]).expect_err("the newest is still open").kind();
    assert!(matches!(waits, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{waits}");
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
fn h11_a_stalled_clean_session_is_cut_and_a_lasting_one_is_not() {
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

fn password_broker(config: &str) -> Broker {
    let mut broker = Broker::prepared();
    add_user(&broker, "a", "pa");
    broker.configure(&format!(
        "[auth]\npassword_file = \"{{dir}}/users\"\n{config}\n[listener.main]\nbind = [\"{{ip}}\"]\nport = 1883\n\
         [listener.open]\nbind = [\"{{ip}}\"]\nport = 1884\nallow_anonymous = true\n"
    ));
    broker.launch();
    broker
}

#[test]
fn h14_an_unknown_user_costs_the_same_check_as_a_known_one() {
    let broker = password_broker("[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n");
    let median = |user: &str| {
        let mut times: Vec<Duration> = (0..9)
            .map(|n| {
                let start = Instant::now();
                Connect::v5("c").login(user, &format!("wrong {n}")).expect_refusal(&broker, 0x86);
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[4]
    };
    let (known, unknown) = (median("a"), median("nobody"));
    // Without a check of its own an unknown user would be refused hundreds of times faster.
    assert!(unknown * 5 > known && known * 5 > unknown, "known {known:?}, unknown {unknown:?}");
}

#[test]
fn h15_a_flood_of_logins_is_bounded_and_hinders_nobody_else() {
    let broker = password_broker(
        "hash_parallel = 1\nhash_queue = 2\n[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n",
    );
    let waiting: Vec<Client> = (0..40)
        .map(|n| Connect::v5(&format!("c{n}")).login(&format!("u{n}"), "x").start_on(broker.tcp()))
        .collect();
    let mut open = Connect::v5("open").open_on(ws::tcp(broker.at(1884)));
    let start = Instant::now();
    open.ping();
    assert!(start.elapsed() < Duration::from_secs(10));
    let codes: Vec<u8> = waiting.into_iter().map(|mut c| c.recv().reason()).collect();
    assert!(codes.iter().all(|c| [0x86, 0x97, 0x9F].contains(c)), "{codes:02x?}");
    assert!(codes.contains(&0x97), "{codes:02x?}");

    let broker = password_broker("[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 1\n");
    let waiting: Vec<Client> =
        (0..40).map(|_| Connect::v5("c").login("a", "x").start_on(broker.tcp())).collect();
    let codes: Vec<u8> = waiting.into_iter().map(|mut c| c.recv().reason()).collect();
    assert!(codes.contains(&0x9F), "{codes:02x?}");
    // A name that nobody tries is not concerned.
    assert_eq!(Connect::v5("c").login("other", "x").attempt(&broker).1.reason(), 0x86);
}

#[test]
fn h16_broken_files_refuse_the_start_and_a_reload_keeps_the_old_ones() {
    let broker = password_broker("[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n");
    Connect::v5("c").login("a", "pa").open(&broker).ping();
    let good = std::fs::read_to_string(broker.dir().join("users")).expect("the file");
    broker.write("users", &format!("{good}broken line\n"));
    assert!(!broker.reload());
    Connect::v5("c").login("a", "pa").open(&broker).ping();
    broker.write("users", "");
    assert!(broker.reload());
    Connect::v5("c").login("a", "pa").expect_refusal(&broker, 0x86);
    // Without authentication configured, an address that others can reach is refused.
    let mut open = Broker::prepared();
    open.configure("[listener.main]\nbind = [\"0.0.0.0\"]\nport = 0\n");
    open.spawn();
    assert_eq!(open.wait_exit().code(), Some(78), "{}", open.log());
}

#[test]
fn h17_placeholders_stand_for_one_level_and_never_for_a_wildcard() {
    let mut broker = Broker::prepared();
    broker.write("acl", "pattern readwrite dev/%c/#\n");
    broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
    broker.launch();
    let mut one = broker.client("one");
    assert!(one.publish("dev/one/x", "x", 1) < 0x80);
    assert_eq!(one.publish("dev/two/x", "x", 1), 0x87);
    for id in ["+", "#", "one/x", "+/+"] {
        let (mut c, connack) = Connect::v5(id).attempt(&broker);
        if connack.reason() == 0 {
            assert_eq!(c.publish("dev/one/x", "x", 1), 0x87, "{id}");
            assert_eq!(c.subscribe("dev/one/#", 1), 0x87, "{id}");
        }
    }
}

#[test]
fn h18_client_certificates_are_checked_the_same_way_on_tls_and_wss() {
    let mut broker = Broker::prepared();
    let (authority, stranger) = (Authority::new("ca"), Authority::new("other"));
    certs::write(broker.dir(), "s", &authority.server(broker.address().ip()));
    broker.write("ca.crt", &authority.pem);
    broker.write("acl", "user device\ntopic readwrite #\n");
    broker.configure(
        "[auth]\nacl_file = \"{dir}/acl\"\n[tls]\ncert = \"{dir}/s.crt\"\nkey = \"{dir}/s.key\"\n\
         client_ca = \"{dir}/ca.crt\"\nusername_from = \"cn\"\n\
         [listener.tls]\nbind = [\"{ip}\"]\nport = 8883\nsecure = true\n\
         [listener.wss]\nkind = \"ws\"\nbind = [\"{ip}\"]\nport = 8084\nsecure = true\n",
    );
    broker.launch();
    let tls = |port, own: Option<&certs::Pair>| {
        certs::connect(&certs::client_config(&authority.pem, own), ws::tcp(broker.at(port)))
    };
    let good = authority.client("device");
    let mut c = Connect::v5("c").open_on(tls(8883, Some(&good)));
    assert!(c.publish("t", "x", 1) < 0x80);
    let mut c = Connect::v5("c").open_on(Ws::open(tls(8084, Some(&good)), "/mqtt"));
    assert!(c.publish("t", "x", 1) < 0x80);
    for port in [8883, 8084] {
        for own in [None, Some(stranger.client("device"))] {
            let mut stream = tls(port, own.as_ref());
            // The refusal comes with the handshake or, in TLS 1.3, right behind it.
            let asked = stream.write_all(&Connect::v5("c").bytes()).and_then(|()| stream.flush());
            let got = asked.and_then(|()| stream.read(&mut [0; 64]));
            assert!(!matches!(got, Ok(n) if n > 0), "port {port}: {got:?}");
        }
        // TLS 1.1 and garbage are answered with an alert or a close, never with service.
        let mut tcp = ws::tcp(broker.at(port));
        let hello = raw::cat(&[&[0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2], &[7; 32], &[0, 0, 2, 0, 0x2F, 1, 0]]);
        tcp.write_all(&hello).expect("sent");
        let answer = until_closed(&mut tcp);
        assert!(answer.is_empty() || answer[0] == 0x15, "{answer:02x?}");
    }
}

#[test]
fn h19_websocket_upgrades_and_frames_are_bounded() {
    let broker = Broker::with(
        "[mqtt]\nmax_packet_size = \"4KiB\"\n[listener.ws]\nkind = \"ws\"\nbind = [\"{ip}\"]\nport = 8083\n\
         origins = [\"https://good.example\"]\n",
    );
    let ask = |headers: &str| {
        let mut tcp = ws::tcp(broker.at(8083));
        ws::upgrade(&mut tcp, "/mqtt", &format!("Sec-WebSocket-Protocol: mqtt\r\n{headers}"))
    };
    let offered = ask("Sec-WebSocket-Extensions: permessage-deflate\r\nOrigin: https://good.example\r\n");
    assert!(
        offered.starts_with("HTTP/1.1 101") && !offered.to_lowercase().contains("extensions"),
        "{offered}"
    );
    assert!(ask("Origin: https://evil.example\r\n").starts_with("HTTP/1.1 403"));
    let huge = format!("X-Filler: {}\r\n", "x".repeat(9000));
    assert!(!ask(&huge).starts_with("HTTP/1.1 101"));
    let mut wrong = ws::tcp(broker.at(8083));
    assert!(
        ws::upgrade(&mut wrong, "/other", "Sec-WebSocket-Protocol: mqtt\r\n").starts_with("HTTP/1.1 404")
    );
    // A frame that announces more than any packet may have ends the connection at its header.
    let mut tcp = ws::tcp(broker.at(8083));
    let origin = "Sec-WebSocket-Protocol: mqtt\r\nOrigin: https://good.example\r\n";
    assert!(ws::upgrade(&mut tcp, "/mqtt", origin).starts_with("HTTP/1.1 101"));
    let mut c = Connect::v5("c").start_on(Ws::upgraded(tcp, usize::MAX));
    assert_eq!(c.recv().reason(), 0);
    c.send_bytes(&vec![0x30; 100_000]);
    c.expect_closed();
}

#[test]
fn h20_proxy_headers_are_believed_from_trusted_networks_only_and_are_short() {
    let broker = Broker::with(
        "[limits]\nhandshake_timeout = \"1s\"\n[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n\
         [listener.strange]\nbind = [\"{ip}\"]\nport = 1884\n\
         [listener.strange.proxy]\nmode = \"required\"\ntrusted = [\"192.0.2.0/24\"]\n\
         [listener.trusted]\nbind = [\"{ip}\"]\nport = 1885\n\
         [listener.trusted.proxy]\nmode = \"required\"\ntrusted = [\"127.0.0.0/8\"]\n",
    );
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 4096 1883\r\n";
    let connect = Connect::v5("c").bytes();
    let long = raw::cat(&[b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &600u16.to_be_bytes(), &[1; 600]]);
    for (port, bytes) in [
        (1884, raw::cat(&[header, &connect])),
        (1885, connect.clone()),
        (1885, long),
        (1885, b"PROXY TCP4 192.0.2.1".to_vec()),
        (1883, raw::cat(&[header, &connect])),
    ] {
        let mut tcp = ws::tcp(broker.at(port));
        tcp.write_all(&bytes).expect("sent");
        assert!(until_closed(&mut tcp).is_empty(), "port {port}: {bytes:02x?}");
    }
}

#[test]
fn h21_keys_that_clients_choose_cost_no_more_than_others() {
    // The hash is seeded per process, so no client can know which keys collide; what can be seen from outside is
    // that many look-alike keys work.
    let broker = Broker::start();
    let mut c = broker.client("c");
    for block in 0..20 {
        let names: Vec<String> =
            (0..1000).map(|n| format!("{:016x}", u64::from(block * 1000u32 + n) << 40)).collect();
        let filters: Vec<_> = names.iter().map(|n| (n.as_str(), options(0))).collect();
        assert!(c.subscribe_all(&filters, &[]).codes().iter().all(|c| *c == 0));
    }
    broker.client("p").publish(&format!("{:016x}", 19_999u64 << 40), "x", 0);
    assert_eq!(c.message().text(), "x");
}

#[test]
fn h22_clients_cannot_flood_or_forge_the_log() {
    let broker = Broker::start();
    let before = broker.log().lines().count();
    for n in 0..300 {
        let mut c = Client::on(broker.tcp(), Version::V5);
        c.send_bytes(&raw::packet(0x10, &[0xFF; 20]));
        c.expect_closed();
        if n % 3 == 0 {
            let mut c = broker.client(&format!("evil\u{1b}[31m{}", "x".repeat(2000)));
            c.send_bytes(&[0x30, 0]);
            c.expect_closed();
        }
    }
    let log = broker.log();
    let lines = log.lines().count() - before;
    assert!(lines < 100, "{lines} lines for 400 bad clients");
    assert!(!log.contains('\u{1b}') && log.lines().all(|l| l.len() < 1000), "{log}");
    let (_, metrics) = broker.http("/metrics").expect("metrics");
    assert!(!metrics.contains("evil"));
    broker.until("counted violations", || broker.metric("mast_violations_total") >= 100.0);
}

#[test]
fn h23_administration_is_on_its_own_port_and_may_ask_for_a_token() {
    let broker = Broker::with("[admin]\ntoken = \"t0ken\"\n");
    assert_eq!(broker.http("/metrics").expect("an answer").0, 401);
    assert_eq!(broker.http_with("/metrics", "Authorization: Bearer wrong\r\n").expect("an answer").0, 401);
    assert_eq!(broker.http_with("/metrics", "Authorization: Bearer t0ken\r\n").expect("an answer").0, 200);
    assert_eq!(broker.http("/livez").expect("an answer").0, 200);
    assert_eq!(broker.http("/readyz").expect("an answer").0, 200);
    // The token is shown to nobody, and the MQTT port speaks no HTTP.
    assert!(!broker.log().contains("t0ken"));
    let mut tcp = ws::tcp(broker.address());
    tcp.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    assert!(until_closed(&mut tcp).is_empty());
}

#[test]
fn h24_near_the_memory_budget_no_new_session_is_accepted() {
    // 1 MiB is less than the process itself needs.
    let broker = Broker::with("[limits]\nmemory_budget = \"1MiB\"\n");
    for connect in [Connect::v5("c"), Connect::v311("c")] {
        broker.until("the refusal", || {
            let mut c = connect.start_on(broker.tcp());
            match c.read(DEADLINE) {
                Event::Packet(connack) => connack.reason() != 0,
                Event::Closed => true,
                Event::Nothing => false,
            }
        });
    }
    assert!(broker.metric_sum("mast_connections_refused_total") > 0.0);
}

#[test]
fn h25_a_full_store_refuses_durable_work_tells_it_serves_qos_0_and_recovers() {
    let broker = Broker::with(
        "[store]\nsegment_size = \"1MiB\"\nmax_bytes = \"8MiB\"\nmin_age = \"0s\"\ncheckpoint_bytes = \"1MiB\"\n",
    );
    let connect = Connect::v5("s").lasting();
    let mut s = connect.open(&broker);
    s.subscribe("t", 1);
    s.disconnect();
    let mut p = broker.client("p");
    let body = vec![b'x'; 64 << 10];
    let stored = (0..400).take_while(|_| p.publish("t", &body, 1) < 0x80).count();
    assert!((10..400).contains(&stored), "{stored} messages of 64 KiB in 8 MiB");
    broker.until("/readyz to say no", || broker.http("/readyz").is_some_and(|(s, _)| s == 503));
    assert!([0x97, 0x80].contains(&p.publish("t", &body, 2)));
    let mut old = broker.client_of(Version::V311, "old");
    old.send_publish(&Out { topic: "t", payload: &body, qos: 1, ..Out::default() });
    old.expect_end(0);
    let mut reader = broker.client("reader");
    reader.subscribe("u", 0);
    p.publish("u", "still", 0);
    assert_eq!(reader.message().text(), "still");
    // What the session takes frees the space.
    let mut s = connect.open(&broker);
    for _ in 0..stored {
        assert_eq!(s.message().payload.len(), body.len());
    }
    broker.until("space to return", || p.publish("t", "x", 1) < 0x80);
    assert_eq!(s.message().text(), "x");
    broker.until("/readyz to say yes", || broker.http("/readyz").is_some_and(|(s, _)| s == 200));
}

#[test]
fn h26_the_process_leaves_no_core_dump_with_secrets() {
    let broker = Broker::start();
    let limits = broker.proc("limits");
    let line = limits.lines().find(|l| l.starts_with("Max core file size")).expect("the limit");
    assert_eq!(line.split_whitespace().nth(4), Some("0"), "{line}");
}

#[test]
fn h27_no_crate_of_ours_has_unsafe_code_but_one_audited_module_at_most() {
    let mut found = Vec::new();
    for name in ["core", "shell", "sim", "tests", "benches"] {
        let mut dirs = vec![workspace().join(name)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path()) {
                if entry.is_dir() {
                    dirs.push(entry);
                } else if entry.extension().is_some_and(|e| e == "rs") {
                    let text = std::fs::read_to_string(&entry).expect("a source");
                    let allowed = concat!("allow(unsafe", "_code)");
                    if text.contains(allowed) {
                        found.push(entry);
                    }
                }
            }
        }
    }
    assert!(found.len() <= 1, "{found:?}");
    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).expect("the manifest");
    assert!(manifest.contains("unsafe_code = \"deny\""));
    assert!(workspace().join("deny.toml").is_file());
}

#[test]
fn h28_alone_the_broker_opens_no_port_but_the_ones_it_names() {
    // There is no link to NATS in the all-in-one role, and so nothing of it may listen.
    let broker = Broker::start();
    let sockets = |table: &str| {
        let mine: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", broker.id()))
            .expect("the broker's files")
            .filter_map(|e| std::fs::read_link(e.ok()?.path()).ok())
            .filter_map(|l| Some(l.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
            .collect();
        let all = broker.proc(table);
        let listening = all.lines().skip(1).filter(|l| l.split_whitespace().nth(3) == Some("0A"));
        let own =
            listening.filter(|l| l.split_whitespace().nth(9).is_some_and(|i| mine.iter().any(|m| m == i)));
        let mut ports: Vec<u16> = own
            .filter_map(|l| u16::from_str_radix(l.split_whitespace().nth(1)?.rsplit(':').next()?, 16).ok())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    };
    assert_eq!(sockets("net/tcp"), [1883, 18083]);
    assert_eq!(sockets("net/tcp6"), [0u16; 0]);
    assert!(broker.rss() < 256 * MIB);
}
