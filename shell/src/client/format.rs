//! How `mast sub` prints a message: plain, with its topic, or by a format with mosquitto_sub's escapes.

use std::{io::Write, time::Duration};

use mast_core::codec::Publish;

use super::ClientError;

/// How to print.
#[derive(Debug)]
pub struct Output {
    pub format: Option<Vec<Piece>>,
    pub verbose: bool,
    /// A line feed behind each message; off with -N. A format has its own.
    pub line_feed: bool,
}

/// A part of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// `%` with a letter, and a width as in `%-20t`.
    Field {
        field: Field,
        width: usize,
        left: bool,
        zeros: bool,
    },
    /// `@` with a letter: a part of the date, in UTC.
    Date(char),
}

/// What a `%` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    TopicAlias,
    ContentType,
    CorrelationData,
    Expiry,
    PayloadFormat,
    IsoTime,
    JsonText,
    JsonValue,
    Length,
    PacketId,
    UserProperties,
    Payload,
    Qos,
    Retain,
    ResponseTopic,
    SubscriptionId,
    Topic,
    UnixTime,
    HexLower,
    HexUpper,
}

/// Parses a format.
pub fn parse(text: &str) -> Result<Vec<Piece>, ClientError> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    let flush = |plain: &mut String, pieces: &mut Vec<Piece>| {
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(plain)));
        }
    };
    while let Some(c) = chars.next() {
        match c {
            '%' => {
                let (mut left, mut zeros, mut width) = (false, false, 0usize);
                while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '0')) {
                    left |= flag == '-';
                    zeros |= flag == '0';
                }
                while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                    width = (width * 10 + digit as usize - '0' as usize).min(10_000);
                }
                match chars.next() {
                    Some('%') => plain.push('%'),
                    Some(letter) => {
                        let field = field(letter)
                            .ok_or_else(|| ClientError::usage(format!("-F: %{letter} means nothing")))?;
                        flush(&mut plain, &mut pieces);
                        pieces.push(Piece::Field { field, width, left, zeros });
                    }
                    None => return Err(ClientError::usage("-F: % at the end of the format")),
                }
            }
            '@' => match chars.next() {
                Some('@') => plain.push('@'),
                Some(letter) if "YymdeHMSNjsFTZz".contains(letter) => {
                    flush(&mut plain, &mut pieces);
                    pieces.push(Piece::Date(letter));
                }
                Some(letter) => return Err(ClientError::usage(format!("-F: @{letter} means nothing"))),
                None => return Err(ClientError::usage("-F: @ at the end of the format")),
            },
            '\\' => match chars.next() {
                Some('\\') => plain.push('\\'),
                Some('0') => plain.push('\0'),
                Some('a') => plain.push('\x07'),
                Some('e') => plain.push('\x1b'),
                Some('n') => plain.push('\n'),
                Some('r') => plain.push('\r'),
                Some('t') => plain.push('\t'),
                Some('v') => plain.push('\x0b'),
                Some(letter) => return Err(ClientError::usage(format!("-F: \\{letter} means nothing"))),
                None => return Err(ClientError::usage("-F: \\ at the end of the format")),
            },
            other => plain.push(other),
        }
    }
    flush(&mut plain, &mut pieces);
    Ok(pieces)
}

fn field(letter: char) -> Option<Field> {
    Some(match letter {
        'A' => Field::TopicAlias,
        'C' => Field::ContentType,
        'D' => Field::CorrelationData,
        'E' => Field::Expiry,
        'F' => Field::PayloadFormat,
        'I' => Field::IsoTime,
        'j' => Field::JsonText,
        'J' => Field::JsonValue,
        'l' => Field::Length,
        'm' => Field::PacketId,
        'P' => Field::UserProperties,
        'p' => Field::Payload,
        'q' => Field::Qos,
        'r' => Field::Retain,
        'R' => Field::ResponseTopic,
        'S' => Field::SubscriptionId,
        't' => Field::Topic,
        'U' => Field::UnixTime,
        'x' => Field::HexLower,
        'X' => Field::HexUpper,
        _ => return None,
    })
}

impl Output {
    /// Writes one message that came at `now` (since 1970).
    pub fn write(&self, out: &mut impl Write, message: &Publish<'_>, now: Duration) -> std::io::Result<()> {
        if let Some(pieces) = &self.format {
            for piece in pieces {
                match piece {
                    Piece::Text(text) => out.write_all(text.as_bytes())?,
                    Piece::Date(letter) => out.write_all(date(*letter, now).as_bytes())?,
                    Piece::Field { field, width, left, zeros } => {
                        pad(out, &value(*field, message, now), *width, *left, *zeros)?;
                    }
                }
            }
        } else if self.verbose {
            out.write_all(message.topic.as_bytes())?;
            out.write_all(b" ")?;
            out.write_all(if message.payload.is_empty() { b"(null)" } else { message.payload })?;
        } else if message.payload.is_empty() {
            // As mosquitto_sub: without a topic to print, an empty message prints nothing.
            return Ok(());
        } else {
            out.write_all(message.payload)?;
        }
        if self.line_feed { out.write_all(b"\n") } else { Ok(()) }
    }
}

fn pad(out: &mut impl Write, text: &[u8], width: usize, left: bool, zeros: bool) -> std::io::Result<()> {
    let fill = width.saturating_sub(text.len());
    let filler = if zeros && !left { b"0" } else { b" " };
    let before = if left { 0 } else { fill };
    for _ in 0..before {
        out.write_all(filler)?;
    }
    out.write_all(text)?;
    for _ in before..fill {
        out.write_all(filler)?;
    }
    Ok(())
}

