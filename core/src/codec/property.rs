//! One MQTT 5 property: its value, reading it with the checks on the value alone, writing it.

use super::reader::Reader;
use super::reason::Reason;
use super::sink::Sink;
use super::violation::Violation;

/// Property identifiers (MQTT 5, 2.2.2.2).
pub mod prop_id {
    /// Payload Format Indicator: 0 bytes, 1 UTF-8 text.
    pub const PAYLOAD_FORMAT: u8 = 0x01;
    /// Message Expiry Interval in seconds.
    pub const MESSAGE_EXPIRY: u8 = 0x02;
    /// Content Type.
    pub const CONTENT_TYPE: u8 = 0x03;
    /// Response Topic.
    pub const RESPONSE_TOPIC: u8 = 0x08;
    /// Correlation Data.
    pub const CORRELATION_DATA: u8 = 0x09;
    /// Subscription Identifier, 1 to 268,435,455.
    pub const SUBSCRIPTION_ID: u8 = 0x0B;
    /// Session Expiry Interval in seconds; `u32::MAX` = never.
    pub const SESSION_EXPIRY: u8 = 0x11;
    /// Assigned Client Identifier.
    pub const ASSIGNED_CLIENT_ID: u8 = 0x12;
    /// Server Keep Alive in seconds.
    pub const SERVER_KEEP_ALIVE: u8 = 0x13;
    /// Authentication Method.
    pub const AUTH_METHOD: u8 = 0x15;
    /// Authentication Data.
    pub const AUTH_DATA: u8 = 0x16;
    /// Request Problem Information.
    pub const REQUEST_PROBLEM_INFO: u8 = 0x17;
    /// Will Delay Interval in seconds.
    pub const WILL_DELAY: u8 = 0x18;
    /// Request Response Information.
    pub const REQUEST_RESPONSE_INFO: u8 = 0x19;
    /// Response Information.
    pub const RESPONSE_INFO: u8 = 0x1A;
    /// Server Reference.
    pub const SERVER_REFERENCE: u8 = 0x1C;
    /// Reason String.
    pub const REASON_STRING: u8 = 0x1F;
    /// Receive Maximum, not 0.
    pub const RECEIVE_MAXIMUM: u8 = 0x21;
    /// Topic Alias Maximum; 0 = no aliases.
    pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    /// Topic Alias, not 0.
    pub const TOPIC_ALIAS: u8 = 0x23;
    /// Maximum QoS: 0 or 1.
    pub const MAXIMUM_QOS: u8 = 0x24;
    /// Retain Available.
    pub const RETAIN_AVAILABLE: u8 = 0x25;
    /// User Property: name and value.
    pub const USER_PROPERTY: u8 = 0x26;
    /// Maximum Packet Size in bytes, not 0.
    pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    /// Wildcard Subscription Available.
    pub const WILDCARD_AVAILABLE: u8 = 0x28;
    /// Subscription Identifiers Available.
    pub const SUBSCRIPTION_ID_AVAILABLE: u8 = 0x29;
    /// Shared Subscription Available.
    pub const SHARED_AVAILABLE: u8 = 0x2A;
}

