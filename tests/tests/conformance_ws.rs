//! MQTT over WebSocket (MQTT 5, 6; MQTT 3.1.1, 6).

use mast_core::codec::PacketType;
use mast_tests::{
    Broker, Client, Connect, Version, covers,
    ws::{self, Ws, opcode},
};

const LISTENERS: &str = "[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n\
    [listener.ws]\nkind = \"ws\"\nbind = [\"{ip}\"]\nport = 8083\n";

#[test]
fn the_broker_selects_the_subprotocol_mqtt() {
    covers!["MQTT-6.0.0-3", "MQTT-6.0.0-4", "v311:MQTT-6.0.0-3", "v311:MQTT-6.0.0-4"];
    let broker = Broker::with(LISTENERS);
    for (offer, chosen) in
        [("mqtt", Some("mqtt")), ("mqttv3.1, mqtt", Some("mqtt")), ("foo, mqtt", Some("mqtt")), ("foo", None)]
    {
        let mut tcp = ws::tcp(broker.at(8083));
        let head = ws::upgrade(&mut tcp, "/mqtt", &format!("Sec-WebSocket-Protocol: {offer}\r\n"));
        match chosen {
            Some(name) => {
                assert!(head.starts_with("HTTP/1.1 101"), "{head}");
                let line = head.lines().find(|l| l.to_lowercase().starts_with("sec-websocket-protocol:"));
                assert_eq!(line.and_then(|l| l.split_once(':')).map(|(_, v)| v.trim()), Some(name), "{head}");
            }
            None => assert!(!head.starts_with("HTTP/1.1 101"), "{head}"),
        }
    }
}

#[test]
fn packets_may_be_split_over_frames_and_share_them() {
    covers!["MQTT-6.0.0-2", "v311:MQTT-6.0.0-2", "MQTT-4.2-1"];
    let broker = Broker::with(LISTENERS);
    for version in Version::ALL {
        for chunk in [1, 3, usize::MAX] {
            let mut tcp = ws::tcp(broker.at(8083));
            let head = ws::upgrade(&mut tcp, "/mqtt", "Sec-WebSocket-Protocol: mqtt\r\n");
            assert!(head.starts_with("HTTP/1.1 101"), "{head}");
            let mut client = Connect::new(version, "c").open_on(Ws::upgraded(tcp, chunk));
            client.subscribe("t", 2);
            let big = vec![b'x'; 70_000 / chunk.clamp(1, 70)];
            for q in 0..3 {
                client.publish("t", &big, q);
                assert_eq!(client.message().payload, big);
            }
            // Two packets in one frame.
            client.send_bytes(&[0xC0, 0, 0xC0, 0]);
            client.expect(PacketType::PingResp);
            client.expect(PacketType::PingResp);
        }
    }
}

#[test]
fn text_frames_close_the_connection() {
    covers!["MQTT-6.0.0-1", "v311:MQTT-6.0.0-1"];
    let broker = Broker::with(LISTENERS);
    for first in [true, false] {
        let mut ws = Ws::open(ws::tcp(broker.at(8083)), "/mqtt");
        let connect = Connect::v5("c").bytes();
        if first {
            ws.raw(&ws::frame(0x80 | opcode::TEXT, &connect));
        } else {
            ws.raw(&ws::frame(0x80 | opcode::BINARY, &connect));
            ws.raw(&ws::frame(0x80 | opcode::TEXT, &[0xC0, 0]));
        }
        let mut client = Client::on(ws, Version::V5);
        for got in client.expect_closed() {
            assert!([PacketType::ConnAck, PacketType::Disconnect].contains(&got.ty()), "{got:?}");
        }
    }
}

#[test]
fn broker_frames_are_binary() {
    covers!["MQTT-6.0.0-1", "v311:MQTT-6.0.0-1"];
    let broker = Broker::with(LISTENERS);
    let mut ws = Ws::open(ws::tcp(broker.at(8083)), "/mqtt");
    ws.raw(&ws::frame(0x80 | opcode::BINARY, &Connect::v311("c").bytes()));
    let (first, payload) = ws.read_frame().expect("a frame").expect("a frame");
    assert_eq!((first, &payload[..]), (0x82, &[0x20, 2, 0, 0][..]));
    ws.raw(&ws::frame(0x80 | opcode::PING, b"hello"));
    assert_eq!(ws.read_frame().expect("a frame"), Some((0x8A, b"hello".to_vec())));
}
