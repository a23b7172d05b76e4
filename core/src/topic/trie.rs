//! The wildcard filters of an index as a tree of levels: nodes in one arena, all edges in one hash table
//! keyed by (parent, level), own slots for `+` and `#`. A node without literal children costs 16 bytes.
//!
//! What a filter leads to is a number the owner chooses, never [`NONE`].

use super::hash::Keyed;
use super::level::Levels;
use super::slab::{Slab, is_sparse, table_bytes};
use hashbrown::HashTable;
use smallvec::SmallVec;

/// No node, or no list.
pub(super) const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The child for `+`.
    plus: u32,
    /// The list of the filter that ends here.
    list: u32,
    /// The list of the filter that ends here with one more level `#`.
    hash: u32,
    /// Literal children, in the edge table.
    kids: u32,
}

impl Default for Node {
    fn default() -> Node {
        Node { plus: NONE, list: NONE, hash: NONE, kids: 0 }
    }
}

impl Node {
    fn is_bare(&self) -> bool {
        self.plus == NONE && self.list == NONE && self.hash == NONE && self.kids == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    parent: u32,
    level: u32,
    child: u32,
}

/// How a node was reached from its parent.
#[derive(Clone, Copy, Debug)]
enum Step {
    Plus,
    Literal(u32),
}

/// The nodes of a filter's path below the root, each with its parent and the step that leads to it.
type Path = SmallVec<[(u32, Step, u32); 16]>;

#[derive(Clone, Debug)]
pub(super) struct Trie {
    nodes: Slab<Node>,
    edges: HashTable<Edge>,
    levels: Levels,
}

/// The levels of a filter before a final `#`, and whether there is one.
fn split_hash(filter: &[u8]) -> (Option<&[u8]>, bool) {
    match filter {
        b"#" => (None, true),
        _ => match filter.strip_suffix(b"/#") {
            Some(parent) => (Some(parent), true),
            None => (Some(filter), false),
        },
    }
}

fn levels_of(path: Option<&[u8]>) -> impl Iterator<Item = &[u8]> {
    path.into_iter().flat_map(|p| p.split(|&b| b == b'/'))
}

impl Trie {
    pub(super) const fn new() -> Trie {
        Trie { nodes: Slab::new(), edges: HashTable::new(), levels: Levels::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == 0
    }

    /// The place that holds the list of `filter`, made if it is not there; [`NONE`] if new. The caller
    /// must fill it.
    pub(super) fn place(&mut self, hash: &Keyed, filter: &str) -> &mut u32 {
        if self.is_empty() {
            self.nodes.add(Node::default());
        }
        let (parent, multi) = split_hash(filter.as_bytes());
        let mut at = ROOT;
        for level in levels_of(parent) {
            at = if level == b"+" { self.grow_plus(at) } else { self.grow_literal(hash, at, level) };
        }
        let node = self.nodes.get_mut(at);
        if multi { &mut node.hash } else { &mut node.list }
    }

    fn grow_plus(&mut self, at: u32) -> u32 {
        let plus = self.nodes.get(at).plus;
        if plus != NONE {
            return plus;
        }
        let child = self.nodes.add(Node::default());
        self.nodes.get_mut(at).plus = child;
        child
    }

    fn grow_literal(&mut self, hash: &Keyed, at: u32, level: &[u8]) -> u32 {
        if let Some(child) = self.levels.find(hash, level).and_then(|id| self.child(hash, at, id)) {
            return child;
        }
        let id = self.levels.acquire(hash, level);
        let child = self.nodes.add(Node::default());
        self.nodes.get_mut(at).kids += 1;
        let edge = Edge { parent: at, level: id, child };
        self.edges.insert_unique(hash.pair(at, id), edge, |e| hash.pair(e.parent, e.level));
        child
    }

    fn child(&self, hash: &Keyed, parent: u32, level: u32) -> Option<u32> {
        self.edges.find(hash.pair(parent, level), |e| e.parent == parent && e.level == level).map(|e| e.child)
    }

    /// The list of `filter`, if it is in the tree.
    pub(super) fn find(&self, hash: &Keyed, filter: &str) -> Option<u32> {
        let (end, multi) = self.walk(hash, filter, None)?;
        let node = self.nodes.get(end);
        let list = if multi { node.hash } else { node.list };
        (list != NONE).then_some(list)
    }

    /// Follows `filter` to its node; `path` takes the steps.
    fn walk(&self, hash: &Keyed, filter: &str, mut path: Option<&mut Path>) -> Option<(u32, bool)> {
        if self.is_empty() {
            return None;
        }
        let (parent, multi) = split_hash(filter.as_bytes());
        let mut at = ROOT;
        for level in levels_of(parent) {
            let (step, child) = if level == b"+" {
                let plus = self.nodes.get(at).plus;
                (Step::Plus, (plus != NONE).then_some(plus)?)
            } else {
                let id = self.levels.find(hash, level)?;
                (Step::Literal(id), self.child(hash, at, id)?)
            };
            if let Some(path) = path.as_deref_mut() {
                path.push((at, step, child));
            }
            at = child;
        }
        Some((at, multi))
    }

    /// Takes `filter` out of the tree, with every node, edge and level that served it alone.
    pub(super) fn remove(&mut self, hash: &Keyed, filter: &str) -> Option<u32> {
        let mut path = Path::new();
        let (end, multi) = self.walk(hash, filter, Some(&mut path))?;
        let node = self.nodes.get_mut(end);
        let list = core::mem::replace(if multi { &mut node.hash } else { &mut node.list }, NONE);
        if list == NONE {
            return None;
        }
        while let Some((parent, step, child)) = path.pop() {
            if !self.nodes.get(child).is_bare() {
                break;
            }
            self.nodes.take(child);
            match step {
                Step::Plus => self.nodes.get_mut(parent).plus = NONE,
                Step::Literal(level) => self.cut(hash, parent, level),
            }
        }
        if self.nodes.get(ROOT).is_bare() {
            self.nodes.take(ROOT);
        }
        Some(list)
    }

    fn cut(&mut self, hash: &Keyed, parent: u32, level: u32) {
        self.nodes.get_mut(parent).kids -= 1;
        let found = |e: &Edge| e.parent == parent && e.level == level;
        if let Ok(entry) = self.edges.find_entry(hash.pair(parent, level), found) {
            entry.remove();
        }
        self.levels.release(hash, level);
        if is_sparse(self.edges.len(), self.edges.capacity()) {
            self.edges.shrink_to(self.edges.len() * 2, |e| hash.pair(e.parent, e.level));
        }
    }

    /// Calls `found` with the list of every filter that matches `topic`, shorter filters first; returns how
    /// many nodes it visited. Above `budget` it has stopped, and not all was found.
    ///
    /// Goes through the topic level by level with the set of nodes reached so far; it allocates only if
    /// that set outgrows 32. A set can be as large as the number of filters that match the levels so far.
    pub(super) fn matches(&self, hash: &Keyed, topic: &str, budget: u32, mut found: impl FnMut(u32)) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let mut visited = 0u32;
        let mut reached: SmallVec<[u32; 32]> = SmallVec::new();
        let mut next: SmallVec<[u32; 32]> = SmallVec::new();
        reached.push(ROOT);
        // [MQTT-4.7.2-1]: neither `#` nor `+` as the first level match a topic that begins with `$`.
        let mut wildcards = !super::filter::is_dollar(topic);
        for level in topic.as_bytes().split(|&b| b == b'/') {
            // Counted by level: a level reaches at most twice as many nodes as the one before it.
            visited = visited.saturating_add(reached.len() as u32);
            if visited > budget {
                return visited;
            }
            // Looked up at most once, and only if some node has a literal child.
            let mut id = None;
            for &at in &reached {
                let node = self.nodes.get(at);
                if wildcards {
                    if node.hash != NONE {
                        found(node.hash);
                    }
                    if node.plus != NONE {
                        next.push(node.plus);
                    }
                }
                if node.kids > 0
                    && let Some(id) = *id.get_or_insert_with(|| self.levels.find(hash, level))
                    && let Some(child) = self.child(hash, at, id)
                {
                    next.push(child);
                }
            }
            wildcards = true;
            core::mem::swap(&mut reached, &mut next);
            next.clear();
            if reached.is_empty() {
                return visited;
            }
        }
        visited = visited.saturating_add(reached.len() as u32);
        if visited > budget {
            return visited;
        }
        for &at in &reached {
            let node = self.nodes.get(at);
            for list in [node.list, node.hash] {
                if list != NONE {
                    found(list);
                }
            }
        }
        visited
    }

    /// Level names held, for the test that nothing stays behind.
    pub(super) fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// Nodes held, the root included.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.heap_bytes()
            + table_bytes(self.edges.capacity(), size_of::<Edge>())
            + self.levels.heap_bytes()
    }
}
