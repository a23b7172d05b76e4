//! Tenants: their registry, the mount that puts every client topic under its tenant, and whose rules are whose.

pub mod mount;
pub mod registry;
pub mod rules;
pub mod tenancy;

pub use tenancy::Tenancy;
