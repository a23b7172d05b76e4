//! WebSocket frames to an MQTT byte stream and back, without I/O (RFC 6455, section 5). The server's side is the
//! subject; the client's, which `mast sub` and `mast pub` use, differs in the mask alone.

/// Close codes that the codec sends (RFC 6455, 7.4.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CloseCode {
    #[default]
    Normal = 1000,
    ProtocolError = 1002,
    /// Text frames: MQTT is binary [MQTT-6.0.0-1].
    Unsupported = 1003,
    InvalidText = 1007,
    TooBig = 1009,
}

/// A frame that ended the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("WebSocket: {reason}")]
pub struct WsViolation {
    pub code: CloseCode,
    pub reason: &'static str,
}

/// Where the connection stands after some input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WsState {
    Open,
    /// The peer closed; the answer is in the control bytes. Send it and end the connection.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opcode {
    Continuation,
    Binary,
    Close,
    Ping,
    Pong,
}

/// Longest frame header: 2 bytes, 8 of length, 4 of mask.
const MAX_HEADER: usize = 14;
const MAX_CONTROL: usize = 125;

/// The codec of one connection: about 170 bytes, no heap.
#[derive(Debug)]
pub struct WsCodec {
    /// The header of the frame that comes next, as far as it has come.
    header: [u8; MAX_HEADER],
    header_len: usize,
    /// The frame whose payload is coming.
    frame: Option<Frame>,
    /// A fragmented message has begun and not ended.
    fragmented: bool,
    control: [u8; MAX_CONTROL],
    control_len: usize,
    max_frame: u64,
    closed: bool,
    /// Frames come masked: this is a server.
    masked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: Opcode,
    mask: [u8; 4],
    /// Payload bytes that have come, for the position in the mask.
    seen: u64,
    left: u64,
}

impl WsCodec {
    /// A server's codec that refuses frames with more than `max_frame` bytes of payload.
    pub fn new(max_frame: u64) -> Self {
        Self {
            masked: true,
            header: [0; MAX_HEADER],
            header_len: 0,
            frame: None,
            fragmented: false,
            control: [0; MAX_CONTROL],
            control_len: 0,
            max_frame,
            closed: false,
        }
    }

    /// A client's codec. Its control frames go out masked with zeros.
    pub fn client(max_frame: u64) -> Self {
        Self { masked: false, ..Self::new(max_frame) }
    }

