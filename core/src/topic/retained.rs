//! The retained messages of one tenant: found by topic name, and scanned by filter in resumable steps.
//!
//! Names are kept twice over one allocation: hashed, because a publisher replaces its retained message again
//! and again, and in byte order for scans. In that order all names below a level are neighbours, so a scan
//! jumps over what cannot match, and its place is nothing but a name: it survives any change of the
//! index between two steps.

use super::filter::{has_wildcard, is_dollar};
use super::hash::Keyed;
use super::slab::Slab;
use super::text_table::TextTable;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Bound, ControlFlow};

/// Topic names and one value for each.
#[derive(Clone, Debug)]
pub struct RetainedIndex<V> {
    hash: Keyed,
    /// `None` only in vacant places.
    entries: Slab<Option<(Arc<str>, V)>>,
    by_hash: TextTable,
    by_name: BTreeMap<Arc<str>, u32>,
    name_bytes: usize,
}

/// Whether a scan has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ScanStep {
    /// The step's budget is used up; call again.
    More,
    /// Everything was visited. Further steps find nothing.
    Done,
}

/// The place of a scan: every topic that was in the index all the time is reported exactly once, one
/// that comes or goes meanwhile at most once.
#[derive(Clone, Debug)]
pub struct RetainedCursor {
    filter: String,
    wild: bool,
    /// Where to go on.
    at: String,
    /// Whether a topic of the name `at` itself is still to be visited.
    inclusive: bool,
    done: bool,
}

impl RetainedCursor {
    /// A scan for the topics that the checked `filter` matches, not yet begun.
    #[must_use]
    pub fn new(filter: &str) -> RetainedCursor {
        let mut at = String::new();
        push_literals(&mut at, filter);
        RetainedCursor { filter: filter.into(), wild: has_wildcard(filter), at, inclusive: true, done: false }
    }

    /// Goes on behind a name that the scan has reported.
    #[must_use]
    pub fn behind(mut self, name: &str) -> RetainedCursor {
        if !self.wild {
            self.done = true;
        } else if *name >= *self.at {
            self.go_on_after(Some(name));
        }
        self
    }

    /// The filter of this scan.
    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// True once a step has answered [`ScanStep::Done`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    fn go_on_after(&mut self, name: Option<&str>) {
        if let Some(name) = name {
            self.at.clear();
            self.at.push_str(name);
            self.inclusive = false;
        }
    }
}

/// What a filter says about a name that the scan has come to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Match,
    /// No match, but the next name may be one.
    Next,
    /// No match, nor any name before the target.
    Jump,
    /// No match, nor any name behind it.
    End,
}

fn split_level(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((level, rest)) => (level, Some(rest)),
        None => (path, None),
    }
}

/// Appends the least string with which a name matching `filter` can begin: the levels up to the first wildcard.
fn push_literals(target: &mut String, filter: &str) {
    let mut rest = filter;
    loop {
        let (level, more) = split_level(rest);
        if level == "+" || level == "#" {
            return;
        }
        target.push_str(level);
        match more {
            None | Some("#") => return, // `a/#` matches `a`
            Some(more) => {
                target.push('/');
                rest = more;
            }
        }
    }
}

/// The least string greater than every name below `level`, which is a path without its last separator.
fn set_behind(target: &mut String, level: &str) {
    target.clear();
    target.push_str(level);
    target.push('0'); // the character after '/'
}

