//! PROXY protocol, versions 1 and 2: an incremental parser without I/O, and the networks that are believed.
//!
//! A listener either requires the header or does not know it; a header from an address outside the trusted
//! networks is refused. Feed [`parse`] what was received so far until it answers something else than
//! [`Parsed::Incomplete`]; the bytes behind the header belong to the next layer.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// A network in CIDR notation. A bare address is a network of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// Text that is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a network such as \"10.0.0.0/8\" or \"fd00::/8\"")]
pub struct NotACidr(String);

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let wrong = || NotACidr(text.escape_debug().to_string());
        let (address, bits) = match text.split_once('/') {
            Some((a, b)) => (a, Some(b.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl Cidr {
    /// Whether `ip` lies in the network. IPv4 mapped into IPv6 counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                (u32::from(net) ^ u32::from(ip)) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                (u128::from(net) ^ u128::from(ip)) & mask == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// What a listener that requires the header accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyPolicy {
    pub trusted: Vec<Cidr>,
    /// Greatest length of a version 2 body, in bytes.
    pub max_body: usize,
}

impl ProxyPolicy {
    /// Whether a header from this peer is believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|c| c.contains(peer))
    }

    /// The most bytes a header may have; a reader needs no more room than this.
    pub fn max_header(&self) -> usize {
        V1_MAX.max(V2_FIXED + self.max_body)
    }
}

/// The answer of [`parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// The header ends after `length` bytes. `source` is the client's address; `None` (LOCAL, UNKNOWN, or a
    /// family without an IP address) means the real peer stands.
    Header { length: usize, source: Option<SocketAddr> },
}

/// Why bytes are no acceptable header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyError {
    /// The first bytes belong to neither version.
    NotProxy,
    /// A version 1 line is malformed or too long.
    BadLine,
    /// A version 2 header has a version, command or family that does not exist, or a body too short for it.
    BadHeader,
    /// A version 2 body is longer than allowed.
    TooLong,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProxyError::NotProxy => "the connection does not begin with a PROXY header",
            ProxyError::BadLine => "malformed PROXY version 1 line",
            ProxyError::BadHeader => "malformed PROXY version 2 header",
            ProxyError::TooLong => "PROXY version 2 header is longer than allowed",
        })
    }
}

impl std::error::Error for ProxyError {}

/// Longest version 1 line, CR LF included.
const V1_MAX: usize = 107;
const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;

/// Parses the header at the beginning of `bytes`. `max_body` bounds the body of version 2.
pub fn parse(bytes: &[u8], max_body: usize) -> Result<Parsed, ProxyError> {
    if bytes.is_empty() {
        return Ok(Parsed::Incomplete);
    }
    let common = |prefix: &[u8]| bytes.iter().zip(prefix).all(|(a, b)| a == b);
    if common(b"PROXY ") {
        parse_line(bytes)
    } else if common(&V2_SIGNATURE) {
        parse_binary(bytes, max_body)
    } else {
        Err(ProxyError::NotProxy)
    }
}

fn parse_line(bytes: &[u8]) -> Result<Parsed, ProxyError> {
    let window = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = window.iter().position(|b| *b == b'\n') else {
        return if bytes.len() >= V1_MAX { Err(ProxyError::BadLine) } else { Ok(Parsed::Incomplete) };
    };
    let length = end + 1;
    let line = window[..end].strip_suffix(b"\r").ok_or(ProxyError::BadLine)?;
    let line = std::str::from_utf8(line).map_err(|_| ProxyError::BadLine)?;
    let mut words = line.split(' ').skip(1);
    let family = words.next().ok_or(ProxyError::BadLine)?;
    if family == "UNKNOWN" {
        return Ok(Parsed::Header { length, source: None });
    }
    let mut next = || words.next().ok_or(ProxyError::BadLine);
    let (source, target, source_port, target_port) = (next()?, next()?, next()?, next()?);
    if words.next().is_some() {
        return Err(ProxyError::BadLine);
    }
    let ip = match family {
        "TCP4" => {
            target.parse::<Ipv4Addr>().map_err(|_| ProxyError::BadLine)?;
            source.parse::<Ipv4Addr>().map(IpAddr::V4)
        }
        "TCP6" => {
            target.parse::<Ipv6Addr>().map_err(|_| ProxyError::BadLine)?;
            source.parse::<Ipv6Addr>().map(IpAddr::V6)
        }
        _ => return Err(ProxyError::BadLine),
    }
    .map_err(|_| ProxyError::BadLine)?;
    port(target_port)?;
    Ok(Parsed::Header { length, source: Some(SocketAddr::new(ip, port(source_port)?)) })
}

fn port(text: &str) -> Result<u16, ProxyError> {
    // `parse` alone would take a sign.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().map_err(|_| ProxyError::BadLine) } else { Err(ProxyError::BadLine) }
}

