//! Limits of a tenant, by the names of the table that docs/limits.md lists.

use super::wire::{Body, Caller, Names, Page, answer, answer_of, done};
use crate::admin::problem::Problem;
use crate::admin::records::LimitObject;
use axum::response::Response;
use mast_core::tenant::limits::{LIMITS, Limit, TenantLimits};
use serde::{Deserialize, Serialize};

/// A limit of a tenant.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct LimitView {
    pub name: String,
    pub unit: &'static str,
    /// Absent: what holds for all tenants.
    pub value: Option<u64>,
    /// It only counts what it would have refused.
    pub observe: bool,
    /// Changes with every change; 0: the API has set none.
    pub revision: u64,
}

/// A limit to be set.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    pub value: u64,
    #[serde(default)]
    pub observe: bool,
}

fn view(caller: &Caller, tenant: &str, name: &str, unit: &'static str) -> LimitView {
    let kept = caller.admin.state().get::<LimitObject>(&[tenant, name]).cloned();
    LimitView {
        name: name.to_owned(),
        unit,
        value: kept.as_ref().map(|kept| kept.value.value),
        observe: kept.as_ref().is_some_and(|kept| kept.value.observe),
        revision: kept.map_or(0, |kept| kept.revision),
    }
}

/// The unit of a limit.
fn unit_of(name: &str) -> Result<&'static str, Problem> {
    let row = LIMITS.iter().find(|row| row.name == name);
    row.map(|row| row.unit.name()).ok_or_else(|| Problem::missing("limit"))
}

/// All limits that a tenant can have, and what the API has set of them.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/limits", tag = "limits",
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = Page<LimitView>), (status = "4XX", body = Problem)))]
pub async fn list(caller: Caller, Names(tenant): Names<String>) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    let items = LIMITS.iter().map(|row| view(&caller, &tenant, row.name, row.unit.name())).collect();
    Ok(answer(200, &Page { items, next: None }))
}

/// One limit.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/limits/{name}", tag = "limits",
    params(("tenant" = String, Path, description = "The tenant"), ("name" = String, Path, description = "Its name")),
    responses((status = 200, body = LimitView), (status = "4XX", body = Problem)))]
pub async fn read(
    caller: Caller,
    Names((tenant, name)): Names<(String, String)>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    let view = view(&caller, &tenant, &name, unit_of(&name)?);
    Ok(answer_of(200, view.revision, &view))
}

/// Sets a limit; for the operator alone, as a tenant does not choose its own. Below what is used now it takes nothing
/// away: it refuses what comes next.
#[utoipa::path(put, path = "/api/v1/tenants/{tenant}/limits/{name}", tag = "limits", request_body = NewLimit,
    params(("tenant" = String, Path, description = "The tenant"), ("name" = String, Path, description = "Its name")),
    responses((status = 200, body = LimitView), (status = "4XX", body = Problem)))]
pub async fn write(
    caller: Caller,
    Names((tenant, name)): Names<(String, String)>,
    Body(new): Body<NewLimit>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    caller.is_global()?;
    caller.may_write()?;
    let unit = unit_of(&name)?;
    let limit = Limit { value: new.value, observe: new.observe };
    TenantLimits::default()
        .set(&name, Some(limit))
        .map_err(|bad| Problem::invalid(bad.0, "send a value of this range, or delete the limit"))?;
    let view = caller
        .admin
        .clone()
        .change(|admin| async move {
            caller.tenant(&tenant)?;
            let revision =
                admin.state().get::<LimitObject>(&[&tenant, &name]).map_or(0, |kept| kept.revision);
            caller.check_match(revision)?;
            let object = LimitObject {
                tenant: tenant.clone(),
                name: name.clone(),
                value: new.value,
                observe: new.observe,
            };
            let mut batch = admin.batch(&caller.who);
            batch.put(&admin.state(), object)?;
            admin.commit(batch).await?;
            admin.apply_limits().await?;
            Ok(view(&caller, &tenant, &name, unit))
        })
        .await?;
    Ok(answer_of(200, view.revision, &view))
}

/// Takes a limit back: what holds for all tenants holds again.
#[utoipa::path(delete, path = "/api/v1/tenants/{tenant}/limits/{name}", tag = "limits",
    params(("tenant" = String, Path, description = "The tenant"), ("name" = String, Path, description = "Its name")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn delete(
    caller: Caller,
    Names((tenant, name)): Names<(String, String)>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    caller.is_global()?;
    caller.may_write()?;
    caller
        .admin
        .clone()
        .change(|admin| async move {
            let kept = admin.state().get::<LimitObject>(&[&tenant, &name]).cloned();
            let kept = kept.ok_or_else(|| Problem::missing("limit"))?;
            caller.check_match(kept.revision)?;
            let mut batch = admin.batch(&caller.who);
            batch.delete(&kept.value);
            admin.commit(batch).await?;
            admin.apply_limits().await
        })
        .await?;
    Ok(done())
}
