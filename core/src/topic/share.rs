//! Taking a shared subscription's filter apart (MQTT 5, 4.8.2).

use super::name::{TopicError, has_control};

/// The two parts of `$share/<group>/<filter>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared<'a> {
    /// The group's name: not empty, without `/`, `+`, `#` and control characters.
    pub group: &'a str,
    /// The filter, not empty, otherwise unchecked.
    pub filter: &'a str,
}

/// Splits a filter as it stands in a SUBSCRIBE. `None` is an ordinary filter; the inner filter of a
/// shared one still needs [`check_filter`](super::filter::check_filter).
///
/// # Errors
/// [`TopicError::BadShare`] if the first level is `$share` and the rest is not a group name of at least
/// one character without wildcards [MQTT-4.8.2-1], a `/` and a filter [MQTT-4.8.2-2];
/// [`TopicError::Control`] if the group name has a control character.
pub fn split_share(raw: &str) -> Result<Option<Shared<'_>>, TopicError> {
    let Some(rest) = raw.strip_prefix("$share") else { return Ok(None) };
    if rest.is_empty() {
        return Err(TopicError::BadShare);
    }
    let Some(rest) = rest.strip_prefix('/') else { return Ok(None) };
    let Some((group, filter)) = rest.split_once('/') else { return Err(TopicError::BadShare) };
    if group.is_empty() || filter.is_empty() || group.contains(['+', '#']) {
        return Err(TopicError::BadShare);
    }
    if has_control(group) {
        return Err(TopicError::Control);
    }
    Ok(Some(Shared { group, filter }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_filters_are_left_alone() {
        for raw in ["", "a", "$SYS/a", "$shared/a/b", "$shar", "a/$share/b", "/$share/g/f", "$SHARE/g/f"] {
            assert_eq!(split_share(raw), Ok(None), "{raw:?}");
        }
    }

    #[test]
    fn group_and_filter_are_told_apart_at_the_second_separator() {
        let cases = [
            ("$share/g/a", "g", "a"),
            ("$share/g/a/+/#", "g", "a/+/#"),
            ("$share/g//", "g", "/"),
            ("$share/ü x/#", "ü x", "#"),
        ];
        for (raw, group, filter) in cases {
            assert_eq!(split_share(raw), Ok(Some(Shared { group, filter })), "{raw:?}");
        }
    }

    /// [MQTT-4.8.2-1], [MQTT-4.8.2-2]
    #[test]
    fn a_share_without_group_or_filter_is_refused() {
        for raw in [
            "$share",
            "$share/",
            "$share/g",
            "$share/g/",
            "$share//",
            "$share//a",
            "$share/+/a",
            "$share/a#/b",
            "$share/#",
        ] {
            assert_eq!(split_share(raw), Err(TopicError::BadShare), "{raw:?}");
        }
        assert_eq!(split_share("$share/g\u{7}/a"), Err(TopicError::Control));
    }
}
