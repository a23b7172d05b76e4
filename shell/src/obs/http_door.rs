//! Serves HTTP connections of the administration endpoint within bounds: how many there are, how long a request's
//! head, an idle connection and an answer may take. A full endpoint lets the one that waits longest go, so whoever
//! holds connections open cannot keep a health check out.

use std::{
    collections::BTreeMap,
    io,
    net::TcpListener,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::{Request, body::Incoming, server::conn::http1, service::Service};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpStream, task::AbortHandle};

use super::Metrics;
use crate::config::Limits;

/// How long a request may take from its head to the beginning of its answer.
const ANSWER: Duration = Duration::from_secs(30);
/// After so long a connection ends with the answer that it is at, and a reader who takes too long for one is cut.
const LIFETIME: Duration = Duration::from_secs(300);
/// Pause after the system ran out of something that only time gives back.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// One open connection.
struct Slot {
    /// It is at a request, so it is not cut to make room.
    busy: Arc<AtomicBool>,
    cut: AbortHandle,
}

#[derive(Default)]
struct Slots {
    next: u64,
    /// By number: the oldest is the first.
    open: BTreeMap<u64, Slot>,
}

/// The bounds, and what is open within them.
pub struct HttpDoor {
    max_connections: usize,
    head_timeout: Duration,
    slots: Mutex<Slots>,
    cut_late: AtomicU64,
    cut_full: AtomicU64,
}

/// Removes its slot when the connection ends, however it does.
struct Held(Arc<HttpDoor>, u64);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&self.1);
    }
}

impl HttpDoor {
    /// With the bounds of a configuration.
    pub fn new(limits: &Limits) -> Arc<HttpDoor> {
        Arc::new(HttpDoor {
            max_connections: limits.max_admin_connections,
            head_timeout: limits.admin_timeout,
            slots: Mutex::default(),
            cut_late: AtomicU64::new(0),
            cut_full: AtomicU64::new(0),
        })
    }

    /// Publishes how many connections were cut.
    pub fn register(self: &Arc<Self>, metrics: &Metrics) {
        let door = Arc::clone(self);
        metrics.register(move |out| {
            let help = "Connections to the administration endpoint that were cut, by reason.";
            for (reason, count) in [("timeout", &door.cut_late), ("full", &door.cut_full)] {
                let count = count.load(Ordering::Relaxed);
                out.counter("mast_admin_connections_cut_total", help, &[("reason", reason)], count);
            }
        });
    }

    /// Serves one socket until the task is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// The runtime cannot register the socket.
    pub async fn serve(self: Arc<Self>, socket: TcpListener, router: Router) -> io::Result<()> {
        let socket = tokio::net::TcpListener::from_std(socket)?;
        loop {
            match socket.accept().await {
                Ok((stream, _)) => self.take(stream, router.clone()),
                Err(error) => {
                    tracing::warn!(%error, "accepting at the administration endpoint failed");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }

    /// Takes a connection in, in place of the one that waits longest where there is no room.
    fn take(self: &Arc<Self>, stream: TcpStream, router: Router) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.open.len() >= self.max_connections {
            self.cut_full.fetch_add(1, Ordering::Relaxed);
            let waits = slots.open.iter().find(|(_, slot)| !slot.busy.load(Ordering::Relaxed));
            let Some(number) = waits.map(|(number, _)| *number) else { return };
            if let Some(slot) = slots.open.remove(&number) {
                slot.cut.abort();
            }
        }
        let number = slots.next;
        slots.next += 1;
        let busy = Arc::new(AtomicBool::new(false));
        let held = Held(Arc::clone(self), number);
        let run = Arc::clone(self).run(stream, router, Arc::clone(&busy));
        let task = tokio::spawn(async move {
            let _held = held;
            run.await;
        });
        slots.open.insert(number, Slot { busy, cut: task.abort_handle() });
    }

    async fn run(self: Arc<Self>, stream: TcpStream, router: Router, busy: Arc<AtomicBool>) {
        let service = Bounded { inner: TowerToHyperService::new(router), busy };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_timeout)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = tokio::time::sleep(LIFETIME) => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(ANSWER, connection).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        self.cut_late.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                }
            }
        };
        match ended {
            Ok(()) => {}
            Err(error) if error.is_timeout() => {
                self.cut_late.fetch_add(1, Ordering::Relaxed);
            }
            // The other end broke off, or did not speak HTTP.
            Err(error) => tracing::debug!(%error, "a connection to the administration endpoint ended"),
        }
    }
}

/// The routes, each request with a deadline.
struct Bounded {
    inner: TowerToHyperService<Router>,
    busy: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for Bounded {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        use axum::{
            http::{StatusCode, header::CONNECTION},
            response::IntoResponse,
        };
        self.busy.store(true, Ordering::Relaxed);
        let (answer, busy) = (self.inner.call(request), Arc::clone(&self.busy));
        Box::pin(async move {
            let answer = tokio::time::timeout(ANSWER, answer).await;
            busy.store(false, Ordering::Relaxed);
            answer.unwrap_or_else(|_| {
                let close = [(CONNECTION, "close")];
                Ok((StatusCode::REQUEST_TIMEOUT, close, "the request took too long\n").into_response())
            })
        })
    }
}