/// Judges `name`, the first name of the index at or behind the scan's place. For a jump, `target` gets the
/// least name that can match next; it is greater than `name`.
fn judge(filter: &str, name: &str, target: &mut String) -> Verdict {
    if is_dollar(name) && filter.starts_with(['+', '#']) {
        target.clear();
        target.push('%'); // the character after '$' [MQTT-4.7.2-1]
        return Verdict::Jump;
    }
    let (mut rest, mut from) = (filter, 0);
    // Where the last level matched by `+` ends in `name`.
    let mut last_plus = None;
    loop {
        let (want, more_filter) = split_level(rest);
        if want == "#" && more_filter.is_none() {
            return Verdict::Match;
        }
        let (have, more_name) = split_level(&name[from..]);
        let end = from + have.len();
        if want == "+" {
            last_plus = Some(end);
        } else if want != have {
            return judge_mismatch(
                &name[..from],
                &name[from..],
                rest,
                last_plus.map(|end| &name[..end]),
                target,
            );
        }
        match (more_filter, more_name) {
            (Some(more), Some(_)) => (rest, from) = (more, end + 1),
            (None, None) | (Some("#"), None) => return Verdict::Match,
            (Some(_), None) => return Verdict::Next,
            (None, Some(_)) => {
                set_behind(target, &name[..end]);
                return Verdict::Jump;
            }
        }
    }
}

/// `prefix` matched; `filter`, what is left of the filter, begins with a literal that `name`, what is
/// left of the name, does not have. `plus` is the name up to the last level that `+` matched.
fn judge_mismatch(
    prefix: &str,
    name: &str,
    filter: &str,
    plus: Option<&str>,
    target: &mut String,
) -> Verdict {
    let (want, more) = split_level(filter);
    target.clear();
    if name < want {
        target.push_str(prefix);
        push_literals(target, filter);
        return Verdict::Jump;
    }
    // Between `a` and `a/` in byte order are names such as `a-b`.
    if let (Some(more), Some(tail)) = (more, name.strip_prefix(want))
        && tail.as_bytes().first().is_some_and(|&b| b < b'/')
    {
        target.push_str(prefix);
        target.push_str(want);
        target.push('/');
        push_literals(target, more);
        return Verdict::Jump;
    }
    match plus {
        Some(level) => {
            set_behind(target, level);
            Verdict::Jump
        }
        None => Verdict::End,
    }
}

/// A jump first tries this many neighbours: a step to one is 20 times cheaper than a search.
const NEIGHBOURS: u32 = 4;

impl<V> RetainedIndex<V> {
    /// An empty index. `seed` keys its hash and should be unknown to clients.
    #[must_use]
    pub fn new(seed: u64) -> RetainedIndex<V> {
        RetainedIndex {
            hash: Keyed::new(seed),
            entries: Slab::new(),
            by_hash: TextTable::new(),
            by_name: BTreeMap::new(),
            name_bytes: 0,
        }
    }

    fn entry(&self, at: u32) -> Option<&(Arc<str>, V)> {
        self.entries.get(at).as_ref()
    }

    fn find(&self, hash: u64, topic: &str) -> Option<u32> {
        self.by_hash.find(hash, |at| self.entry(at).is_some_and(|(name, _)| **name == *topic))
    }

    /// Stores `value` for `topic` and returns what was there before. O(1) to replace, O(log n) to add.
    pub fn set(&mut self, topic: &str, value: V) -> Option<V> {
        let hash = self.hash.bytes(topic.as_bytes());
        if let Some(at) = self.find(hash, topic) {
            let (_, old) = self.entries.get_mut(at).as_mut()?;
            return Some(core::mem::replace(old, value));
        }
        let name: Arc<str> = Arc::from(topic);
        let at = self.entries.add(Some((Arc::clone(&name), value)));
        self.by_hash.insert(hash, at);
        self.by_name.insert(name, at);
        self.name_bytes += topic.len();
        None
    }

    /// Removes the value of `topic`. O(log n).
    pub fn remove(&mut self, topic: &str) -> Option<V> {
        let hash = self.hash.bytes(topic.as_bytes());
        let at = self.find(hash, topic)?;
        self.by_hash.remove(hash, at);
        self.by_name.remove(topic);
        self.name_bytes -= topic.len();
        self.entries.take(at).map(|(_, value)| value)
    }

    /// The value of `topic`. O(1).
    #[must_use]
    pub fn get(&self, topic: &str) -> Option<&V> {
        self.entry(self.find(self.hash.bytes(topic.as_bytes()), topic)?).map(|(_, value)| value)
    }

