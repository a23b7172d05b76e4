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

/// Bytes and levels of a name or filter.
#[must_use]
pub fn measure(text: &str) -> (u64, u64) {
    (text.len() as u64, text.bytes().filter(|b| *b == b'/').count() as u64 + 1)
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

/// What one pass over a string finds.
pub(super) struct Survey {
    /// `+` or `#` occurs.
    pub(super) has_wildcard: bool,
    /// U+0000 to U+001F or U+007F to U+009F occurs.
    has_control: bool,
    separators: usize,
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;

/// The high bit of each byte of `word` that is zero.
const fn zeros(word: u64) -> u64 {
    !((word & !HIGH).wrapping_add(!HIGH) | word | !HIGH)
}

/// The high bit of each byte of `word` that equals `b`.
const fn equal(word: u64, b: u8) -> u64 {
    zeros(word ^ (LOW * b as u64))
}

#[derive(Default)]
struct Marks {
    /// High bits where `+` or `#` stands.
    wild: u64,
    /// High bits where U+0000 to U+001F or U+007F stands.
    control: u64,
    /// All bytes, joined: a high bit means that not all is ASCII.
    any: u64,
    /// Separators, counted per byte of the word.
    separators: u64,
}

impl Marks {
    fn add(&mut self, word: u64) {
        // `+` is `#` with one bit more, so one comparison finds both.
        self.wild |= equal(word & !(LOW * 8), b'#');
        self.control |= zeros(word & (LOW * 0xE0)) | equal(word, 0x7F);
        self.any |= word;
        self.separators += equal(word, b'/') >> 7;
    }
}

/// Looks at every byte once, eight at a time without branches: half the time of a loop over bytes.
fn survey(text: &[u8]) -> Survey {
    let mut found = Survey { has_wildcard: false, has_control: false, separators: 0 };
    // 31 words: the count of separators then fits into a byte.
    for part in text.chunks(31 * 8) {
        let mut marks = Marks::default();
        let (words, rest) = part.as_chunks::<8>();
        for word in words {
            marks.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            // Filled up with letters, which mean nothing.
            let fill = rest.iter().rev().fold(LOW * u64::from(b'a'), |word, &b| word << 8 | u64::from(b));
            marks.add(fill);
        }
        found.has_wildcard |= marks.wild != 0;
        found.has_control |= marks.control != 0 || (marks.any & HIGH != 0 && has_c1(text));
        found.separators += (marks.separators.wrapping_mul(LOW) >> 56) as usize;
    }
    found
}

/// True if `text` has U+0000 to U+001F or U+007F to U+009F.
pub(super) fn has_control(text: &str) -> bool {
    survey(text.as_bytes()).has_control
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
    if found.has_control {
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
        Ok(found) if found.has_wildcard => Err(TopicError::Wildcard),
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
