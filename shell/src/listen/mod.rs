//! Building blocks of listeners: sockets, TLS, WebSocket, PROXY protocol.

pub mod admission;
pub mod bind;
pub mod proxy;
pub mod tls;
#[cfg(test)]
mod tls_tests;
pub mod ws;
pub mod ws_codec;
#[cfg(test)]
mod ws_tests;
