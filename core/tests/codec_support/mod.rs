//! Shared by the codec tests: bytes from hex, decoding one whole packet.
#![allow(dead_code)] // each test binary uses a part

use mast_core::codec::{Packet, Version, Violation, cut, decode};

/// Bytes from hex digits; spaces are ignored, `'text'` stands for its bytes.
pub fn hex(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut parts = text.split('\'');
    while let Some(digits) = parts.next() {
        let digits: Vec<u8> = digits
            .bytes()
            .filter(|b| !b.is_ascii_whitespace())
            .map(|b| (b as char).to_digit(16).unwrap() as u8)
            .collect();
        assert!(digits.len().is_multiple_of(2), "odd number of digits in {text}");
        out.extend(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
        out.extend(parts.next().unwrap_or_default().bytes());
    }
    out
}

/// Decodes `bytes`, which must be exactly one frame.
pub fn one(bytes: &[u8], version: Version) -> Result<Packet<'_>, Violation> {
    let frame = cut(bytes, u32::MAX)?.expect("a whole frame");
    assert_eq!(frame.total, bytes.len(), "test packet has a wrong remaining length");
    decode(&frame, version)
}
