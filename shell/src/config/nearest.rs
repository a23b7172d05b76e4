//! The valid word nearest to a misspelled one.

/// Optimal string alignment distance: insert, delete, replace, swap of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = last;
        last = row;
    }
    last[b.len()]
}

/// The candidate with the least distance to `word`, if it is near enough to be what was meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Client-supplied words may be long; none of ours is.
    if word.len() > 128 {
        return None;
    }
    let limit = (word.len() / 2).clamp(1, 5);
    candidates
        .into_iter()
        .map(|c| {
            let contained = c.len() > 3 && word.len() > 3 && (c.contains(word) || word.contains(c));
            (if contained { 1 } else { distance(word, c) }, c)
        })
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_word() {
        let words = ["max_packet_size", "receive_maximum", "max_qos"];
        assert_eq!(nearest("max_paket_size", words), Some("max_packet_size"));
        assert_eq!(nearest("recieve_maximum", words), Some("receive_maximum"));
        assert_eq!(nearest("maxqos", words), Some("max_qos"));
        assert_eq!(nearest("zzzzzzzzz", words), None);
        assert_eq!(distance("ab", "ba"), 1);
    }
}
