//! Bugs that other brokers had, by the ids of `tests/bug-cases.tsv`: WebSocket, TLS, PROXY.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use mast_tests::{
    Broker, Client, Connect, Version,
    certs::{self, Authority},
    raw,
    twin::runs_once,
    ws::{self, Ws, opcode},
};

const WS: &str = "[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n\
    [listener.ws]\nkind = \"ws\"\nbind = [\"{ip}\"]\nport = 8083\n";

#[test]
fn bo_41_websocket_subprotocols_and_text_frames() {
    let broker = Broker::with(WS);
    let mut ws = Ws::open(ws::tcp(broker.at(8083)), "/mqtt");
    ws.raw(&ws::frame(0x80 | opcode::TEXT, &Connect::v5("c").bytes()));
    assert!(Client::on(ws, Version::V5).expect_closed().is_empty());
    for (headers, accepted) in [
        ("", false),
        ("Sec-WebSocket-Protocol: foo\r\n", false),
        ("Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n", true),
    ] {
        let mut tcp = ws::tcp(broker.at(8083));
        let head = ws::upgrade(&mut tcp, "/mqtt", headers);
        let told = head.to_lowercase().contains("sec-websocket-protocol: mqtt\r\n");
        assert_eq!((head.starts_with("HTTP/1.1 101"), told), (accepted, accepted), "{headers:?}: {head}");
    }
}

#[test]
fn bo_42_broken_websocket_frames() {
    let broker = Broker::with(&format!("{WS}[mqtt]\nkeep_alive_max = \"2s\"\n"));
    let open = || {
        let mut ws = Ws::open(ws::tcp(broker.at(8083)), "/mqtt");
        ws.raw(&ws::frame(0x82, &Connect::v5("c").keep_alive(2).bytes()));
        let (first, payload) = ws.read_frame().expect("readable").expect("CONNACK");
        assert_eq!((first, payload[0]), (0x82, 0x20));
        ws
    };
    // 4,096 bytes announced, 3 sent: waits until keep alive ends it.
    let mut ws = open();
    // Unmasked: the header of a PUBLISH of 4,093 bytes.
    ws.raw(&[0x82, 0xFE, 0x10, 0x00, 1, 2, 3, 4, 0x30 ^ 1, 0xFD ^ 2, 0x1F ^ 3]);
    let start = Instant::now();
    while ws.read_frame().is_ok_and(|f| f.is_some_and(|(first, _)| first != 0x88)) {}
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
    for (bytes, what) in [
        (vec![0x82, 2, 0xC0, 0], "an unmasked frame"),
        (ws::frame(0xC2, &[0xC0, 0]), "a reserved bit"),
        (ws::frame(0x83, &[0xC0, 0]), "a reserved opcode"),
        (ws::frame(0x89, &vec![0; 70_000]), "an oversized control frame"),
        (ws::frame(0x09, b"x"), "a fragmented control frame"),
    ] {
        let mut ws = open();
        ws.raw(&bytes);
        let mut close = None;
        while let Ok(Some((first, payload))) = ws.read_frame() {
            if first == 0x88 {
                close = Some(payload);
            }
        }
        let close = close.unwrap_or_else(|| panic!("{what}: no close frame"));
        assert_eq!(close.get(..2), Some(&1002u16.to_be_bytes()[..]), "{what}");
    }
    broker.client("alive").ping();
}

const TLS: &str = "[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n[listener.tls]\nbind = [\"{ip}\"]\nport = 8883\n\
    [listener.tls.tls]\ncert = \"{dir}/s.crt\"\nkey = \"{dir}/s.key\"\n";

fn tls_broker() -> (Broker, Authority) {
    let mut broker = Broker::prepared();
    let authority = Authority::new("first");
    certs::write(broker.dir(), "s", &authority.server(broker.address().ip()));
    broker.configure(TLS);
    broker.launch();
    (broker, authority)
}

