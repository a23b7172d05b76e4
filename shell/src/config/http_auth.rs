//! The keys of authentication by an HTTP server.

use std::{path::PathBuf, time::Duration};

use super::{
    identity::check_url,
    invalid,
    kind::Kind,
    layers::Layers,
    table::{choice, section},
};

choice! {
    /// How requests and answers look.
    HttpWire { Mast = "mast", Emqx = "emqx" }
}

section! {
    /// A server that says who a client is, asked with POST and JSON (the link `http` of a chain). Whatever goes wrong there, the client is refused.
    HttpAuth {
        /// Address of the server, `http://` or `https://`. Empty: none is asked.
        url: Option<String> = "", Kind::Text;
        /// How requests and answers look: mast's own way, or that of EMQX 5. Both are in docs/identity.md.
        wire: HttpWire = "mast", Kind::Choice(HttpWire::WORDS);
        /// Headers of every request, such as "authorization: Bearer x".
        headers: Vec<String> = "", Kind::List;
        /// File with more headers, one on a line: for those that are secrets.
        headers_file: Option<PathBuf> = "", Kind::Text;
        /// How long one answer may take, the wait for a free place among the requests included.
        timeout: Duration = "5s", Kind::Time { min_ms: 10, max_ms: 60_000 };
        /// Requests at the same time.
        max_requests: usize = "64", Kind::Int { min: 1, max: 10_000 };
        /// How long a client that was let in is let in again without a request, if it says exactly the same from the same address; at most until its proof ends. 0 means that each is asked.
        cache_ttl: Duration = "30s", Kind::Time { min_ms: 0, max_ms: 3_600_000 };
        /// Answers that are remembered.
        cache_entries: usize = "10000", Kind::Int { min: 0, max: 10_000_000 };
        /// PEM file with the authorities that the server may be signed by. Empty: those of the system.
        ca_file: Option<PathBuf> = "", Kind::Text;
    }
}

/// Checks the section.
pub(super) fn check(layers: &mut Layers, http: &HttpAuth) {
    if let Some(Err(problem)) = http.url.as_deref().map(check_url) {
        invalid(layers, &["http_auth", "url"], problem);
    }
    for header in &http.headers {
        if crate::auth::http::header(header).is_none() {
            // What is behind the colon may be a secret.
            let name = header.split(':').next().unwrap_or_default().trim();
            let what = format!(
                "\"{}\" is not the beginning of a header such as \"name: value\"",
                name.escape_debug()
            );
            invalid(layers, &["http_auth", "headers"], what);
        }
    }
    if http.ca_file.is_some() && http.url.as_ref().is_some_and(|url| url.starts_with("http://")) {
        invalid(
            layers,
            &["http_auth", "ca_file"],
            "the server is asked without TLS, so it has no use".into(),
        );
    }
}
