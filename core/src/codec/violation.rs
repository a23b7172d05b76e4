//! What a peer did wrong, and what cannot be written.

use super::reason::Reason;
use core::fmt;

/// A breach of the protocol that one packet shows; the connection ends with `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Reason code for CONNACK or DISCONNECT.
    pub reason: Reason,
    /// What is wrong, for logs and for Reason String.
    pub why: &'static str,
    /// Normative statement, such as `MQTT-1.5.4-2`; empty where the text has no number for it.
    pub statement: &'static str,
}

impl Violation {
    /// A violation with any reason code.
    #[must_use]
    pub const fn new(reason: Reason, why: &'static str, statement: &'static str) -> Violation {
        Violation { reason, why, statement }
    }

    /// The bytes don't follow the packet's format: 0x81.
    #[must_use]
    pub const fn malformed(why: &'static str, statement: &'static str) -> Violation {
        Violation { reason: Reason::MALFORMED_PACKET, why, statement }
    }

    /// Well-formed bytes that the protocol forbids: 0x82.
    #[must_use]
    pub const fn protocol(why: &'static str, statement: &'static str) -> Violation {
        Violation { reason: Reason::PROTOCOL_ERROR, why, statement }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.why)?;
        if self.statement.is_empty() { Ok(()) } else { write!(f, " [{}]", self.statement) }
    }
}

impl core::error::Error for Violation {}

/// Why a packet cannot be written. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// A string or binary field is over 65,535 bytes, or the packet over 268,435,455.
    TooLong,
    /// The version has no form for it: AUTH before MQTT 5, a password without user name before MQTT 5.
    NotInVersion,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodeError::TooLong => "a field or the packet is longer than MQTT can express",
            EncodeError::NotInVersion => "the protocol version has no form for this packet",
        })
    }
}

impl core::error::Error for EncodeError {}