    /// Topics held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True without any topic.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Bytes of all names.
    #[must_use]
    pub fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Estimated heap bytes, without what the values own and the allocator's overhead.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        // An `Arc<str>` has two counters before the text. B-tree nodes are two thirds full on average.
        let names = self.name_bytes + self.len() * 2 * size_of::<usize>();
        let tree = self.len() * size_of::<(Arc<str>, u32)>() * 3 / 2;
        names + tree + self.entries.heap_bytes() + self.by_hash.heap_bytes()
    }

    /// All topics in byte order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.by_name.values().filter_map(|&at| self.entry(at)).map(|(name, value)| (&**name, value))
    }

    /// Goes on with a scan: calls `each` for every match in byte order of the names, until it breaks
    /// (the topic it broke at counts as reported), `budget` names have been visited, or the end. `budget` is
    /// lowered by the names visited, matching or not.
    pub fn scan_with(
        &self,
        cursor: &mut RetainedCursor,
        budget: &mut u32,
        mut each: impl FnMut(&str, &V) -> ControlFlow<()>,
    ) -> ScanStep {
        if !cursor.wild && !cursor.done {
            return self.scan_exact(cursor, budget, each);
        }
        while !cursor.done {
            if self.scan_run(cursor, budget, &mut each).is_break() {
                return ScanStep::More;
            }
        }
        ScanStep::Done
    }

    fn scan_exact(
        &self,
        cursor: &mut RetainedCursor,
        budget: &mut u32,
        mut each: impl FnMut(&str, &V) -> ControlFlow<()>,
    ) -> ScanStep {
        if *budget == 0 {
            return ScanStep::More;
        }
        *budget -= 1;
        cursor.done = true;
        if let Some(value) = self.get(&cursor.filter) {
            // Whether to stop makes no difference at the end.
            let (ControlFlow::Continue(()) | ControlFlow::Break(())) = each(&cursor.filter, value);
        }
        ScanStep::Done
    }

    /// Visits neighbours up to a long jump or the end (continue), or to the end of the step (break).
    fn scan_run(
        &self,
        cursor: &mut RetainedCursor,
        budget: &mut u32,
        each: &mut impl FnMut(&str, &V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let from = cursor.at.as_str();
        let from = if cursor.inclusive { Bound::Included(from) } else { Bound::Excluded(from) };
        // The last name visited, if that is further than `cursor.at`.
        let mut last = None;
        let mut passed = 0;
        let mut jumping = false;
        for (name, &at) in self.by_name.range::<str, _>((from, Bound::Unbounded)) {
            if *budget == 0 {
                cursor.go_on_after(last);
                return ControlFlow::Break(());
            }
            *budget -= 1;
            if jumping && **name < *cursor.at {
                passed += 1;
                if passed == NEIGHBOURS {
                    return ControlFlow::Continue(());
                }
                continue;
            }
            jumping = false;
            match judge(&cursor.filter, name, &mut cursor.at) {
                Verdict::Match => {
                    last = Some(&**name);
                    if let Some((name, value)) = self.entry(at)
                        && each(name, value).is_break()
                    {
                        cursor.go_on_after(last);
                        return ControlFlow::Break(());
                    }
                }
                Verdict::Next => last = Some(&**name),
                Verdict::Jump => {
                    cursor.inclusive = true;
                    (last, passed, jumping) = (None, 0, true);
                }
                Verdict::End => break,
            }
        }
        cursor.done = true;
        ControlFlow::Continue(())
    }
}

impl<V: Clone> RetainedIndex<V> {
    /// [`scan_with`](Self::scan_with), collecting names and values.
    pub fn scan(
        &self,
        cursor: &mut RetainedCursor,
        budget: &mut u32,
        out: &mut Vec<(String, V)>,
    ) -> ScanStep {
        self.scan_with(cursor, budget, |name, value| {
            out.push((name.into(), value.clone()));
            ControlFlow::Continue(())
        })
    }
}
