//! MQTT 5 reason codes, which packets may carry them, and their 3.x return codes.

use core::fmt;

/// A reason code (MQTT 5, 2.4). In a decoded 3.x CONNACK it holds the raw return code 0..=5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

impl Reason {
    /// Success, Normal disconnection, Granted QoS 0.
    pub const SUCCESS: Reason = Reason(0x00);
    /// Code 0 in DISCONNECT: the will is discarded.
    pub const NORMAL_DISCONNECTION: Reason = Reason(0);
    /// Code 0 in SUBACK.
    pub const GRANTED_QOS_0: Reason = Reason(0);
    /// The subscription got QoS 1.
    pub const GRANTED_QOS_1: Reason = Reason(0x01);
    /// The subscription got QoS 2.
    pub const GRANTED_QOS_2: Reason = Reason(0x02);
    /// The client closes and wants its will published.
    pub const DISCONNECT_WITH_WILL: Reason = Reason(0x04);
    /// Accepted, nobody subscribes; a success.
    pub const NO_MATCHING_SUBSCRIBERS: Reason = Reason(0x10);
    /// UNSUBSCRIBE found nothing.
    pub const NO_SUBSCRIPTION_EXISTED: Reason = Reason(0x11);
    /// Another step of authentication.
    pub const CONTINUE_AUTHENTICATION: Reason = Reason(0x18);
    /// The client starts authentication anew.
    pub const REAUTHENTICATE: Reason = Reason(0x19);
    /// An error without a code of its own.
    pub const UNSPECIFIED_ERROR: Reason = Reason(0x80);
    /// The bytes don't follow the format.
    pub const MALFORMED_PACKET: Reason = Reason(0x81);
    /// Well-formed, but forbidden.
    pub const PROTOCOL_ERROR: Reason = Reason(0x82);
    /// Valid, but not accepted here.
    pub const IMPLEMENTATION_SPECIFIC_ERROR: Reason = Reason(0x83);
    /// Unknown protocol name or level.
    pub const UNSUPPORTED_PROTOCOL_VERSION: Reason = Reason(0x84);
    /// The client id isn't allowed.
    pub const CLIENT_IDENTIFIER_NOT_VALID: Reason = Reason(0x85);
    /// Authentication failed.
    pub const BAD_USER_NAME_OR_PASSWORD: Reason = Reason(0x86);
    /// The rules forbid it.
    pub const NOT_AUTHORIZED: Reason = Reason(0x87);
    /// The server cannot serve now.
    pub const SERVER_UNAVAILABLE: Reason = Reason(0x88);
    /// Try again later.
    pub const SERVER_BUSY: Reason = Reason(0x89);
    /// An administrator banned the client.
    pub const BANNED: Reason = Reason(0x8A);
    /// The server is going away.
    pub const SERVER_SHUTTING_DOWN: Reason = Reason(0x8B);
    /// Unknown or changed authentication method.
    pub const BAD_AUTHENTICATION_METHOD: Reason = Reason(0x8C);
    /// Silence for 1.5 times keep alive.
    pub const KEEP_ALIVE_TIMEOUT: Reason = Reason(0x8D);
    /// Another connection uses the client id.
    pub const SESSION_TAKEN_OVER: Reason = Reason(0x8E);
    /// The filter isn't accepted.
    pub const TOPIC_FILTER_INVALID: Reason = Reason(0x8F);
    /// The topic name isn't accepted.
    pub const TOPIC_NAME_INVALID: Reason = Reason(0x90);
    /// The packet id is taken.
    pub const PACKET_IDENTIFIER_IN_USE: Reason = Reason(0x91);
    /// The packet id is unknown.
    pub const PACKET_IDENTIFIER_NOT_FOUND: Reason = Reason(0x92);
    /// Too many unacknowledged publishes.
    pub const RECEIVE_MAXIMUM_EXCEEDED: Reason = Reason(0x93);
    /// Alias zero or above the maximum.
    pub const TOPIC_ALIAS_INVALID: Reason = Reason(0x94);
    /// Above the maximum packet size.
    pub const PACKET_TOO_LARGE: Reason = Reason(0x95);
    /// Too many messages in a time.
    pub const MESSAGE_RATE_TOO_HIGH: Reason = Reason(0x96);
    /// A limit is reached.
    pub const QUOTA_EXCEEDED: Reason = Reason(0x97);
    /// An operator closed the connection.
    pub const ADMINISTRATIVE_ACTION: Reason = Reason(0x98);
    /// The payload isn't what its format indicator says.
    pub const PAYLOAD_FORMAT_INVALID: Reason = Reason(0x99);
    /// Retained messages are off.
    pub const RETAIN_NOT_SUPPORTED: Reason = Reason(0x9A);
    /// The QoS is above the maximum.
    pub const QOS_NOT_SUPPORTED: Reason = Reason(0x9B);
    /// Go elsewhere for now.
    pub const USE_ANOTHER_SERVER: Reason = Reason(0x9C);
    /// Go elsewhere for good.
    pub const SERVER_MOVED: Reason = Reason(0x9D);
    /// Shared subscriptions are off.
    pub const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Reason = Reason(0x9E);
    /// Too many connections in a time.
    pub const CONNECTION_RATE_EXCEEDED: Reason = Reason(0x9F);
    /// The connection was allowed only for so long.
    pub const MAXIMUM_CONNECT_TIME: Reason = Reason(0xA0);
    /// Subscription identifiers are off.
    pub const SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Reason = Reason(0xA1);
    /// Wildcards are off.
    pub const WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Reason = Reason(0xA2);

