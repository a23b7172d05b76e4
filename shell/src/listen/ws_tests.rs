//! Tests of the WebSocket upgrade and codec.

use super::{
    ws::{Handshake, Upgrade, accept_value},
    ws_codec::{CloseCode, WsCodec, WsState, frame_header, wrap, wrap_masked},
};
use crate::config::WsSettings;

fn settings(origins: &[&str]) -> WsSettings {
    WsSettings { path: "/mqtt".into(), origins: origins.iter().map(|o| (*o).to_owned()).collect() }
}

fn request(line: &str, headers: &str) -> Vec<u8> {
    format!(
        "{line}\r\nHost: broker.example\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
    )
    .into_bytes()
}

fn judge(bytes: &[u8], origins: &[&str]) -> Upgrade {
    Handshake::default().advance(bytes, &settings(origins), 8192)
}

fn status(upgrade: &Upgrade) -> &str {
    match upgrade {
        Upgrade::Incomplete => "incomplete",
        Upgrade::Accepted { .. } => "101",
        Upgrade::Refused { response, .. } => std::str::from_utf8(&response[9..12]).unwrap_or("?"),
    }
}

#[test]
fn the_accept_value_is_the_one_of_the_rfc() {
    assert_eq!(accept_value("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

#[test]
fn an_upgrade_is_accepted_with_the_best_subprotocol_that_is_offered() {
    let mut bytes = request("GET /mqtt HTTP/1.1", "Sec-WebSocket-Protocol: foo, mqttv3.1, mqtt\r\n");
    let length = bytes.len();
    bytes.extend([0x82, 0x80]);
    let Upgrade::Accepted { length: used, response, subprotocol } = judge(&bytes, &[]) else {
        panic!("refused")
    };
    assert_eq!((used, subprotocol), (length, "mqtt"));
    let response = String::from_utf8(response).expect("text");
    assert!(response.contains("Sec-WebSocket-Protocol: mqtt\r\n"), "{response}");
    assert!(!response.contains("Extensions"));
}

#[test]
fn the_request_may_come_byte_by_byte() {
    let bytes = request("GET /mqtt?x=1 HTTP/1.1", "Sec-WebSocket-Protocol: mqtt\r\n");
    let mut handshake = Handshake::default();
    for end in 1..bytes.len() {
        assert_eq!(handshake.advance(&bytes[..end], &settings(&[]), 8192), Upgrade::Incomplete);
    }
    assert_eq!(status(&handshake.advance(&bytes, &settings(&[]), 8192)), "101");
}

#[test]
fn what_is_no_proper_upgrade_is_refused_with_the_fitting_status() {
    let mqtt = "Sec-WebSocket-Protocol: mqtt\r\n";
    for (line, headers, expected) in [
        ("GET /other HTTP/1.1", mqtt, "404"),
        ("POST /mqtt HTTP/1.1", mqtt, "405"),
        ("GET /mqtt HTTP/1.0", mqtt, "405"),
        ("GET /mqtt HTTP/1.1", "", "400"),
        ("GET /mqtt HTTP/1.1", "Sec-WebSocket-Protocol: amqp\r\n", "400"),
        ("GET /mqtt HTTP/1.1", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "400"),
        ("nonsense", mqtt, "400"),
    ] {
        assert_eq!(status(&judge(&request(line, headers), &[])), expected, "{line} {headers}");
    }
    let plain = b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(status(&judge(plain, &[])), "426");
    let long = request("GET /mqtt HTTP/1.1", &format!("X: {}\r\n", "y".repeat(9000)));
    assert_eq!(status(&judge(&long, &[])), "431");
    assert_eq!(status(&judge(&long[..8192], &[])), "431");
}

#[test]
fn origins_outside_the_list_are_refused() {
    let from = |origin: &str, allowed: &[&str]| {
        let headers = format!("Sec-WebSocket-Protocol: mqtt\r\nOrigin: {origin}\r\n");
        status(&judge(&request("GET /mqtt HTTP/1.1", &headers), allowed)).to_owned()
    };
    assert_eq!(from("https://evil.example", &[]), "101");
    assert_eq!(from("https://evil.example", &["https://good.example"]), "403");
    assert_eq!(from("https://Good.example", &["https://good.example"]), "101");
    assert_eq!(from("https://broker.example", &["same"]), "101");
    assert_eq!(from("https://evil.example", &["same"]), "403");
    assert_eq!(from("null", &["same"]), "403");
    let none = request("GET /mqtt HTTP/1.1", "Sec-WebSocket-Protocol: mqtt\r\n");
    assert_eq!(status(&judge(&none, &["same"])), "101", "programs that are no browsers send no origin");
}

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let (mut header, used) = frame_header(payload.len());
    header[0] = first;
    header[1] |= 0x80;
    let mut out = header[..used].to_vec();
    out.extend(MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(b, m)| b ^ m));
    out
}

/// Feeds `bytes` in pieces of `step`; gives MQTT bytes, bytes to send and the result.
fn run(bytes: &[u8], step: usize) -> (Vec<u8>, Vec<u8>, Result<WsState, CloseCode>) {
    let (mut codec, mut mqtt, mut out) = (WsCodec::new(100_000), vec![], vec![]);
    let mut last = Ok(WsState::Open);
    for piece in bytes.chunks(step) {
        last = codec.decode(piece, &mut mqtt, &mut out).map_err(|v| v.code);
        if last != Ok(WsState::Open) {
            break;
        }
    }
    (mqtt, out, last)
}

#[test]
fn frames_split_anywhere_give_the_same_bytes() {
    let big: Vec<u8> = (0..70_000u32).map(|i| (i % 251) as u8).collect();
    let mut input = frame(0x02, b"ab");
    input.extend(frame(0x89, b"ping"));
    input.extend(frame(0x00, b""));
    input.extend(frame(0x80, b"cd"));
    input.extend(frame(0x8a, b"unasked pong"));
    input.extend(frame(0x82, &big[..300]));
    input.extend(frame(0x82, &big));
    let mut expected = b"abcd".to_vec();
    expected.extend(&big[..300]);
    expected.extend(&big);
    for step in [1, 2, 3, 5, 7, 13, 64, 4096, usize::MAX] {
        let (mqtt, out, state) = run(&input, step);
        assert!(mqtt == expected, "step {step}");
        assert_eq!(out, b"\x8a\x04ping");
        assert_eq!(state, Ok(WsState::Open));
    }
}

#[test]
fn a_close_is_answered_with_its_code_and_ends_the_input() {
    let mut input = frame(0x88, &[0x03, 0xe8, b'b', b'y', b'e']);
    input.extend(frame(0x82, b"late"));
    assert_eq!(run(&input, 1), (vec![], vec![0x88, 2, 0x03, 0xe8], Ok(WsState::Closed)));
    assert_eq!(run(&frame(0x88, &[]), 99), (vec![], vec![0x88, 2, 0x03, 0xe8], Ok(WsState::Closed)));
}

#[test]
fn violations_close_with_the_code_of_the_rfc() {
    use CloseCode::{InvalidText, ProtocolError, TooBig, Unsupported};
    let unmasked = vec![0x82, 0x01, 0x00];
    let not_minimal = vec![0x82, 0xfe, 0, 5, 1, 2, 3, 4];
    let not_minimal_64 = vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4];
    let top_bit = vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    let huge = vec![0x82, 0xff, 0, 0, 0, 0, 0, 2, 0, 0, 1, 2, 3, 4];
    let long_control = vec![0x89, 0xfe, 0, 126, 1, 2, 3, 4];
    for (input, code) in [
        (unmasked, ProtocolError),
        (not_minimal, ProtocolError),
        (not_minimal_64, ProtocolError),
        (top_bit, ProtocolError),
        (huge, TooBig),
        (long_control, ProtocolError),
        (frame(0x81, b"text"), Unsupported),
        (frame(0xc2, b"rsv1"), ProtocolError),
        (frame(0x83, b"opcode 3"), ProtocolError),
        (frame(0x8b, b"opcode 11"), ProtocolError),
        (frame(0x80, b"continuation"), ProtocolError),
        (frame(0x09, b"fragmented ping"), ProtocolError),
        ([frame(0x02, b"a"), frame(0x82, b"b")].concat(), ProtocolError),
        (frame(0x88, &[0]), ProtocolError),
        (frame(0x88, &[0x03, 0xed]), ProtocolError),
        (frame(0x88, &[0x03, 0xe8, 0xff]), InvalidText),
    ] {
        let (_, out, result) = run(&input, 1);
        assert_eq!(result, Err(code), "{input:?}");
        assert_eq!(out, [&[0x88, 2][..], &(code as u16).to_be_bytes()].concat());
    }
}

