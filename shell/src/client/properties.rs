//! `-D PACKET NAME VALUE`: properties of MQTT 5 packets from the command line.

use mast_core::codec::{Property, PropsBuf};

use super::ClientError;

/// Properties by packet.
#[derive(Debug, Default)]
pub struct PacketProps {
    pub connect: PropsBuf,
    pub publish: PropsBuf,
    pub subscribe: PropsBuf,
    pub unsubscribe: PropsBuf,
    pub disconnect: PropsBuf,
    pub will: PropsBuf,
    /// Whether -D set a session expiry, which then counts instead of -x.
    pub has_session_expiry: bool,
}

/// Which names each packet takes.
const ALLOWED: [(&str, &[&str]); 6] = [
    (
        "connect",
        &[
            "authentication-data",
            "authentication-method",
            "maximum-packet-size",
            "receive-maximum",
            "request-problem-information",
            "request-response-information",
            "session-expiry-interval",
            "topic-alias-maximum",
            "user-property",
        ],
    ),
    (
        "publish",
        &[
            "content-type",
            "correlation-data",
            "message-expiry-interval",
            "payload-format-indicator",
            "response-topic",
            "topic-alias",
            "user-property",
        ],
    ),
    ("subscribe", &["subscription-identifier", "user-property"]),
    ("unsubscribe", &["user-property"]),
    ("disconnect", &["reason-string", "session-expiry-interval", "user-property"]),
    (
        "will",
        &[
            "content-type",
            "correlation-data",
            "message-expiry-interval",
            "payload-format-indicator",
            "response-topic",
            "user-property",
            "will-delay-interval",
        ],
    ),
];

/// Parses the values of all -D flags in a row.
pub fn parse(values: &[String]) -> Result<PacketProps, ClientError> {
    let mut props = PacketProps::default();
    let mut rest = values.iter().map(String::as_str);
    while let Some(packet) = rest.next() {
        let (Some(name), Some(value)) = (rest.next(), rest.next()) else {
            return Err(ClientError::usage("-D takes PACKET NAME VALUE, or PACKET user-property NAME VALUE"));
        };
        let second = if name == "user-property" {
            Some(
                rest.next()
                    .ok_or_else(|| ClientError::usage("-D … user-property takes a name and a value"))?,
            )
        } else {
            None
        };
        add(&mut props, packet, name, value, second)?;
    }
    Ok(props)
}

fn add(
    props: &mut PacketProps,
    packet: &str,
    name: &str,
    value: &str,
    second: Option<&str>,
) -> Result<(), ClientError> {
    let Some((_, names)) = ALLOWED.iter().find(|(p, _)| *p == packet) else {
        let known: Vec<_> = ALLOWED.iter().map(|(p, _)| *p).collect();
        return Err(ClientError::usage(format!(
            "-D {packet}: no such packet; there are {}",
            known.join(", ")
        )));
    };
    if !names.contains(&name) {
        let known = names.join(", ");
        return Err(ClientError::usage(format!("-D {packet} {name}: no such property; there are {known}")));
    }
    let property = property(packet, name, value, second)?;
    let list = match packet {
        "connect" => &mut props.connect,
        "publish" => &mut props.publish,
        "subscribe" => &mut props.subscribe,
        "unsubscribe" => &mut props.unsubscribe,
        "disconnect" => &mut props.disconnect,
        _ => &mut props.will,
    };
    list.push(&property).map_err(|e| ClientError::usage(format!("-D {packet} {name}: {e}")))?;
    props.has_session_expiry |= packet == "connect" && name == "session-expiry-interval";
    Ok(())
}

fn property<'a>(
    packet: &str,
    name: &str,
    value: &'a str,
    second: Option<&'a str>,
) -> Result<Property<'a>, ClientError> {
    let wrong = || ClientError::usage(format!("-D {packet} {name}: {value} is out of range, or no number"));
    let number =
        |min: u32, max: u32| value.parse::<u32>().ok().filter(|n| (min..=max).contains(n)).ok_or_else(wrong);
    let short = |min: u16| value.parse::<u16>().ok().filter(|n| *n >= min).ok_or_else(wrong);
    Ok(match name {
        "authentication-data" => Property::AuthData(value.as_bytes()),
        "authentication-method" => Property::AuthMethod(value),
        "content-type" => Property::ContentType(value),
        "correlation-data" => Property::CorrelationData(value.as_bytes()),
        "maximum-packet-size" => Property::MaximumPacketSize(number(1, u32::MAX)?),
        "message-expiry-interval" => Property::MessageExpiry(number(0, u32::MAX)?),
        "payload-format-indicator" => Property::PayloadFormat(if number(0, 1)? == 1 { 1 } else { 0 }),
        "reason-string" => Property::ReasonString(value),
        "receive-maximum" => Property::ReceiveMaximum(short(1)?),
        "request-problem-information" => Property::RequestProblemInfo(number(0, 1)? == 1),
        "request-response-information" => Property::RequestResponseInfo(number(0, 1)? == 1),
        "response-topic" => Property::ResponseTopic(value),
        "session-expiry-interval" => Property::SessionExpiry(number(0, u32::MAX)?),
        "subscription-identifier" => Property::SubscriptionId(number(1, 268_435_455)?),
        "topic-alias" => Property::TopicAlias(short(1)?),
        "topic-alias-maximum" => Property::TopicAliasMaximum(short(0)?),
        "will-delay-interval" => Property::WillDelay(number(0, u32::MAX)?),
        "user-property" => Property::UserProperty(value, second.unwrap_or("")),
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn flags_in_a_row_become_properties_of_their_packets() {
        let text = "publish user-property a b publish content-type text connect session-expiry-interval 60";
        let props = parse(&words(text)).unwrap_or_else(|e| panic!("{e}"));
        let publish: Vec<_> = props.publish.as_props().iter().collect();
        assert_eq!(publish, [Property::UserProperty("a", "b"), Property::ContentType("text")]);
        assert!(props.has_session_expiry && props.will.as_props().is_empty());
    }

    #[test]
    fn every_allowed_property_can_be_set() {
        for (packet, names) in ALLOWED {
            for name in names {
                let text = format!("{packet} {name} 1{}", if *name == "user-property" { " v" } else { "" });
                parse(&words(&text)).unwrap_or_else(|e| panic!("{text}: {e}"));
            }
        }
    }

    #[test]
    fn mistakes_name_what_there_is() {
        let error = |text: &str| parse(&words(text)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error("pub content-type x").contains("there are connect, publish"));
        assert!(error("publish will-delay-interval 1").contains("no such property"));
        assert!(error("connect receive-maximum 0").contains("out of range"));
        assert!(error("publish user-property a").contains("a name and a value"));
        assert!(error("publish content-type").contains("PACKET NAME VALUE"));
    }
}
