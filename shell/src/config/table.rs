//! The declarative table of keys: one macro makes, from one list, the typed section, its parser's rules and
//! its reference text.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::kind::{Kind, Raw, Switch, Value};

/// One key of one section.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// As it would stand in the environment.
    pub default: &'static str,
    pub doc: &'static str,
}

impl Key {
    /// The checked default. A default that its own kind refuses is a bug that a test finds; `None` then.
    pub fn default_value(&self) -> Option<Value> {
        self.kind.parse(&Raw::Untyped(self.default.to_owned()))
    }

    pub fn secret(&self) -> bool {
        matches!(self.kind, Kind::Secret)
    }
}

/// A section: the path of its TOML table, where `*` stands for any name.
#[derive(Debug, Clone, Copy)]
pub struct SectionDef {
    pub path: &'static [&'static str],
    pub doc: &'static str,
    pub keys: &'static [Key],
}

impl SectionDef {
    /// Whether `path` is this section.
    pub fn is_at(&self, path: &[String]) -> bool {
        self.path.len() == path.len() && self.holds_prefix(path)
    }

    /// Whether `path` is this section or a table above it.
    pub fn holds_prefix(&self, path: &[String]) -> bool {
        path.len() <= self.path.len() && self.path.iter().zip(path).all(|(p, q)| *p == "*" || p == q)
    }

    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }
}

/// The values of one section, complete with defaults.
pub type SectionValues = BTreeMap<&'static str, Value>;

/// A Rust type that a checked value turns into. [`Value`]s were checked by [`Kind`]; what does not fit here is
/// a mismatch between a key's kind and its field's type, which the test `every_default_builds` finds.
pub trait Field: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

impl Field for bool {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bool(b) = value { Some(*b) } else { None }
    }
}

impl Field for Switch {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Switch(s) = value { Some(*s) } else { None }
    }
}

impl Field for Duration {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Time(t) = value { Some(*t) } else { None }
    }
}

impl Field for String {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(t) = value { Some(t.clone()) } else { None }
    }
}

impl Field for Option<String> {
    fn from_value(value: &Value) -> Option<Self> {
        String::from_value(value).map(|t| (!t.is_empty()).then_some(t))
    }
}

impl Field for Option<PathBuf> {
    fn from_value(value: &Value) -> Option<Self> {
        Option::<String>::from_value(value).map(|t| t.map(PathBuf::from))
    }
}

impl Field for Vec<String> {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::List(items) = value { Some(items.clone()) } else { None }
    }
}

impl Field for Option<u16> {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Port(p) = value { Some(*p) } else { None }
    }
}

macro_rules! number_fields {
    ($($ty:ty),*) => { $(impl Field for $ty {
        fn from_value(value: &Value) -> Option<Self> {
            match value {
                Value::Int(n) | Value::Size(n) => <$ty>::try_from(*n).ok(),
                Value::Mode(m) => <$ty>::try_from(*m).ok(),
                Value::Bool(_) | Value::Switch(_) | Value::Time(_) | Value::Text(_) | Value::List(_) | Value::Port(_)
                | Value::Limit(..) => None,
            }
        }
    })* };
}
number_fields!(u8, u16, u32, u64, usize);

/// Declares an enum of words: the `Kind::Choice` list and the conversion come from one place.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }
        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }
        impl $crate::config::table::Field for $name {
            fn from_value(value: &$crate::config::kind::Value) -> Option<Self> {
                match value {
                    $($crate::config::kind::Value::Text(t) if t == $word => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

/// Declares a section's struct together with its table of keys: `field: Type = "default", kind;`, the field's
/// documentation being the key's.
macro_rules! section {
    ($(#[doc = $sdoc:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $field:ident : $ty:ty = $default:literal, $kind:expr;)+ }) => {
        $(#[doc = $sdoc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: $ty),+ }
        impl $name {
            pub const DOC: &'static str = concat!($($sdoc),+);
            pub const KEYS: &'static [$crate::config::table::Key] = &[$($crate::config::table::Key {
                name: stringify!($field), kind: $kind, default: $default, doc: concat!($($doc),+),
            }),+];
            /// Builds the section; the error is the name of a key whose value has the wrong shape.
            pub fn build(values: &$crate::config::table::SectionValues) -> Result<Self, &'static str> {
                Ok(Self { $($field: values.get(stringify!($field))
                    .and_then($crate::config::table::Field::from_value)
                    .ok_or(stringify!($field))?),+ })
            }
        }
    };
}

pub(super) use {choice, section};