#[test]
fn bo_43_certificates_are_replaced_without_a_drop() {
    runs_once("its certificates are made anew by each process");
    let (broker, first) = tls_broker();
    let open = |authority: &Authority, id: &str| {
        let config = certs::client_config(&authority.pem, None);
        Connect::v5(id).open_on(certs::connect(&config, ws::tcp(broker.at(8883))))
    };
    let mut old: Vec<Client> = (0..100).map(|n| open(&first, &format!("c{n}"))).collect();
    let second = Authority::new("second");
    certs::write(broker.dir(), "s", &second.server(broker.address().ip()));
    assert!(broker.reload());
    open(&second, "new").ping();
    let config = certs::client_config(&first.pem, None);
    let mut tls = certs::connect(&config, ws::tcp(broker.at(8883)));
    assert!(
        tls.write_all(&[0]).and_then(|()| tls.flush()).is_err(),
        "the old authority is not trusted any more"
    );
    old.iter_mut().for_each(Client::ping);
    broker.write("s.key", "-----BEGIN PRIVATE KEY-----\nbroken\n-----END PRIVATE KEY-----\n");
    assert!(!broker.reload());
    open(&second, "still").ping();
    old.iter_mut().for_each(Client::ping);
}

#[test]
fn bo_44_silent_and_broken_tls_handshakes_end_and_hinder_nobody() {
    runs_once("its certificates are made anew by each process");
    let mut broker = Broker::prepared();
    let authority = Authority::new("ca");
    certs::write(broker.dir(), "s", &authority.server(broker.address().ip()));
    broker.configure(&format!("{TLS}[limits]\nhandshake_timeout = \"2s\"\n"));
    broker.launch();
    let config = certs::client_config(&authority.pem, None);
    let mut idle = Vec::new();
    for n in 0..300 {
        let mut tcp = ws::tcp(broker.at(8883));
        let sent = match n % 3 {
            0 => Ok(()),
            1 => tcp.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3]),
            _ => tcp.write_all(b"GET / HTTP/1.1\r\n\r\n"),
        };
        // The broker may have closed it already.
        sent.unwrap_or_default();
        idle.push(tcp);
        if n % 50 == 0 {
            let start = Instant::now();
            Connect::v5("real").open_on(certs::connect(&config, ws::tcp(broker.at(8883)))).ping();
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        }
    }
    for mut tcp in idle {
        let mut rest = Vec::new();
        match tcp.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
        }
    }
    let lines = broker.log().lines().count();
    assert!(lines < 200, "{lines} log lines for 300 failed handshakes");
}

#[test]
fn bo_45_proxy_headers_of_every_form() {
    let broker = Broker::with(
        "[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n[listener.proxied]\nbind = [\"{ip}\"]\nport = 1884\n\
         [listener.proxied.proxy]\nmode = \"required\"\ntrusted = [\"127.0.0.0/8\"]\n",
    );
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let v2 = |command: u8, family: u8, body: &[u8]| {
        raw::cat(&[SIGNATURE, &[command, family], &(body.len() as u16).to_be_bytes(), body])
    };
    let tcp4 = [192, 0, 2, 1, 192, 0, 2, 2, 0x10, 0, 7, 0x5B];
    let mut tcp6 = [0u8; 36];
    tcp6[15] = 1;
    let tlv = raw::cat(&[&tcp4, &[0xE0, 0, 3, 1, 2, 3]]);
    let headers = [
        v2(0x20, 0x00, &[]),
        v2(0x20, 0x11, &tcp4),
        v2(0x21, 0x00, &[]),
        v2(0x21, 0x00, &[1, 2, 3]),
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN anything at all\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 192.0.2.2 4096 1883\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::1 2001:db8::2 4096 1883\r\n".to_vec(),
        v2(0x21, 0x11, &tcp4),
        v2(0x21, 0x21, &tcp6),
        v2(0x21, 0x11, &tlv),
    ];
    for header in &headers {
        let connect = Connect::v5("c");
        // Together in one segment.
        let mut c = Client::on(ws::tcp(broker.at(1884)), Version::V5);
        c.send_bytes(&raw::cat(&[header, &connect.bytes()]));
        assert_eq!(c.recv().reason(), 0, "{header:02x?}");
        c.ping();
        // One byte at a time.
        let mut c = Client::on(ws::tcp(broker.at(1884)), Version::V5);
        for byte in header {
            c.send_bytes(&[*byte]);
        }
        c.send_bytes(&connect.bytes());
        assert_eq!(c.recv().reason(), 0, "{header:02x?}");
    }
    // No header, no service.
    let mut c = Connect::v5("c").start_on(ws::tcp(broker.at(1884)));
    assert!(c.expect_closed().is_empty());
}
