//! Where encoded bytes go: a counter first, then the buffer. One function writes a packet to both, so a
//! predicted length cannot differ from the written one.

use super::frame::MAX_REMAINING;
use alloc::vec::Vec;

/// Takes MQTT's data types in order.
pub(super) trait Sink {
    fn bytes(&mut self, bytes: &[u8]);
    /// Binary data or a string, with its two-byte length. The counting pass has refused what is too long.
    fn bin(&mut self, bytes: &[u8]);
    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }
    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }
    fn str(&mut self, text: &str) {
        self.bin(text.as_bytes());
    }
    fn varint(&mut self, value: usize);
}

/// Counts bytes and notes fields that don't fit their length prefix.
#[derive(Default)]
pub(super) struct Count {
    pub(super) len: usize,
    pub(super) too_long: bool,
}

impl Sink for Count {
    fn bytes(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
    }
    fn bin(&mut self, bytes: &[u8]) {
        self.too_long |= bytes.len() > 0xFFFF;
        self.len += 2 + bytes.len();
    }
    fn varint(&mut self, value: usize) {
        self.too_long |= value > MAX_REMAINING;
        self.len += varint_len(value);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    #[inline]
    fn bin(&mut self, bytes: &[u8]) {
        self.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        self.extend_from_slice(bytes);
    }
    #[inline]
    fn varint(&mut self, value: usize) {
        put_varint(value, self);
    }
}

/// Bytes of `value` as a variable byte integer.
#[inline]
pub(super) const fn varint_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Appends `value`, at most [`MAX_REMAINING`], in its shortest form [MQTT-1.5.5-1].
#[inline]
pub(super) fn put_varint(value: usize, out: &mut Vec<u8>) {
    let mut rest = value;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
