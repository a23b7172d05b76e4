//! Limits of a tenant, by the names of the table that docs/limits.md lists.

use super::wire::{Body, Caller, Names, Page, answer, answer_of, done};
use crate::admin::problem::Problem;
use crate::admin::records::LimitObject;
use axum::response::Response;
use mast_core::tenant::limits::{LIMITS, Limit, Row, TenantLimits};
use serde::{Deserialize, Serialize};

/// A limit of a tenant.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct LimitView {
    pub name: String,
    pub unit: &'static str,
    /// What is in force; absent: there is none.
    pub value: Option<u64>,
    /// It only counts what it would have refused.
    pub observe: bool,
    /// Who set it.
    pub source: Source,
    /// Changes with every change; 0: the API has set none.
    pub revision: u64,
}

/// Who set a limit.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// There is no limit.
    None,
    /// The configuration, for all tenants.
    AllTenants,
    /// The configuration, for this one.
    File,
    /// This API.
    Api,
}

/// A limit to be set.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    pub value: u64,
    #[serde(default)]
    pub observe: bool,
}

fn view(caller: &Caller, limits: &TenantLimits, tenant: &str, row: Row) -> LimitView {
    let kept = caller.admin.state().get::<LimitObject>(&[tenant, row.name()]).cloned();
    let limit = limits.get(row);
    let source = match (limit, &kept) {
        (None, _) => Source::None,
        (Some(_), _) if caller.admin.control.limit_owned_by_file(tenant, row).is_err() => Source::File,
        (Some(_), Some(_)) => Source::Api,
        (Some(_), None) => Source::AllTenants,
    };
    LimitView {
        name: row.name().to_owned(),
        unit: LIMITS[row as usize].unit.name(),
        value: limit.map(|limit| limit.value),
        observe: limit.is_some_and(|limit| limit.observe),
        source,
        revision: kept.map_or(0, |kept| kept.revision),
    }
}

fn row_of(name: &str) -> Result<Row, Problem> {
    Row::named(name).ok_or_else(|| Problem::missing("limit"))
}

/// All limits that a tenant can have: what is in force, and who set it.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/limits", tag = "limits",
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = Page<LimitView>), (status = "4XX", body = Problem)))]
pub async fn list(caller: Caller, Names(tenant): Names<String>) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    let limits = caller.admin.control.limits_of(&tenant);
    let items = Row::all().map(|row| view(&caller, &limits, &tenant, row)).collect();
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
    let view = view(&caller, &caller.admin.control.limits_of(&tenant), &tenant, row_of(&name)?);
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
    let row = row_of(&name)?;
    caller.admin.control.limit_owned_by_file(&tenant, row)?;
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
            Ok(view(&caller, &admin.control.limits_of(&tenant), &tenant, row))
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
    caller.admin.control.limit_owned_by_file(&tenant, row_of(&name)?)?;
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
