//! The reference matcher: the rules of MQTT 5, section 4.7, in the most obvious form. The oracle of the
//! tests and fuzz targets, written independently of the matchers it judges; not for production paths.

use alloc::vec::Vec;

/// True if `filter` matches `topic`, by splitting both into levels.
#[must_use]
pub fn naive_matches(filter: &str, topic: &str) -> bool {
    let filter: Vec<&str> = filter.split('/').collect();
    let topic: Vec<&str> = topic.split('/').collect();
    // [MQTT-4.7.2-1]
    if topic[0].starts_with('$') && (filter[0] == "+" || filter[0] == "#") {
        return false;
    }
    if filter[filter.len() - 1] == "#" {
        // The parent and any number of levels below it.
        let parent = &filter[..filter.len() - 1];
        return topic.len() >= parent.len() && same_levels(parent, &topic[..parent.len()]);
    }
    filter.len() == topic.len() && same_levels(&filter, &topic)
}

/// True if each level of `filter`, none of which is `#`, admits its level of `topic`.
fn same_levels(filter: &[&str], topic: &[&str]) -> bool {
    filter.iter().zip(topic).all(|(f, t)| *f == "+" || f == t)
}
