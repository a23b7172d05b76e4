//! A shard's thread: its runtime, and the tasks that are not connections.

use crate::driver::clock::Clock;
use crate::driver::mailbox::{Mail, Mailbox};
use crate::driver::{Driver, Shared};
use crate::obs::memory::Pressure;
use crate::store::{Event, StoreClient};
use mast_core::ask::Answer;
use mast_core::conn::handshake::AuthQuestion;
use mast_core::ids::{ConnId, OpId, ShardIx};
use mast_core::shard::input::{Input, Outbox};
use mast_core::shard::{Shard, ShardConfig};
use mast_core::store::port::Restored;
use mast_core::sys::{Counters, TenantCounters, TenantUsage};
use mast_core::time::Now;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

/// Pieces of mail that the shard takes before what follows from them is executed: the bound of what one turn
/// holds in memory.
const MAIL_PER_TURN: usize = 256;

/// Asks authentication something for a connection that is already running.
pub type AskAuth = Box<dyn Fn(OpId, AuthQuestion) + Send + Sync>;
/// Takes an answer.
pub type Answered = Box<dyn Fn(u64, Answer, Vec<Box<str>>) + Send + Sync>;
/// Logs under a cause; the writer decides whether it is too much.
pub type LogBy = Box<dyn Fn(&'static str, &dyn Fn()) + Send + Sync>;

/// What a shard thread shares with the rest of the process.
pub struct ShardSetup {
    /// Which shard.
    pub shard: ShardIx,
    /// Mailboxes of all shards, its own among them.
    pub mailboxes: Vec<Arc<Mailbox>>,
    /// Re-authentication.
    pub auth: AskAuth,
    /// Memory pressure of the process.
    pub pressure: Arc<Pressure>,
    /// The process's clock.
    pub clock: Clock,
    /// Takes the answer to a question of administration, with the addresses of the connections in it.
    pub answer: Answered,
    /// When the shard last turned, by that clock, µs.
    pub beat: AtomicU64,
    /// Rate-limited logging.
    pub log: LogBy,
    /// What metrics read.
    pub published: Mutex<Published>,
}

/// A shard's counters as last published.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Of the shard.
    pub counters: Counters,
    /// By tenant.
    pub tenants: Vec<(String, TenantCounters)>,
    /// Of tenants that have limits, or had.
    pub usage: Vec<(String, TenantUsage)>,
}

/// A running shard thread.
pub struct ShardHandle {
    /// What it shares.
    pub setup: Arc<ShardSetup>,
    /// Resolves when a drain is complete.
    pub drained: oneshot::Receiver<()>,
    /// Resolves when restoring is complete.
    pub restored: oneshot::Receiver<()>,
    /// The thread.
    pub thread: std::thread::JoinHandle<()>,
}

/// Starts a shard thread.
///
/// # Errors
/// The operating system refuses the thread.
pub fn spawn(
    config: ShardConfig,
    setup: Arc<ShardSetup>,
    store: StoreClient,
    restored: Arc<Vec<Restored>>,
) -> std::io::Result<ShardHandle> {
    let (drained_tx, drained) = oneshot::channel();
    let (restored_tx, restored_rx) = oneshot::channel();
    let for_thread = Arc::clone(&setup);
    let name = format!("mast-shard-{}", config.shard.0);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(61)
            // The state behind a panic is not to be trusted: the thread ends, and with it the process.
            .unhandled_panic(tokio::runtime::UnhandledPanic::ShutdownRuntime)
            .build_local(Default::default());
        match runtime {
            Ok(runtime) => {
                runtime.block_on(live(config, for_thread, store, restored, restored_tx, drained_tx));
            }
            Err(error) => tracing::error!(%error, "a shard's runtime did not start"),
        }
    })?;
    Ok(ShardHandle { setup, drained, restored: restored_rx, thread })
}

async fn live(
    config: ShardConfig,
    setup: Arc<ShardSetup>,
    store: StoreClient,
    restored: Arc<Vec<Restored>>,
    restored_tx: oneshot::Sender<()>,
    drained_tx: oneshot::Sender<()>,
) {
    let clock = setup.clock;
    let peers = setup
        .mailboxes
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != setup.shard.0 as usize)
        .map(|(_, m)| Arc::clone(m))
        .collect();
    let mut driver = Driver {
        shard: Shard::new(config, clock.now()),
        clock,
        slots: Vec::new(),
        free: Vec::new(),
        block: Vec::new(),
        outbox: Outbox::default(),
        dirty: Vec::new(),
        look_at: 0,
        flusher: None,
        worker: None,
        timer: None,
        wake_at: None,
        parked: VecDeque::new(),
        paused: 0,
        closing: VecDeque::new(),
        peers,
        post: setup.mailboxes.iter().map(|_| Vec::new()).collect(),
        store,
        setup: Arc::clone(&setup),
        again: false,
        drained: false,
    };
    for record in restored.iter() {
        driver.feed(Input::Restore(record.clone()));
    }
    drop(restored);
    // The acceptor may be gone already, when the start was called off.
    restored_tx.send(()).unwrap_or_default();
    let driver: Shared = Rc::new(RefCell::new(driver));
    tokio::task::spawn_local(flush_task(Rc::clone(&driver)));
    tokio::task::spawn_local(work_task(Rc::clone(&driver)));
    tokio::task::spawn_local(timer_task(Rc::clone(&driver)));
    tokio::task::spawn_local(publish_task(Rc::clone(&driver), Arc::clone(&setup)));
    let mailbox = Arc::clone(&setup.mailboxes[setup.shard.0 as usize]);
    mail_task(driver, mailbox, drained_tx).await;
}

