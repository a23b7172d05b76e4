//! Tests of the clients against a scripted broker on a real socket.

use std::time::Duration;

use clap::Parser;
use mast_core::{
    codec::{
        Ack, ConnAck, Packet, PacketType, Property, Props, PropsBuf, Publish, Reason, SubAck, Version, cut,
        decode,
    },
    message::QoS,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{PubArgs, SubArgs, format, format::Output, publish, subscribe};

#[derive(Parser)]
struct SubCli {
    #[command(flatten)]
    args: SubArgs,
}

#[derive(Parser)]
struct PubCli {
    #[command(flatten)]
    args: PubArgs,
}

/// The broker's side of one connection.
struct Peer {
    socket: TcpStream,
    input: Vec<u8>,
    version: Version,
}

impl Peer {
    async fn accept(listener: &TcpListener, version: Version) -> Self {
        let (socket, _) = listener.accept().await.expect("accept");
        Self { socket, input: vec![], version }
    }

    /// Takes the next packet, checks its type and shows it to `look`.
    async fn expect<T>(&mut self, kind: PacketType, look: impl FnOnce(&Packet<'_>) -> T) -> T {
        loop {
            if let Some(frame) = cut(&self.input, u32::MAX).expect("a frame") {
                let packet = decode(&frame, self.version).expect("a packet");
                assert_eq!(packet.packet_type(), kind, "{packet:?}");
                let seen = look(&packet);
                let total = frame.total;
                self.input.drain(..total);
                return seen;
            }
            let n = self.socket.read_buf(&mut self.input).await.expect("read");
            assert!(n > 0, "the client closed instead of sending {kind:?}");
        }
    }

    async fn send(&mut self, packet: Packet<'_>) {
        let mut bytes = vec![];
        packet.encode(self.version, &mut bytes).expect("encode");
        self.socket.write_all(&bytes).await.expect("write");
    }

    async fn welcome(&mut self) {
        self.expect(PacketType::Connect, |_| ()).await;
        let (session_present, code, props) = (false, Reason::SUCCESS, Props::EMPTY);
        self.send(Packet::ConnAck(ConnAck { session_present, code, props })).await;
    }

    async fn subscribed(&mut self, codes: &[u8]) {
        let packet_id = self.expect(PacketType::Subscribe, id).await;
        self.send(Packet::SubAck(SubAck { packet_id, props: Props::EMPTY, codes })).await;
    }

    async fn message(&mut self, qos: QoS, topic: &str, payload: &[u8], retain: bool, props: Props<'_>) {
        let packet_id = if qos == QoS::AtMostOnce { 0 } else { 7 };
        self.send(Packet::Publish(Publish { dup: false, qos, retain, topic, packet_id, props, payload }))
            .await;
    }
}

fn id(packet: &Packet<'_>) -> u16 {
    match packet {
        Packet::Subscribe(s) => s.packet_id,
        Packet::Publish(p) => p.packet_id,
        Packet::PubRel(a) => a.packet_id,
        other => panic!("{other:?}"),
    }
}

fn ack(packet_id: u16, reason: Reason) -> Ack<'static> {
    Ack { packet_id, reason, props: Props::EMPTY }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("address").port().to_string();
    (listener, port)
}

/// Runs `mast sub` with these flags; gives its output and exit code.
async fn sub(port: &str, flags: &[&str]) -> (String, u8) {
    let words = ["sub", "-h", "127.0.0.1", "-p", port].into_iter().chain(flags.iter().copied());
    let args = SubCli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args;
    let mut out = vec![];
    let done = subscribe::run(args, &mut out, std::future::pending()).await;
    (String::from_utf8(out).expect("text"), done.err().map_or(0, |e| e.code))
}

async fn publish(port: &str, flags: &[&str], input: &[u8]) -> u8 {
    let words = ["pub", "-h", "127.0.0.1", "-p", port].into_iter().chain(flags.iter().copied());
    let args = PubCli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args;
    publish::run(args, input).await.err().map_or(0, |e| e.code)
}

#[tokio::test]
async fn sub_prints_messages_of_each_qos_once_and_ends_after_its_count() {
    let (listener, port) = listen().await;
    let broker = async {
        let mut peer = Peer::accept(&listener, Version::V311).await;
        peer.welcome().await;
        peer.subscribed(&[2]).await;
        peer.message(QoS::AtMostOnce, "a", b"zero", false, Props::EMPTY).await;
        peer.message(QoS::AtMostOnce, "skip/x", b"no", false, Props::EMPTY).await;
        peer.message(QoS::AtMostOnce, "a", b"", false, Props::EMPTY).await;
        peer.message(QoS::AtLeastOnce, "a/b", b"one", false, Props::EMPTY).await;
        peer.expect(PacketType::PubAck, |_| ()).await;
        for _ in 0..2 {
            peer.message(QoS::ExactlyOnce, "c", b"two", false, Props::EMPTY).await;
            peer.expect(PacketType::PubRec, |_| ()).await;
        }
        peer.send(Packet::PubRel(ack(7, Reason::SUCCESS))).await;
        peer.expect(PacketType::PubComp, |_| ()).await;
        peer.expect(PacketType::Disconnect, |_| ()).await;
    };
    let flags = ["-t", "#", "-q", "2", "-v", "-C", "4", "-T", "skip/#"];
    let ((out, code), ()) = tokio::join!(sub(&port, &flags), broker);
    assert_eq!((out.as_str(), code), ("a zero\na (null)\na/b one\nc two\n", 0));
}

#[tokio::test]
async fn sub_tells_refusals_by_its_exit_code() {
    let (listener, port) = listen().await;
    let broker = async {
        let mut peer = Peer::accept(&listener, Version::V5).await;
        peer.expect(PacketType::Connect, |_| ()).await;
        let (session_present, code, props) = (false, Reason::NOT_AUTHORIZED, Props::EMPTY);
        peer.send(Packet::ConnAck(ConnAck { session_present, code, props })).await;
        let mut peer = Peer::accept(&listener, Version::V311).await;
        peer.welcome().await;
        peer.subscribed(&[0x80]).await;
    };
    let client = async {
        let connect = sub(&port, &["-t", "a", "-V", "mqttv5"]).await.1;
        (connect, sub(&port, &["-t", "a", "--quiet"]).await.1)
    };
    assert_eq!(tokio::join!(client, broker).0, (0x87, 0x80));
}

#[tokio::test]
async fn sub_connects_again_when_the_connection_is_lost_and_subscribes_again() {
    let (listener, port) = listen().await;
    let broker = async {
        let mut peer = Peer::accept(&listener, Version::V311).await;
        peer.welcome().await;
        peer.subscribed(&[0]).await;
        peer.message(QoS::AtMostOnce, "a", b"1", false, Props::EMPTY).await;
        drop(peer);
        let mut peer = Peer::accept(&listener, Version::V311).await;
        peer.welcome().await;
        peer.subscribed(&[0]).await;
        peer.message(QoS::AtMostOnce, "a", b"2", false, Props::EMPTY).await;
        peer.expect(PacketType::Disconnect, |_| ()).await;
    };
    let ((out, code), ()) = tokio::join!(sub(&port, &["-t", "a", "-C", "2", "--quiet"]), broker);
    assert_eq!((out.as_str(), code), ("1\n2\n", 0));
}

#[tokio::test]
async fn sub_ends_with_27_when_its_time_is_over() {
    let (listener, port) = listen().await;
    let broker = async {
        let mut peer = Peer::accept(&listener, Version::V311).await;
        peer.welcome().await;
        peer.subscribed(&[0]).await;
        let mut rest = vec![];
        peer.socket.read_to_end(&mut rest).await.expect("read");
    };
    let ((_, code), ()) = tokio::join!(sub(&port, &["-t", "a", "-W", "1"]), broker);
    assert_eq!(code, 27);
}

#[tokio::test]
async fn pub_sends_each_line_and_waits_for_the_last_acknowledgement() {
    let (listener, port) = listen().await;
    let broker = async {
        let mut peer = Peer::accept(&listener, Version::V311).await;
        peer.welcome().await;
        let mut seen = vec![];
        for _ in 0..3 {
            let (packet_id, payload) = peer
                .expect(PacketType::Publish, |p| {
                    let Packet::Publish(p) = p else { panic!("{p:?}") };
                    assert!(p.retain && p.topic == "t" && p.qos == QoS::ExactlyOnce);
                    (p.packet_id, p.payload.to_vec())
                })
                .await;
            seen.push(payload);
            peer.send(Packet::PubRec(ack(packet_id, Reason::SUCCESS))).await;
        }
        for _ in 0..3 {
            let packet_id = peer.expect(PacketType::PubRel, id).await;
            peer.send(Packet::PubComp(ack(packet_id, Reason::SUCCESS))).await;
        }
        peer.expect(PacketType::Disconnect, |_| ()).await;
        seen
    };
    let client = publish(&port, &["-t", "t", "-l", "-q", "2", "-r"], b"one\n\nlast");
    let (code, seen) = tokio::join!(client, broker);
    assert_eq!((code, seen), (0, vec![b"one".to_vec(), b"".to_vec(), b"last".to_vec()]));
}

#[tokio::test]
async fn pub_gives_the_reason_of_a_refused_message_as_exit_code() {
    let (listener, port) = listen().await;
    let broker = async {
        let mut peer = Peer::accept(&listener, Version::V5).await;
        peer.welcome().await;
        let (packet_id, content_type) = peer
            .expect(PacketType::Publish, |p| {
                let Packet::Publish(p) = p else { panic!("{p:?}") };
                (p.packet_id, p.props.content_type().map(str::to_owned))
            })
            .await;
        peer.send(Packet::PubAck(ack(packet_id, Reason::NOT_AUTHORIZED))).await;
        peer.expect(PacketType::Disconnect, |_| ()).await;
        content_type
    };
    let flags =
        ["-t", "t", "-m", "x", "-q", "1", "-V", "5", "-D", "publish", "content-type", "text", "--quiet"];
    let (code, content_type) = tokio::join!(publish(&port, &flags, b""), broker);
    assert_eq!((code, content_type.as_deref()), (0x87, Some("text")));
}

#[tokio::test]
async fn wrong_usage_ends_with_2_before_anything_is_sent() {
    for flags in [&["-t", "a/#", "-m", "x"][..], &["-m", "x"], &["-t", "a"], &["-t", "a", "-m", "x", "-c"]] {
        assert_eq!(publish("1", flags, b"").await, 2, "{flags:?}");
    }
    assert_eq!(sub("1", &["-C", "1"]).await.1, 2);
    assert_eq!(sub("1", &["-t", "a", "-D", "connect", "receive-maximum", "9"]).await.1, 2, "-D needs MQTT 5");
}

#[test]
fn a_url_gives_address_user_and_topic() {
    let words = ["sub", "-L", "mqtts://ann:pa:ss@[::1]:99/a/b/#"];
    let mut args = SubCli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args.client;
    let target = args.normalise().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((target.host.as_str(), target.port, target.tls), ("::1", 99, true));
    assert_eq!((args.username.as_deref(), args.password.as_deref()), (Some("ann"), Some("pa:ss")));
    assert_eq!(args.topics, ["a/b/#"]);
}

fn printed(text: &str, payload: &[u8]) -> String {
    let output = Output {
        format: Some(format::parse(text).unwrap_or_else(|e| panic!("{e}"))),
        verbose: false,
        line_feed: false,
    };
    let mut props = PropsBuf::new();
    for property in [Property::ContentType("text"), Property::UserProperty("k", "v")] {
        props.push(&property).expect("short");
    }
    let message = Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: true,
        topic: "a/b",
        packet_id: 9,
        props: props.as_props(),
        payload,
    };
    let mut out = vec![];
    output.write(&mut out, &message, Duration::new(1_709_210_096, 5_000_000)).expect("write");
    String::from_utf8(out).expect("text")
}

