//! What all resources share: who calls, how bodies, queries and names are read, how answers are written.

use crate::admin::problem::Problem;
use crate::admin::{Admin, tokens};
use arc_swap::ArcSwapOption;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use axum::response::{IntoResponse, Response};
use mast_core::ids::TenantId;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// Entries of a list where none are asked for.
const PAGE: usize = 100;
/// Entries of a list at most.
pub const PAGE_MAX: usize = 1000;

/// Where the API finds the broker: empty until it runs.
pub type Door = Arc<ArcSwapOption<Admin>>;

/// Who calls, by its token.
pub struct Caller {
    pub admin: Arc<Admin>,
    /// Id of the token.
    pub who: String,
    /// `None` = all tenants, and the broker itself.
    pub tenant: Option<String>,
    read_only: bool,
    /// Headers, for conditions.
    headers: HeaderMap,
}

fn unauthorized(code: &'static str, what: &str) -> Problem {
    Problem::new(
        401,
        code,
        what,
        "send `Authorization: Bearer TOKEN`; `mast token create` makes tokens, and the log of the first start tells the first",
    )
}

/// The caller of a request with these headers.
pub fn caller(door: &Door, headers: &HeaderMap) -> Result<Caller, Problem> {
    let admin = door.load_full().ok_or_else(|| {
        Problem::new(503, "starting", "the broker is starting", "try again when /readyz says it is ready")
    })?;
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .ok_or_else(|| unauthorized("token_missing", "this needs a token"))?;
    let found = tokens::find(&admin.state(), given, admin.now()).cloned();
    let token =
        found.ok_or_else(|| unauthorized("token_unknown", "this token is not known, or has expired"))?;
    Ok(Caller {
        admin,
        who: token.id,
        tenant: token.tenant,
        read_only: token.read_only,
        headers: headers.clone(),
    })
}

impl FromRequestParts<Door> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Caller, Problem> {
        caller(door, &parts.headers)
    }
}

impl Caller {
    /// It may change what it may see.
    pub fn may_write(&self) -> Result<(), Problem> {
        if self.read_only {
            let way_out = "use a token that is not read-only";
            return Err(Problem::new(403, "read_only", "this token may only read", way_out));
        }
        Ok(())
    }

    /// It is for all tenants and for the broker itself.
    pub fn is_global(&self) -> Result<(), Problem> {
        if self.tenant.is_some() {
            let way_out = "use a global token";
            return Err(Problem::new(403, "scope", "this token is for one tenant alone", way_out));
        }
        Ok(())
    }

    /// Whether it may see things of this tenant.
    pub fn sees(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|own| own == tenant)
    }

    /// A tenant that is served and that the caller may see. To all others a foreign one is as good as none.
    pub fn tenant(&self, name: &str) -> Result<TenantId, Problem> {
        if !self.sees(name) {
            return Err(Problem::missing("tenant"));
        }
        if let Some(id) = self.admin.control.tenant(name) {
            return Ok(id);
        }
        if self.admin.state().get::<crate::admin::records::TenantObject>(&[name]).is_some() {
            let way_out = "wait until it is gone; the name can be used again then";
            return Err(Problem::new(409, "ending", "this tenant is being deleted", way_out));
        }
        Err(Problem::missing("tenant"))
    }

    /// Holds a change to the revision that `If-Match` names, if there is one.
    pub fn check_match(&self, revision: u64) -> Result<(), Problem> {
        let Some(wanted) = self.headers.get(header::IF_MATCH) else { return Ok(()) };
        let wanted = wanted.to_str().unwrap_or_default().trim().trim_matches('"');
        if wanted == "*" || wanted == revision.to_string() {
            return Ok(());
        }
        Err(Problem::new(
            412,
            "changed_meanwhile",
            format!("the object has revision {revision}, and If-Match names another"),
            "read it again, and send the change with its revision",
        ))
    }
}

