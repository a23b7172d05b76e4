//! The hardening list, H1 to H5 and H18 to H20: what a socket may cost and do before there is a session behind it.

use std::{
    io::{Read, Write},
    time::Duration,
};

use mast_tests::{
    Broker, Client, Connect, Version,
    certs::{self, Authority},
    client::Event,
    raw,
    twin::runs_once,
    ws::{self, Ws},
};

#[test]
fn h01_a_socket_before_connack_costs_what_it_sent_not_what_it_announced() {
    runs_once("it measures what the whole broker holds");
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
    runs_once("it counts by metrics of the whole broker");
    let broker = Broker::start();
    let mut c = Client::on(broker.tcp(), Version::V5);
    c.send_bytes(&raw::cat(&[&[0x10], &raw::varint(129 * 1024), &raw::field("MQTT"), &[5, 2]]));
    assert!(c.expect_closed().iter().all(|g| g.reason() == 0x95));
    let mut c = broker.client("c");
    c.send_bytes(&raw::cat(&[&[0x30], &raw::varint(1 << 20)]));
    c.expect_end(0x95);
    let count = |metric: &str| broker.metric(metric);
    broker.until("both counted", || {
        count("mast_handshakes_failed_total{reason=\"violation\"}") == 1.0
            && count("mast_violations_total") == 1.0
    });
}

#[test]
fn h03_connects_handshakes_and_packets_have_a_deadline() {
    runs_once("it counts by metrics of the whole broker");
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
        raw::until_closed(&mut tcp);
    }
    // A packet that never ends, on a connection without keep alive; with one, keep alive ends it.
    let mut c = Connect::v5("c").keep_alive(0).open(&broker);
    c.send_bytes(&raw::cat(&[&[0x30], &raw::varint(1000), &raw::field("t"), &[0]]));
    c.expect_closed();
    let cut = "mast_connections_cut_total{reason=\"packet_timeout\"}";
    broker.until("the count", || broker.metric(cut) == 1.0);
    assert!(broker.metric("mast_handshakes_failed_total{reason=\"timeout\"}") >= 5.0);
}

#[test]
fn h04_connections_are_bounded_in_all_per_source_and_in_rate() {
    runs_once("the bounds of the node are what it fills");
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
    runs_once("the pool of the node is what it fills");
    let mut broker = Broker::prepared();
    broker.limit_files(1000);
    broker.configure("[limits]\nmax_unauthenticated_percent = 1\nconnect_timeout = \"60s\"\n");
    broker.launch();
    let mut idle: Vec<_> = (0..30).map(|_| ws::tcp(broker.address())).collect();
    broker.client("real").ping();
    raw::until_closed(&mut idle[0]);
    let gave_way = "mast_connections_refused_total{reason=\"max_unauthenticated_percent\"}";
    broker.until("the count", || broker.metric(gave_way) >= 1.0);
    let last = &mut idle[29];
    last.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let waits = last.read(&mut [0]).expect_err("the newest is still open").kind();
    assert!(matches!(waits, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{waits}");
}

#[test]
fn h18_client_certificates_are_checked_the_same_way_on_tls_and_wss() {
    runs_once("its certificates are made anew by each process");
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
        let answer = raw::until_closed(&mut tcp);
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
        assert!(raw::until_closed(&mut tcp).is_empty(), "port {port}: {bytes:02x?}");
    }
}
