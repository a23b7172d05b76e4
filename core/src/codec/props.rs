//! A packet's properties as borrowed, validated bytes: reading by name, in order, and forwarding them raw.

use super::property::{Property, prop_id};
use super::props_check::{FORWARDABLE, bit_of};
use super::reader::Reader;
use alloc::vec::Vec;
use core::fmt;

/// Properties without their length prefix. The bytes passed [`Props::parse`] or were written by
/// [`super::PropsBuf`].
#[derive(Clone, Copy, Default)]
pub struct Props<'a> {
    raw: &'a [u8],
    /// One bit per identifier that occurs, so that asking for an absent property costs no walk.
    seen: u64,
}

impl PartialEq for Props<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Props<'_> {}

impl fmt::Debug for Props<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Getters: the value of a property, `None` when absent.
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $id:ident, $variant:ident -> $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(&self) -> Option<$type> {
            if let Some(Property::$variant(value)) = self.find(prop_id::$id) { Some(value) } else { None }
        }
    )*};
}

impl<'a> Props<'a> {
    /// No properties.
    pub const EMPTY: Props<'static> = Props { raw: &[], seen: 0 };

    pub(super) const fn trusted(raw: &'a [u8], seen: u64) -> Props<'a> {
        Props { raw, seen }
    }

    /// The encoded properties, without the length prefix.
    #[inline]
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// True without any property.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// All properties, in the order of the packet.
    #[must_use]
    pub const fn iter(&self) -> PropsIter<'a> {
        PropsIter { reader: Reader::new(self.raw) }
    }

    /// Name and value of each User Property, in order [MQTT-3.3.2-18].
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.iter().filter_map(|p| if let Property::UserProperty(k, v) = p { Some((k, v)) } else { None })
    }

    /// All Subscription Identifiers, in order.
    pub fn subscription_ids(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.iter().filter_map(|p| if let Property::SubscriptionId(id) = p { Some(id) } else { None })
    }

    /// True if a property with this identifier occurs.
    #[inline]
    #[must_use]
    pub const fn has(&self, id: u8) -> bool {
        self.seen & bit_of(id) != 0
    }

    #[inline]
    fn find(&self, id: u8) -> Option<Property<'a>> {
        if self.has(id) { self.iter().find(|property| property.id() == id) } else { None }
    }

    /// True if [`Props::raw`] may be forwarded as it is: nothing in it belongs to this hop alone.
    #[inline]
    #[must_use]
    pub const fn forwardable_is_all(&self) -> bool {
        self.seen & !FORWARDABLE == 0
    }

    /// Appends, in order, what a PUBLISH forwards unaltered: payload format, content type, response topic,
    /// correlation data, user properties [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17,
    /// MQTT-3.3.2-18, MQTT-3.3.2-20].
    pub fn forwardable(&self, out: &mut Vec<u8>) {
        if self.forwardable_is_all() {
            out.extend_from_slice(self.raw);
            return;
        }
        let mut iter = self.iter();
        let mut before = iter.reader.rest();
        while let Some(property) = iter.next() {
            let after = iter.reader.rest();
            if FORWARDABLE & bit_of(property.id()) != 0 {
                out.extend_from_slice(&before[..before.len() - after.len()]);
            }
            before = after;
        }
    }

    getters! {
        /// Payload Format Indicator: 0 bytes, 1 UTF-8 text.
        payload_format: PAYLOAD_FORMAT, PayloadFormat -> u8;
        /// Message Expiry Interval in seconds.
        message_expiry: MESSAGE_EXPIRY, MessageExpiry -> u32;
        /// Content Type.
        content_type: CONTENT_TYPE, ContentType -> &'a str;
        /// Response Topic.
        response_topic: RESPONSE_TOPIC, ResponseTopic -> &'a str;
        /// Correlation Data.
        correlation_data: CORRELATION_DATA, CorrelationData -> &'a [u8];
        /// Subscription Identifier, 1 to 268,435,455. The first, if there are several.
        subscription_id: SUBSCRIPTION_ID, SubscriptionId -> u32;
        /// Session Expiry Interval in seconds; `u32::MAX` = never.
        session_expiry: SESSION_EXPIRY, SessionExpiry -> u32;
        /// Assigned Client Identifier.
        assigned_client_id: ASSIGNED_CLIENT_ID, AssignedClientId -> &'a str;
        /// Server Keep Alive in seconds.
        server_keep_alive: SERVER_KEEP_ALIVE, ServerKeepAlive -> u16;
        /// Authentication Method.
        auth_method: AUTH_METHOD, AuthMethod -> &'a str;
        /// Authentication Data.
        auth_data: AUTH_DATA, AuthData -> &'a [u8];
        /// Request Problem Information.
        request_problem_info: REQUEST_PROBLEM_INFO, RequestProblemInfo -> bool;
        /// Will Delay Interval in seconds.
        will_delay: WILL_DELAY, WillDelay -> u32;
        /// Request Response Information.
        request_response_info: REQUEST_RESPONSE_INFO, RequestResponseInfo -> bool;
        /// Response Information.
        response_info: RESPONSE_INFO, ResponseInfo -> &'a str;
        /// Server Reference.
        server_reference: SERVER_REFERENCE, ServerReference -> &'a str;
        /// Reason String.
        reason_string: REASON_STRING, ReasonString -> &'a str;
        /// Receive Maximum, not 0.
        receive_maximum: RECEIVE_MAXIMUM, ReceiveMaximum -> u16;
        /// Topic Alias Maximum; 0 = no aliases.
        topic_alias_maximum: TOPIC_ALIAS_MAXIMUM, TopicAliasMaximum -> u16;
        /// Topic Alias, not 0.
        topic_alias: TOPIC_ALIAS, TopicAlias -> u16;
        /// Maximum QoS: 0 or 1.
        maximum_qos: MAXIMUM_QOS, MaximumQos -> u8;
        /// Retain Available.
        retain_available: RETAIN_AVAILABLE, RetainAvailable -> bool;
        /// Maximum Packet Size in bytes, not 0.
        maximum_packet_size: MAXIMUM_PACKET_SIZE, MaximumPacketSize -> u32;
        /// Wildcard Subscription Available.
        wildcard_available: WILDCARD_AVAILABLE, WildcardAvailable -> bool;
        /// Subscription Identifiers Available.
        subscription_id_available: SUBSCRIPTION_ID_AVAILABLE, SubscriptionIdAvailable -> bool;
        /// Shared Subscription Available.
        shared_available: SHARED_AVAILABLE, SharedAvailable -> bool;
    }
}

/// Iterator over [`Props`].
pub struct PropsIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for PropsIter<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        if self.reader.is_empty() {
            return None;
        }
        // The bytes were validated, so an error cannot come; if it did, the walk would end.
        Property::read(&mut self.reader).ok()
    }
}
