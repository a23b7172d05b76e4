//! Texts of rules in which placeholders stand for what is known of a client: `%c` its client id, `%u` its user,
//! `%t` its tenant, `${name}` an attribute; `%%` is a percent sign.
//!
//! A value that is missing, empty, too long, or contains `/`, `+`, `#` or NUL must not get into a filter. A rule
//! that allows then matches nothing; one that denies matches whatever the value could have been.

use super::glob;
use super::policy::Who;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Longest value that is put in, bytes: each session keeps its rules with its values.
const MAX_VALUE: usize = 1024;
/// Stands in an unfinished filter for a value that cannot be put in. No filter and no value contains it.
const HOLE: char = '\0';

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Client,
    User,
    Tenant,
    Attribute(Box<str>),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// `%` and another character than c, u, t or %.
    Unknown(char),
    /// `%` at the end.
    Ends,
    /// `${` without `}`, or with nothing in between.
    Attribute,
    /// NUL.
    Nul,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::Unknown(c) => write!(
                f,
                "\"%{}\" is no placeholder; there are %c, %u, %t and ${{attribute}}, and %% is a percent sign",
                c.escape_debug()
            ),
            TemplateError::Ends => f.write_str("a percent sign is written as %%"),
            TemplateError::Attribute => f.write_str("an attribute is written as ${name}"),
            TemplateError::Nul => f.write_str("it contains a NUL character"),
        }
    }
}

impl core::error::Error for TemplateError {}

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// A placeholder that does not exist or does not end.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        if text.contains('\0') {
            return Err(TemplateError::Nul);
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['%', '$']) {
            plain.push_str(&rest[..at]);
            let tail = &rest[at..];
            let (part, used) = if let Some(name) = tail.strip_prefix("${") {
                let end = name.find('}').filter(|n| *n > 0).ok_or(TemplateError::Attribute)?;
                (Part::Attribute(Box::from(&name[..end])), end + 3)
            } else if let Some(behind) = tail.strip_prefix('$') {
                plain.push('$');
                rest = behind;
                continue;
            } else {
                match tail[1..].chars().next() {
                    Some('c') => (Part::Client, 2),
                    Some('u') => (Part::User, 2),
                    Some('t') => (Part::Tenant, 2),
                    Some('%') => {
                        plain.push('%');
                        rest = &tail[2..];
                        continue;
                    }
                    Some(c) => return Err(TemplateError::Unknown(c)),
                    None => return Err(TemplateError::Ends),
                }
            };
            if !plain.is_empty() {
                parts.push(Part::Text(core::mem::take(&mut plain).into()));
            }
            parts.push(part);
            rest = &tail[used..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Template { parts })
    }

    /// The text, if there are no placeholders in it.
    #[must_use]
    pub fn plain(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text with `x` in the place of every value: what must be right about the rest of it can be checked so.
    #[must_use]
    pub fn sample(&self) -> String {
        self.parts.iter().map(|p| if let Part::Text(t) = p { t } else { "x" }).collect()
    }

    /// The filter for a client; `None` where a rule that allows may not match. In a rule that denies, a level whose
    /// value cannot be put in becomes `+`.
    pub(super) fn filter(&self, who: &Who<'_>, denies: bool) -> Option<Box<str>> {
        if let Some(plain) = self.plain() {
            return Some(Box::from(plain));
        }
        let mut out = String::new();
        let mut holes = false;
        for part in &self.parts {
            match part.value(who) {
                // A name must not lead to $-topics, which wildcards do not reach either.
                Some(value)
                    if !denies && out.is_empty() && part.is_placeholder() && value.starts_with('$') =>
                {
                    return None;
                }
                Some(value) => out.push_str(value),
                None if denies => {
                    holes = true;
                    out.push(HOLE);
                }
                None => return None,
            }
        }
        Some(if holes { filled(&out) } else { out }.into_boxed_str())
    }

    /// A filter that matches whatever this one can match with any values.
    pub(super) fn widest(&self) -> String {
        let hole = String::from(HOLE);
        filled(&self.parts.iter().map(|p| if let Part::Text(t) = p { t } else { &*hole }).collect::<String>())
    }

    /// Whether `text` fits this pattern, in which `*` stands for any text; a star in a value is a
    /// star and nothing else. In a rule that denies, a value that cannot be put in may be any text.
    pub(super) fn fits(&self, who: &Who<'_>, denies: bool, text: &str) -> bool {
        let mut pieces = alloc::vec![String::new()];
        for part in &self.parts {
            match (part, part.value(who)) {
                (Part::Text(pattern), _) => {
                    for (n, piece) in pattern.split('*').enumerate() {
                        if n > 0 {
                            pieces.push(String::new());
                        }
                        glob::extend(&mut pieces, piece);
                    }
                }
                (_, Some(value)) => glob::extend(&mut pieces, value),
                (_, None) if denies => pieces.push(String::new()),
                (_, None) => return false,
            }
        }
        glob::fits(&pieces, text)
    }

    /// Whether `text` is exactly this, with its values. As for [`Template::fits`] otherwise.
    pub(super) fn equals(&self, who: &Who<'_>, denies: bool, text: &str) -> bool {
        let mut pieces = alloc::vec![String::new()];
        for part in &self.parts {
            match part.value(who) {
                Some(value) => glob::extend(&mut pieces, value),
                None if denies => pieces.push(String::new()),
                None => return false,
            }
        }
        glob::fits(&pieces, text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(&escape(text)),
            Part::Client => f.write_str("%c"),
            Part::User => f.write_str("%u"),
            Part::Tenant => f.write_str("%t"),
            Part::Attribute(name) => write!(f, "${{{name}}}"),
        })
    }
}

/// The filter with `+` for each level that has a hole.
fn filled(filter: &str) -> String {
    let levels: Vec<&str> = filter.split('/').map(|l| if l.contains(HOLE) { "+" } else { l }).collect();
    levels.join("/")
}

fn escape(text: &str) -> Cow<'_, str> {
    if text.contains('%') { text.replace('%', "%%").into() } else { text.into() }
}

impl Part {
    const fn is_placeholder(&self) -> bool {
        !matches!(self, Part::Text(_))
    }

    /// What stands for it; `None` if that cannot be put in.
    fn value<'a>(&'a self, who: &Who<'a>) -> Option<&'a str> {
        let value = match self {
            Part::Text(text) => return Some(text),
            Part::Client => Some(who.client_id),
            Part::User => who.user,
            Part::Tenant => Some(who.tenant),
            Part::Attribute(name) => who.claims.attribute(name),
        };
        value.filter(|v| !v.is_empty() && v.len() <= MAX_VALUE && !v.contains(['/', '+', '#', '\0']))
    }
}
