//! WebSocket (RFC 6455), server side, without I/O: the upgrade and a codec between frames and MQTT bytes.
//!
//! No extension is ever negotiated. MQTT over WebSocket is a byte stream in binary frames: packets may be split
//! over frames anywhere, and a frame may hold several [MQTT-6.0.0-2].

use aws_lc_rs::digest;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::config::WsSettings;

/// Collects an upgrade request until it is whole. Bytes are scanned once however they are split.
#[derive(Debug, Default)]
pub struct Handshake {
    scanned: usize,
}

/// What the bytes received so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// More bytes are needed.
    Incomplete,
    /// Send `response`; WebSocket frames begin after `length` bytes.
    Accepted { length: usize, response: Vec<u8>, subprotocol: &'static str },
    /// Send `response` and close. `reason` is for the log.
    Refused { response: Vec<u8>, reason: &'static str },
}

/// Subprotocol names, the preferred one first: a client that offers `mqtt` at all gets it [MQTT-6.0.0-4].
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];
/// Appended to the client's key before it is hashed (RFC 6455, 1.3).
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const MAX_HEADERS: usize = 64;

impl Handshake {
    /// Judges `received`: everything that came since the connection began.
    pub fn advance(&mut self, received: &[u8], settings: &WsSettings, max_header: usize) -> Upgrade {
        // The end may lie across the last and the new bytes.
        let from = self.scanned.saturating_sub(3);
        let end = received.get(from..).and_then(|new| new.windows(4).position(|w| w == b"\r\n\r\n"));
        self.scanned = received.len();
        match end.map(|at| from + at + 4) {
            Some(length) if length <= max_header => judge(&received[..length], settings),
            None if received.len() < max_header => Upgrade::Incomplete,
            Some(_) | None => refuse("431 Request Header Fields Too Large", "request header too long", ""),
        }
    }
}

/// The headers that matter.
#[derive(Default)]
struct Request<'a> {
    upgrade: bool,
    connection: bool,
    version: Option<&'a str>,
    key: Option<&'a str>,
    origin: Option<&'a str>,
    host: Option<&'a str>,
    subprotocol: Option<&'static str>,
}

fn judge(bytes: &[u8], settings: &WsSettings) -> Upgrade {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) | Err(_) => {
            return refuse("400 Bad Request", "malformed HTTP request", "");
        }
    }
    let path = parsed.path.unwrap_or("").split(['?', '#']).next().unwrap_or("");
    if path != settings.path {
        return refuse("404 Not Found", "no WebSocket endpoint at this path", "");
    }
    if parsed.method != Some("GET") || parsed.version != Some(1) {
        return refuse("405 Method Not Allowed", "not GET with HTTP/1.1", "Allow: GET\r\n");
    }
    let Some(request) = collect(parsed.headers) else {
        return refuse("400 Bad Request", "a header is not text, or appears twice", "");
    };
    if !request.upgrade || !request.connection {
        return refuse("426 Upgrade Required", "no WebSocket upgrade", "Upgrade: websocket\r\n");
    }
    if request.version != Some("13") {
        return refuse("426 Upgrade Required", "unknown WebSocket version", "Sec-WebSocket-Version: 13\r\n");
    }
    let Some(key) = request.key.filter(|k| STANDARD.decode(k).is_ok_and(|d| d.len() == 16)) else {
        return refuse("400 Bad Request", "bad Sec-WebSocket-Key", "");
    };
    if !origin_allowed(&request, &settings.origins) {
        return refuse("403 Forbidden", "origin not allowed", "");
    }
    let Some(subprotocol) = request.subprotocol else {
        return refuse("400 Bad Request", "the client does not offer subprotocol mqtt [MQTT-6.0.0-3]", "");
    };
    let accept = accept_value(key);
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    );
    Upgrade::Accepted { length: bytes.len(), response: response.into_bytes(), subprotocol }
}

fn collect<'a>(headers: &[httparse::Header<'a>]) -> Option<Request<'a>> {
    let mut request = Request::default();
    let tokens =
        |value: &'a str, wanted: &str| value.split(',').any(|t| t.trim().eq_ignore_ascii_case(wanted));
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        let slot = match name.as_str() {
            "upgrade" | "connection" | "sec-websocket-protocol" => None,
            "sec-websocket-version" => Some(&mut request.version),
            "sec-websocket-key" => Some(&mut request.key),
            "origin" => Some(&mut request.origin),
            "host" => Some(&mut request.host),
            _ => continue,
        };
        let value = std::str::from_utf8(header.value).ok()?.trim();
        match (slot, name.as_str()) {
            (Some(slot), _) if slot.is_some() => return None,
            (Some(slot), _) => *slot = Some(value),
            (None, "upgrade") => request.upgrade |= tokens(value, "websocket"),
            (None, "connection") => request.connection |= tokens(value, "upgrade"),
            (None, _) => {
                let offered = |name: &str| value.split(',').any(|t| t.trim().eq_ignore_ascii_case(name));
                let best =
                    request.subprotocol.into_iter().chain(SUBPROTOCOLS.into_iter().filter(|s| offered(s)));
                request.subprotocol = best.min_by_key(|name| SUBPROTOCOLS.iter().position(|s| s == name));
            }
        }
    }
    Some(request)
}

/// Browsers always say where a page comes from; other programs need not.
fn origin_allowed(request: &Request<'_>, allowed: &[String]) -> bool {
    let Some(origin) = request.origin.filter(|_| !allowed.is_empty()) else { return true };
    let host_of = |origin: &str| origin.split_once("://").map(|(_, host)| host.to_ascii_lowercase());
    allowed.iter().any(|a| match a.as_str() {
        "*" => true,
        "same" => request.host.is_some_and(|h| host_of(origin) == Some(h.to_ascii_lowercase())),
        other => other.trim_end_matches('/').eq_ignore_ascii_case(origin),
    })
}

/// The Sec-WebSocket-Accept header for a key. SHA-1 is what the protocol asks for; nothing secret hangs on it.
pub fn accept_value(key: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key.as_bytes());
    context.update(ACCEPT_SUFFIX);
    STANDARD.encode(context.finish().as_ref())
}

fn refuse(status: &str, reason: &'static str, extra: &str) -> Upgrade {
    let response = format!(
        "HTTP/1.1 {status}\r\n{extra}Content-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{reason}\n",
        reason.len() + 1
    );
    Upgrade::Refused { response: response.into_bytes(), reason }
}
