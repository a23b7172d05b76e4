//! What the API says when it does not do what it was asked for: a stable code, what is wrong, and the way out.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use mast_core::store::port::{CommitResult, Refusal};
use serde::Serialize;

/// An error of the API. Codes are stable; the texts are for people.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// Stands for the kind of problem.
    #[schema(value_type = String)]
    pub code: &'static str,
    /// What is wrong, and where.
    pub what: String,
    /// What can be done.
    pub way_out: String,
    #[serde(skip)]
    #[schema(ignore)]
    pub status: u16,
}

impl Problem {
    pub fn new(
        status: u16,
        code: &'static str,
        what: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Problem {
        Problem { code, what: what.into(), way_out: way_out.into(), status }
    }

    /// A value cannot be used.
    pub fn invalid(what: impl Into<String>, way_out: impl Into<String>) -> Problem {
        Problem::new(422, "invalid", what, way_out)
    }

    /// There is none such, or none that the caller may know of: the same answer.
    pub fn missing(kind: &str) -> Problem {
        Problem::new(404, "missing", format!("there is no such {kind}"), "look at the list")
    }

    /// Something of that name is there already.
    pub fn exists(kind: &str, way_out: impl Into<String>) -> Problem {
        Problem::new(409, "exists", format!("this {kind} exists already"), way_out)
    }

    /// The configuration file owns it.
    pub fn of_file(what: &str, key: &str, file: Option<&std::path::Path>) -> Problem {
        let file = file.map_or_else(|| "the configuration".to_owned(), |f| f.display().to_string());
        Problem::new(
            409,
            "owned_by_file",
            format!("{what} is set by {key} in {file}"),
            format!("change it there and reload (SIGHUP), or remove {key} there first"),
        )
    }

    /// The store did not take a change.
    pub fn not_stored(result: &CommitResult) -> Problem {
        match result {
            CommitResult::Refused(Refusal::Full) => Problem::new(
                503,
                "store_full",
                "the store has no room, so nothing was changed",
                "make room in the data directory, or raise store.max_bytes",
            ),
            CommitResult::Refused(Refusal::TooLarge) => Problem::new(
                413,
                "too_large",
                "the change is larger than the store takes, so nothing was changed",
                "make it smaller",
            ),
            CommitResult::Refused(Refusal::Unavailable | Refusal::Conflict { .. }) => Problem::new(
                503,
                "store_unavailable",
                "the store takes no changes now, so nothing was changed",
                "look at /readyz, and try again",
            ),
            CommitResult::Unknown | CommitResult::Done { .. } => Problem::slow(),
        }
    }

    /// No answer in time: what was asked for may or may not happen.
    pub fn slow() -> Problem {
        Problem::new(
            503,
            "slow",
            "there was no answer in time; the change may still be made",
            "look at the object again, then repeat the request if needed",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut body = serde_json::to_vec(&self).unwrap_or_default();
        body.push(b'\n');
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
