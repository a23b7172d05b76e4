//! Kinds of settings: what text or TOML value each accepts, how it is printed, and the typed result.

use std::{fmt, time::Duration};

use mast_core::tenant::limits::{Limit, Unit};

/// What a key accepts. Bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// `true`, `false` or `"auto"`.
    Switch,
    /// A whole number.
    Int { min: u64, max: u64 },
    /// A size in bytes: a whole number or text with a unit (`"64KiB"`, `"2MB"`).
    Size { min: u64, max: u64 },
    /// A time with a unit (`"250ms"`, `"30s"`, `"7d"`); bounds in milliseconds.
    Time { min_ms: u64, max_ms: u64 },
    /// Any text; empty means unset.
    Text,
    /// Text that is never printed; empty means unset.
    Secret,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A list of texts. In the environment and on the command line: separated by commas.
    List,
    /// A QoS or a list of them.
    Qos,
    /// Permission bits in octal (`"0660"`).
    Mode,
    /// A TCP port or `"auto"`.
    Port,
    /// A limit of a tenant in its unit, or `"none"`; empty means unset.
    Limit(Unit),
}

/// A setting after its check against [`Kind`].
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Switch(Switch),
    Int(u64),
    Size(u64),
    Time(Duration),
    Text(String),
    List(Vec<String>),
    Mode(u32),
    /// `None` is `"auto"`.
    Port(Option<u16>),
    /// `None` is unset.
    Limit(Unit, Option<u64>),
}

/// Three-valued switch: `Auto` leaves the decision to the rule in the key's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    Auto,
    On,
    Off,
}

/// A setting as it came in: text (environment, command line) or a TOML value.
#[derive(Debug, Clone, PartialEq)]
pub enum Raw {
    /// Untyped text from the environment or a flag.
    Untyped(String),
    Str(String),
    Int(i128),
    Bool(bool),
    List(Vec<Raw>),
    /// A TOML value of a type that no key takes; holds its name.
    Other(&'static str),
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raw::Untyped(s) | Raw::Str(s) => write!(f, "\"{}\"", s.escape_debug()),
            Raw::Int(n) => write!(f, "{n}"),
            Raw::Bool(b) => write!(f, "{b}"),
            Raw::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Raw::Other(name) => f.write_str(name),
        }
    }
}

