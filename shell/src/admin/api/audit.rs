//! The audit: who changed what, and when.

use super::wire::{Caller, Page, Params, Part, answer, bad_cursor, page_size};
use crate::admin::problem::Problem;
use crate::admin::records::{AuditObject, TenantObject};
use axum::response::Response;

/// The changes, newest first; a caller for one tenant sees that tenant's.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(Part),
    responses((status = 200, body = Page<AuditObject>), (status = "4XX", body = Problem)))]
pub async fn list(caller: Caller, Params(part): Params<Part>) -> Result<Response, Problem> {
    let size = page_size(part.limit)?;
    let before = match &part.after {
        Some(text) => text.parse().map_err(|_| bad_cursor())?,
        None => u64::MAX,
    };
    let state = caller.admin.state();
    // What an earlier tenant of the same name did is none of this one's business.
    let own = caller.tenant.as_deref().and_then(|tenant| state.get::<TenantObject>(&[tenant]));
    let since = own.map_or(0, |kept| kept.value.created);
    let seen = |audit: &&AuditObject| {
        caller.tenant.is_none() || (audit.tenant == caller.tenant && audit.at >= since)
    };
    let all = state.audit.values().rev().map(|kept| &kept.value).filter(|audit| audit.number < before);
    let mut rest = all.filter(seen).peekable();
    let items: Vec<AuditObject> = rest.by_ref().take(size).cloned().collect();
    let next = rest.peek().and(items.last()).map(|last| last.number.to_string());
    Ok(answer(200, &Page { items, next }))
}