fn value(field: Field, message: &Publish<'_>, now: Duration) -> Vec<u8> {
    let props = &message.props;
    let number = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
    let text = match field {
        Field::Payload => return message.payload.to_vec(),
        Field::CorrelationData => return props.correlation_data().unwrap_or_default().to_vec(),
        Field::TopicAlias => number(props.topic_alias().map(u32::from)),
        Field::ContentType => props.content_type().unwrap_or("").to_owned(),
        Field::Expiry => number(props.message_expiry()),
        Field::PayloadFormat => number(props.payload_format().map(u32::from)),
        Field::IsoTime => iso(now, false),
        Field::JsonText => json(message, now, false),
        Field::JsonValue => json(message, now, true),
        Field::Length => message.payload.len().to_string(),
        Field::PacketId => message.packet_id.to_string(),
        Field::UserProperties => {
            let all: Vec<_> = props.user_properties().map(|(k, v)| format!("{k}:{v}")).collect();
            all.join(" ")
        }
        Field::Qos => (message.qos as u8).to_string(),
        Field::Retain => u8::from(message.retain).to_string(),
        Field::ResponseTopic => props.response_topic().unwrap_or("").to_owned(),
        Field::SubscriptionId => number(props.subscription_ids().next()),
        Field::Topic => message.topic.to_owned(),
        Field::UnixTime => format!("{}.{:09}", now.as_secs(), now.subsec_nanos()),
        Field::HexLower => message.payload.iter().map(|b| format!("{b:02x}")).collect(),
        Field::HexUpper => message.payload.iter().map(|b| format!("{b:02X}")).collect(),
    };
    text.into_bytes()
}

/// A message as JSON, in mosquitto_sub's order; with `parsed` the payload is a JSON value itself, if it is one.
fn json(message: &Publish<'_>, now: Duration, parsed: bool) -> String {
    use serde_json::Value;
    let payload_text = String::from_utf8_lossy(message.payload).into_owned();
    let payload = match parsed {
        true => serde_json::from_slice(message.payload).unwrap_or(Value::String(payload_text)),
        false => Value::String(payload_text),
    };
    let mut fields: Vec<(&str, Value)> = vec![
        ("tst", iso(now, true).into()),
        ("topic", message.topic.into()),
        ("qos", (message.qos as u8).into()),
        ("retain", u8::from(message.retain).into()),
        ("payloadlen", message.payload.len().into()),
    ];
    if message.packet_id != 0 {
        fields.push(("mid", message.packet_id.into()));
    }
    let props = properties(message);
    if !props.is_empty() {
        fields.push(("properties", Value::Object(props)));
    }
    fields.push(("payload", payload));
    let shown: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", shown.join(","))
}

fn properties(message: &Publish<'_>) -> serde_json::Map<String, serde_json::Value> {
    let props = &message.props;
    let mut all = serde_json::Map::new();
    let mut put = |name: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            all.insert(name.to_owned(), value);
        }
    };
    put("payload-format-indicator", props.payload_format().map(|v| u32::from(v).into()));
    put("message-expiry-interval", props.message_expiry().map(Into::into));
    put("content-type", props.content_type().map(Into::into));
    put("response-topic", props.response_topic().map(Into::into));
    put("correlation-data", props.correlation_data().map(|d| String::from_utf8_lossy(d).into()));
    put("subscription-identifier", props.subscription_ids().next().map(Into::into));
    let user: Vec<_> = props
        .user_properties()
        .map(|(k, v)| serde_json::Value::Object([(k.to_owned(), v.into())].into_iter().collect()))
        .collect();
    put("user-properties", (!user.is_empty()).then_some(user.into()));
    all
}

/// Year, month and day of a day number since 1970 (civil calendar, after Hinnant's era arithmetic).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

fn iso(now: Duration, fraction: bool) -> String {
    let (y, m, d) = civil(now.as_secs() / 86_400);
    let s = now.as_secs() % 86_400;
    let micros = if fraction { format!(".{:06}", now.subsec_micros()) } else { String::new() };
    format!("{y:04}-{m:02}-{d:02}T{:02}:{:02}:{:02}{micros}+0000", s / 3600, s / 60 % 60, s % 60)
}

fn date(letter: char, now: Duration) -> String {
    let days = now.as_secs() / 86_400;
    let (y, m, d) = civil(days);
    let s = now.as_secs() % 86_400;
    match letter {
        'Y' => format!("{y:04}"),
        'y' => format!("{:02}", y % 100),
        'm' => format!("{m:02}"),
        'd' => format!("{d:02}"),
        'e' => format!("{d:2}"),
        'H' => format!("{:02}", s / 3600),
        'M' => format!("{:02}", s / 60 % 60),
        'S' => format!("{:02}", s % 60),
        'N' => format!("{:09}", now.subsec_nanos()),
        's' => now.as_secs().to_string(),
        'F' => format!("{y:04}-{m:02}-{d:02}"),
        'T' => format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60),
        'Z' => "UTC".to_owned(),
        'z' => "+0000".to_owned(),
        // 'j', the last letter that `parse` lets through: the day of the year.
        _ => {
            let year_day = (0..366).find(|n| civil(days - n.min(&days)) == (y, 1, 1)).unwrap_or(0);
            format!("{:03}", year_day + 1)
        }
    }
}
