//! A WebSocket client of our own, so that tests decide about every frame.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::client::Wire;

/// Opcodes.
pub mod opcode {
    /// Continuation of a message.
    pub const CONTINUE: u8 = 0;
    /// Text.
    pub const TEXT: u8 = 1;
    /// Binary.
    pub const BINARY: u8 = 2;
    /// Close.
    pub const CLOSE: u8 = 8;
    /// Ping.
    pub const PING: u8 = 9;
    /// Pong.
    pub const PONG: u8 = 10;
}

/// The answer to an upgrade request: the head as text.
pub fn upgrade(wire: &mut impl Wire, path: &str, headers: &str) -> String {
    let ask = format!(
        "GET {path} HTTP/1.1\r\nHost: broker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    wire.write_all(ask.as_bytes()).expect("the request leaves");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match wire.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => break,
            Err(e) => panic!("upgrade: {e}"),
        }
    }
    String::from_utf8(head).expect("an HTTP head is text")
}

/// A frame as a client sends it, masked.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut out = vec![first];
    match payload.len() {
        n @ 0..=125 => out.push(0x80 | n as u8),
        n @ 126..=0xFFFF => {
            out.push(0x80 | 126);
            out.extend((n as u16).to_be_bytes());
        }
        n => {
            out.push(0x80 | 127);
            out.extend((n as u64).to_be_bytes());
        }
    }
    out.extend(mask);
    out.extend(payload.iter().enumerate().map(|(i, b)| b ^ mask[i % 4]));
    out
}

/// An upgraded connection that carries MQTT in binary frames of at most `chunk` bytes.
pub struct Ws<W> {
    wire: W,
    input: Vec<u8>,
    ready: Vec<u8>,
    chunk: usize,
    /// Payload of the close frame that ended it.
    pub close: Option<Vec<u8>>,
}

impl<W: Wire> Ws<W> {
    /// Upgrades with subprotocol `mqtt`.
    pub fn open(mut wire: W, path: &str) -> Ws<W> {
        let head = upgrade(&mut wire, path, "Sec-WebSocket-Protocol: mqtt\r\n");
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        Ws::upgraded(wire, usize::MAX)
    }

    /// A connection that was upgraded already.
    pub fn upgraded(wire: W, chunk: usize) -> Ws<W> {
        Ws { wire, input: Vec::new(), ready: Vec::new(), chunk, close: None }
    }

    /// Sends raw bytes: frames of the test's making.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).and_then(|()| self.wire.flush()).unwrap_or_default();
    }

    /// Reads one frame: first byte and payload; `None` at the end of the stream.
    pub fn read_frame(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        loop {
            if let Some(frame) = self.cut() {
                return Ok(Some(frame));
            }
            let mut chunk = [0; 4096];
            match self.wire.read(&mut chunk)? {
                0 => return Ok(None),
                n => self.input.extend_from_slice(&chunk[..n]),
            }
        }
    }

    fn cut(&mut self) -> Option<(u8, Vec<u8>)> {
        let (first, second) = (*self.input.first()?, *self.input.get(1)?);
        assert!(second & 0x80 == 0, "a server must not mask");
        let (head, len) = match second {
            126 => (4, u16::from_be_bytes(self.input.get(2..4)?.try_into().ok()?) as usize),
            127 => (10, u64::from_be_bytes(self.input.get(2..10)?.try_into().ok()?) as usize),
            n => (2, n as usize),
        };
        let payload = self.input.get(head..head + len)?.to_vec();
        self.input.drain(..head + len);
        Some((first, payload))
    }
}

impl<W: Wire> Read for Ws<W> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() {
            match self.read_frame()? {
                None => return Ok(0),
                Some((first, payload)) => match first & 0x0F {
                    opcode::BINARY | opcode::CONTINUE => self.ready = payload,
                    opcode::CLOSE => {
                        self.close = Some(payload);
                        return Ok(0);
                    }
                    opcode::PING => self.raw(&frame(0x80 | opcode::PONG, &payload)),
                    opcode::PONG => {}
                    other => panic!("a frame of type {other} from the broker"),
                },
            }
        }
        let n = buf.len().min(self.ready.len());
        buf[..n].copy_from_slice(&self.ready[..n]);
        self.ready.drain(..n);
        Ok(n)
    }
}

impl<W: Wire> Write for Ws<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.chunk);
        self.wire.write_all(&frame(0x80 | opcode::BINARY, &bytes[..n]))?;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }
}

impl<W: Wire> Wire for Ws<W> {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.wire.set_timeout(timeout)
    }
    fn reset_on_close(&self) {
        self.wire.reset_on_close();
    }
}

/// A TCP stream to a broker's port.
pub fn tcp(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, crate::broker::DEADLINE).expect("connect");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream.set_read_timeout(Some(crate::broker::DEADLINE)).expect("a read timeout");
    stream
}