#[test]
fn outgoing_frames_have_the_shortest_length_and_no_mask() {
    for (length, header) in [
        (0, vec![0x82, 0]),
        (125, vec![0x82, 125]),
        (126, vec![0x82, 126, 0, 126]),
        (65_535, vec![0x82, 126, 0xff, 0xff]),
        (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let mut out = vec![];
        wrap(&vec![7; length], &mut out);
        assert_eq!(out[..header.len()], header);
        assert_eq!(out.len(), header.len() + length);
    }
}

#[test]
fn a_client_and_a_server_understand_each_other_and_a_server_takes_no_unmasked_frames() {
    let (mut server, mut client) = (WsCodec::new(1000), WsCodec::client(1000));
    let (mut wire, mut mqtt, mut out) = (vec![], vec![], vec![]);
    wrap_masked(b"to the server", MASK, &mut wire);
    assert_eq!(server.decode(&wire, &mut mqtt, &mut out), Ok(WsState::Open));
    assert_eq!(mqtt, b"to the server");
    wire.clear();
    wrap(b" and back", &mut wire);
    wire.extend([0x89, 1, b'p']);
    assert_eq!(client.decode(&wire, &mut mqtt, &mut out), Ok(WsState::Open));
    assert_eq!(mqtt, b"to the server and back");
    assert_eq!(out, [0x8a, 0x81, 0, 0, 0, 0, b'p'], "the client's pong is masked");
    assert!(client.decode(&frame(0x82, b"x"), &mut mqtt, &mut out).is_err());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_splitting_changes_nothing(
        bytes in proptest::collection::vec(0u8.., 0..300),
        step in 1usize..20,
    ) {
        proptest::prop_assert_eq!(run(&bytes, usize::MAX), run(&bytes, step));
    }
}
