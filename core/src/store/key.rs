//! Keys of durable state. Every key begins with its space and its tenant's name: no key can be made
//! without a tenant, so none can be shared by accident.

use alloc::vec::Vec;
use bytes::Bytes;

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Session record: owner, epoch, expiry, will (rest = client id).
    Session = 1,
    /// Subscriptions of a session (rest = client id, NUL, filter).
    Filter = 2,
    /// Cursor of a session (rest = client id).
    Cursor = 3,
    /// Outbound QoS 2 window of a session (rest = client id).
    Window = 4,
    /// Inbound QoS 2 packet id that is not released yet (rest = client id, NUL, session uid and
    /// packet id, both big-endian).
    Inbound = 5,
    /// Shared group: members, cursor (rest = group, NUL, filter).
    Group = 6,
    /// How far the idle live sessions of a shard have come (rest = shard, big-endian).
    Watermark = 7,
    /// Records of administration, under mast's own name instead of a tenant's (rest = kind, NUL, parts of its name).
    Admin = 8,
}

impl Space {
    /// The space for its first byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Space> {
        match byte {
            1 => Some(Space::Session),
            2 => Some(Space::Filter),
            3 => Some(Space::Cursor),
            4 => Some(Space::Window),
            5 => Some(Space::Inbound),
            6 => Some(Space::Group),
            7 => Some(Space::Watermark),
            8 => Some(Space::Admin),
            _ => None,
        }
    }
}

/// An encoded key: space byte, length of the tenant's name, the name, the rest. Order of keys is byte
/// order, so all keys of a tenant and space are neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

impl Key {
    /// A key of `space` for `tenant` (1 to 64 bytes, checked by the registry) and `parts`, which are
    /// joined by NUL: no MQTT string may contain it [MQTT-1.5.4-2].
    #[must_use]
    pub fn new(space: Space, tenant: &str, parts: &[&[u8]]) -> Key {
        let rest: usize = parts.iter().map(|p| p.len() + 1).sum();
        let mut out = Vec::with_capacity(2 + tenant.len() + rest);
        out.push(space as u8);
        out.push(tenant.len() as u8);
        out.extend_from_slice(tenant.as_bytes());
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                out.push(0);
            }
            out.extend_from_slice(part);
        }
        Key(Bytes::from(out))
    }

    /// Reads a key back from storage; `None` if it is not one.
    #[must_use]
    pub fn from_bytes(raw: Bytes) -> Option<Key> {
        let key = Key(raw);
        key.split().map(|_| ())?;
        Some(key)
    }

    /// Space, tenant name and rest.
    #[must_use]
    pub fn split(&self) -> Option<(Space, &str, &[u8])> {
        let (&space, tail) = self.0.split_first()?;
        let (&len, tail) = tail.split_first()?;
        let tenant = tail.get(..len as usize)?;
        Some((Space::from_byte(space)?, core::str::from_utf8(tenant).ok()?, &tail[len as usize..]))
    }

    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}
