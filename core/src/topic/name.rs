//! Checks of topic names and the limits they share with filters.

/// Bounds on topic names and filters. Each holds for one string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest name or filter, in bytes of UTF-8.
    pub max_bytes: u16,
    /// Most levels (separators plus one).
    pub max_levels: u16,
    /// Most `+` levels of one filter: each doubles the work an adversarial set of filters can cause.
    pub max_plus: u16,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_bytes: 4096, max_levels: 128, max_plus: 16 }
    }
}

/// Why a topic name or filter is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicError {
    /// No character at all [MQTT-4.7.3-1].
    Empty,
    /// A topic name contains `+` or `#` [MQTT-3.3.2-2], [MQTT-4.7.0-1].
    Wildcard,
    /// U+0000 [MQTT-4.7.3-2], or one of U+0001 to U+001F and U+007F to U+009F.
    Control,
    /// More bytes than [`Limits::max_bytes`] [MQTT-4.7.3-3].
    TooLong,
    /// More levels than [`Limits::max_levels`].
    TooDeep,
    /// More `+` than [`Limits::max_plus`].
    TooManyWildcards,
    /// `#` is not the last level, or not alone in it [MQTT-4.7.1-1].
    BadHash,
    /// `+` is not alone in its level [MQTT-4.7.1-2].
    BadPlus,
    /// `$share` without a usable group name or without a filter [MQTT-4.8.2-1], [MQTT-4.8.2-2].
    BadShare,
}

impl TopicError {
    /// The reason in words, for logs and reason strings.
    #[must_use]
    pub const fn why(&self) -> &'static str {
        match self {
            TopicError::Empty => "the topic is empty",
            TopicError::Wildcard => "a topic name must not contain '+' or '#'",
            TopicError::Control => "the topic contains a control character",
            TopicError::TooLong => "the topic is too long",
            TopicError::TooDeep => "the topic has too many levels",
            TopicError::TooManyWildcards => "the filter has too many '+' wildcards",
            TopicError::BadHash => "'#' must be the last level of a filter and alone in it",
            TopicError::BadPlus => "'+' must be alone in its level",
            TopicError::BadShare => {
                "a shared subscription needs $share/<group>/<filter>, the group without '+' and '#'"
            }
        }
    }
}

impl core::fmt::Display for TopicError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.why())
    }
}

impl core::error::Error for TopicError {}

const WILD: u8 = 1;
const CONTROL: u8 = 2;
/// The first byte of U+0080 to U+00BF, of which the first half are control characters.
const LEAD_C2: u8 = 4;

/// What one pass over a string finds.
pub(super) struct Survey {
    marks: u8,
    /// Separators seen.
    separators: usize,
}

impl Survey {
    /// True if `+` or `#` occurs.
    pub(super) fn has_wildcard(&self) -> bool {
        self.marks & WILD != 0
    }
}

/// Looks at every byte once without a branch per byte, so that the loop is vectorised: 2 ns for 24 bytes.
fn survey(text: &[u8]) -> Survey {
    let mut found = Survey { marks: 0, separators: 0 };
    // 64 bytes at a time keep the separator count within a byte.
    for part in text.chunks(64) {
        let (mut marks, mut separators) = (0u8, 0u8);
        for &b in part {
            let wild = u8::from(b == b'+') | u8::from(b == b'#');
            let control = u8::from(b < 0x20) | u8::from(b == 0x7F);
            marks |= (wild * WILD) | (control * CONTROL) | (u8::from(b == 0xC2) * LEAD_C2);
            separators += u8::from(b == b'/');
        }
        found.marks |= marks;
        found.separators += separators as usize;
    }
    found
}

/// True if `text` has U+0000 to U+001F or U+007F to U+009F.
pub(super) fn has_control(text: &str) -> bool {
    let found = survey(text.as_bytes());
    found.marks & CONTROL != 0 || (found.marks & LEAD_C2 != 0 && has_c1(text.as_bytes()))
}

/// U+0080 to U+009F in UTF-8: C2 followed by 80 to 9F.
fn has_c1(text: &[u8]) -> bool {
    text.windows(2).any(|w| w[0] == 0xC2 && w[1] < 0xA0)
}

/// The checks that names and filters share.
pub(super) fn check_common(text: &str, limits: &Limits) -> Result<Survey, TopicError> {
    if text.is_empty() {
        return Err(TopicError::Empty);
    }
    if text.len() > limits.max_bytes as usize {
        return Err(TopicError::TooLong);
    }
    let found = survey(text.as_bytes());
    if found.marks & CONTROL != 0 || (found.marks & LEAD_C2 != 0 && has_c1(text.as_bytes())) {
        return Err(TopicError::Control);
    }
    if found.separators >= limits.max_levels as usize {
        return Err(TopicError::TooDeep);
    }
    Ok(found)
}

/// Checks the topic name of a PUBLISH or a Will.
///
/// # Errors
/// The first rule that `topic` breaks; nothing else about it may be assumed then.
pub fn check_name(topic: &str, limits: &Limits) -> Result<(), TopicError> {
    match check_common(topic, limits) {
        Ok(found) if found.has_wildcard() => Err(TopicError::Wildcard),
        Ok(_) => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn check(topic: &str) -> Result<(), TopicError> {
        check_name(topic, &Limits::default())
    }

    #[test]
    fn ordinary_names_pass_also_with_empty_levels_and_spaces() {
        for good in
            ["a", "/", "a/b", "//", "/finance", "Accounts payable", "$SYS/x", "ä/ü", "\u{a0}", "a\u{feff}b"]
        {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
    }

    /// [MQTT-4.7.3-1], [MQTT-3.3.2-2], [MQTT-4.7.0-1]
    #[test]
    fn empty_names_and_wildcards_are_refused() {
        assert_eq!(check(""), Err(TopicError::Empty));
        for bad in ["+", "#", "a/#", "a+b", "a/+/c", "abc#"] {
            assert_eq!(check(bad), Err(TopicError::Wildcard), "{bad:?}");
        }
    }

    /// [MQTT-4.7.3-2]
    #[test]
    fn exactly_the_control_characters_are_refused() {
        for c in (0..0x300u32).filter_map(char::from_u32) {
            let mut name = String::from("a/");
            name.push(c);
            let control = c < ' ' || ('\u{7f}'..='\u{9f}').contains(&c);
            let refused = check_name(&name, &Limits::default()) == Err(TopicError::Control);
            assert_eq!(refused, control, "{c:?}");
            assert_eq!(has_control(&name), control, "{c:?}");
        }
    }

    /// [MQTT-4.7.3-3]
    #[test]
    fn length_and_depth_are_bounded_inclusively() {
        let limits = Limits { max_bytes: 300, max_levels: 200, max_plus: 1 };
        assert_eq!(check_name(&"x".repeat(300), &limits), Ok(()));
        assert_eq!(check_name(&"x".repeat(301), &limits), Err(TopicError::TooLong));
        assert_eq!(check_name(&"/".repeat(199), &limits), Ok(()));
        assert_eq!(check_name(&"/".repeat(200), &limits), Err(TopicError::TooDeep));
    }
}
