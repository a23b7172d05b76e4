//! Requests to HTTP servers that take part in authentication: bounded in time and size, over TLS with the system's or
//! with given authorities. Redirects are not followed: whoever answers is who was asked.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// An unused connection is kept for so long.
const IDLE: Duration = Duration::from_secs(60);

/// Why no client can be made. Names the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HttpSetupError(String);

/// Why there is no answer; for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("there was no answer in time")]
    Late,
    #[error("{0}")]
    Failed(String),
    #[error("the answer is too long, or broke off")]
    Body,
}

/// Asks. Connections are kept and used again.
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
    max_answer: usize,
}

impl HttpClient {
    /// `ca_file` in place of the system's authorities; an answer may take `timeout` and have `max_answer` bytes.
    pub fn new(
        url: &str,
        ca_file: Option<&Path>,
        timeout: Duration,
        max_answer: usize,
    ) -> Result<Self, HttpSetupError> {
        let roots = match (url.starts_with("https:"), ca_file) {
            (false, _) => RootCertStore::empty(),
            (true, Some(path)) => authorities(path)?,
            (true, None) => system_authorities()?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| HttpSetupError(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self { client, timeout, max_answer })
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), HttpError> {
        let asked = async {
            let answer = self.client.request(request).await.map_err(|e| HttpError::Failed(chain(&e)))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), self.max_answer).collect().await;
            Ok((status, body.map_err(|_| HttpError::Body)?.to_bytes()))
        };
        tokio::time::timeout(self.timeout, asked).await.unwrap_or(Err(HttpError::Late))
    }
}

/// An error with what is behind it: the first layer alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn authorities(path: &Path) -> Result<RootCertStore, HttpSetupError> {
    let bad = |e: &dyn std::fmt::Display| HttpSetupError(format!("{}: {e}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| bad(&e))? {
        roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
    }
    if roots.is_empty() {
        return Err(bad(&"there is no certificate in this file"));
    }
    Ok(roots)
}

fn system_authorities() -> Result<RootCertStore, HttpSetupError> {
    let mut roots = RootCertStore::empty();
    // Stores of systems hold certificates that nobody can use; what is good counts.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let text = "the system has no certificate authorities (package ca-certificates); name a file of them";
        return Err(HttpSetupError(text.to_owned()));
    }
    Ok(roots)
}
