//! The broker process from outside: its doors, its limits, its life.

mod support;

use std::io::Write;

use mast_core::{
    codec::{Disconnect, Packet, Props, Reason},
    message::QoS,
};
use rustix::process::Signal;
use support::{Broker, Hello, run, text};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn hello(id: &str) -> Hello<'_> {
    Hello { id, ..Hello::default() }
}

#[test]
fn protocol_versions_and_empty_client_ids_can_be_turned_off_and_a_reload_changes_it() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "[mqtt]\naccept_v3 = false\nassign_client_id = false\n");
    let v3 = Hello { v3: true, ..hello("old") };
    assert_eq!(broker.client().connack(&v3), 1);
    assert_eq!(broker.client().connack(&hello("new")), 0);
    assert_eq!(broker.client().connack(&hello("")), 0x85);
    broker.reload("[mqtt]\naccept_v5 = false\n");
    broker.until("the reload", || broker.client().connack(&v3) == 0);
    assert_eq!(broker.client().connack(&hello("new")), 0x84);
}

#[test]
fn a_will_over_its_limit_is_refused() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "[limits]\nmax_will_size = \"1KiB\"\n");
    let (small, large) = (vec![b'x'; 1000], vec![b'x'; 1024]);
    assert_eq!(broker.client().connack(&Hello { will: Some(&small), ..hello("small") }), 0);
    assert_eq!(broker.client().connack(&Hello { will: Some(&large), ..hello("large") }), 0x95);
}

#[test]
fn a_tenants_share_of_connections_is_kept_and_a_place_is_given_back() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "[limits]\nmax_connections_per_tenant = 1\n");
    let mut first = broker.client();
    assert_eq!(first.connack(&hello("a")), 0);
    assert_eq!(broker.client().connack(&hello("b")), 0x97);
    let hits = "mast_tenant_limit_hits_total{tenant=\"default\",limit=\"connections\",mode=\"enforced\"}";
    broker.until("the refusal is counted", || broker.metric(hits) >= 1.0);
    drop(first);
    broker.until("the place is free", || broker.client().connack(&hello("b")) == 0);
    broker.until("all are gone", || broker.metric("mast_connections_open{listener=\"mqtt\"}") == 0.0);
    assert_eq!(broker.metric("mast_handshakes_open"), 0.0);
}

#[test]
fn a_user_name_that_nothing_checks_is_anonymous_to_the_rules() {
    let dir = dir();
    std::fs::write(dir.path().join("acl"), "topic open\nuser admin\ntopic #\n").expect("write");
    let broker = Broker::start(dir.path(), "[auth]\nacl_file = \"acl\"\nallow_anonymous = true\n");
    let mut client = broker.client();
    assert_eq!(client.connack(&Hello { user: Some("admin"), ..hello("a") }), 0);
    client.publish("secret", b"x", QoS::AtLeastOnce);
    assert_eq!(client.packet().expect("PUBACK")[4], 0x87);
    client.publish("open", b"x", QoS::AtLeastOnce);
    let allowed = client.packet().expect("PUBACK");
    assert!(allowed.get(4).is_none_or(|reason| *reason < 0x80), "{allowed:x?}");
}

#[test]
fn a_packet_that_is_not_finished_in_time_ends_its_connection() {
    let dir = dir();
    let config = "[mqtt]\nkeep_alive_off = true\n[limits]\npacket_timeout = \"1s\"\n";
    let broker = Broker::start(dir.path(), config);
    for keep_alive in [0, 1000] {
        let mut client = broker.client();
        assert_eq!(client.connack(&Hello { keep_alive, ..hello("slow") }), 0);
        client.socket.write_all(&[0x30, 0x20, 0x00]).expect("write");
        let goodbye = client.packet().expect("DISCONNECT");
        assert_eq!((goodbye[0], goodbye[2]), (0xE0, 0x8D));
        assert_eq!(client.packet(), None);
    }
}

/// What comes back to a session that was away while QoS 0, QoS 1, QoS 0 were published.
fn after_absence(keep: bool) -> Vec<(u8, Vec<u8>)> {
    let dir = dir();
    let broker = Broker::start(dir.path(), &format!("[offline]\nkeep_qos0 = {keep}\n"));
    let returning = Hello { keep_session: true, ..hello("away") };
    let mut away = broker.client();
    assert_eq!(away.connack(&returning), 0);
    away.subscribe("t/#", QoS::AtLeastOnce);
    let reason = Reason::NORMAL_DISCONNECTION;
    away.send(&Packet::Disconnect(Disconnect { reason, props: Props::EMPTY }));
    assert_eq!(away.packet(), None);
    let mut publisher = broker.client();
    assert_eq!(publisher.connack(&hello("publisher")), 0);
    publisher.publish("t/a", b"first", QoS::AtMostOnce);
    publisher.publish("t/a", b"second", QoS::AtLeastOnce);
    assert_eq!(publisher.packet().expect("PUBACK")[0], 0x40);
    publisher.publish("t/a", b"third", QoS::AtMostOnce);
    publisher.publish("t/a", b"last", QoS::AtLeastOnce);
    assert_eq!(publisher.packet().expect("PUBACK")[0], 0x40);
    let mut back = broker.client();
    assert_eq!(back.connack(&returning), 0);
    let mut got = Vec::new();
    loop {
        let packet = back.packet().expect("PUBLISH");
        let qos = packet[0] >> 1 & 3;
        // Topic, packet id, no properties.
        let payload = packet[2 + 5 + if qos > 0 { 2 } else { 0 } + 1..].to_vec();
        let last = payload == b"last";
        got.push((qos, payload));
        if last {
            return got;
        }
    }
}

