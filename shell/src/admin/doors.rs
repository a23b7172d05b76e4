//! Listeners that are made while running: kept in the store, opened again at every start.

use super::Admin;
use super::problem::Problem;
use super::records::Object;
use crate::config::{Authenticator, Endpoint, Listener, TlsFiles, UsernameFrom, WsSettings};
use crate::listen::bind;
use crate::listen::tls::TlsListener;
use crate::serve::OpenListener;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// What a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DoorKind {
    Mqtt,
    /// MQTT in WebSocket, at `/mqtt`.
    Ws,
}

/// Files of certificates, on the broker's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DoorTls {
    pub cert: String,
    pub key: String,
    /// Clients show certificates of these authorities.
    #[serde(default)]
    pub client_ca: Option<String>,
    /// Certificates that were revoked.
    #[serde(default)]
    pub crl: Option<String>,
    /// Clients without a certificate are refused.
    #[serde(default)]
    pub require_client_cert: bool,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DoorObject {
    pub name: String,
    pub kind: DoorKind,
    /// IP addresses.
    pub bind: Vec<String>,
    #[schema(minimum = 1)]
    pub port: u16,
    #[serde(default)]
    pub tls: Option<DoorTls>,
    /// The tenant of all its clients; absent: what they prove themselves with tells it, or the default one.
    #[serde(default)]
    pub tenant: Option<String>,
    #[serde(default)]
    pub allow_anonymous: bool,
    /// Who says who a client is, in order: `certificate`, `jwt`, `password`; none: all.
    #[serde(default)]
    pub authenticators: Vec<String>,
    /// 0: no bound of its own.
    #[serde(default)]
    pub max_connections: usize,
}

impl Object for DoorObject {
    const KIND: &'static str = "listener";

    fn name(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

/// Accept loops of these listeners by name.
#[derive(Default)]
pub struct Doors {
    loops: Mutex<BTreeMap<String, Vec<JoinHandle<()>>>>,
}

impl Doors {
    /// Lets nobody in at a listener any more. Who is in stays.
    pub fn close(&self, name: &str) {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        loops.into_iter().flatten().for_each(|accept| accept.abort());
    }

    /// Lets nobody in any more.
    pub fn close_all(&self) {
        let all = std::mem::take(&mut *self.loops.lock().unwrap_or_else(PoisonError::into_inner));
        all.into_values().flatten().for_each(|accept| accept.abort());
    }

    fn keep(&self, name: &str, loops: Vec<JoinHandle<()>>) {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), loops);
    }
}

impl DoorObject {
    /// As the acceptors take it.
    pub fn settings(&self) -> Result<Listener, Problem> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(good) {
            return Err(Problem::invalid(
                "a listener's name is 1 to 64 of A-Z, a-z, 0-9, _ and -",
                "choose another",
            ));
        }
        if self.bind.is_empty() || self.bind.len() > 16 || self.port == 0 {
            let what = "a listener has 1 to 16 addresses in bind, and a port";
            return Err(Problem::invalid(what, "name them, such as \"0.0.0.0\" and 1884"));
        }
        let mut addresses = Vec::new();
        for text in &self.bind {
            let ip: IpAddr = text.parse().map_err(|_| {
                Problem::invalid("bind holds what is no IP address", "write addresses without a port")
            })?;
            addresses.push(SocketAddr::new(ip, self.port));
        }
        let mut authenticators = Vec::new();
        for word in &self.authenticators {
            let found = Authenticator::ALL.into_iter().find(|a| a.as_str() == word);
            match found.filter(|a| !authenticators.contains(a)) {
                Some(authenticator) => authenticators.push(authenticator),
                None => {
                    let what = "authenticators are certificate, jwt and password, each once";
                    return Err(Problem::invalid(what, "leave them out to ask all"));
                }
            }
        }
        if self.authenticators.is_empty() {
            authenticators = Authenticator::ALL.to_vec();
        }
        let ws =
            (self.kind == DoorKind::Ws).then(|| WsSettings { path: "/mqtt".to_owned(), origins: Vec::new() });
        let path = |text: &String| PathBuf::from(text);
        Ok(Listener {
            name: self.name.clone(),
            endpoint: Endpoint::Tcp { addresses, optional_v6: false },
            ws,
            tls: self.tls.as_ref().map(|tls| TlsFiles {
                cert: path(&tls.cert),
                key: path(&tls.key),
                client_ca: tls.client_ca.as_ref().map(path),
                crl: tls.crl.as_ref().map(path),
                require_client_cert: tls.require_client_cert,
                username_from: UsernameFrom::None,
                alpn_required: false,
            }),
            proxy: None,
            max_connections: self.max_connections,
            allow_anonymous: self.allow_anonymous,
            tenant: self.tenant.clone(),
            authenticators,
        })
    }
}

impl Admin {
    /// Binds a listener and reads its certificates; nobody is let in yet.
    pub fn prepare_door(&self, door: &DoorObject) -> Result<OpenListener, Problem> {
        let settings = door.settings()?;
        let config = self.control.config();
        let max_chain = usize::try_from(config.limits.max_cert_chain).unwrap_or(usize::MAX);
        let tls = match &settings.tls {
            Some(files) => Some(Arc::new(
                TlsListener::load(files, settings.ws.is_some(), max_chain)
                    .map_err(|e| Problem::invalid(e.to_string(), "correct the files, or name others"))?,
            )),
            None => None,
        };
        let opened = bind::open(&settings).and_then(|sockets| {
            bind::listen(&settings, &sockets, config.limits.backlog)?;
            Ok(sockets)
        });
        let sockets = opened.map_err(|e| {
            Problem::new(409, "cannot_listen", e.to_string(), "choose another address or port")
        })?;
        Ok(OpenListener { settings, sockets, tls })
    }

    /// Lets clients in.
    pub fn open_door(&self, open: OpenListener) -> Result<(), Problem> {
        let name = open.settings.name.clone();
        let loops = self.control.listen(open).map_err(|e| {
            Problem::new(
                503,
                "cannot_listen",
                e.to_string(),
                "look at the limit of open files, and try again",
            )
        })?;
        self.doors.keep(&name, loops);
        Ok(())
    }

    /// Opens all listeners that are kept in the store. One that cannot be opened keeps none of the others closed.
    pub fn open_doors(&self) {
        let doors: Vec<DoorObject> = self.state().listeners.values().map(|kept| kept.value.clone()).collect();
        for door in doors {
            if self.control.config().listeners.iter().any(|l| l.name == door.name) {
                tracing::error!(
                    listener = door.name,
                    "the configuration has a listener of this name too; its own is used"
                );
                continue;
            }
            match self.prepare_door(&door).and_then(|open| self.open_door(open)) {
                Ok(()) => tracing::info!(listener = door.name, port = door.port, "listening, by the API"),
                Err(problem) => {
                    tracing::error!(listener = door.name, problem = problem.what, "a listener stays closed")
                }
            }
        }
    }
}
