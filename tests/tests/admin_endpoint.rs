//! The administration endpoint under clients that hold connections open.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use mast_tests::{Broker, broker::DEADLINE};

const ADMIN: u16 = 18083;

fn open(broker: &Broker) -> TcpStream {
    let stream = TcpStream::connect(broker.at(ADMIN)).expect("connects");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

/// Reads until the other end closes; a reset is an end as well.
fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("still open: {e}"),
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn half_a_request_and_an_idle_connection_are_closed() {
    let broker = Broker::with("[limits]\nadmin_timeout = \"300ms\"\n");
    let mut silent = open(&broker);
    let mut half = open(&broker);
    half.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n").expect("sent");
    let mut idle = open(&broker);
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    assert!(rest(&mut idle).starts_with("HTTP/1.1 200"), "answered, then closed");
    assert!(!rest(&mut half).contains("200"));
    assert!(!rest(&mut silent).contains("200"));
    let cut = || broker.metric("mast_admin_connections_cut_total{reason=\"timeout\"}");
    broker.until("they are counted", || cut() >= 2.0);
}

#[test]
fn many_half_open_requests_do_not_keep_a_health_check_out() {
    let broker = Broker::with("[limits]\nadmin_timeout = \"5m\"\nmax_admin_connections = 8\n");
    let mut held: Vec<TcpStream> = (0..40).map(|_| open(&broker)).collect();
    for stream in &mut held {
        // Some are cut already.
        stream.write_all(b"GET /livez HTTP/1.1\r\n").unwrap_or_default();
    }
    for _ in 0..3 {
        let (status, _) = broker.http("/livez").expect("an answer");
        assert_eq!(status, 200);
    }
    assert!(broker.metric("mast_admin_connections_cut_total{reason=\"full\"}") >= 32.0);
    // The oldest gave way, the newest are still there.
    assert!(!rest(&mut held[0]).contains("200"));
    let last = held.last_mut().expect("one");
    last.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    assert!(last.read(&mut [0]).is_err(), "it waits");
}