    /// Takes all of `input`. MQTT bytes are appended to `mqtt`; frames to send at once (pong, close) to `out`.
    /// After an error or [`WsState::Closed`], send `out` and end the connection; later input is ignored.
    pub fn decode(
        &mut self,
        mut input: &[u8],
        mqtt: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<WsState, WsViolation> {
        while !self.closed {
            let step = match self.frame {
                Some(frame) if frame.left > 0 && input.is_empty() => break,
                Some(frame) => self.payload(frame, &mut input, mqtt, out),
                None if input.is_empty() => break,
                None => self.head(&mut input),
            };
            if let Err(violation) = step {
                self.closed = true;
                self.write_control(out, 0x88, &(violation.code as u16).to_be_bytes());
                return Err(violation);
            }
        }
        Ok(if self.closed { WsState::Closed } else { WsState::Open })
    }

    /// Takes bytes of a header, until it is whole or the input ends.
    fn head(&mut self, input: &mut &[u8]) -> Result<(), WsViolation> {
        let needed = self.header_needed();
        let take = (needed - self.header_len).min(input.len());
        let (now, rest) = input.split_at(take);
        self.header[self.header_len..self.header_len + take].copy_from_slice(now);
        self.header_len += take;
        *input = rest;
        // The first two bytes are judged as soon as they are there; they also tell how long the header is.
        if self.header_len < 2 {
            return Ok(());
        }
        let opcode = self.check_first_bytes()?;
        if self.header_len < self.header_needed() {
            return Ok(());
        }
        self.begin(opcode)
    }

    fn header_needed(&self) -> usize {
        if self.header_len < 2 {
            return 2;
        }
        let length = match self.header[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.masked { 4 } else { 0 }
    }

    fn check_first_bytes(&self) -> Result<Opcode, WsViolation> {
        let (first, second) = (self.header[0], self.header[1]);
        let fin = first & 0x80 != 0;
        if first & 0x70 != 0 {
            return Err(protocol("reserved bits are set"));
        }
        if (second & 0x80 != 0) != self.masked {
            return Err(protocol("only frames of a client are masked, and all of them"));
        }
        let opcode = match first & 0x0f {
            0 => Opcode::Continuation,
            1 => return Err(WsViolation { code: CloseCode::Unsupported, reason: "text frame" }),
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return Err(protocol("unknown opcode")),
        };
        match opcode {
            Opcode::Continuation if !self.fragmented => Err(protocol("continuation of nothing")),
            Opcode::Binary if self.fragmented => Err(protocol("new message inside a fragmented one")),
            Opcode::Close | Opcode::Ping | Opcode::Pong if !fin || second & 0x7f > 125 => {
                Err(protocol("control frame is fragmented or too long"))
            }
            Opcode::Continuation | Opcode::Binary | Opcode::Close | Opcode::Ping | Opcode::Pong => Ok(opcode),
        }
    }

    fn begin(&mut self, opcode: Opcode) -> Result<(), WsViolation> {
        let h = &self.header;
        let (length, minimal, mask_at) = match h[1] & 0x7f {
            126 => {
                let n = u64::from(u16::from_be_bytes([h[2], h[3]]));
                (n, n > 125, 4)
            }
            127 => {
                let n = u64::from_be_bytes([h[2], h[3], h[4], h[5], h[6], h[7], h[8], h[9]]);
                (n, n > 0xffff && n >> 63 == 0, 10)
            }
            short => (u64::from(short), true, 2),
        };
        if !minimal {
            return Err(protocol("the length is not in its shortest form"));
        }
        if length > self.max_frame && matches!(opcode, Opcode::Binary | Opcode::Continuation) {
            return Err(WsViolation { code: CloseCode::TooBig, reason: "frame too long" });
        }
        let mask =
            if self.masked { [h[mask_at], h[mask_at + 1], h[mask_at + 2], h[mask_at + 3]] } else { [0; 4] };
        if matches!(opcode, Opcode::Binary | Opcode::Continuation) {
            self.fragmented = h[0] & 0x80 == 0;
        }
        self.header_len = 0;
        self.control_len = 0;
        self.frame = Some(Frame { opcode, mask, seen: 0, left: length });
        Ok(())
    }

    /// Takes payload bytes; ends the frame with its last one.
    fn payload(
        &mut self,
        mut frame: Frame,
        input: &mut &[u8],
        mqtt: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), WsViolation> {
        let take = usize::try_from(frame.left).unwrap_or(usize::MAX).min(input.len());
        let (now, rest) = input.split_at(take);
        *input = rest;
        match frame.opcode {
            Opcode::Binary | Opcode::Continuation => {
                let start = mqtt.len();
                mqtt.extend_from_slice(now);
                unmask(&mut mqtt[start..], frame.mask, frame.seen);
            }
            Opcode::Close | Opcode::Ping | Opcode::Pong => {
                // The header's check bounds a control frame to the buffer's length.
                let slot = &mut self.control[self.control_len..self.control_len + take];
                slot.copy_from_slice(now);
                unmask(slot, frame.mask, frame.seen);
                self.control_len += take;
            }
        }
        frame.seen += take as u64;
        frame.left -= take as u64;
        self.frame = Some(frame);
        if frame.left == 0 {
            self.frame = None;
            let control = &self.control[..self.control_len];
            match frame.opcode {
                Opcode::Binary | Opcode::Continuation | Opcode::Pong => {}
                Opcode::Ping => self.write_control(out, 0x8a, control),
                Opcode::Close => {
                    let code = close_code(control)?;
                    self.write_control(out, 0x88, &code.to_be_bytes());
                    self.closed = true;
                }
            }
        }
        Ok(())
    }
}

impl WsCodec {
    /// Appends a control frame; `payload` has at most 125 bytes.
    fn write_control(&self, out: &mut Vec<u8>, first: u8, payload: &[u8]) {
        let length = payload.len() as u8;
        if self.masked {
            out.extend([first, length]);
        } else {
            out.extend([first, 0x80 | length, 0, 0, 0, 0]);
        }
        out.extend_from_slice(payload);
    }
}

/// The code to answer a close frame with: its own, if it is one that may be sent.
fn close_code(payload: &[u8]) -> Result<u16, WsViolation> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        let empty = payload.is_empty();
        return if empty { Ok(CloseCode::Normal as u16) } else { Err(protocol("close frame of one byte")) };
    };
    let code = u16::from_be_bytes(*code);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(protocol("close code that must not be sent"));
    }
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(code),
        Err(_) => Err(WsViolation { code: CloseCode::InvalidText, reason: "close reason is not UTF-8" }),
    }
}

fn protocol(reason: &'static str) -> WsViolation {
    WsViolation { code: CloseCode::ProtocolError, reason }
}

/// Appends a server's close frame.
pub fn write_close(out: &mut Vec<u8>, code: u16) {
    out.extend([0x88, 2]);
    out.extend(code.to_be_bytes());
}

/// Applies the mask from position `at` of the payload, eight bytes at a time.
fn unmask(data: &mut [u8], mask: [u8; 4], at: u64) {
    let turned: [u8; 4] = std::array::from_fn(|i| mask[(at as usize + i) & 3]);
    let wide = u64::from(u32::from_ne_bytes(turned));
    let wide = wide | wide << 32;
    let (chunks, rest) = data.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (i, byte) in rest.iter_mut().enumerate() {
        *byte ^= turned[i & 3];
    }
}

/// The header of an outgoing binary frame with `length` bytes: buffer and used length. For vectored writes.
pub fn frame_header(length: usize) -> ([u8; 10], usize) {
    let mut header = [0; 10];
    header[0] = 0x82;
    match length {
        0..=125 => {
            header[1] = length as u8;
            (header, 2)
        }
        126..=0xffff => {
            header[1] = 126;
            header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            (header, 4)
        }
        _ => {
            header[1] = 127;
            header[2..].copy_from_slice(&(length as u64).to_be_bytes());
            (header, 10)
        }
    }
}

/// Appends MQTT bytes as one binary frame of a client.
pub fn wrap_masked(mqtt: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    let (mut header, used) = frame_header(mqtt.len());
    header[1] |= 0x80;
    out.extend_from_slice(&header[..used]);
    out.extend(mask);
    let start = out.len();
    out.extend_from_slice(mqtt);
    unmask(&mut out[start..], mask, 0);
}

/// Appends MQTT bytes as one binary frame of a server.
pub fn wrap(mqtt: &[u8], out: &mut Vec<u8>) {
    let (header, used) = frame_header(mqtt.len());
    out.reserve(used + mqtt.len());
    out.extend_from_slice(&header[..used]);
    out.extend_from_slice(mqtt);
}
