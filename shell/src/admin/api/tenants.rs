//! Tenants.

use super::wire::{Body, Caller, Names, Page, Params, Part, answer, answer_of, check_description, page_of};
use crate::admin::problem::Problem;
use crate::admin::records::{TenantObject, UserObject};
use crate::admin::{Admin, ending};
use crate::obs::Metrics;
use crate::obs::broker::{add_tenant, tenant_samples};
use axum::response::Response;
use mast_core::ask::{Answer, Ask};
use mast_core::sys::TenantCounters;
use mast_core::tenant::registry::{NameError, check_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A tenant.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct TenantView {
    pub name: String,
    pub description: String,
    /// `serving`, or `ending` while it is being deleted.
    pub state: &'static str,
    /// `store`: made by the API. `file`: of the configuration, and to be changed there.
    pub owner: &'static str,
    /// Milliseconds since the epoch; 0 for tenants of the file.
    pub created: u64,
    /// Changes with every change; 0 for tenants of the file.
    pub revision: u64,
}

/// A tenant to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// 1 to 64 of A-Z, a-z, 0-9, _ and -.
    pub name: String,
    #[serde(default)]
    pub description: String,
}

/// What is to be changed of a tenant.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantChange {
    pub description: Option<String>,
}

/// What a tenant uses now.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Usage {
    pub connections: u64,
    pub sessions: u64,
    pub subscriptions: u64,
    pub retained_messages: u64,
    /// Messages that the log holds for the tenant's sessions.
    pub log_messages: u64,
    pub log_bytes: u64,
    pub users: u64,
    /// PUBLISH packets received since the start.
    pub published: u64,
    pub published_bytes: u64,
    /// PUBLISH packets sent since the start.
    pub delivered: u64,
}

fn view(name: &str, made: Option<(&TenantObject, u64)>, of_file: bool) -> TenantView {
    let (object, revision) = made.unzip();
    TenantView {
        name: name.to_owned(),
        description: object.map(|o| o.description.clone()).unwrap_or_default(),
        state: if object.is_some_and(|o| o.ending) { "ending" } else { "serving" },
        owner: if of_file { "file" } else { "store" },
        created: object.map_or(0, |o| o.created),
        revision: revision.unwrap_or(0),
    }
}

/// The view of one tenant, if there is one of the name.
fn look(admin: &Admin, name: &str) -> Option<TenantView> {
    let of_file = admin.control.is_of_file(name);
    let state = admin.state();
    let made = state.get::<TenantObject>(&[name]).map(|kept| (&kept.value, kept.revision));
    (of_file || made.is_some()).then(|| view(name, made, of_file))
}

/// The tenants that the caller may see.
#[utoipa::path(get, path = "/api/v1/tenants", tag = "tenants", params(Part),
    responses((status = 200, body = Page<TenantView>), (status = "4XX", body = Problem)))]
pub async fn list(caller: Caller, Params(part): Params<Part>) -> Result<Response, Problem> {
    let admin = &caller.admin;
    let mut all: BTreeMap<String, TenantView> = BTreeMap::new();
    for name in admin.control.tenant_names() {
        all.extend(look(admin, &name).map(|view| (name, view)));
    }
    for kept in admin.state().tenants.values() {
        let name = &kept.value.name;
        all.entry(name.clone()).or_insert_with(|| view(name, Some((&kept.value, kept.revision)), false));
    }
    let page = page_of(all.into_iter().filter(|(name, _)| caller.sees(name)), &part)?;
    Ok(answer(200, &page))
}

fn name_problem(error: NameError) -> Problem {
    match error {
        NameError::Length | NameError::Character => Problem::invalid(
            "a tenant's name is 1 to 64 of A-Z, a-z, 0-9, _ and -",
            "choose another name; what people call the tenant can stand in its description",
        ),
        NameError::Reserved => {
            Problem::invalid("this name is reserved for mast itself", "choose another name")
        }
    }
}

/// Makes a tenant. It is there for clients on every door when the answer comes.
#[utoipa::path(post, path = "/api/v1/tenants", tag = "tenants", request_body = NewTenant,
    responses((status = 201, body = TenantView), (status = "4XX", body = Problem)))]
pub async fn create(caller: Caller, Body(new): Body<NewTenant>) -> Result<Response, Problem> {
    caller.is_global()?;
    caller.may_write()?;
    check_name(&new.name).map_err(name_problem)?;
    check_description(&new.description)?;
    let who = caller.who.clone();
    let view = caller
        .admin
        .change(|admin| async move {
            match look(&admin, &new.name).map(|view| view.state) {
                Some("ending") => {
                    let way_out = "wait until it is gone; the name can be used again then";
                    return Err(Problem::new(
                        409,
                        "ending",
                        "a tenant of this name is being deleted",
                        way_out,
                    ));
                }
                Some(_) => return Err(Problem::exists("tenant", "choose another name")),
                None => {}
            }
            let object = TenantObject {
                name: new.name.clone(),
                description: new.description,
                created: admin.now(),
                ending: false,
            };
            let mut batch = admin.batch(&who);
            batch.put(&admin.state(), object)?;
            admin.commit(batch).await?;
            admin.control.open_tenant(&new.name);
            admin.settle().await?;
            look(&admin, &new.name).ok_or_else(|| Problem::missing("tenant"))
        })
        .await?;
    Ok(answer_of(201, view.revision, &view))
}

/// One tenant.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}", tag = "tenants",
    params(("tenant" = String, Path, description = "Its name")),
    responses((status = 200, body = TenantView), (status = "4XX", body = Problem)))]