/// A JSON body. Unknown fields are refused by its type.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Door> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, door: &Door) -> Result<Body<T>, Problem> {
        let bytes =
            Bytes::from_request(request, door).await.map_err(|rejection| match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
                    413,
                    "body_too_large",
                    "the body is larger than limits.max_admin_body",
                    "send less, or raise limits.max_admin_body",
                ),
                _ => Problem::new(400, "body", "the body could not be read", "send it again"),
            })?;
        serde_json::from_slice(&bytes).map(Body).map_err(|error| {
            Problem::new(
                400,
                "body",
                format!("the body is not what is expected here: {error}"),
                "send JSON as /api/v1/openapi.json describes it",
            )
        })
    }
}

/// The query. Unknown parameters are refused by its type.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Door> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Params<T>, Problem> {
        let query = Query::<T>::from_request_parts(parts, door).await.map_err(|error| {
            Problem::new(
                400,
                "query",
                format!("the query is not what is expected here: {}", error.body_text()),
                "send the parameters that /api/v1/openapi.json describes",
            )
        })?;
        Ok(Params(query.0))
    }
}

/// The names in the path.
pub struct Names<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Door> for Names<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Names<T>, Problem> {
        let path = Path::<T>::from_request_parts(parts, door).await.map_err(|error| {
            Problem::new(400, "path", error.body_text(), "write names in the path as percent-encoded UTF-8")
        })?;
        Ok(Names(path.0))
    }
}

/// Which part of a list.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Part {
    /// Entries at most: 1 to 1000, 100 where none is given.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// Where to go on: `next` of the page before.
    pub after: Option<String>,
}

/// How many entries are asked for.
pub fn page_size(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(PAGE),
        Some(n) if (1..=PAGE_MAX).contains(&n) => Ok(n),
        Some(_) => Err(Problem::invalid("limit is 1 to 1000", "ask for fewer, and go on with `next`")),
    }
}

/// A place in a list that is none.
pub fn bad_cursor() -> Problem {
    Problem::invalid("after is no place in this list", "use `next` of the page before")
}

/// A page of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// To be sent as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A page of what `all` gives in the order of its names: what lies behind `after`.
pub fn page_of<T>(all: impl Iterator<Item = (String, T)>, part: &Part) -> Result<Page<T>, Problem> {
    let size = page_size(part.limit)?;
    let after = part.after.as_deref();
    let mut rest = all.filter(|(name, _)| after.is_none_or(|after| name.as_str() > after)).peekable();
    let (mut items, mut last) = (Vec::new(), None);
    for (name, item) in rest.by_ref().take(size) {
        items.push(item);
        last = Some(name);
    }
    let next = rest.peek().and(last);
    Ok(Page { items, next })
}

/// An answer in JSON.
pub fn answer<T: Serialize>(status: u16, value: &T) -> Response {
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// An answer in JSON that tells the revision of an object.
pub fn answer_of<T: Serialize>(status: u16, revision: u64, value: &T) -> Response {
    let mut response = answer(status, value);
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Done, and nothing to tell.
pub fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// A name of something that administration makes.
pub fn check_label(what: &str, name: &str, max: usize) -> Result<(), Problem> {
    if name.is_empty() || name.len() > max || name.chars().any(char::is_control) {
        let what = format!("{what} is 1 to {max} bytes without control characters");
        return Err(Problem::invalid(what, "choose another"));
    }
    Ok(())
}

/// A description.
pub fn check_description(text: &str) -> Result<(), Problem> {
    if text.len() > 1024 || text.chars().any(char::is_control) {
        let what = "a description is at most 1024 bytes without control characters";
        return Err(Problem::invalid(what, "make it shorter"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_page_by_page_to_its_end() {
        let all = ["a", "b", "c", "d", "e"];
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let part = Part { limit: Some(2), after };
            let named = all.iter().map(|n| ((*n).to_owned(), *n));
            let page = page_of(named, &part).unwrap_or_else(|p| panic!("{p:?}"));
            seen.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, all);
        assert!(page_size(Some(0)).is_err() && page_size(Some(1001)).is_err());
    }
}
