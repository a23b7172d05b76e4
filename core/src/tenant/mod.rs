//! Tenants: their registry and the mount that puts every client topic under its tenant.

pub mod mount;
pub mod registry;
