//! The hardening list, H21 to H28: the process as a whole: hashing, log, administration, memory, store, privileges. What
//! concerns the store's faults (H25) is tested more deeply in `store_faults.rs`.

use std::io::Write;

use mast_core::codec::SubOptions;
use mast_tests::{
    Broker, Client, Connect, Version,
    broker::{DEADLINE, workspace},
    client::{Event, Out, qos},
    raw,
    twin::runs_once,
    ws::{self},
};

const MIB: u64 = 1 << 20;

fn options(max_qos: u8) -> SubOptions {
    SubOptions::new(qos(max_qos))
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
    broker.until("held back lines", || broker.metric("mast_log_held_back_total") >= 100.0);
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
    assert!(raw::until_closed(&mut tcp).is_empty());
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
fn h24_at_the_last_mark_the_largest_qos_0_consumers_are_cut_and_nobody_else() {
    runs_once("it fills the memory of the whole broker");
    let broker = Broker::start();
    let (mut stalled, mut quiet) = (broker.client("stalled"), broker.client("quiet"));
    let mut owed = Connect::v5("owed").lasting().open(&broker);
    stalled.subscribe("t", 0);
    quiet.subscribe("u", 0);
    owed.subscribe("t", 1);
    let mut p = broker.client("p");
    let slow = "mast_dropped_total{reason=\"slow_consumer_qos0\"}";
    broker.until("two full sockets", || {
        (0..20).for_each(|_| {
            p.publish("t", vec![b'x'; 100_000], 0);
        });
        p.ping();
        broker.metric(slow) >= 100.0
    });
    broker.configure("[limits]\nmemory_budget = \"1MiB\"\n");
    assert!(broker.reload());
    broker.until("the cut", || broker.metric("mast_connections_cut_total{reason=\"memory\"}") == 1.0);
    quiet.ping();
    broker.until("the others to be left", || {
        broker.metric("mast_tenant_connections{tenant=\"default\"}") == 3.0
            && broker.metric("mast_memory_pressure") == 3.0
    });
    broker.configure("");
    assert!(broker.reload());
    p.ping();
    owed.expect_publish();
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
