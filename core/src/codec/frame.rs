//! Cutting a stream of bytes into frames: fixed header and remaining length (MQTT 5, 2.1).

use super::reason::Reason;
use super::violation::Violation;

/// The largest remaining length that four bytes express.
pub const MAX_REMAINING: usize = 268_435_455;

const BAD_LENGTH: Violation =
    Violation::malformed("remaining length is not a variable byte integer of at most four bytes", "");
const LONG_LENGTH: Violation =
    Violation::malformed("remaining length is not in its shortest form", "MQTT-1.5.5-1");
const TYPE_ZERO: Violation = Violation::malformed("packet type 0 is reserved", "");
const TOO_LARGE: Violation =
    Violation::new(Reason::PACKET_TOO_LARGE, "packet is larger than the announced maximum", "MQTT-3.2.2-15");

/// One whole packet, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// First byte: packet type and flags.
    pub first: u8,
    /// Variable header and payload.
    pub body: &'a [u8],
    /// Bytes of the whole packet, fixed header included: how far to advance.
    pub total: usize,
}

/// A readable fixed header, whether or not its body is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// First byte: packet type and flags.
    pub first: u8,
    /// Bytes of the fixed header, 2 to 5.
    pub len: usize,
    /// Bytes of the body.
    pub remaining: usize,
}

impl Header {
    /// Bytes of the whole packet.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.len + self.remaining
    }
}

/// Reads the fixed header at the start of `buf`; `None` = its bytes are not all there.
///
/// # Errors
/// Packet type 0; a remaining length that is over four bytes or not in its shortest form.
#[inline]
pub fn header(buf: &[u8]) -> Result<Option<Header>, Violation> {
    let [first, rest @ ..] = buf else { return Ok(None) };
    if *first < 0x10 {
        return Err(TYPE_ZERO);
    }
    match *rest {
        [] => Ok(None),
        // Nearly all packets: one length byte.
        [a, ..] if a < 0x80 => Ok(Some(Header { first: *first, len: 2, remaining: a as usize })),
        _ => long_header(*first, rest),
    }
}

fn long_header(first: u8, rest: &[u8]) -> Result<Option<Header>, Violation> {
    let mut remaining = 0usize;
    for (i, &byte) in rest.iter().take(4).enumerate() {
        remaining |= ((byte & 0x7F) as usize) << (7 * i);
        if byte < 0x80 {
            if byte == 0 && i > 0 {
                return Err(LONG_LENGTH);
            }
            return Ok(Some(Header { first, len: i + 2, remaining }));
        }
    }
    if rest.len() >= 4 { Err(BAD_LENGTH) } else { Ok(None) }
}

/// Cuts the first frame off `buf`; `None` = more bytes are needed. The limit `max_packet` is on the whole
/// packet in bytes and applies as soon as the length is readable, before the body is buffered.
///
/// # Errors
/// As [`header`], and 0x95 for a packet above `max_packet`.
#[inline]
pub fn cut(buf: &[u8], max_packet: u32) -> Result<Option<Frame<'_>>, Violation> {
    let Some(head) = header(buf)? else { return Ok(None) };
    let total = head.total();
    if total > max_packet as usize {
        return Err(TOO_LARGE);
    }
    match buf.get(head.len..total) {
        Some(body) => Ok(Some(Frame { first: head.first, body, total })),
        None => Ok(None),
    }
}

/// Total length in bytes of the first frame of `buf`, once its header is readable: how much to buffer.
/// `None` also for a header that [`cut`] refuses.
#[must_use]
pub fn needed(buf: &[u8]) -> Option<usize> {
    header(buf).ok().flatten().map(|head| head.total())
}
