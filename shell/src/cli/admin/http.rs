//! A small HTTP client for the broker's own API: one request a connection.

use crate::cli::Failure;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer that is read, bytes.
const LARGEST: u64 = 256 << 20;

/// Where the API is, and the token for it.
pub struct Client {
    pub address: String,
    pub token: String,
}

impl Client {
    /// Sends a request; the body of a success.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        let answer = self.exchange(request.as_bytes()).map_err(|error| {
            Failure::new(format!(
                "{}: {error}; is the broker running there? --address, MAST_ADMIN or admin.bind of the configuration \
                 tell the address",
                self.address
            ))
        })?;
        let (status, body) = split(&answer).ok_or_else(|| {
            Failure::new(format!(
                "{} does not answer as HTTP; is it the port of administration?",
                self.address
            ))
        })?;
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        if (200..300).contains(&status) {
            return Ok(value);
        }
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        if value["code"].is_null() {
            return Err(Failure::new(format!("{} answers with status {status}", self.address)));
        }
        Err(Failure::new(format!("{}; {} ({})", text("what"), text("way_out"), text("code"))))
    }

    fn exchange(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut last = std::io::Error::other("the name has no address");
        for address in self.address.to_socket_addrs()? {
            match connect(&address) {
                Ok(mut stream) => {
                    stream.write_all(request)?;
                    let mut answer = Vec::new();
                    stream.take(LARGEST).read_to_end(&mut answer)?;
                    return Ok(answer);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn connect(address: &SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Status and body of an answer.
fn split(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, &answer[end + 4..]))
}

/// A text as one part of a path or a query.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_answers_are_split() {
        assert_eq!(escape("a/b +#ü"), "a%2Fb%20%2B%23%C3%BC");
        assert_eq!(split(b"HTTP/1.1 201 Created\r\nx: y\r\n\r\n{}"), Some((201, &b"{}"[..])));
        assert_eq!(split(b"220 smtp ready\r\n\r\n"), None);
    }
}
