//! Names and numbers of tenants. Numbers are local to the process; the names are what is stored.

use crate::ids::TenantId;
use alloc::boxed::Box;
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
pub const RESERVED: [&str; 5] = ["_other", "_sys", "_global", "system", "mast"];

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

/// The tenants of a node, shared by its shards and its store.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    names: Arc<[Box<str>]>,
}

impl Registry {
    /// A registry of `names`, numbered in order.
    ///
    /// # Errors
    /// The first name that is not acceptable, with the rule it breaks.
    pub fn new(names: &[&str]) -> Result<Registry, (Box<str>, NameError)> {
        let mut list: Vec<Box<str>> = Vec::with_capacity(names.len());
        for name in names {
            check_name(name).map_err(|e| (Box::from(*name), e))?;
            list.push(Box::from(*name));
        }
        Ok(Registry { names: list.into() })
    }

    /// The tenant called `name`.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<TenantId> {
        self.names.iter().position(|n| &**n == name).map(|i| TenantId(i as u32))
    }

    /// The name of `id`.
    #[must_use]
    pub fn name(&self, id: TenantId) -> Option<&str> {
        self.names.get(id.0 as usize).map(|n| &**n)
    }

    /// All tenants.
    pub fn ids(&self) -> impl Iterator<Item = TenantId> + use<> {
        (0..self.names.len() as u32).map(TenantId)
    }
}