async fn flush_task(driver: Shared) {
    poll_fn(move |cx| driver.borrow_mut().poll_flush(cx)).await;
}

/// Goes on with work that did not fit into one turn.
async fn work_task(driver: Shared) {
    poll_fn(move |cx| -> Poll<()> {
        let mut driver = driver.borrow_mut();
        if driver.worker.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
            driver.worker = Some(cx.waker().clone());
        }
        let now = driver.now();
        driver.run(now);
        Poll::Pending
    })
    .await;
}

/// Wakes the shard for its timers, lingering connections for their end, parked ones for another try.
async fn timer_task(driver: Shared) {
    loop {
        let (due, short) = {
            let driver = driver.borrow();
            let close_by = driver.closing.front().map(|(by, _)| *by);
            let due = [driver.wake_at, close_by].into_iter().flatten().min();
            (due.map(|at| driver.clock.instant(at)), !driver.parked.is_empty())
        };
        let sleep = async {
            match due {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let park = async {
            if short {
                tokio::time::sleep(Duration::from_millis(2)).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let mut first = true;
        let moved = poll_fn(|cx| {
            let mut driver = driver.borrow_mut();
            driver.timer = Some(cx.waker().clone());
            // Woken again: something moved forward.
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        });
        tokio::select! {
            () = sleep => {}
            () = park => {}
            () = moved => {}
        }
        let mut driver = driver.borrow_mut();
        driver.reap();
        driver.unpark();
        let now = driver.now();
        if driver.wake_at.is_some_and(|at| at <= now.mono) {
            driver.wake_at = None;
            driver.feed(Input::Tick);
        }
    }
}

/// Publishes counters for metrics.
async fn publish_task(driver: Shared, setup: Arc<ShardSetup>) {
    loop {
        setup.beat.store(setup.clock.mono().0, Ordering::Relaxed);
        {
            let mut driver = driver.borrow_mut();
            driver.end_dead();
            let tenants = driver.shard.tenant_counters().map(|(n, c)| (n.to_owned(), c.clone())).collect();
            let limited = driver.shard.tenant_usage().filter(|(_, u)| u.is_limited());
            let usage = limited.map(|(n, u)| (n.to_owned(), u)).collect();
            let counters = driver.shard.counters().clone();
            *setup.published.lock().unwrap_or_else(PoisonError::into_inner) =
                Published { counters, tenants, usage };
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Takes mail in until a drain is complete.
async fn mail_task(driver: Shared, mailbox: Arc<Mailbox>, drained_tx: oneshot::Sender<()>) {
    let mut mail = Vec::new();
    let mut drained_tx = Some(drained_tx);
    loop {
        mailbox.take(&mut mail);
        let arrived = take_all(&mut driver.borrow_mut(), &mut mail);
        for id in arrived {
            let driver = Rc::clone(&driver);
            tokio::task::spawn_local(conn_task(driver, id));
        }
        {
            let mut driver = driver.borrow_mut();
            if !driver.dirty.is_empty() {
                driver.wake_flusher();
            }
            if driver.drained {
                driver.drained = false;
                if let Some(tx) = drained_tx.take() {
                    // Whoever asked for the drain may have given up.
                    tx.send(()).unwrap_or_default();
                }
            }
        }
        if mailbox.is_empty() {
            // A drain may complete without mail.
            tokio::select! {
                () = mailbox.wait() => {}
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        } else {
            tokio::task::yield_now().await;
        }
    }
}

async fn conn_task(driver: Shared, id: ConnId) {
    poll_fn(move |cx| driver.borrow_mut().poll_conn(id, cx)).await;
}

/// Takes mail in, in turns of bounded length; returns the connections that arrived.
fn take_all(driver: &mut Driver, mail: &mut Vec<Mail>) -> Vec<ConnId> {
    let mut arrived = Vec::new();
    let mut left = MAIL_PER_TURN;
    let mut now = driver.now();
    for piece in mail.drain(..) {
        arrived.extend(take_mail(driver, now, piece));
        left -= 1;
        if left == 0 {
            driver.run(now);
            left = MAIL_PER_TURN;
            now = driver.now();
        }
    }
    driver.run(now);
    arrived
}

fn take_mail(driver: &mut Driver, now: Now, mail: Mail) -> Option<ConnId> {
    match mail {
        Mail::Arrival(arrival) => return driver.arrive(*arrival),
        Mail::Store(Event::Committed(batch)) => driver.hand(now, Input::Committed(batch)),
        Mail::Store(Event::CommitDone { op, result }) => driver.hand(now, Input::CommitDone { op, result }),
        Mail::Store(Event::ReadDone { op, result }) => driver.hand(now, Input::ReadDone { op, result }),
        Mail::Peer(from, msg) => driver.hand(now, Input::Peer { from, msg }),
        Mail::Auth(op, answer) => driver.hand(now, Input::AuthDone { op, answer }),
        Mail::Reconfigure(settings, tenancy) => driver.hand(now, Input::Reconfigure { settings, tenancy }),
        Mail::Ask(token, ask) => driver.hand(now, Input::Ask { token, ask }),
        Mail::Relieve => driver.hand(now, Input::Relieve),
        Mail::Drain(reason) => driver.hand(now, Input::Drain { reason }),
    }
    None
}