impl Kind {
    /// Checks `raw`; the error is `None` because [`Kind::accepts`] says what would have been right.
    pub fn parse(self, raw: &Raw) -> Option<Value> {
        let text = match raw {
            Raw::Untyped(s) | Raw::Str(s) => Some(s.trim()),
            Raw::Int(_) | Raw::Bool(_) | Raw::List(_) | Raw::Other(_) => None,
        };
        // A quoted number or boolean in the file is a mistake; in the environment all is text.
        let untyped = matches!(raw, Raw::Untyped(_));
        let word = if untyped { text } else { None };
        match self {
            Kind::Bool => match (raw, word) {
                (Raw::Bool(b), _) => Some(Value::Bool(*b)),
                (_, Some(w)) => parse_bool(w).map(Value::Bool),
                (_, None) => None,
            },
            Kind::Switch => match (raw, text) {
                (Raw::Bool(b), _) => Some(Value::Switch(if *b { Switch::On } else { Switch::Off })),
                (_, Some("auto")) => Some(Value::Switch(Switch::Auto)),
                (_, Some(w)) if untyped => {
                    parse_bool(w).map(|b| Value::Switch(if b { Switch::On } else { Switch::Off }))
                }
                (_, Some(_) | None) => None,
            },
            Kind::Int { min, max } => {
                let n = match (raw, word) {
                    (Raw::Int(n), _) => u64::try_from(*n).ok()?,
                    (_, Some(w)) => w.replace('_', "").parse().ok()?,
                    (_, None) => return None,
                };
                (min..=max).contains(&n).then_some(Value::Int(n))
            }
            Kind::Size { min, max } => {
                let n = match (raw, text) {
                    (Raw::Int(n), _) => u64::try_from(*n).ok()?,
                    (_, Some(t)) => parse_size(t)?,
                    (_, None) => return None,
                };
                (min..=max).contains(&n).then_some(Value::Size(n))
            }
            Kind::Time { min_ms, max_ms } => {
                let time = match (raw, text) {
                    (Raw::Int(0), _) => Duration::ZERO,
                    (_, Some(t)) => parse_time(t)?,
                    (_, None) => return None,
                };
                let range = Duration::from_millis(min_ms)..=Duration::from_millis(max_ms);
                range.contains(&time).then_some(Value::Time(time))
            }
            Kind::Text | Kind::Secret => text.map(|t| Value::Text(t.to_owned())),
            Kind::Choice(words) => {
                let text = text?;
                words.contains(&text).then(|| Value::Text(text.to_owned()))
            }
            Kind::List => match raw {
                Raw::Untyped(s) => Some(Value::List(
                    s.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect(),
                )),
                Raw::Str(s) => Some(Value::List(vec![s.clone()])),
                Raw::List(items) => items
                    .iter()
                    .map(|i| match i {
                        Raw::Str(s) => Some(s.clone()),
                        Raw::Untyped(_) | Raw::Int(_) | Raw::Bool(_) | Raw::List(_) | Raw::Other(_) => None,
                    })
                    .collect::<Option<Vec<_>>>()
                    .map(Value::List),
                Raw::Int(_) | Raw::Bool(_) | Raw::Other(_) => None,
            },
            Kind::Qos => {
                let levels: Vec<String> = match raw {
                    Raw::Untyped(s) => {
                        s.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect()
                    }
                    Raw::Int(n) => vec![n.to_string()],
                    Raw::List(items) => items
                        .iter()
                        .map(|i| match i {
                            Raw::Int(n) => Some(n.to_string()),
                            Raw::Str(s) => Some(s.clone()),
                            Raw::Untyped(_) | Raw::Bool(_) | Raw::List(_) | Raw::Other(_) => None,
                        })
                        .collect::<Option<_>>()?,
                    Raw::Str(_) | Raw::Bool(_) | Raw::Other(_) => return None,
                };
                levels.iter().all(|l| matches!(&**l, "0" | "1" | "2")).then_some(Value::List(levels))
            }
            Kind::Mode => {
                let text = text?;
                let bits = u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8).ok()?;
                (bits <= 0o777).then_some(Value::Mode(bits))
            }
            Kind::Port => match (raw, text, word) {
                (Raw::Int(n), _, _) => u16::try_from(*n).ok().map(|n| Value::Port(Some(n))),
                (_, Some("auto"), _) => Some(Value::Port(None)),
                (_, _, Some(w)) => w.parse().ok().map(|n| Value::Port(Some(n))),
                (_, _, None) => None,
            },
            Kind::Limit(unit) => parse_limit(unit, raw, text).map(|value| Value::Limit(unit, value)),
        }
    }

    /// What the key accepts, for error messages and the reference.
    pub fn accepts(self) -> String {
        match self {
            Kind::Bool => "true or false".into(),
            Kind::Switch => "true, false or \"auto\"".into(),
            Kind::Int { min, max } if max == u64::MAX => format!("a whole number from {min}"),
            Kind::Int { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Size { min, max } if max == u64::MAX => format!("a size from {}", show_size(min)),
            Kind::Size { min, max } => {
                format!("a size from {} to {} (such as \"64KiB\")", show_size(min), show_size(max))
            }
            Kind::Time { min_ms, max_ms } => format!(
                "a time with a unit from {} to {} (such as \"30s\")",
                show_time(Duration::from_millis(min_ms)),
                show_time(Duration::from_millis(max_ms))
            ),
            Kind::Text | Kind::Secret => "text in quotes".into(),
            Kind::Choice(words) => {
                let quoted: Vec<_> = words.iter().map(|w| format!("\"{w}\"")).collect();
                format!("one of {}", quoted.join(", "))
            }
            Kind::List => "a list of texts (such as [\"a\", \"b\"])".into(),
            Kind::Qos => "a QoS from 0 to 2, or a list of them (such as [0, 1])".into(),
            Kind::Mode => "permission bits in octal (such as \"0660\")".into(),
            Kind::Port => "a port from 0 to 65535, or \"auto\"".into(),
            Kind::Limit(unit) => format!("{}, or \"none\"", limit_kind(unit).accepts()),
        }
    }
}

/// The plain kind of a limit's values.
fn limit_kind(unit: Unit) -> Kind {
    let (min, max) = unit.range();
    match unit {
        Unit::Bytes | Unit::BytesPerSecond | Unit::PacketBytes | Unit::TopicBytes => Kind::Size { min, max },
        Unit::Seconds | Unit::KeepAlive => Kind::Time { min_ms: min * 1000, max_ms: max * 1000 },
        Unit::Switch => Kind::Bool,
        Unit::Count | Unit::PerSecond | Unit::Levels | Unit::Qos | Unit::Window | Unit::Aliases => {
            Kind::Int { min, max }
        }
    }
}

/// A limit's value; the inner `None` is unset.
fn parse_limit(unit: Unit, raw: &Raw, text: Option<&str>) -> Option<Option<u64>> {
    match text {
        Some("") => return Some(None),
        Some("none") => return Some(Some(Limit::NONE)),
        Some(_) | None => {}
    }
    let value = match limit_kind(unit).parse(raw)? {
        Value::Int(n) | Value::Size(n) => n,
        // Only whole seconds go over the wire.
        Value::Time(time) if time.subsec_nanos() == 0 => time.as_secs(),
        Value::Bool(on) => u64::from(on),
        _ => return None,
    };
    Some(Some(value))
}

fn parse_bool(word: &str) -> Option<bool> {
    match word {
        "true" | "1" | "on" | "yes" => Some(true),
        "false" | "0" | "off" | "no" => Some(false),
        _ => None,
    }
}