#[test]
fn qos_0_for_an_absent_session_is_kept_if_wanted() {
    let got = after_absence(true);
    let mut texts: Vec<_> = got.iter().map(|(qos, payload)| (*qos, payload.as_slice())).collect();
    texts.sort_unstable();
    // Order holds within a QoS.
    let all: [(u8, &[u8]); 4] = [(0, b"first"), (0, b"third"), (1, b"last"), (1, b"second")];
    assert_eq!(texts, all);
    let texts = after_absence(false);
    assert_eq!(texts, [(1, b"second".to_vec()), (1, b"last".to_vec())]);
}

#[test]
fn a_peer_that_ends_its_direction_still_gets_its_answers() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "");
    let mut client = broker.client();
    assert_eq!(client.connack(&hello("half")), 0);
    client.send(&Packet::PingReq);
    client.half_close();
    assert_eq!(client.packet(), Some(vec![0xD0, 0]));
    assert_eq!(client.packet(), None);
}

#[test]
fn log_lines_name_the_client_escaped_and_capped() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "[limits]\nmax_log_text = 16\n");
    let mut client = broker.client();
    let id = format!("a\u{202e}b{}", "x".repeat(50));
    assert_eq!(client.connack(&hello(&id)), 0);
    // A second CONNECT is against the protocol.
    client.send(&Packet::PingReq);
    assert_eq!(client.packet(), Some(vec![0xD0, 0]));
    let goodbye = client.hello(&hello("again"));
    assert_eq!((goodbye[0], goodbye[2]), (0xE0, 0x82));
    broker.until("the line", || broker.log().contains("second CONNECT"));
    let log = broker.log();
    let line = log.lines().find(|l| l.contains("second CONNECT")).unwrap_or_default();
    assert!(line.contains("u{202e}") && line.contains("bytes)") && !line.contains(&"x".repeat(20)), "{line}");
}

#[test]
fn without_memory_nobody_comes_in_until_there_is_some() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "[limits]\nmemory_budget = \"1MiB\"\n");
    broker.until("pressure", || broker.metric("mast_memory_pressure") == 3.0);
    assert_eq!(broker.client().connack(&hello("a")), 0x89);
    assert!(broker.metric("mast_connections_refused_total{reason=\"memory_refuse_percent\"}") >= 1.0);
    broker.reload("");
    broker.until("room", || broker.client().connack(&hello("a")) == 0);
    assert_eq!(broker.metric("mast_memory_pressure"), 0.0);
}

#[test]
fn while_memory_is_short_publishers_wait_unharmed_and_others_are_read() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "");
    let (mut publisher, mut other) = (broker.client(), broker.client());
    assert_eq!(publisher.connack(&Hello { keep_alive: 1, ..hello("publisher") }), 0);
    assert_eq!(other.connack(&hello("other")), 0);
    publisher.publish("a", b"x", QoS::AtLeastOnce);
    assert_eq!(publisher.packet().expect("PUBACK")[0], 0x40);
    broker.reload("[limits]\nmemory_budget = \"1MiB\"\n");
    broker.until("pressure", || broker.metric("mast_memory_pressure") == 3.0);
    publisher.publish("a", b"x", QoS::AtLeastOnce);
    for _ in 0..4 {
        // Longer than the publisher's keep alive, in all.
        other.send(&Packet::PingReq);
        assert_eq!(other.packet(), Some(vec![0xD0, 0]));
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    broker.reload("");
    assert_eq!(publisher.packet().expect("PUBACK")[0], 0x40);
}

#[test]
fn sigterm_says_goodbye_and_ends_with_0_and_the_data_has_one_owner() {
    let dir = dir();
    let mut broker = Broker::start(dir.path(), "");
    assert!(broker.get("/readyz").contains("shards: ready"));
    let second = run(dir.path(), &["-c", "mast.toml", "--port", "0"]);
    // The address of administration is taken first.
    assert_eq!(second.status.code(), Some(1));
    std::fs::write(dir.path().join("second.toml"), "[admin]\nbind = []\n[node]\ndata_dir = \"data\"\n")
        .expect("write");
    let second = run(dir.path(), &["-c", "second.toml", "--port", "0"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("in use by another process"), "{}", text(&second.stderr));
    let mut client = broker.client();
    assert_eq!(client.connack(&hello("a")), 0);
    broker.signal(Signal::TERM);
    let goodbye = client.packet().expect("DISCONNECT");
    assert_eq!((goodbye[0], goodbye[2]), (0xE0, 0x8B));
    drop(client);
    assert_eq!(broker.wait().code(), Some(0), "{}", broker.log());
}
