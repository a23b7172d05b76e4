//! How two filters lie to each other: whether one covers the other, whether they have a topic in common.

/// Wildcards at the first level do not reach topics that begin with `$` [MQTT-4.7.2-1].
fn wildcard_misses_dollar(wild: &str, other: &str) -> bool {
    (wild.starts_with('#') || wild == "+" || wild.starts_with("+/")) && other.starts_with('$')
}

/// Whether every topic that `inner` (a filter or a topic) matches is matched by `outer`.
pub(super) fn covers(outer: &str, inner: &str) -> bool {
    if wildcard_misses_dollar(outer, inner) {
        return false;
    }
    // Every topic has a first level, so "+/#" is another name for "#".
    let outer = if outer == "+/#" { "#" } else { outer };
    let (mut outer, mut inner) = (outer.split('/'), inner.split('/'));
    loop {
        match (outer.next(), inner.next()) {
            // "a/#" matches "a" as well.
            (Some("#"), _) | (None, None) => return true,
            (_, Some("#")) | (None, Some(_)) | (Some(_), None) => return false,
            (Some("+"), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            (Some(_), Some(_)) => return false,
        }
    }
}

/// Whether two filters have a topic in common.
pub(super) fn overlap(a: &str, b: &str) -> bool {
    if wildcard_misses_dollar(a, b) || wildcard_misses_dollar(b, a) {
        return false;
    }
    let (mut a, mut b) = (a.split('/'), b.split('/'));
    loop {
        match (a.next(), b.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(x), Some(y)) if x == y || x == "+" || y == "+" => {}
            (Some(_), Some(_)) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{covers, overlap};
    use crate::topic::matches;
    use alloc::borrow::ToOwned;
    use alloc::string::String;
    use alloc::vec::Vec;
    use alloc::{format, vec};

    /// Every topic of up to three levels over a small alphabet.
    fn topics() -> Vec<String> {
        let levels = ["a", "b", "", "$s"];
        let mut all: Vec<String> = levels.iter().map(|l| (*l).to_owned()).collect();
        let mut last = all.clone();
        for _ in 0..2 {
            last = last.iter().flat_map(|t| levels.iter().map(move |l| format!("{t}/{l}"))).collect();
            all.extend(last.clone());
        }
        all
    }

    #[test]
    fn covering_and_overlapping_agree_with_matching_each_topic() {
        let mut filters = vec![];
        let levels = ["a", "$s", "+", "#"];
        for x in levels {
            filters.push(x.to_owned());
            for y in levels.iter().filter(|_| x != "#") {
                filters.push(format!("{x}/{y}"));
            }
        }
        let topics = topics();
        let matched = |f: &str| topics.iter().filter(|t| matches(f, t)).collect::<Vec<_>>();
        for f in &filters {
            for g in &filters {
                let (mf, mg) = (matched(f), matched(g));
                assert_eq!(covers(f, g), mg.iter().all(|t| mf.contains(t)), "{f} covers {g}");
                assert_eq!(overlap(f, g), mg.iter().any(|t| mf.contains(t)), "{f} overlaps {g}");
            }
        }
    }
}
