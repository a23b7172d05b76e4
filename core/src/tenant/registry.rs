//! Names and numbers of tenants. Numbers are local to the process; the names are what is stored.

use crate::ids::TenantId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Why a tenant name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Empty or longer than 64 bytes.
    Length,
    /// A character outside `[A-Za-z0-9_-]`.
    Character,
    /// Reserved for mast itself.
    Reserved,
}

/// Names that no tenant may take: they are used in labels and paths of mast itself.
pub const RESERVED: [&str; 5] = ["_other", OWN, "_global", "system", "mast"];

/// Checks a tenant's name.
///
/// # Errors
/// Tells which rule it breaks.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > 64 {
        return Err(NameError::Length);
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        return Err(NameError::Character);
    }
    if RESERVED.contains(&name) { Err(NameError::Reserved) } else { Ok(()) }
}

/// The name under which mast keeps its own records. No tenant may take it, and no registry has it.
pub const OWN: &str = "_sys";

/// The tenants of a node, shared by its shards and its store: an immutable value. A changed one is a new value in
/// which everyone keeps their number; the number of a removed tenant is nobody's for as long as the process runs.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    /// By number; `None` = removed.
    names: Vec<Option<Box<str>>>,
    /// By number: it uses all shards.
    spread: Vec<bool>,
    by_name: BTreeMap<Box<str>, TenantId>,
}

impl Registry {
    /// A registry of `names`, numbered in order. Each uses all shards.
    ///
    /// # Errors
    /// The first name that is not acceptable, with the rule it breaks.
    pub fn new(names: &[&str]) -> Result<Registry, (Box<str>, NameError)> {
        let mut inner = Inner::default();
        for name in names {
            check_name(name).map_err(|e| (Box::from(*name), e))?;
            inner.add(name, true);
        }
        Ok(Registry { inner: Arc::new(inner) })
    }

    /// The same, where each name says whether it uses all shards or sits on one.
    ///
    /// # Errors
    /// The first name that is not acceptable, with the rule it breaks.
    pub fn placed(names: &[(&str, bool)]) -> Result<Registry, (Box<str>, NameError)> {
        let mut inner = Inner::default();
        for (name, spread) in names {
            check_name(name).map_err(|e| (Box::from(*name), e))?;
            inner.add(name, *spread);
        }
        Ok(Registry { inner: Arc::new(inner) })
    }

    /// This registry and `name`, under the next number, on one shard; the same if it is there already.
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub fn with(&self, name: &str) -> Result<Registry, NameError> {
        self.with_placed(name, false)
    }

    /// The same, on all shards if `spread`.
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub fn with_placed(&self, name: &str, spread: bool) -> Result<Registry, NameError> {
        check_name(name)?;
        if self.id(name).is_some() {
            return Ok(self.clone());
        }
        let mut inner = Inner::clone(&self.inner);
        inner.add(name, spread);
        Ok(Registry { inner: Arc::new(inner) })
    }

    /// This registry without `id`.
    #[must_use]
    pub fn without(&self, id: TenantId) -> Registry {
        let mut inner = Inner::clone(&self.inner);
        if let Some(name) = inner.names.get_mut(id.0 as usize).and_then(Option::take) {
            inner.by_name.remove(&name);
        }
        Registry { inner: Arc::new(inner) }
    }

    /// The tenant called `name`.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<TenantId> {
        self.inner.by_name.get(name).copied()
    }

    /// Whether `id` uses all shards of the node, or sits on one. Never changes for a number.
    #[must_use]
    pub fn is_spread(&self, id: TenantId) -> bool {
        self.inner.spread.get(id.0 as usize).copied().unwrap_or(true)
    }

    /// The name of `id`; `None` if it was removed.
    #[must_use]
    pub fn name(&self, id: TenantId) -> Option<&str> {
        self.inner.names.get(id.0 as usize)?.as_deref()
    }

    /// All tenants that were not removed, by number.
    pub fn ids(&self) -> impl Iterator<Item = TenantId> + '_ {
        let numbered = (0u32..).zip(&self.inner.names);
        numbered.filter(|(_, name)| name.is_some()).map(|(id, _)| TenantId(id))
    }

    /// How many numbers were given out: all are below it.
    #[must_use]
    pub fn numbers(&self) -> u32 {
        self.inner.names.len() as u32
    }
}

impl Inner {
    /// The same name twice has one meaning: the first.
    fn add(&mut self, name: &str, spread: bool) {
        let id = TenantId(self.names.len() as u32);
        self.names.push(Some(Box::from(name)));
        self.spread.push(spread);
        self.by_name.entry(Box::from(name)).or_insert(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_tenant_s_number_is_nobody_s_and_its_name_comes_back_under_another() {
        let first = Registry::new(&["a", "b"]).expect("good names");
        let b = first.id("b").expect("b");
        let second = first.without(b);
        assert_eq!((second.id("b"), second.name(b)), (None, None));
        assert_eq!(second.ids().collect::<Vec<_>>(), [TenantId(0)]);
        let third = second.with("b").expect("a good name");
        assert_eq!(third.id("b"), Some(TenantId(2)));
        assert_eq!((third.name(b), third.name(TenantId(2)), third.numbers()), (None, Some("b"), 3));
        // Who holds the old value sees the old state.
        assert_eq!(first.name(b), Some("b"));
        assert_eq!(third.with("_sys").err(), Some(NameError::Reserved));
        assert_eq!(third.with("a").expect("it is there").numbers(), 3);
    }
}
