//! Networks of addresses, such as `10.0.0.0/8`.

use alloc::string::String;
use core::fmt;
use core::net::IpAddr;

/// A network. IPv4 addresses that are written as IPv6 (`::ffff:10.0.0.1`) are IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    /// Leading bits that count.
    bits: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// The part before `/` is no address.
    Address,
    /// The part behind `/` is no number of bits, or more than the address has.
    Bits,
    /// The address has bits behind those that count; the network that may be meant.
    HostBits(String),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkError::Address => {
                f.write_str("not a network, such as \"10.0.0.0/8\" or \"2001:db8::/32\"")
            }
            NetworkError::Bits => {
                f.write_str("behind the / stands a number of bits: up to 32, IPv6 up to 128")
            }
            NetworkError::HostBits(meant) => {
                write!(f, "the address has bits behind those that count; the network is \"{meant}\"")
            }
        }
    }
}

impl core::error::Error for NetworkError {}

impl Network {
    /// Reads `address/bits`, or an address alone, which is a network of itself.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let base: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let base = base.to_canonical();
        let most = width(base);
        let bits = match bits {
            None => most,
            // A sign would be accepted by `parse`.
            Some(n) if n.bytes().all(|b| b.is_ascii_digit()) => {
                n.parse().ok().filter(|n| *n <= most).ok_or(NetworkError::Bits)?
            }
            Some(_) => return Err(NetworkError::Bits),
        };
        let cut = Network { base: masked(base, bits), bits };
        if cut.base == base { Ok(cut) } else { Err(NetworkError::HostBits(alloc::format!("{cut}"))) }
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        width(address) == width(self.base) && masked(address, self.bits) == self.base
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The address without what stands behind `bits`.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Network, NetworkError};

    #[test]
    fn an_address_is_in_the_networks_whose_bits_it_has() {
        let has = |network: &str, address: &str| {
            Network::parse(network).unwrap().contains(address.parse().unwrap())
        };
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("0.0.0.0/0", "192.0.2.1") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "2001:db8::1") && !has("::/0", "192.0.2.1"));
        assert!(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7/32", "192.0.2.8"));
        assert!(has("2001:db8::/33", "2001:db8:7fff::1") && !has("2001:db8::/33", "2001:db8:8000::1"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.2.3"), "IPv4 within IPv6 is IPv4");
    }

    #[test]
    fn what_is_no_network_is_refused_with_its_problem() {
        let bad = |text| Network::parse(text).err();
        assert_eq!(bad("ten/8"), Some(NetworkError::Address));
        assert_eq!(bad(""), Some(NetworkError::Address));
        assert_eq!(bad("10.0.0.0/33"), Some(NetworkError::Bits));
        assert_eq!(bad("10.0.0.0/+8"), Some(NetworkError::Bits));
        assert_eq!(bad("10.0.0.0/"), Some(NetworkError::Bits));
        assert_eq!(bad("10.1.2.3/8"), Some(NetworkError::HostBits("10.0.0.0/8".into())));
    }
}
