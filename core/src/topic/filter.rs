//! Checks of topic filters, and matching one filter against one topic without an index.

use super::name::{Limits, TopicError, check_common};

/// Checks a topic filter. For a shared subscription pass the part behind the group name
/// (see [`split_share`](super::share::split_share)).
///
/// # Errors
/// The first rule that `filter` breaks.
pub fn check_filter(filter: &str, limits: &Limits) -> Result<(), TopicError> {
    if !check_common(filter, limits)?.has_wildcard {
        return Ok(());
    }
    let text = filter.as_bytes();
    let mut plus = 0;
    for (at, &b) in text.iter().enumerate() {
        if b != b'+' && b != b'#' {
            continue;
        }
        let starts = at == 0 || text[at - 1] == b'/';
        let next = text.get(at + 1);
        if b == b'#' {
            // [MQTT-4.7.1-1]
            if !starts || next.is_some() {
                return Err(TopicError::BadHash);
            }
        } else if !starts || next.is_some_and(|&b| b != b'/') {
            // [MQTT-4.7.1-2]
            return Err(TopicError::BadPlus);
        } else {
            plus += 1;
        }
    }
    if plus > limits.max_plus as usize { Err(TopicError::TooManyWildcards) } else { Ok(()) }
}

/// True if a checked filter can match more than one topic.
#[must_use]
pub fn has_wildcard(filter: &str) -> bool {
    // Without a short cut it is vectorised.
    filter.bytes().fold(false, |found, b| found | (b == b'+') | (b == b'#'))
}

/// True if `topic` is one that only filters naming its first level may match [MQTT-4.7.2-1].
#[must_use]
pub(super) fn is_dollar(topic: &str) -> bool {
    topic.as_bytes().first() == Some(&b'$')
}

/// True if the checked `filter` matches the topic name `topic`. Does not allocate.
///
/// Characters are compared as they are, without normalisation [MQTT-4.7.3-4].
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    let (mut f, mut t) = (filter.as_bytes(), topic.as_bytes());
    if t.first() == Some(&b'$') && matches!(f.first(), Some(b'+' | b'#')) {
        return false; // [MQTT-4.7.2-1]
    }
    loop {
        let (want, more_filter) = next_level(f);
        if want == b"#" && more_filter.is_none() {
            return true;
        }
        let (have, more_topic) = next_level(t);
        if want != b"+" && want != have {
            return false;
        }
        match (more_filter, more_topic) {
            (Some(f2), Some(t2)) => (f, t) = (f2, t2),
            (None, None) => return true,
            // `#` includes the level it hangs on (MQTT 5, 4.7.1.2).
            (Some(f2), None) => return f2 == b"#",
            (None, Some(_)) => return false,
        }
    }
}

/// The first level, and what follows its separator if there is one.
pub(super) fn next_level(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|&b| b == b'/') {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(filter: &str) -> Result<(), TopicError> {
        check_filter(filter, &Limits::default())
    }

    /// [MQTT-4.7.1-1], [MQTT-4.7.1-2]
    #[test]
    fn wildcards_stand_alone_in_their_level_and_hash_stands_last() {
        for good in ["a", "#", "+", "a/#", "+/#", "/+", "+/", "a/+/b", "+/+/+", "$SYS/#", "//#"] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in ["a#", "#a", "#/a", "a/#/", "##", "a/b#", "#+"] {
            assert_eq!(check(bad), Err(TopicError::BadHash), "{bad:?}");
        }
        for bad in ["a+", "+a", "++", "+#", "a/b+/c", "a/+b"] {
            assert_eq!(check(bad), Err(TopicError::BadPlus), "{bad:?}");
        }
        assert_eq!(check(""), Err(TopicError::Empty));
        assert_eq!(check("a/\u{1}/#"), Err(TopicError::Control));
    }

    #[test]
    fn the_number_of_plus_levels_is_bounded() {
        let limits = Limits { max_plus: 2, ..Limits::default() };
        assert_eq!(check_filter("+/+/#", &limits), Ok(()));
        assert_eq!(check_filter("+/+/+", &limits), Err(TopicError::TooManyWildcards));
    }

    #[test]
    fn the_examples_of_the_specification_hold() {
        let p = "sport/tennis/player1";
        for topic in
            ["sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon"]
        {
            assert!(matches("sport/tennis/player1/#", topic), "{topic}");
            assert!(matches("#", topic), "{topic}");
        }
        assert!(matches("sport/#", "sport"));
        assert!(matches("sport/tennis/+", p));
        assert!(!matches("sport/tennis/+", "sport/tennis/player1/ranking"));
        assert!(!matches("sport/+", "sport"));
        assert!(matches("sport/+", "sport/"));
        assert!(matches("+/+", "/finance"));
        assert!(matches("/+", "/finance"));
        assert!(!matches("+", "/finance"));
        assert!(!matches("ACCOUNTS", "Accounts"));
    }

    /// [MQTT-4.7.2-1]
    #[test]
    fn a_leading_wildcard_matches_no_dollar_topic() {
        assert!(!matches("#", "$SYS/a"));
        assert!(!matches("+/monitor/Clients", "$SYS/monitor/Clients"));
        assert!(matches("$SYS/#", "$SYS/a"));
        assert!(matches("$SYS/#", "$SYS"));
        assert!(matches("$SYS/monitor/+", "$SYS/monitor/Clients"));
        assert!(matches("a/+", "a/$b"));
    }
}