pub async fn read(caller: Caller, Names(name): Names<String>) -> Result<Response, Problem> {
    let found = look(&caller.admin, &name).filter(|_| caller.sees(&name));
    let view = found.ok_or_else(|| Problem::missing("tenant"))?;
    Ok(answer_of(200, view.revision, &view))
}

fn owned_by_file(admin: &Admin, name: &str) -> Result<(), Problem> {
    if admin.control.is_of_file(name) {
        let config = admin.control.config();
        let key = if config.tenant_sections.contains_key(name) {
            format!("[tenant.{name}]")
        } else {
            "tenants.names".to_owned()
        };
        return Err(Problem::of_file(&format!("tenant {name}"), &key, config.file.as_deref()));
    }
    Ok(())
}

/// Changes a tenant.
#[utoipa::path(patch, path = "/api/v1/tenants/{tenant}", tag = "tenants", request_body = TenantChange,
    params(("tenant" = String, Path, description = "Its name")),
    responses((status = 200, body = TenantView), (status = "4XX", body = Problem)))]
pub async fn change(
    caller: Caller,
    Names(name): Names<String>,
    Body(change): Body<TenantChange>,
) -> Result<Response, Problem> {
    caller.tenant(&name)?;
    caller.is_global()?;
    caller.may_write()?;
    if let Some(description) = &change.description {
        check_description(description)?;
    }
    let who = caller.who.clone();
    let view = caller
        .admin
        .clone()
        .change(|admin| async move {
            owned_by_file(&admin, &name)?;
            let kept = admin.state().get::<TenantObject>(&[&name]).cloned();
            let kept = kept.filter(|k| !k.value.ending).ok_or_else(|| Problem::missing("tenant"))?;
            caller.check_match(kept.revision)?;
            let mut object = kept.value;
            if let Some(description) = change.description {
                object.description = description;
            }
            let mut batch = admin.batch(&who);
            batch.put(&admin.state(), object)?;
            admin.commit(batch).await?;
            look(&admin, &name).ok_or_else(|| Problem::missing("tenant"))
        })
        .await?;
    Ok(answer_of(200, view.revision, &view))
}

/// Deletes a tenant with all that is kept of it: its clients are disconnected (0x98), its sessions end without wills, and
/// its messages, users, rules, limits and tokens go. The answer comes at once; the tenant is `ending` until it is gone.
#[utoipa::path(delete, path = "/api/v1/tenants/{tenant}", tag = "tenants",
    params(("tenant" = String, Path, description = "Its name")),
    responses((status = 202, body = TenantView), (status = "4XX", body = Problem)))]
pub async fn delete(caller: Caller, Names(name): Names<String>) -> Result<Response, Problem> {
    if !caller.sees(&name) || look(&caller.admin, &name).is_none() {
        return Err(Problem::missing("tenant"));
    }
    caller.is_global()?;
    caller.may_write()?;
    let who = caller.who.clone();
    let view = caller
        .admin
        .clone()
        .change(|admin| async move {
            owned_by_file(&admin, &name)?;
            let kept = admin.state().get::<TenantObject>(&[&name]).cloned();
            let kept = kept.ok_or_else(|| Problem::missing("tenant"))?;
            if !kept.value.ending {
                caller.check_match(kept.revision)?;
                let mut batch = admin.batch(&who);
                batch.put(&admin.state(), TenantObject { ending: true, ..kept.value })?;
                admin.commit(batch).await?;
                admin.control.close_tenant(&name);
                ending::start(&admin, name.clone());
            }
            look(&admin, &name).ok_or_else(|| Problem::missing("tenant"))
        })
        .await?;
    Ok(answer_of(202, view.revision, &view))
}

/// What a tenant uses now.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/usage", tag = "tenants",
    params(("tenant" = String, Path, description = "Its name")),
    responses((status = 200, body = Usage), (status = "4XX", body = Problem)))]
pub async fn usage(caller: Caller, Names(name): Names<String>) -> Result<Response, Problem> {
    let id = caller.tenant(&name)?;
    let answers = caller.admin.desk.ask_all(&Ask::Usage { tenant: id }).await.map_err(|_| Problem::slow())?;
    let mut sum = Usage::default();
    for reply in answers {
        let Answer::Usage(counters) = reply else { return Err(Problem::missing("tenant")) };
        add(&mut sum, &counters);
    }
    (sum.log_bytes, sum.log_messages) = caller.admin.control.log_of(id);
    sum.users = caller.admin.state().of_tenant::<UserObject>(&name).count() as u64;
    Ok(answer(200, &sum))
}

/// The metrics of one tenant, as a scrape with a token of that tenant gets them.
pub async fn metrics(admin: &Admin, name: &str) -> Result<String, Problem> {
    let id = admin.control.tenant(name).ok_or_else(|| Problem::missing("tenant"))?;
    let answers = admin.desk.ask_all(&Ask::Usage { tenant: id }).await.map_err(|_| Problem::slow())?;
    let mut sum = TenantCounters::default();
    for reply in answers {
        if let Answer::Usage(counters) = reply {
            add_tenant(&mut sum, &counters);
        }
    }
    let (own, name) = (Metrics::default(), name.to_owned());
    own.register(move |out| tenant_samples(&name, &sum, out));
    Ok(own.render())
}

fn add(sum: &mut Usage, counters: &TenantCounters) {
    sum.connections += counters.connected;
    sum.sessions += counters.sessions;
    sum.subscriptions += counters.subscriptions;
    sum.retained_messages += counters.retained;
    sum.published += counters.publish_in;
    sum.published_bytes += counters.publish_bytes_in;
    sum.delivered += counters.publish_out;
}
