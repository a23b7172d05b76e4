//! Authentication by an HTTP server. Only a good answer that says yes lets a client in, and only that is remembered;
//! whatever goes wrong, from a refused connection to a malformed answer, refuses it.

pub mod client;
pub mod wire;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Uri,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use mast_core::{codec::Version, time::Wall};
use tokio::{sync::Semaphore, time::Instant};

use self::{
    client::{HttpClient, HttpSetupError},
    wire::{Asked, Verdict},
};
use super::{
    gate::User,
    successes::{Digest, Successes},
    verifier::NoRandom,
};
use crate::config::{HttpAuth, HttpWire};

/// Longest answer, bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Why the server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum HttpAuthError {
    #[error("http_auth: {0}")]
    Setup(#[from] HttpSetupError),
    #[error("http_auth.headers_file {path}: {problem}")]
    Headers { path: String, problem: String },
    #[error("http_auth.url is no address")]
    Url,
    #[error(transparent)]
    Random(#[from] NoRandom),
}

/// The answer about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpLogin {
    Accepted(User),
    Refused,
    /// Somebody else may know it.
    Unknown,
    /// The server did not answer, or not as it should.
    Unavailable,
}

/// Counters for the metrics; they outlive a reload.
#[derive(Debug, Default)]
pub struct HttpCounts {
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub unknown: AtomicU64,
    pub unavailable: AtomicU64,
    /// Of the accepted, those that were remembered.
    pub remembered: AtomicU64,
}

/// Asks one server.
pub struct HttpAuthenticator {
    client: HttpClient,
    uri: Uri,
    wire: HttpWire,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    places: Semaphore,
    known: Mutex<Successes<User>>,
    pub counts: Arc<HttpCounts>,
}

/// A header as it stands in the configuration.
pub fn header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    let mut value: HeaderValue = value.trim().parse().ok()?;
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

impl HttpAuthenticator {
    /// With the section of the configuration; `None` if it names no server. Reads the files that it names.
    pub fn new(settings: &HttpAuth) -> Result<Option<Self>, HttpAuthError> {
        let Some(url) = &settings.url else { return Ok(None) };
        let mut headers: Vec<_> = settings.headers.iter().filter_map(|h| header(h)).collect();
        if let Some(path) = &settings.headers_file {
            let bad = |problem: String| HttpAuthError::Headers { path: path.display().to_string(), problem };
            let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
            for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let read = header(line);
                headers.push(read.ok_or_else(|| bad(format!("line {} is no header", at + 1)))?);
            }
        }
        Ok(Some(Self {
            client: HttpClient::new(url, settings.ca_file.as_deref(), settings.timeout, MAX_ANSWER)?,
            uri: url.parse().map_err(|_| HttpAuthError::Url)?,
            wire: settings.wire,
            headers,
            timeout: settings.timeout,
            places: Semaphore::new(settings.max_requests),
            known: Mutex::new(Successes::new(settings.cache_ttl, settings.cache_entries)?),
            counts: Arc::default(),
        }))
    }

    fn known(&self) -> MutexGuard<'_, Successes<User>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the very same was answered with yes lately.
    pub fn remembers(&self, asked: &Asked<'_>, now: Wall) -> Option<User> {
        let known = self.known();
        let user = known.get(&digest(&known, asked)?, Instant::now())?;
        if user.expires.is_some_and(|at| at <= now) {
            return None;
        }
        self.counts.remembered.fetch_add(1, Ordering::Relaxed);
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        Some(user)
    }

    /// Asks the server.
    pub async fn ask(&self, asked: &Asked<'_>, now: Wall) -> HttpLogin {
        let login = match tokio::time::timeout(self.timeout, self.verdict(asked, now)).await {
            Ok(Ok(Verdict::Allow(user))) => {
                let left = user.expires.map(|at| Duration::from_millis(at.millis_since(now)));
                let mut known = self.known();
                if let Some(digest) = digest(&known, asked) {
                    known.put(digest, User::clone(&user), Instant::now(), left);
                }
                HttpLogin::Accepted(*user)
            }
            Ok(Ok(Verdict::Deny)) => HttpLogin::Refused,
            Ok(Ok(Verdict::Ignore)) => HttpLogin::Unknown,
            Ok(Err(why)) => {
                tracing::warn!("the authentication server cannot be used: {why}");
                HttpLogin::Unavailable
            }
            Err(_) => {
                tracing::warn!("the authentication server cannot be used: there was no answer in time");
                HttpLogin::Unavailable
            }
        };
        let count = match &login {
            HttpLogin::Accepted(_) => &self.counts.accepted,
            HttpLogin::Refused => &self.counts.refused,
            HttpLogin::Unknown => &self.counts.unknown,
            HttpLogin::Unavailable => &self.counts.unavailable,
        };
        count.fetch_add(1, Ordering::Relaxed);
        login
    }

    async fn verdict(&self, asked: &Asked<'_>, now: Wall) -> Result<Verdict, String> {
        // Only a closed semaphore fails, and nothing closes it.
        let _place = self.places.acquire().await.map_err(|e| e.to_string())?;
        let Some(body) = wire::request(self.wire, asked) else { return Ok(Verdict::Deny) };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| e.to_string())?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let (status, body) = self.client.send(request).await.map_err(|e| e.to_string())?;
        wire::answer(self.wire, status, &body, asked.user, now)
    }
}

/// Over everything that is sent.
fn digest(known: &Successes<User>, asked: &Asked<'_>) -> Option<Digest> {
    let Asked { client_id, user, password, address, version, clean_start, listener, certificate_cn } = *asked;
    let version = match version {
        Version::V31 => 3u8,
        Version::V311 => 4,
        Version::V5 => 5,
    };
    let there = |present: bool| u8::from(present);
    let flags = [
        version,
        u8::from(clean_start),
        there(user.is_some()),
        there(password.is_some()),
        there(certificate_cn.is_some()),
    ];
    let address = address.map(|a| a.to_string()).unwrap_or_default();
    known.digest([
        &flags[..],
        client_id.as_bytes(),
        user.unwrap_or_default().as_bytes(),
        password.unwrap_or_default(),
        address.as_bytes(),
        listener.as_bytes(),
        certificate_cn.unwrap_or_default().as_bytes(),
    ])
}