/// Splits `"12.5MiB"` in number and unit.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn scaled(number: &str, unit: u64) -> Option<u64> {
    let number = number.replace('_', "");
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(unit),
        Some((whole, fraction)) if fraction.len() <= 6 && !fraction.is_empty() => {
            let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
            let part = part / 10u64.pow(u32::try_from(fraction.len()).ok()?);
            whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part)
        }
        Some(_) => None,
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    scaled(number, unit)
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let unit_us = match unit {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        "" if number == "0" => 0,
        _ => return None,
    };
    scaled(number, unit_us).map(Duration::from_micros)
}

/// The shortest exact form of a size.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// The shortest exact form of a time.
pub fn show_time(time: Duration) -> String {
    let us = time.as_micros();
    if us == 0 {
        return "0s".into();
    }
    let units: [(u128, &str); 6] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
        (1, "us"),
    ];
    let (size, unit) = units.into_iter().find(|(size, _)| us.is_multiple_of(*size)).unwrap_or((1, "us"));
    format!("{}{unit}", us / size)
}

/// As TOML.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(b) => write!(f, "{b}"),
            Value::Switch(Switch::Auto) => f.write_str("\"auto\""),
            Value::Switch(Switch::On) => f.write_str("true"),
            Value::Switch(Switch::Off) => f.write_str("false"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Size(n) => write!(f, "\"{}\"", show_size(*n)),
            Value::Time(t) => write!(f, "\"{}\"", show_time(*t)),
            Value::Text(t) => write!(f, "\"{}\"", t.escape_default()),
            Value::List(items) => {
                let quoted: Vec<_> = items.iter().map(|i| format!("\"{}\"", i.escape_default())).collect();
                write!(f, "[{}]", quoted.join(", "))
            }
            Value::Mode(m) => write!(f, "\"{m:04o}\""),
            Value::Port(None) => f.write_str("\"auto\""),
            Value::Port(Some(port)) => write!(f, "{port}"),
            Value::Limit(_, None) => f.write_str("\"\""),
            Value::Limit(_, Some(Limit::NONE)) => f.write_str("\"none\""),
            Value::Limit(unit, Some(n)) => match limit_kind(*unit) {
                Kind::Size { .. } => write!(f, "\"{}\"", show_size(*n)),
                Kind::Time { .. } => write!(f, "\"{}\"", show_time(Duration::from_secs(*n))),
                Kind::Bool => write!(f, "{}", *n != 0),
                _ => write!(f, "{n}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Kind = Kind::Size { min: 1, max: 1 << 40 };
    const TIME: Kind = Kind::Time { min_ms: 0, max_ms: 86_400_000 * 30 };

    fn text(kind: Kind, s: &str) -> Option<Value> {
        kind.parse(&Raw::Str(s.into()))
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        assert_eq!(text(SIZE, "64KiB"), Some(Value::Size(65_536)));
        assert_eq!(text(SIZE, "2MB"), Some(Value::Size(2_000_000)));
        assert_eq!(text(SIZE, "1.5 MiB"), Some(Value::Size(1_572_864)));
        assert_eq!(SIZE.parse(&Raw::Int(7)), Some(Value::Size(7)));
        assert_eq!(text(SIZE, "7 parsecs"), None);
        assert_eq!(text(SIZE, "99999999999999999999G"), None);
        assert_eq!(SIZE.parse(&Raw::Int(-1)), None);
    }

    #[test]
    fn times_need_a_unit_unless_zero() {
        assert_eq!(text(TIME, "250ms"), Some(Value::Time(Duration::from_millis(250))));
        assert_eq!(text(TIME, "7d"), Some(Value::Time(Duration::from_secs(604_800))));
        assert_eq!(text(TIME, "30"), None);
        assert_eq!(TIME.parse(&Raw::Int(0)), Some(Value::Time(Duration::ZERO)));
        assert_eq!(TIME.parse(&Raw::Int(30)), None);
    }

    #[test]
    fn a_quoted_number_in_the_file_is_refused_but_text_from_the_environment_is_taken() {
        let kind = Kind::Int { min: 1, max: 10 };
        assert_eq!(text(kind, "5"), None);
        assert_eq!(kind.parse(&Raw::Untyped("5".into())), Some(Value::Int(5)));
        assert_eq!(kind.parse(&Raw::Untyped("11".into())), None);
        assert_eq!(text(Kind::Bool, "true"), None);
        assert_eq!(Kind::Bool.parse(&Raw::Untyped("true".into())), Some(Value::Bool(true)));
    }

    #[test]
    fn what_is_printed_parses_to_the_same_value() {
        for (kind, raw) in [
            (SIZE, "1025B"),
            (SIZE, "3GiB"),
            (TIME, "1500ms"),
            (TIME, "2h"),
            (Kind::Mode, "0660"),
            (Kind::Text, "with \"quotes\""),
        ] {
            let value = text(kind, raw).expect(raw);
            let printed = value.to_string();
            let document = format!("k = {printed}");
            let table = toml::de::DeTable::parse(&document).expect("printed as TOML");
            let (_, item) = table.get_ref().iter().next().expect("one key");
            let toml::de::DeValue::String(s) = item.get_ref() else { panic!("{printed} is not text") };
            assert_eq!(text(kind, s), Some(value));
        }
    }
}
