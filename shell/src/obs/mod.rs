//! Observability: logs, metrics, health, their HTTP endpoint, the service manager and signals.

pub mod broker;
pub mod health;
pub mod http;
pub mod http_door;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod notify;
pub mod process;
pub mod signals;

pub use health::Health;
pub use metrics::{Metrics, Samples};
