//! The one validator of property lists: which identifiers a packet may carry, how often, with which values.

use super::property::{NOT_ALLOWED, Property, prop_id};
use super::props::Props;
use super::reader::Reader;
use super::violation::Violation;

/// Whose properties they are: decides which identifiers are allowed (MQTT 5, table 2-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// CONNECT.
    Connect,
    /// The Will of a CONNECT.
    Will,
    /// CONNACK.
    ConnAck,
    /// PUBLISH.
    Publish,
    /// PUBACK, PUBREC, PUBREL, PUBCOMP.
    Ack,
    /// SUBSCRIBE.
    Subscribe,
    /// SUBACK.
    SubAck,
    /// UNSUBSCRIBE.
    Unsubscribe,
    /// UNSUBACK.
    UnsubAck,
    /// DISCONNECT.
    Disconnect,
    /// AUTH.
    Auth,
}

const DUPLICATE: Violation = Violation::protocol("property occurs twice", "");
const DATA_WITHOUT_METHOD: Violation =
    Violation::protocol("authentication data without authentication method", "");

/// The bit of a property identifier. All identifiers are below 64.
pub(super) const fn bit_of(id: u8) -> u64 {
    1 << (id & 63)
}

const fn bits(ids: &[u8]) -> u64 {
    let mut mask = 0;
    let mut i = 0;
    while i < ids.len() {
        mask |= bit_of(ids[i]);
        i += 1;
    }
    mask
}

impl Place {
    const fn allowed(self) -> u64 {
        match self {
            Place::Connect => {
                const {
                    bits(&[
                        prop_id::SESSION_EXPIRY,
                        prop_id::AUTH_METHOD,
                        prop_id::AUTH_DATA,
                        prop_id::REQUEST_PROBLEM_INFO,
                        prop_id::REQUEST_RESPONSE_INFO,
                        prop_id::RECEIVE_MAXIMUM,
                        prop_id::TOPIC_ALIAS_MAXIMUM,
                        prop_id::USER_PROPERTY,
                        prop_id::MAXIMUM_PACKET_SIZE,
                    ])
                }
            }
            Place::Will => {
                const {
                    bits(&[
                        prop_id::PAYLOAD_FORMAT,
                        prop_id::MESSAGE_EXPIRY,
                        prop_id::CONTENT_TYPE,
                        prop_id::RESPONSE_TOPIC,
                        prop_id::CORRELATION_DATA,
                        prop_id::WILL_DELAY,
                        prop_id::USER_PROPERTY,
                    ])
                }
            }
            Place::ConnAck => {
                const {
                    bits(&[
                        prop_id::SESSION_EXPIRY,
                        prop_id::ASSIGNED_CLIENT_ID,
                        prop_id::SERVER_KEEP_ALIVE,
                        prop_id::AUTH_METHOD,
                        prop_id::AUTH_DATA,
                        prop_id::RESPONSE_INFO,
                        prop_id::SERVER_REFERENCE,
                        prop_id::REASON_STRING,
                        prop_id::RECEIVE_MAXIMUM,
                        prop_id::TOPIC_ALIAS_MAXIMUM,
                        prop_id::MAXIMUM_QOS,
                        prop_id::RETAIN_AVAILABLE,
                        prop_id::USER_PROPERTY,
                        prop_id::MAXIMUM_PACKET_SIZE,
                        prop_id::WILDCARD_AVAILABLE,
                        prop_id::SUBSCRIPTION_ID_AVAILABLE,
                        prop_id::SHARED_AVAILABLE,
                    ])
                }
            }
            Place::Publish => {
                const {
                    bits(&[
                        prop_id::PAYLOAD_FORMAT,
                        prop_id::MESSAGE_EXPIRY,
                        prop_id::CONTENT_TYPE,
                        prop_id::RESPONSE_TOPIC,
                        prop_id::CORRELATION_DATA,
                        prop_id::SUBSCRIPTION_ID,
                        prop_id::TOPIC_ALIAS,
                        prop_id::USER_PROPERTY,
                    ])
                }
            }
            Place::Ack => const { bits(&[prop_id::REASON_STRING, prop_id::USER_PROPERTY]) },
            Place::Subscribe => const { bits(&[prop_id::SUBSCRIPTION_ID, prop_id::USER_PROPERTY]) },
            Place::SubAck => const { bits(&[prop_id::REASON_STRING, prop_id::USER_PROPERTY]) },
            Place::Unsubscribe => const { bits(&[prop_id::USER_PROPERTY]) },
            Place::UnsubAck => const { bits(&[prop_id::REASON_STRING, prop_id::USER_PROPERTY]) },
            Place::Disconnect => {
                const {
                    bits(&[
                        prop_id::SESSION_EXPIRY,
                        prop_id::SERVER_REFERENCE,
                        prop_id::REASON_STRING,
                        prop_id::USER_PROPERTY,
                    ])
                }
            }
            Place::Auth => {
                const {
                    bits(&[
                        prop_id::AUTH_METHOD,
                        prop_id::AUTH_DATA,
                        prop_id::REASON_STRING,
                        prop_id::USER_PROPERTY,
                    ])
                }
            }
        }
    }

    /// Identifiers that may occur more than once.
    const fn repeatable(self) -> u64 {
        match self {
            // A broker names all subscriptions that one copy answers [MQTT-3.3.4-4].
            Place::Publish => bit_of(prop_id::USER_PROPERTY) | bit_of(prop_id::SUBSCRIPTION_ID),
            Place::Connect
            | Place::Will
            | Place::ConnAck
            | Place::Ack
            | Place::Subscribe
            | Place::SubAck
            | Place::Unsubscribe
            | Place::UnsubAck
            | Place::Disconnect
            | Place::Auth => bit_of(prop_id::USER_PROPERTY),
        }
    }
}

/// What a PUBLISH forwards unaltered.
pub(super) const FORWARDABLE: u64 = bits(&[
    prop_id::PAYLOAD_FORMAT,
    prop_id::CONTENT_TYPE,
    prop_id::RESPONSE_TOPIC,
    prop_id::CORRELATION_DATA,
    prop_id::USER_PROPERTY,
]);

impl<'a> Props<'a> {
    /// Validates `raw`, properties without their length prefix, as those of `place`.
    ///
    /// # Errors
    /// Unknown or foreign identifiers, repetitions, values out of range, truncated fields, authentication data
    /// without a method.
    pub fn parse(raw: &'a [u8], place: Place) -> Result<Props<'a>, Violation> {
        let (allowed, repeatable) = (place.allowed(), place.repeatable());
        let mut reader = Reader::new(raw);
        let mut seen = 0u64;
        while let [id, ..] = *reader.rest() {
            if id >= 64 || allowed & bit_of(id) == 0 {
                return Err(NOT_ALLOWED);
            }
            let bit = bit_of(id);
            if seen & bit & !repeatable != 0 {
                return Err(DUPLICATE);
            }
            seen |= bit;
            Property::read(&mut reader)?;
        }
        if seen & bit_of(prop_id::AUTH_DATA) != 0 && seen & bit_of(prop_id::AUTH_METHOD) == 0 {
            return Err(DATA_WITHOUT_METHOD);
        }
        Ok(Props::trusted(raw, seen))
    }

    /// Reads the length prefix and as many bytes of properties.
    #[inline]
    pub(super) fn read(r: &mut Reader<'a>, place: Place) -> Result<Props<'a>, Violation> {
        let len = r.varint()?;
        if len == 0 { Ok(Props::EMPTY) } else { Props::parse(r.take(len as usize)?, place) }
    }
}
