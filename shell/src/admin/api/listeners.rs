//! Listeners and their authenticators.

use super::wire::{Body, Caller, Names, Page, Params, Part, answer, answer_of, done, page_of};
use crate::admin::Admin;
use crate::admin::doors::DoorObject;
use crate::admin::problem::Problem;
use crate::config::{Endpoint, Listener};
use axum::response::Response;
use serde::Serialize;
use std::collections::BTreeMap;

/// A listener.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ListenerView {
    pub name: String,
    /// `mqtt`, `mqtts`, `ws`, `wss` or `unix`.
    pub kind: &'static str,
    /// Addresses with ports, or the path of a unix socket.
    pub addresses: Vec<String>,
    pub tenant: Option<String>,
    pub allow_anonymous: bool,
    /// Who says who a client is, in the order in which they are asked.
    pub authenticators: Vec<&'static str>,
    pub max_connections: usize,
    /// `store`: made by the API. `file`: of the configuration, and to be changed there.
    pub owner: &'static str,
    /// 0 for listeners of the file.
    pub revision: u64,
}

/// An authenticator, and the listeners that ask it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct AuthenticatorView {
    /// `certificate`, `jwt` or `password`.
    pub name: String,
    /// Whether it is configured: without, it knows nobody and the next one is asked.
    pub on: bool,
    pub listeners: Vec<String>,
}

fn view(listener: &Listener, owner: &'static str, revision: u64) -> ListenerView {
    ListenerView {
        name: listener.name.clone(),
        kind: listener.scheme(),
        addresses: match &listener.endpoint {
            Endpoint::Tcp { addresses, .. } => addresses.iter().map(ToString::to_string).collect(),
            Endpoint::Unix { path, .. } => vec![path.display().to_string()],
        },
        tenant: listener.tenant.clone(),
        allow_anonymous: listener.allow_anonymous,
        authenticators: listener.authenticators.iter().map(|a| a.as_str()).collect(),
        max_connections: listener.max_connections,
        owner,
        revision,
    }
}

fn all(admin: &Admin) -> BTreeMap<String, ListenerView> {
    let mut all = BTreeMap::new();
    for kept in admin.state().listeners.values() {
        if let Ok(listener) = kept.value.settings() {
            all.insert(listener.name.clone(), view(&listener, "store", kept.revision));
        }
    }
    for listener in &admin.control.config().listeners {
        all.insert(listener.name.clone(), view(listener, "file", 0));
    }
    all
}

/// All listeners.
#[utoipa::path(get, path = "/api/v1/listeners", tag = "listeners", params(Part),
    responses((status = 200, body = Page<ListenerView>), (status = "4XX", body = Problem)))]
pub async fn list(caller: Caller, Params(part): Params<Part>) -> Result<Response, Problem> {
    caller.is_global()?;
    Ok(answer(200, &page_of(all(&caller.admin).into_iter(), &part)?))
}

/// Opens a listener. Clients can connect when the answer comes.
#[utoipa::path(post, path = "/api/v1/listeners", tag = "listeners", request_body = DoorObject,
    responses((status = 201, body = ListenerView), (status = "4XX", body = Problem)))]
pub async fn create(caller: Caller, Body(door): Body<DoorObject>) -> Result<Response, Problem> {
    caller.is_global()?;
    caller.may_write()?;
    let view = caller
        .admin
        .clone()
        .change(|admin| async move {
            if all(&admin).contains_key(&door.name) {
                return Err(Problem::exists("listener", "choose another name, or remove it first"));
            }
            if let Some(tenant) = &door.tenant {
                caller.tenant(tenant)?;
            }
            let name = door.name.clone();
            // Files are read and sockets bound before anything is kept.
            let (at_work, wanted) = (admin.clone(), door.clone());
            let prepared = tokio::task::spawn_blocking(move || at_work.prepare_door(&wanted)).await;
            let open = prepared.map_err(|_| Problem::slow())??;
            let mut batch = admin.batch(&caller.who);
            batch.put(&admin.state(), door)?;
            admin.commit(batch).await?;
            admin.open_door(open)?;
            all(&admin).remove(&name).ok_or_else(|| Problem::missing("listener"))
        })
        .await?;
    Ok(answer_of(201, view.revision, &view))
}

/// Closes a listener. Who came in by it stays.
#[utoipa::path(delete, path = "/api/v1/listeners/{name}", tag = "listeners",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn delete(caller: Caller, Names(name): Names<String>) -> Result<Response, Problem> {
    caller.is_global()?;
    caller.may_write()?;
    caller
        .admin
        .clone()
        .change(|admin| async move {
            let config = admin.control.config();
            if config.listeners.iter().any(|l| l.name == name) {
                let key = format!("[listener.{name}]");
                return Err(Problem::of_file(&format!("listener {name}"), &key, config.file.as_deref()));
            }
            let kept = admin.state().get::<DoorObject>(&[&name]).cloned();
            let kept = kept.ok_or_else(|| Problem::missing("listener"))?;
            caller.check_match(kept.revision)?;
            let mut batch = admin.batch(&caller.who);
            batch.delete(&kept.value);
            admin.commit(batch).await?;
            admin.doors.close(&name);
            Ok(())
        })
        .await?;
    Ok(done())
}

/// The authenticators: whether each is configured, and which listeners ask it.
#[utoipa::path(get, path = "/api/v1/authenticators", tag = "listeners",
    responses((status = 200, body = Page<AuthenticatorView>), (status = "4XX", body = Problem)))]
pub async fn authenticators(caller: Caller) -> Result<Response, Problem> {
    caller.is_global()?;
    let listeners = all(&caller.admin);
    let config = caller.admin.control.config();
    let items = crate::config::Authenticator::ALL
        .into_iter()
        .map(|authenticator| {
            let name = authenticator.as_str();
            let asks = |l: &&ListenerView| l.authenticators.contains(&name);
            let on = match authenticator {
                crate::config::Authenticator::Certificate => {
                    config.listeners.iter().any(|l| l.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()))
                }
                crate::config::Authenticator::Jwt => config.jwt.is_configured(),
                crate::config::Authenticator::Password => caller.admin.control.has_passwords(),
            };
            let listeners = listeners.values().filter(asks).map(|l| l.name.clone()).collect();
            AuthenticatorView { name: name.to_owned(), on, listeners }
        })
        .collect();
    Ok(answer(200, &Page { items, next: None }))
}
