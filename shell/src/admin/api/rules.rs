//! Ordered rules: those of the node, which are asked first, and those of each tenant. A list is read and written whole,
//! because its order is its meaning.

use super::wire::{Body, Caller, Names, Page, Params, Part, answer, answer_of, done, page_of};
use crate::admin::problem::Problem;
use crate::admin::rules::{NODE, RuleSpec, RulesObject, build};
use axum::response::Response;
use mast_core::ask::{Answer, Ask};
use mast_core::authz::{Access, Denied};
use serde::{Deserialize, Serialize};

/// A list of rules.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RulesView {
    pub rules: Vec<RuleSpec>,
    /// Changes with every change; 0: there is no list.
    pub revision: u64,
}

/// A list to be put in place of the former.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRules {
    pub rules: Vec<RuleSpec>,
}

/// What a client was denied.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DeniedView {
    pub client: String,
    /// `publish`, `receive` or `subscribe`.
    pub action: &'static str,
    pub topic: String,
    pub count: u64,
    /// Milliseconds since the epoch.
    pub first: u64,
    pub last: u64,
    /// The rule of the last time.
    pub why: String,
}

fn look(caller: &Caller, of: &str) -> Response {
    let kept = caller.admin.state().get::<RulesObject>(&[of]).cloned();
    let (rules, revision) = kept.map(|kept| (kept.value.rules, kept.revision)).unwrap_or_default();
    answer_of(200, revision, &RulesView { rules, revision })
}

async fn replace(caller: Caller, of: String, rules: Vec<RuleSpec>) -> Result<Response, Problem> {
    caller.may_write()?;
    build(&of, &rules)?;
    let view = caller
        .admin
        .clone()
        .change(|admin| async move {
            if of != NODE {
                caller.tenant(&of)?;
            }
            admin.control.rules_owned_by_file(&of)?;
            let revision = admin.state().get::<RulesObject>(&[&of]).map_or(0, |kept| kept.revision);
            caller.check_match(revision)?;
            let mut batch = admin.batch(&caller.who);
            batch.put(&admin.state(), RulesObject { of, rules: rules.clone() })?;
            let revision = admin.commit(batch).await?;
            admin.apply_rules().await?;
            Ok(RulesView { rules, revision })
        })
        .await?;
    Ok(answer_of(200, view.revision, &view))
}

async fn remove(caller: Caller, of: String) -> Result<Response, Problem> {
    caller.may_write()?;
    caller
        .admin
        .clone()
        .change(|admin| async move {
            admin.control.rules_owned_by_file(&of)?;
            let kept = admin.state().get::<RulesObject>(&[&of]).cloned();
            let kept = kept.ok_or_else(|| Problem::missing("list of rules"))?;
            caller.check_match(kept.revision)?;
            let mut batch = admin.batch(&caller.who);
            batch.delete(&kept.value);
            admin.commit(batch).await?;
            admin.apply_rules().await
        })
        .await?;
    Ok(done())
}

/// The rules of the node.
#[utoipa::path(get, path = "/api/v1/rules", tag = "rules",
    responses((status = 200, body = RulesView), (status = "4XX", body = Problem)))]
pub async fn read_node(caller: Caller) -> Result<Response, Problem> {
    caller.is_global()?;
    Ok(look(&caller, NODE))
}

/// Puts rules of the node in place of the former. They are in force when the answer comes.
#[utoipa::path(put, path = "/api/v1/rules", tag = "rules", request_body = NewRules,
    responses((status = 200, body = RulesView), (status = "4XX", body = Problem)))]
pub async fn write_node(caller: Caller, Body(new): Body<NewRules>) -> Result<Response, Problem> {
    caller.is_global()?;
    replace(caller, NODE.to_owned(), new.rules).await
}

/// Removes the rules of the node.
#[utoipa::path(delete, path = "/api/v1/rules", tag = "rules",
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn delete_node(caller: Caller) -> Result<Response, Problem> {
    caller.is_global()?;
    remove(caller, NODE.to_owned()).await
}

/// The rules of a tenant.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/rules", tag = "rules",
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = RulesView), (status = "4XX", body = Problem)))]
pub async fn read(caller: Caller, Names(tenant): Names<String>) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    Ok(look(&caller, &tenant))
}

/// Puts rules of a tenant in place of the former. They are in force when the answer comes; an empty list refuses all.
#[utoipa::path(put, path = "/api/v1/tenants/{tenant}/rules", tag = "rules", request_body = NewRules,
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = RulesView), (status = "4XX", body = Problem)))]
pub async fn write(
    caller: Caller,
    Names(tenant): Names<String>,
    Body(new): Body<NewRules>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    replace(caller, tenant, new.rules).await
}

/// Removes the rules of a tenant.
#[utoipa::path(delete, path = "/api/v1/tenants/{tenant}/rules", tag = "rules",
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn delete(caller: Caller, Names(tenant): Names<String>) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    remove(caller, tenant).await
}

fn view(denied: &Denied) -> DeniedView {
    DeniedView {
        client: denied.client_id.to_string(),
        action: match denied.access {
            Access::Publish => "publish",
            Access::Receive => "receive",
            Access::Subscribe => "subscribe",
        },
        topic: denied.topic.to_string(),
        count: denied.count,
        first: denied.first.0,
        last: denied.last.0,
        why: denied.why.to_string(),
    }
}

/// What clients of a tenant were denied, and by which rule: aggregated, and since the start.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/denied", tag = "rules",
    params(("tenant" = String, Path, description = "The tenant"), Part),
    responses((status = 200, body = Page<DeniedView>), (status = "4XX", body = Problem)))]
pub async fn denied(
    caller: Caller,
    Names(tenant): Names<String>,
    Params(part): Params<Part>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    let answers = caller.admin.desk.ask_all(&Ask::Denials { tenant: id }).await;
    let mut all = Vec::new();
    for reply in answers.map_err(|_| Problem::slow())? {
        if let Answer::Denials(denials) = reply {
            all.extend(denials.iter().map(view));
        }
    }
    let name = |d: &DeniedView| format!("{}\n{}\n{}", d.client, d.action, d.topic);
    all.sort_by_cached_key(name);
    Ok(answer(200, &page_of(all.into_iter().map(|d| (name(&d), d)), &part)?))
}
