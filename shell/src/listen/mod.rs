//! Building blocks of listeners: sockets, TLS, WebSocket, PROXY protocol.

pub mod proxy;
