//! Layers between a socket's bytes and MQTT's: TLS, WebSocket, both, or neither. Without I/O: bytes in,
//! bytes out, so that a connection can change threads between two of them.

use crate::listen::ws_codec::{CloseCode, WsCodec, WsState, wrap, write_close};
use rustls::ServerConnection;
use std::io::{self, Read, Write};

/// The layers of a connection.
#[derive(Debug, Default)]
pub struct Transport {
    tls: Option<Box<ServerConnection>>,
    ws: Option<Box<WsCodec>>,
    /// What the close frame will say.
    ws_end: CloseCode,
}

/// What became of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The connection goes on.
    Open,
    /// The peer closed a layer in order.
    Closed,
}

impl Transport {
    /// A transport with these layers.
    #[must_use]
    pub fn new(tls: Option<Box<ServerConnection>>, ws: Option<Box<WsCodec>>) -> Transport {
        Transport { tls, ws, ws_end: CloseCode::Normal }
    }

    /// True if socket bytes are MQTT bytes.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.tls.is_none() && self.ws.is_none()
    }

    /// The TLS session, for its handshake and the client's certificate.
    pub fn tls(&mut self) -> Option<&mut ServerConnection> {
        self.tls.as_deref_mut()
    }

    /// Adds the WebSocket layer, after its upgrade.
    pub fn set_ws(&mut self, codec: WsCodec) {
        self.ws = Some(Box::new(codec));
    }

    /// Takes received socket bytes; what is MQTT is appended to `mqtt`, what must be answered by the
    /// layers themselves to `out`.
    ///
    /// # Errors
    /// A layer's protocol error. Send `out`, then close.
    pub fn receive(&mut self, mut raw: &[u8], mqtt: &mut Vec<u8>, out: &mut Vec<u8>) -> io::Result<Flow> {
        let Some(tls) = &mut self.tls else {
            return Transport::unframe(&mut self.ws, &mut self.ws_end, raw, mqtt, out);
        };
        let mut flow = Flow::Open;
        let mut plain = Vec::new();
        // Looks for plaintext before it reads: the handshake may have left some behind.
        loop {
            let state = tls.process_new_packets();
            while tls.wants_write() {
                tls.write_tls(out)?;
            }
            let state = state.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            let from = plain.len();
            plain.resize(from + state.plaintext_bytes_to_read(), 0);
            if plain.len() > from {
                tls.reader().read_exact(&mut plain[from..])?;
            }
            if state.peer_has_closed() {
                flow = Flow::Closed;
            }
            if raw.is_empty() || tls.read_tls(&mut raw)? == 0 {
                break;
            }
        }
        if !plain.is_empty() {
            let mut control = Vec::new();
            let unframed = Transport::unframe(&mut self.ws, &mut self.ws_end, &plain, mqtt, &mut control);
            self.seal(&control, out)?;
            if unframed? == Flow::Closed {
                flow = Flow::Closed;
            }
        }
        Ok(flow)
    }

    fn unframe(
        ws: &mut Option<Box<WsCodec>>,
        end: &mut CloseCode,
        plain: &[u8],
        mqtt: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> io::Result<Flow> {
        let Some(codec) = ws else {
            mqtt.extend_from_slice(plain);
            return Ok(Flow::Open);
        };
        match codec.decode(plain, mqtt, out) {
            Ok(WsState::Open) => Ok(Flow::Open),
            Ok(WsState::Closed) => Ok(Flow::Closed),
            Err(violation) => {
                *end = violation.code;
                Err(io::Error::new(io::ErrorKind::InvalidData, violation))
            }
        }
    }

    /// Puts MQTT bytes through the layers; socket bytes are appended to `out`.
    ///
    /// # Errors
    /// TLS refuses to send on.
    pub fn send(&mut self, mqtt: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let framed;
        let plain = if self.ws.is_some() {
            let mut frame = Vec::with_capacity(mqtt.len() + 10);
            wrap(mqtt, &mut frame);
            framed = frame;
            &framed
        } else {
            mqtt
        };
        self.seal(plain, out)
    }

    /// Puts bytes of the WebSocket layer (or, without one, of MQTT) through TLS alone.
    ///
    /// # Errors
    /// TLS refuses to send on.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            out.extend_from_slice(plain);
            return Ok(());
        };
        let mut rest = plain;
        while !rest.is_empty() {
            let n = tls.writer().write(rest)?;
            rest = &rest[n..];
            while tls.wants_write() {
                tls.write_tls(out)?;
            }
        }
        Ok(())
    }

    /// Says goodbye on each layer.
    ///
    /// # Errors
    /// TLS refuses to send on.
    pub fn close(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.ws.is_some() {
            let mut frame = Vec::new();
            write_close(&mut frame, self.ws_end as u16);
            self.seal(&frame, out)?;
        }
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            while tls.wants_write() {
                tls.write_tls(out)?;
            }
        }
        Ok(())
    }
}