/// A property with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    /// Payload Format Indicator: 0 bytes, 1 UTF-8 text.
    PayloadFormat(u8),
    /// Message Expiry Interval in seconds.
    MessageExpiry(u32),
    /// Content Type.
    ContentType(&'a str),
    /// Response Topic.
    ResponseTopic(&'a str),
    /// Correlation Data.
    CorrelationData(&'a [u8]),
    /// Subscription Identifier, 1 to 268,435,455.
    SubscriptionId(u32),
    /// Session Expiry Interval in seconds; `u32::MAX` = never.
    SessionExpiry(u32),
    /// Assigned Client Identifier.
    AssignedClientId(&'a str),
    /// Server Keep Alive in seconds.
    ServerKeepAlive(u16),
    /// Authentication Method.
    AuthMethod(&'a str),
    /// Authentication Data.
    AuthData(&'a [u8]),
    /// Request Problem Information.
    RequestProblemInfo(bool),
    /// Will Delay Interval in seconds.
    WillDelay(u32),
    /// Request Response Information.
    RequestResponseInfo(bool),
    /// Response Information.
    ResponseInfo(&'a str),
    /// Server Reference.
    ServerReference(&'a str),
    /// Reason String.
    ReasonString(&'a str),
    /// Receive Maximum, not 0.
    ReceiveMaximum(u16),
    /// Topic Alias Maximum; 0 = no aliases.
    TopicAliasMaximum(u16),
    /// Topic Alias, not 0.
    TopicAlias(u16),
    /// Maximum QoS: 0 or 1.
    MaximumQos(u8),
    /// Retain Available.
    RetainAvailable(bool),
    /// User Property: name and value.
    UserProperty(&'a str, &'a str),
    /// Maximum Packet Size in bytes, not 0.
    MaximumPacketSize(u32),
    /// Wildcard Subscription Available.
    WildcardAvailable(bool),
    /// Subscription Identifiers Available.
    SubscriptionIdAvailable(bool),
    /// Shared Subscription Available.
    SharedAvailable(bool),
}

const BAD_BOOL: Violation = Violation::protocol("property of value 0 or 1 has another value", "");
const ZERO: Violation = Violation::protocol("property must not be 0", "");
const ZERO_ALIAS: Violation =
    Violation::new(Reason::TOPIC_ALIAS_INVALID, "topic alias must not be 0", "MQTT-3.3.2-8");
/// An identifier that no property has, or that this packet may not carry (MQTT 5, 2.2.2.2).
pub(super) const NOT_ALLOWED: Violation =
    Violation::malformed("property is unknown or not allowed in this packet", "");

fn bit(r: &mut Reader<'_>) -> Result<u8, Violation> {
    match r.u8()? {
        value @ (0 | 1) => Ok(value),
        _ => Err(BAD_BOOL),
    }
}

fn boolean(r: &mut Reader<'_>) -> Result<bool, Violation> {
    Ok(bit(r)? == 1)
}

fn non_zero<T: Default + PartialEq>(value: T, otherwise: Violation) -> Result<T, Violation> {
    if value == T::default() { Err(otherwise) } else { Ok(value) }
}

impl<'a> Property<'a> {
    /// Its identifier, one of [`prop_id`].
    #[must_use]
    pub const fn id(&self) -> u8 {
        match self {
            Property::PayloadFormat(..) => prop_id::PAYLOAD_FORMAT,
            Property::MessageExpiry(..) => prop_id::MESSAGE_EXPIRY,
            Property::ContentType(..) => prop_id::CONTENT_TYPE,
            Property::ResponseTopic(..) => prop_id::RESPONSE_TOPIC,
            Property::CorrelationData(..) => prop_id::CORRELATION_DATA,
            Property::SubscriptionId(..) => prop_id::SUBSCRIPTION_ID,
            Property::SessionExpiry(..) => prop_id::SESSION_EXPIRY,
            Property::AssignedClientId(..) => prop_id::ASSIGNED_CLIENT_ID,
            Property::ServerKeepAlive(..) => prop_id::SERVER_KEEP_ALIVE,
            Property::AuthMethod(..) => prop_id::AUTH_METHOD,
            Property::AuthData(..) => prop_id::AUTH_DATA,
            Property::RequestProblemInfo(..) => prop_id::REQUEST_PROBLEM_INFO,
            Property::WillDelay(..) => prop_id::WILL_DELAY,
            Property::RequestResponseInfo(..) => prop_id::REQUEST_RESPONSE_INFO,
            Property::ResponseInfo(..) => prop_id::RESPONSE_INFO,
            Property::ServerReference(..) => prop_id::SERVER_REFERENCE,
            Property::ReasonString(..) => prop_id::REASON_STRING,
            Property::ReceiveMaximum(..) => prop_id::RECEIVE_MAXIMUM,
            Property::TopicAliasMaximum(..) => prop_id::TOPIC_ALIAS_MAXIMUM,
            Property::TopicAlias(..) => prop_id::TOPIC_ALIAS,
            Property::MaximumQos(..) => prop_id::MAXIMUM_QOS,
            Property::RetainAvailable(..) => prop_id::RETAIN_AVAILABLE,
            Property::UserProperty(..) => prop_id::USER_PROPERTY,
            Property::MaximumPacketSize(..) => prop_id::MAXIMUM_PACKET_SIZE,
            Property::WildcardAvailable(..) => prop_id::WILDCARD_AVAILABLE,
            Property::SubscriptionIdAvailable(..) => prop_id::SUBSCRIPTION_ID_AVAILABLE,
            Property::SharedAvailable(..) => prop_id::SHARED_AVAILABLE,
        }
    }

    /// Reads identifier and value. All identifiers are below 128, so theirs is one byte; a longer form of one
    /// would not be the shortest.
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Property<'a>, Violation> {
        Ok(match r.u8()? {
            prop_id::PAYLOAD_FORMAT => Property::PayloadFormat(bit(r)?),
            prop_id::MESSAGE_EXPIRY => Property::MessageExpiry(r.u32()?),
            prop_id::CONTENT_TYPE => Property::ContentType(r.str()?),
            prop_id::RESPONSE_TOPIC => Property::ResponseTopic(r.str()?),
            prop_id::CORRELATION_DATA => Property::CorrelationData(r.bin()?),
            prop_id::SUBSCRIPTION_ID => Property::SubscriptionId(non_zero(r.varint()?, ZERO)?),
            prop_id::SESSION_EXPIRY => Property::SessionExpiry(r.u32()?),
            prop_id::ASSIGNED_CLIENT_ID => Property::AssignedClientId(r.str()?),
            prop_id::SERVER_KEEP_ALIVE => Property::ServerKeepAlive(r.u16()?),
            prop_id::AUTH_METHOD => Property::AuthMethod(r.str()?),
            prop_id::AUTH_DATA => Property::AuthData(r.bin()?),
            prop_id::REQUEST_PROBLEM_INFO => Property::RequestProblemInfo(boolean(r)?),
            prop_id::WILL_DELAY => Property::WillDelay(r.u32()?),
            prop_id::REQUEST_RESPONSE_INFO => Property::RequestResponseInfo(boolean(r)?),
            prop_id::RESPONSE_INFO => Property::ResponseInfo(r.str()?),
            prop_id::SERVER_REFERENCE => Property::ServerReference(r.str()?),
            prop_id::REASON_STRING => Property::ReasonString(r.str()?),
            prop_id::RECEIVE_MAXIMUM => Property::ReceiveMaximum(non_zero(r.u16()?, ZERO)?),
            prop_id::TOPIC_ALIAS_MAXIMUM => Property::TopicAliasMaximum(r.u16()?),
            prop_id::TOPIC_ALIAS => Property::TopicAlias(non_zero(r.u16()?, ZERO_ALIAS)?),
            prop_id::MAXIMUM_QOS => Property::MaximumQos(bit(r)?),
            prop_id::RETAIN_AVAILABLE => Property::RetainAvailable(boolean(r)?),
            prop_id::USER_PROPERTY => Property::UserProperty(r.str()?, r.str()?),
            prop_id::MAXIMUM_PACKET_SIZE => Property::MaximumPacketSize(non_zero(r.u32()?, ZERO)?),
            prop_id::WILDCARD_AVAILABLE => Property::WildcardAvailable(boolean(r)?),
            prop_id::SUBSCRIPTION_ID_AVAILABLE => Property::SubscriptionIdAvailable(boolean(r)?),
            prop_id::SHARED_AVAILABLE => Property::SharedAvailable(boolean(r)?),
            _ => return Err(NOT_ALLOWED),
        })
    }

    /// Writes identifier and value.
    pub(super) fn write(&self, s: &mut impl Sink) {
        s.u8(self.id());
        match *self {
            Property::PayloadFormat(v) | Property::MaximumQos(v) => s.u8(v),
            Property::RequestProblemInfo(v)
            | Property::RequestResponseInfo(v)
            | Property::RetainAvailable(v)
            | Property::WildcardAvailable(v)
            | Property::SubscriptionIdAvailable(v)
            | Property::SharedAvailable(v) => s.u8(u8::from(v)),
            Property::ServerKeepAlive(v)
            | Property::ReceiveMaximum(v)
            | Property::TopicAliasMaximum(v)
            | Property::TopicAlias(v) => s.u16(v),
            Property::MessageExpiry(v)
            | Property::SessionExpiry(v)
            | Property::WillDelay(v)
            | Property::MaximumPacketSize(v) => s.u32(v),
            Property::SubscriptionId(v) => s.varint(v as usize),
            Property::ContentType(v)
            | Property::ResponseTopic(v)
            | Property::AssignedClientId(v)
            | Property::AuthMethod(v)
            | Property::ResponseInfo(v)
            | Property::ServerReference(v)
            | Property::ReasonString(v) => s.str(v),
            Property::CorrelationData(v) | Property::AuthData(v) => s.bin(v),
            Property::UserProperty(name, value) => {
                s.str(name);
                s.str(value);
            }
        }
    }
}
