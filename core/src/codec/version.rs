//! Protocol versions.

/// The protocol version of a connection. Ordered: older is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// MQTT 3.1: protocol name `MQIsdp`, level 3.
    V31 = 3,
    /// MQTT 3.1.1: protocol name `MQTT`, level 4.
    V311 = 4,
    /// MQTT 5: protocol name `MQTT`, level 5.
    V5 = 5,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 3] = [Version::V31, Version::V311, Version::V5];

    /// True for MQTT 5: packets have properties and reason codes.
    #[must_use]
    pub const fn is_v5(self) -> bool {
        matches!(self, Version::V5)
    }

    /// The protocol level byte of CONNECT.
    #[must_use]
    pub const fn level(self) -> u8 {
        self as u8
    }

    /// The protocol name of CONNECT.
    #[must_use]
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Version::V31 => "MQIsdp",
            Version::V311 | Version::V5 => "MQTT",
        }
    }

    /// Name for logs and metric labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Version::V31 => "3.1",
            Version::V311 => "3.1.1",
            Version::V5 => "5",
        }
    }
}
