//! Reading MQTT's data types (MQTT 5, 1.5) from a packet's body. Nothing is copied.

use super::violation::Violation;

const SHORT: Violation = Violation::malformed("a field runs past the end of the packet", "");
const BAD_VARINT: Violation = Violation::malformed("variable byte integer is over four bytes", "");
const LONG_VARINT: Violation =
    Violation::malformed("variable byte integer is not in its shortest form", "MQTT-1.5.5-1");
const NUL: Violation = Violation::malformed("string contains U+0000", "MQTT-1.5.4-2");
const BAD_UTF8: Violation = Violation::malformed("string is not well-formed UTF-8", "MQTT-1.5.4-1");
const TRAILING: Violation = Violation::malformed("bytes after the last field of the packet", "");

/// Takes fields from the front of a slice.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) const fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }

    #[inline]
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, Violation> {
        let (byte, rest) = self.rest.split_first().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, Violation> {
        let (bytes, rest) = self.rest.split_first_chunk::<2>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, Violation> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Violation> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Binary data: a two-byte length and as many bytes.
    #[inline]
    pub(super) fn bin(&mut self) -> Result<&'a [u8], Violation> {
        let len = self.u16()? as usize;
        self.take(len)
    }

    /// A string: as binary data, UTF-8 without U+0000.
    #[inline]
    pub(super) fn str(&mut self) -> Result<&'a str, Violation> {
        text(self.bin()?)
    }

    /// A variable byte integer in its shortest form [MQTT-1.5.5-1].
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u32, Violation> {
        let first = self.u8()?;
        if first < 0x80 { Ok(u32::from(first)) } else { self.long_varint(first) }
    }

    fn long_varint(&mut self, first: u8) -> Result<u32, Violation> {
        let mut value = u32::from(first & 0x7F);
        for shift in [7, 14, 21] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return if byte == 0 { Err(LONG_VARINT) } else { Ok(value) };
            }
        }
        Err(BAD_VARINT)
    }

    /// The packet must be over here.
    #[inline]
    pub(super) const fn end(&self) -> Result<(), Violation> {
        if self.rest.is_empty() { Ok(()) } else { Err(TRAILING) }
    }
}

/// `bytes` as an MQTT string. U+FEFF and non-characters pass [MQTT-1.5.4-3].
#[inline]
pub(super) fn text(bytes: &[u8]) -> Result<&str, Violation> {
    if has_zero(bytes) {
        return Err(NUL);
    }
    core::str::from_utf8(bytes).map_err(|_| BAD_UTF8)
}

/// True if a byte of `bytes` is zero. Eight at a time, without a branch in the loop: topics are short.
#[inline]
fn has_zero(bytes: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero = |eight: [u8; 8]| {
        let word = u64::from_ne_bytes(eight);
        word.wrapping_sub(LOW) & !word & HIGH
    };
    // The last eight bytes overlap the chunks before them, so there is no tail to walk.
    let Some(last) = bytes.last_chunk::<8>() else { return bytes.contains(&0) };
    let (chunks, _) = bytes.as_chunks::<8>();
    chunks.iter().fold(zero(*last), |found, eight| found | zero(*eight)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_byte_is_found_at_every_place_of_every_length() {
        for len in 0..70 {
            let mut bytes = std::vec![0x80u8; len];
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = [1, 0x7F, 0x80, 0xFF][i % 4];
            }
            assert!(!has_zero(&bytes), "length {len}");
            for at in 0..len {
                let kept = bytes[at];
                bytes[at] = 0;
                assert!(has_zero(&bytes), "length {len}, zero at {at}");
                bytes[at] = kept;
            }
        }
    }
}
