//! The HTTP endpoint of administration: `/metrics`, `/livez`, `/readyz`, and the API under `/api/v1`.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use subtle::ConstantTimeEq;

use crate::admin::api::{self, wire, wire::Door};

use super::{
    health::Health,
    metrics::{CONTENT_TYPE, Metrics},
};

/// What the endpoint shows.
#[derive(Clone)]
pub struct HttpState {
    pub metrics: Metrics,
    pub health: Health,
    /// Bearer token for `/metrics`.
    pub token: Option<String>,
    /// Where administration is.
    pub door: Door,
}

/// The routes, those of administration among them.
pub fn router(state: HttpState, max_body: usize) -> Router {
    let door = Arc::clone(&state.door);
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .with_state(state)
        .merge(api::router(door))
        .layer(DefaultBodyLimit::max(max_body))
}

async fn metrics(State(state): State<HttpState>, headers: HeaderMap) -> Response {
    // A token of the API: one of a tenant shows that tenant's series, a global one all.
    if let Ok(caller) = wire::caller(&state.door, &headers) {
        let text = match &caller.tenant {
            Some(tenant) => api::tenants::metrics(&caller.admin, tenant).await,
            None => Ok(state.metrics.render()),
        };
        return match text {
            Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
            Err(problem) => problem.into_response(),
        };
    }
    if let Some(token) = &state.token {
        let given = headers.get(header::AUTHORIZATION).and_then(|v| v.as_bytes().strip_prefix(b"Bearer "));
        let right = given.is_some_and(|g| bool::from(g.ct_eq(token.as_bytes())));
        if !right {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            return (StatusCode::UNAUTHORIZED, challenge, "a bearer token is needed (admin.token)\n")
                .into_response();
        }
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], state.metrics.render()).into_response()
}

async fn readyz(State(state): State<HttpState>) -> Response {
    let status = if state.health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, state.health.report()).into_response()
}

/// Why the endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for metrics and health: {source}; choose another address with admin.bind, or none \
     with admin.bind = []"
)]
pub struct HttpBindError {
    pub address: SocketAddr,
    pub source: std::io::Error,
}

/// Opens the addresses.
pub fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, HttpBindError> {
    addresses
        .iter()
        .map(|a| crate::listen::bind::tcp(*a, 128).map_err(|source| HttpBindError { address: *a, source }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Limits, Place, Sources};
    use crate::obs::http_door::HttpDoor;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn limits() -> Limits {
        let sources = Sources { place: Place { is_root: true, ..Place::default() }, ..Sources::default() };
        sources.load().unwrap_or_else(|e| panic!("{e}")).limits
    }

    async fn ask(state: &HttpState, request: &str) -> String {
        let socket = bind(&[([127, 0, 0, 1], 0).into()]).expect("a free port").pop().expect("one socket");
        let address = socket.local_addr().expect("address");
        let door = HttpDoor::new(&limits());
        let server = tokio::spawn(door.serve(socket, router(state.clone(), 1024)));
        let mut client = tokio::net::TcpStream::connect(address).await.expect("connect");
        let text = format!("{request}\r\nHost: x\r\nConnection: close\r\n\r\n");
        client.write_all(text.as_bytes()).await.expect("write");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("read");
        server.abort();
        answer
    }

    #[tokio::test]
    async fn readiness_follows_the_components() {
        let state = HttpState {
            metrics: Metrics::default(),
            health: Health::default(),
            token: None,
            door: Door::default(),
        };
        let store = state.health.register("store");
        let answer = ask(&state, "GET /readyz HTTP/1.1").await;
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.ends_with("store: not ready: starting\n"),
            "{answer}"
        );
        store.ready();
        assert!(ask(&state, "GET /readyz HTTP/1.1").await.starts_with("HTTP/1.1 200"));
        assert!(ask(&state, "GET /livez HTTP/1.1").await.starts_with("HTTP/1.1 200"));
        assert!(ask(&state, "GET /other HTTP/1.1").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn metrics_ask_for_the_token_if_there_is_one() {
        let mut state = HttpState {
            metrics: Metrics::default(),
            health: Health::default(),
            token: None,
            door: Door::default(),
        };
        super::super::process::register(&state.metrics, "n1");
        let answer = ask(&state, "GET /metrics HTTP/1.1").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("mast_build_info"), "{answer}");
        state.token = Some("t0ken".into());
        assert!(ask(&state, "GET /metrics HTTP/1.1").await.starts_with("HTTP/1.1 401"));
        let wrong = ask(&state, "GET /metrics HTTP/1.1\r\nAuthorization: Bearer t0kem").await;
        assert!(wrong.starts_with("HTTP/1.1 401"));
        let right = ask(&state, "GET /metrics HTTP/1.1\r\nAuthorization: Bearer t0ken").await;
        assert!(right.starts_with("HTTP/1.1 200"));
    }
}
