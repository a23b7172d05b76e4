//! `mast sub` and `mast pub`: MQTT clients with the flags and the output of mosquitto_sub and mosquitto_pub.

pub mod args;
mod format;
pub mod link;
pub mod properties;
pub mod publish;
pub mod subscribe;
#[cfg(test)]
mod tests;
mod transport;

pub use publish::PubArgs;
pub use subscribe::SubArgs;

/// What ended a client, with its exit code: 1, 2 for wrong usage, 27 for the end of `-W`, or the broker's
/// reason code where it refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClientError {
    pub message: String,
    pub code: u8,
}

/// The exit code when `-W` ends the wait, as mosquitto_sub has it.
pub const EXIT_TIMEOUT: u8 = 27;

impl ClientError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2 }
    }
}