    /// True for failures: 0x80 and above.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// The specification's name; `"Unknown"` for a code it doesn't define.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Reason::SUCCESS => "Success",
            Reason::GRANTED_QOS_1 => "Granted QoS 1",
            Reason::GRANTED_QOS_2 => "Granted QoS 2",
            Reason::DISCONNECT_WITH_WILL => "Disconnect with Will Message",
            Reason::NO_MATCHING_SUBSCRIBERS => "No matching subscribers",
            Reason::NO_SUBSCRIPTION_EXISTED => "No subscription existed",
            Reason::CONTINUE_AUTHENTICATION => "Continue authentication",
            Reason::REAUTHENTICATE => "Re-authenticate",
            Reason::UNSPECIFIED_ERROR => "Unspecified error",
            Reason::MALFORMED_PACKET => "Malformed Packet",
            Reason::PROTOCOL_ERROR => "Protocol Error",
            Reason::IMPLEMENTATION_SPECIFIC_ERROR => "Implementation specific error",
            Reason::UNSUPPORTED_PROTOCOL_VERSION => "Unsupported Protocol Version",
            Reason::CLIENT_IDENTIFIER_NOT_VALID => "Client Identifier not valid",
            Reason::BAD_USER_NAME_OR_PASSWORD => "Bad User Name or Password",
            Reason::NOT_AUTHORIZED => "Not authorized",
            Reason::SERVER_UNAVAILABLE => "Server unavailable",
            Reason::SERVER_BUSY => "Server busy",
            Reason::BANNED => "Banned",
            Reason::SERVER_SHUTTING_DOWN => "Server shutting down",
            Reason::BAD_AUTHENTICATION_METHOD => "Bad authentication method",
            Reason::KEEP_ALIVE_TIMEOUT => "Keep Alive timeout",
            Reason::SESSION_TAKEN_OVER => "Session taken over",
            Reason::TOPIC_FILTER_INVALID => "Topic Filter invalid",
            Reason::TOPIC_NAME_INVALID => "Topic Name invalid",
            Reason::PACKET_IDENTIFIER_IN_USE => "Packet Identifier in use",
            Reason::PACKET_IDENTIFIER_NOT_FOUND => "Packet Identifier not found",
            Reason::RECEIVE_MAXIMUM_EXCEEDED => "Receive Maximum exceeded",
            Reason::TOPIC_ALIAS_INVALID => "Topic Alias invalid",
            Reason::PACKET_TOO_LARGE => "Packet too large",
            Reason::MESSAGE_RATE_TOO_HIGH => "Message rate too high",
            Reason::QUOTA_EXCEEDED => "Quota exceeded",
            Reason::ADMINISTRATIVE_ACTION => "Administrative action",
            Reason::PAYLOAD_FORMAT_INVALID => "Payload format invalid",
            Reason::RETAIN_NOT_SUPPORTED => "Retain not supported",
            Reason::QOS_NOT_SUPPORTED => "QoS not supported",
            Reason::USE_ANOTHER_SERVER => "Use another server",
            Reason::SERVER_MOVED => "Server moved",
            Reason::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED => "Shared Subscriptions not supported",
            Reason::CONNECTION_RATE_EXCEEDED => "Connection rate exceeded",
            Reason::MAXIMUM_CONNECT_TIME => "Maximum connect time",
            Reason::SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED => "Subscription Identifiers not supported",
            Reason::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED => "Wildcard Subscriptions not supported",
            Reason(_) => "Unknown",
        }
    }

    /// The CONNACK return code of MQTT 3.x for this reason; `None` where none fits and the connection is
    /// closed without a CONNACK (MQTT 3.1.1, [MQTT-3.2.2-6]). A raw return code 0..=5 stays itself.
    #[must_use]
    pub const fn v3_return_code(self) -> Option<u8> {
        match self {
            Reason(code @ 0..=5) => Some(code),
            Reason::UNSUPPORTED_PROTOCOL_VERSION => Some(1),
            Reason::CLIENT_IDENTIFIER_NOT_VALID => Some(2),
            Reason::SERVER_UNAVAILABLE
            | Reason::SERVER_BUSY
            | Reason::SERVER_SHUTTING_DOWN
            | Reason::QUOTA_EXCEEDED
            | Reason::USE_ANOTHER_SERVER
            | Reason::SERVER_MOVED
            | Reason::CONNECTION_RATE_EXCEEDED
            | Reason::UNSPECIFIED_ERROR
            | Reason::IMPLEMENTATION_SPECIFIC_ERROR => Some(3),
            Reason::BAD_USER_NAME_OR_PASSWORD => Some(4),
            Reason::NOT_AUTHORIZED | Reason::BANNED | Reason::BAD_AUTHENTICATION_METHOD => Some(5),
            Reason(_) => None,
        }
    }

    /// May a CONNACK carry it [MQTT-3.2.2-8]?
    #[must_use]
    pub const fn in_connack(self) -> bool {
        matches!(self.0, 0 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F)
    }

    /// May a PUBACK or PUBREC carry it [MQTT-3.4.2-1, MQTT-3.5.2-1]?
    #[must_use]
    pub const fn in_puback(self) -> bool {
        matches!(self.0, 0 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
    }

    /// May a PUBREL or PUBCOMP carry it [MQTT-3.6.2-1, MQTT-3.7.2-1]?
    #[must_use]
    pub const fn in_pubrel(self) -> bool {
        matches!(self.0, 0 | 0x92)
    }

    /// May a SUBACK carry it [MQTT-3.9.3-2]?
    #[must_use]
    pub const fn in_suback(self) -> bool {
        matches!(self.0, 0..=2 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2)
    }

    /// May an UNSUBACK carry it [MQTT-3.11.3-2]?
    #[must_use]
    pub const fn in_unsuback(self) -> bool {
        matches!(self.0, 0 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91)
    }

    /// May a DISCONNECT carry it [MQTT-3.14.2-1]? 0x8C is in the list of section 2.4 alone, not in that of
    /// 3.14.2.1; it is let through.
    #[must_use]
    pub const fn in_disconnect(self) -> bool {
        matches!(self.0, 0 | 4 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B..=0x90 | 0x93..=0xA2)
    }

    /// May a client's DISCONNECT carry it (MQTT 5, 3.14.2.1, column "sent by")?
    #[must_use]
    pub const fn in_client_disconnect(self) -> bool {
        matches!(self.0, 0 | 4 | 0x80..=0x83 | 0x90 | 0x93..=0x99)
    }

    /// May an AUTH carry it [MQTT-3.15.2-1]?
    #[must_use]
    pub const fn in_auth(self) -> bool {
        matches!(self.0, 0 | 0x18 | 0x19)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} {}", self.0, self.name())
    }
}