#[test]
fn formats_take_mosquittos_escapes() {
    assert_eq!(printed("%t|%p|%q|%r|%l|%m\\n", b"hi"), "a/b|hi|1|1|2|9\n");
    assert_eq!(printed("%x %X %% @@ \\\\", b"\xabz"), "ab7a AB7A % @ \\");
    assert_eq!(printed("[%6t][%-6t][%06l]", b"hi"), "[   a/b][a/b   ][000002]");
    assert_eq!(printed("%C %P", b""), "text k:v");
    assert_eq!(printed("%U %I", b""), "1709210096.005000000 2024-02-29T12:34:56+0000");
    assert_eq!(
        printed("@Y-@m-@d @H:@M:@S @F @T @j @s", b""),
        "2024-02-29 12:34:56 2024-02-29 12:34:56 060 1709210096"
    );
    for bad in ["%", "%y", "@", "@q", "\\q", "\\"] {
        assert!(format::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn json_output_holds_the_payload_as_text_or_as_value() {
    let text: serde_json::Value = serde_json::from_str(&printed("%j", b"{\"a\":1}")).expect("JSON");
    assert_eq!((&text["topic"], &text["payload"]), (&"a/b".into(), &"{\"a\":1}".into()));
    assert_eq!(text["properties"]["user-properties"][0]["k"], "v");
    let value: serde_json::Value = serde_json::from_str(&printed("%J", b"{\"a\":1}")).expect("JSON");
    assert_eq!(value["payload"]["a"], 1);
}
