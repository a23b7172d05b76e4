//! Tenants: their registry, the mount that puts every client topic under its tenant, whose rules are whose, and how much each
//! tenant may have.

pub mod limits;
pub mod mount;
pub mod registry;
pub mod rules;
pub mod tenancy;

pub use tenancy::Tenancy;
