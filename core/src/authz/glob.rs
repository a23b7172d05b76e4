//! Patterns in which `*` stands for any text, also for none.

use alloc::string::String;

/// Whether `text` fits a pattern that was cut at its stars: `["a", "b", ""]` is `a*b*`, `["a"]` is `a` alone.
pub(super) fn fits<S: AsRef<str>>(pieces: &[S], text: &str) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return false };
    let Some((last, middle)) = rest.split_last() else { return first.as_ref() == text };
    let Some(mut left) = text.strip_prefix(first.as_ref()) else { return false };
    for piece in middle {
        // The leftmost place leaves most to the pieces behind it.
        let Some(at) = left.find(piece.as_ref()) else { return false };
        left = &left[at + piece.as_ref().len()..];
    }
    left.ends_with(last.as_ref())
}

/// Puts literal text at the end of the pattern's last piece.
pub(super) fn extend(pieces: &mut [String], text: &str) {
    if let Some(last) = pieces.last_mut() {
        last.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::fits;
    use alloc::vec::Vec;

    fn pattern(pattern: &str, text: &str) -> bool {
        fits(&pattern.split('*').collect::<Vec<_>>(), text)
    }

    /// By trying every length for every star.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|n| naive(rest, &text[n..])),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    #[test]
    fn stars_stand_for_any_text_and_nothing_else_does() {
        for (p, yes, no) in [
            ("", "", "a"),
            ("*", "", "\0"),
            ("dev-*", "dev-", "dev"),
            ("*-x", "-x", "x"),
            ("a*b*a", "aba", "ab"),
            ("a.c", "a.c", "abc"),
        ] {
            assert!(pattern(p, yes), "{p} {yes}");
            assert!(p == "*" || !pattern(p, no), "{p} {no}");
        }
        assert!(!pattern("ab*ba", "aba"), "the ends may not share a letter");
    }

    #[test]
    fn fitting_agrees_with_trying_everything() {
        let words = |letters: &[u8]| {
            let mut all = alloc::vec![Vec::new()];
            let mut last: Vec<Vec<u8>> = all.clone();
            for _ in 0..4 {
                last = last.iter().flat_map(|w| letters.iter().map(|l| [&w[..], &[*l]].concat())).collect();
                all.extend(last.clone());
            }
            all
        };
        for p in words(b"ab*") {
            for t in words(b"ab") {
                let (p, t) = (core::str::from_utf8(&p).unwrap(), core::str::from_utf8(&t).unwrap());
                assert_eq!(pattern(p, t), naive(p.as_bytes(), t.as_bytes()), "{p} {t}");
            }
        }
    }
}