fn parse_binary(bytes: &[u8], max_body: usize) -> Result<Parsed, ProxyError> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<V2_FIXED>() else { return Ok(Parsed::Incomplete) };
    let (version, command) = (fixed[12] >> 4, fixed[12] & 0x0f);
    let family = fixed[13];
    let body = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if version != 2 || command > 1 || family >> 4 > 3 || family & 0x0f > 2 {
        return Err(ProxyError::BadHeader);
    }
    if body > max_body {
        return Err(ProxyError::TooLong);
    }
    if rest.len() < body {
        return Ok(Parsed::Incomplete);
    }
    let length = V2_FIXED + body;
    let body = &rest[..body];
    // LOCAL: the proxy speaks for itself (a health check); whatever the body says is ignored.
    if command == 0 {
        return Ok(Parsed::Header { length, source: None });
    }
    let source = match family >> 4 {
        1 => {
            let fields: &[u8; 12] = body.first_chunk().ok_or(ProxyError::BadHeader)?;
            let ip = Ipv4Addr::new(fields[0], fields[1], fields[2], fields[3]);
            Some(SocketAddr::new(ip.into(), u16::from_be_bytes([fields[8], fields[9]])))
        }
        2 => {
            let fields: &[u8; 36] = body.first_chunk().ok_or(ProxyError::BadHeader)?;
            let ip: &[u8; 16] = fields.first_chunk().ok_or(ProxyError::BadHeader)?;
            Some(SocketAddr::new(Ipv6Addr::from(*ip).into(), u16::from_be_bytes([fields[32], fields[33]])))
        }
        _ => None,
    };
    Ok(Parsed::Header { length, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Result<Parsed, ProxyError> {
        parse(bytes, 536)
    }

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut out = V2_SIGNATURE.to_vec();
        out.extend([0x20 | command, family]);
        out.extend(u16::try_from(body.len()).expect("short body").to_be_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn version_1_gives_the_client_and_leaves_what_follows() {
        let bytes = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 1883\r\n\x10\x00";
        let source = "192.0.2.1:56324".parse().ok();
        assert_eq!(whole(bytes), Ok(Parsed::Header { length: 46, source }));
        let bytes = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n";
        let source = "[2001:db8::1]:1".parse().ok();
        assert_eq!(whole(bytes), Ok(Parsed::Header { length: bytes.len(), source }));
        let bytes = b"PROXY UNKNOWN anything here\r\n";
        assert_eq!(whole(bytes), Ok(Parsed::Header { length: bytes.len(), source: None }));
    }

    #[test]
    fn version_2_gives_the_client_and_skips_further_fields() {
        let mut body = vec![192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 4, 7, 91];
        body.extend([4, 0, 1, 0]);
        let bytes = v2(1, 0x11, &body);
        let source = "192.0.2.1:56324".parse().ok();
        assert_eq!(whole(&bytes), Ok(Parsed::Header { length: bytes.len(), source }));
        let mut body = [0u8; 36];
        body[15] = 1;
        body[33] = 9;
        let bytes = v2(1, 0x21, &body);
        let source = "[::1]:9".parse().ok();
        assert_eq!(whole(&bytes), Ok(Parsed::Header { length: bytes.len(), source }));
        let local = v2(0, 0x00, &[]);
        assert_eq!(whole(&local), Ok(Parsed::Header { length: 16, source: None }));
    }

    #[test]
    fn any_split_of_a_header_gives_the_same_result() {
        let lines: [Vec<u8>; 2] = [
            b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n".to_vec(),
            v2(1, 0x11, &[1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 0, 10]),
        ];
        for bytes in lines {
            for cut in 0..bytes.len() {
                assert_eq!(whole(&bytes[..cut]), Ok(Parsed::Incomplete), "cut at {cut}");
            }
            assert!(matches!(whole(&bytes), Ok(Parsed::Header { source: Some(_), .. })));
        }
    }

    #[test]
    fn what_is_malformed_or_too_long_is_refused() {
        for bytes in [
            &b"PROXY TCP4 1.2.3.4 5.6.7.8 9\r\n"[..],
            b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10 11\r\n",
            b"PROXY TCP4 ::1 5.6.7.8 9 10\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 +9 10\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 99999 10\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\n",
            &[b'P', b'R', b'O', b'X', b'Y', b' '].iter().copied().chain([b'x'; 120]).collect::<Vec<_>>(),
        ] {
            assert_eq!(whole(bytes), Err(ProxyError::BadLine), "{bytes:?}");
        }
        assert_eq!(whole(b"\x10\x0e\x00\x04MQTT"), Err(ProxyError::NotProxy));
        assert_eq!(whole(&v2(1, 0x11, &[0; 600])), Err(ProxyError::TooLong));
        assert_eq!(whole(&v2(1, 0x11, &[0; 5])), Err(ProxyError::BadHeader));
        assert_eq!(whole(&v2(2, 0x11, &[0; 12])), Err(ProxyError::BadHeader));
        assert_eq!(whole(&v2(1, 0x41, &[0; 12])), Err(ProxyError::BadHeader));
    }

    #[test]
    fn networks_hold_their_addresses() {
        let holds = |net: &str, ip: &str| net.parse::<Cidr>().expect(net).contains(ip.parse().expect(ip));
        assert!(holds("10.0.0.0/8", "10.255.0.1"));
        assert!(!holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("0.0.0.0/0", "203.0.113.9"));
        assert!(holds("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00::/8", "fdff::1"));
        assert!("10.0.0.0/33".parse::<Cidr>().is_err());
        assert!("host".parse::<Cidr>().is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_run_past_the_end(bytes in proptest::collection::vec(0u8.., 0..200), v2 in 0..2) {
            let mut input = if v2 == 1 { V2_SIGNATURE.to_vec() } else { b"PROXY ".to_vec() };
            input.extend(bytes);
            if let Ok(Parsed::Header { length, .. }) = parse(&input, 536) {
                proptest::prop_assert!(length <= input.len());
            }
        }
    }
}
