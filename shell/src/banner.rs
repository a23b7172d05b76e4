//! What the broker says of itself when it starts.

use crate::{
    config::{Config, Durability},
    serve::OpenListener,
};

/// Logs one line for the broker, and what a newcomer should know.
pub fn starts(config: &Config) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = %config.node_name,
        data_dir = %config.data_dir.display(),
        durability = config.store.durability.as_str(),
        "mast starts"
    );
    for address in &config.admin_addresses {
        tracing::info!(%address, "metrics and health");
    }
    for advice in advice(config) {
        tracing::warn!("{advice}");
    }
}

/// An address that clients may connect to.
pub struct Door {
    listener: String,
    kind: &'static str,
    address: String,
    access: &'static str,
}

/// The addresses of listeners, to be told when they are open.
pub fn doors(listeners: &[OpenListener]) -> Vec<Door> {
    let of = |listener: &OpenListener| {
        let settings = &listener.settings;
        let (name, kind) = (settings.name.clone(), settings.scheme());
        let access = if settings.allow_anonymous { "anonymous" } else { "authenticated" };
        let addresses = listener.sockets.addresses().into_iter();
        addresses.map(move |address| Door { listener: name.clone(), kind, address, access })
    };
    listeners.iter().flat_map(of).collect()
}

impl Door {
    /// Logs that it is open.
    pub fn log(&self) {
        let Door { listener, kind, address, access } = self;
        tracing::info!(%listener, kind, %address, access, "listening");
    }
}

/// Remarks on settings that are easy to get wrong.
pub fn advice(config: &Config) -> Vec<String> {
    let mut advice = config.remarks.clone();
    let open: Vec<&str> = config
        .listeners
        .iter()
        .filter(|l| l.allow_anonymous && !l.local_only())
        .map(|l| l.name.as_str())
        .collect();
    if !open.is_empty() {
        advice.push(format!(
            "everybody who reaches listener {} may connect: allow_anonymous is set",
            open.join(", ")
        ));
    } else if config.listeners.iter().all(|l| l.local_only() && l.allow_anonymous) {
        advice.push(
            "no authentication is configured, so only this machine can connect; `mast passwd` and \
             auth.password_file open the broker to others"
                .to_owned(),
        );
    }
    match config.store.durability {
        Durability::Synced => {}
        Durability::Stored => advice.push(
            "durability is \"stored\": acknowledged messages survive the process, but not a power cut"
                .to_owned(),
        ),
        Durability::Memory => {
            advice.push(
                "durability is \"memory\": acknowledged messages do not survive the process".to_owned(),
            );
        }
    }
    let reachable = |a: &&std::net::SocketAddr| !a.ip().is_loopback();
    if config.admin.token.is_none()
        && let Some(address) = config.admin_addresses.iter().find(reachable)
    {
        advice.push(format!("metrics on {address} can be read by everybody: set admin.token"));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Place, Sources};

    fn advice_for(variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let sources = Sources { place: Place { variables, is_root: true }, ..Sources::default() };
        advice(&sources.load().unwrap_or_else(|e| panic!("{e}")))
    }

    #[test]
    fn a_newcomer_is_told_why_others_cannot_connect() {
        let advice = advice_for(&[]);
        assert!(advice.len() == 1 && advice[0].contains("only this machine"), "{advice:?}");
    }

    #[test]
    fn open_doors_and_weak_promises_are_named() {
        let advice = advice_for(&[
            ("MAST__AUTH__ALLOW_ANONYMOUS", "true"),
            ("MAST__STORE__DURABILITY", "memory"),
            ("MAST__ADMIN__BIND", "0.0.0.0:18083"),
        ]);
        assert!(advice[0].contains("everybody who reaches listener mqtt, ws"), "{advice:?}");
        assert!(advice[1].contains("do not survive the process"), "{advice:?}");
        assert!(advice[2].contains("admin.token"), "{advice:?}");
    }
}
