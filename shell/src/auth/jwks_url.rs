//! A set of keys that is fetched from a server: at the start, at intervals, and where a token names a key that is not
//! there, but not more often than a pause allows, however many such tokens come. A set that cannot be fetched or used
//! leaves the keys as they were.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Uri, header::ACCEPT};
use tokio::{sync::Mutex, time::Instant};

use super::{
    http::client::{HttpClient, HttpSetupError},
    jwt_keys::{Key, MAX_SET, parse_set},
};
use crate::config::Jwt;

/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub struct UrlSet {
    url: String,
    client: HttpClient,
    keys: ArcSwap<Vec<Key>>,
    /// When it was last tried, and whether it then came; held while it is fetched.
    last: Mutex<Option<(Instant, bool)>>,
    refresh: Duration,
    pause: Duration,
    /// The log has been told that it does not come.
    told: AtomicBool,
}

impl UrlSet {
    /// Empty, until it is fetched. `None` if the configuration names no address.
    pub fn new(settings: &Jwt) -> Result<Option<Self>, HttpSetupError> {
        let Some(url) = settings.jwks_url.clone() else { return Ok(None) };
        let max = usize::try_from(MAX_SET).unwrap_or(usize::MAX);
        Ok(Some(Self {
            client: HttpClient::new(&url, settings.jwks_ca_file.as_deref(), PATIENCE, max)?,
            url,
            keys: ArcSwap::default(),
            last: Mutex::new(None),
            refresh: settings.jwks_refresh,
            pause: settings.jwks_pause,
            told: AtomicBool::new(false),
        }))
    }

    /// Takes over what a predecessor of the same address had.
    pub fn adopt(&self, before: &UrlSet) {
        if before.url == self.url {
            self.keys.store(before.keys.load_full());
        }
    }

    /// The keys as they are now.
    pub(super) fn current(&self) -> Arc<Vec<Key>> {
        self.keys.load_full()
    }

    /// Fetches the set if it is time to.
    pub async fn keep_fresh(&self) {
        let mut last = self.last.lock().await;
        let wait = match *last {
            None => Duration::ZERO,
            Some((_, true)) => self.refresh,
            Some((_, false)) => self.pause.min(self.refresh),
        };
        if last.is_none_or(|(at, _)| at.elapsed() >= wait) {
            let came = self.fetch().await;
            *last = Some((Instant::now(), came));
        }
    }

    /// A token names a key that is not there: fetches the set, unless that was done just now. The caller then looks
    /// again, because somebody else may have fetched it while it waited.
    pub async fn look_again(&self) {
        let mut last = self.last.lock().await;
        if last.is_none_or(|(at, _)| at.elapsed() >= self.pause) {
            let came = self.fetch().await;
            *last = Some((Instant::now(), came));
        }
    }

    async fn fetch(&self) -> bool {
        match self.try_fetch().await {
            Ok(keys) => {
                let known = self.keys.load();
                let names = |keys: &[Key]| keys.iter().map(|k| k.kid.clone()).collect::<Vec<_>>();
                if names(&known) != names(&keys) {
                    tracing::info!(url = self.url, keys = keys.len(), "token keys were fetched");
                }
                self.keys.store(Arc::new(keys));
                self.told.store(false, Ordering::Relaxed);
                true
            }
            Err(why) => {
                if !self.told.swap(true, Ordering::Relaxed) {
                    let kept = self.keys.load().len();
                    tracing::warn!(
                        url = self.url,
                        kept,
                        "token keys could not be fetched, and will be tried again: {why}"
                    );
                }
                false
            }
        }
    }

    async fn try_fetch(&self) -> Result<Vec<Key>, String> {
        let uri: Uri = self.url.parse().map_err(|_| "this is no address".to_owned())?;
        let request = Request::get(uri).header(ACCEPT, "application/json").body(Full::new(Bytes::new()));
        let (status, body) =
            self.client.send(request.map_err(|e| e.to_string())?).await.map_err(|e| e.to_string())?;
        if !status.is_success() {
            return Err(format!("status {}", status.as_u16()));
        }
        parse_set(&body)
    }
}
