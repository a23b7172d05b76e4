//! The HTTP API under `/api/v1`. Every route needs a token; a token of one tenant sees that tenant alone, and whatever is
//! another's answers as if it did not exist.

pub mod audit;
pub mod limits;
pub mod listeners;
pub mod retained;
pub mod rules;
pub mod sessions;
pub mod tenants;
pub mod tokens;
pub mod users;
pub mod wire;

use super::problem::Problem;
use axum::Router;
use axum::response::Response;
use axum::routing::{any, get, post};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use wire::{Caller, Door, answer};

/// The document that describes the API.
#[derive(OpenApi)]
#[openapi(
    info(title = "mast administration", description = "Tenants, users, tokens, sessions, retained messages."),
    modifiers(&Bearer),
    security(("token" = [])),
    paths(
        tenants::list, tenants::create, tenants::read, tenants::change, tenants::delete, tenants::usage,
        users::list, users::create, users::read, users::change, users::delete,
        rules::read_node, rules::write_node, rules::delete_node, rules::read, rules::write, rules::delete,
        rules::denied,
        listeners::list, listeners::create, listeners::delete, listeners::authenticators,
        limits::list, limits::read, limits::write, limits::delete,
        tokens::list, tokens::create, tokens::revoke,
        audit::list,
        sessions::list, sessions::read, sessions::delete, sessions::disconnect, sessions::subscriptions,
        sessions::all_subscriptions,
        retained::list, retained::read, retained::delete,
    ),
    components(schemas(Problem))
)]
struct Document;

struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The routes.
pub fn router(door: Door) -> Router {
    let tenant = "/api/v1/tenants/{tenant}";
    let at = |rest: &str| format!("{tenant}{rest}");
    Router::new()
        .route("/api/v1/openapi.json", get(document))
        .route("/api/v1/tenants", get(tenants::list).post(tenants::create))
        .route(tenant, get(tenants::read).patch(tenants::change).delete(tenants::delete))
        .route(&at("/usage"), get(tenants::usage))
        .route(&at("/users"), get(users::list).post(users::create))
        .route(&at("/users/{user}"), get(users::read).patch(users::change).delete(users::delete))
        .route(&at("/sessions"), get(sessions::list))
        .route(&at("/sessions/{client}"), get(sessions::read).delete(sessions::delete))
        .route(&at("/sessions/{client}/disconnect"), post(sessions::disconnect))
        .route(&at("/sessions/{client}/subscriptions"), get(sessions::subscriptions))
        .route(&at("/subscriptions"), get(sessions::all_subscriptions))
        .route(&at("/retained"), get(retained::list))
        .route(&at("/retained/message"), get(retained::read).delete(retained::delete))
        .route("/api/v1/rules", get(rules::read_node).put(rules::write_node).delete(rules::delete_node))
        .route(&at("/rules"), get(rules::read).put(rules::write).delete(rules::delete))
        .route(&at("/limits"), get(limits::list))
        .route(&at("/limits/{name}"), get(limits::read).put(limits::write).delete(limits::delete))
        .route(&at("/denied"), get(rules::denied))
        .route("/api/v1/listeners", get(listeners::list).post(listeners::create))
        .route("/api/v1/listeners/{name}", axum::routing::delete(listeners::delete))
        .route("/api/v1/authenticators", get(listeners::authenticators))
        .route("/api/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/api/v1/tokens/{id}", axum::routing::delete(tokens::revoke))
        .route("/api/v1/audit", get(audit::list))
        .route("/api/{*rest}", any(|| async { no_such_path() }))
        .method_not_allowed_fallback(|| async {
            Problem::new(405, "method", "this path does not take this method", "look at /api/v1/openapi.json")
        })
        .with_state(door)
}

fn no_such_path() -> Problem {
    Problem::new(404, "no_such_path", "there is no such path", "look at /api/v1/openapi.json")
}

async fn document(_caller: Caller) -> Response {
    answer(200, &Document::openapi())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_path_and_a_token_for_each() {
        let text = serde_json::to_value(Document::openapi()).unwrap_or_default();
        let paths = text["paths"].as_object().map_or(0, serde_json::Map::len);
        assert!(paths >= 14, "{paths} paths");
        assert_eq!(text["security"][0]["token"], serde_json::json!([]));
        assert_eq!(text["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    }
}
