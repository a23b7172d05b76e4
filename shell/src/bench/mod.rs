//! `mast bench`: a load generator. Publishers send at a fixed rate, whatever the broker does, or as fast as a window
//! of unacknowledged messages allows; subscribers check that everything comes, once and in order, and measure.
//!
//! Latency counts from the time a message was *due*, not from when it could be sent: a broker that makes its
//! publishers wait does not look faster for it.

mod histogram;
mod ledger;
mod publisher;
mod report;
mod subscriber;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::{Args, ValueEnum};
use mast_core::time::Mono;
use tokio::sync::Notify;

pub use report::Report;

use crate::{
    client::{
        ClientError,
        args::{ClientArgs, Target},
        link::Link,
        properties,
    },
    driver::clock::Clock,
};
use histogram::Histogram;
use ledger::Ledger;

/// Connections that are opened at the same time.
const CONNECTING: usize = 64;
/// Bytes that say which message it is: run, publisher, number, due time.
const STAMP: usize = 32;

/// Who hears whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Each subscriber hears one publisher.
    Pairs,
    /// Every subscriber hears every publisher.
    Fan,
    /// The subscribers share all messages.
    Shared,
}

#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true)]
pub struct BenchArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Publishers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub publishers: u32,
    /// Subscribers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub subscribers: u32,
    /// Who hears whom.
    #[arg(long, value_enum, default_value = "pairs")]
    pub pattern: Pattern,
    /// Bytes of a payload; 32 at least.
    #[arg(long, default_value_t = 64)]
    pub size: usize,
    /// Messages per second of all publishers together, sent when they are due. Without it as many as --window allows.
    #[arg(long)]
    pub rate: Option<u32>,
    /// Unacknowledged messages of a publisher without --rate. At QoS 0 the socket alone sets the pace.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub window: u16,
    /// Seconds of sending.
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// Seconds without a message after which what is missing counts as lost.
    #[arg(long, default_value_t = 3.0)]
    pub patience: f64,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print a line every second also where standard error is no terminal.
    #[arg(long)]
    pub progress: bool,
}

/// What all clients of a run share.
struct Run {
    args: BenchArgs,
    target: Target,
    clock: Clock,
    /// Tells this run's messages from those of others.
    id: u64,
    qos: u8,
    /// Zero µs until the run begins.
    start: AtomicU64,
    /// Publishers send no more.
    over: AtomicBool,
    publishers: Vec<Publishing>,
    subscribers: Vec<Mutex<Received>>,
    /// When the last message came, µs.
    last_received: AtomicU64,
    /// From when a message was due to its acknowledgement.
    acknowledgements: Mutex<Histogram>,
}

/// One publisher, as the pacer and the report see it.
#[derive(Default)]
struct Publishing {
    /// Messages that are due.
    due: AtomicU64,
    bell: Notify,
    sent: AtomicU64,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// What one subscriber got.
#[derive(Default)]
struct Received {
    /// By publisher; one alone where each subscriber hears one.
    ledgers: Vec<Ledger>,
    latency: Histogram,
    /// The same since the last progress line.
    recent: Histogram,
    foreign: u64,
}

impl Run {
    fn new(mut args: BenchArgs) -> Result<Run, ClientError> {
        let target = args.client.normalise()?;
        if args.size < STAMP {
            return Err(ClientError::usage(format!("--size: a payload has {STAMP} bytes at least")));
        }
        if args.rate == Some(0) {
            return Err(ClientError::usage(
                "--rate: 0 messages are none; leave it away for as many as possible",
            ));
        }
        let seconds = |name: &str, value: f64| {
            Duration::try_from_secs_f64(value)
                .map(|_| ())
                .map_err(|_| ClientError::usage(format!("{name} takes seconds")))
        };
        seconds("--duration", args.duration)?;
        seconds("--patience", args.patience)?;
        if args.client.topics.len() > 1 {
            return Err(ClientError::usage("one -t at most: each publisher has its own topic below it"));
        }
        let id = crate::engine::entropy().map_err(|e| ClientError::new(e.to_string()))?;
        let ledgers = if args.pattern == Pattern::Pairs { 1 } else { args.publishers as usize };
        let received =
            || Mutex::new(Received { ledgers: vec![Ledger::default(); ledgers], ..Received::default() });
        Ok(Run {
            target,
            clock: Clock::new(),
            id,
            qos: args.client.qos,
            start: AtomicU64::new(0),
            over: AtomicBool::new(false),
            publishers: (0..args.publishers).map(|_| Publishing::default()).collect(),
            subscribers: (0..args.subscribers).map(|_| received()).collect(),
            last_received: AtomicU64::new(0),
            acknowledgements: Mutex::default(),
            args,
        })
    }

    /// The topic that publishers' topics lie below.
    fn root(&self) -> String {
        let below = self.args.client.topics.first().map_or("bench", |t| t.trim_end_matches('/'));
        format!("{below}/{:016x}", self.id)
    }

    async fn connect(&self, role: &str, number: usize) -> Result<Link, ClientError> {
        let base = match (&self.args.client.id, &self.args.client.id_prefix) {
            (Some(id), _) => id.clone(),
            (None, Some(prefix)) => prefix.clone(),
            (None, None) => format!("bench{:06x}", self.id & 0xff_ffff),
        };
        let props = properties::parse(&self.args.client.properties)?;
        Link::open(&self.args.client, &self.target, &format!("{base}-{role}{number}"), &props).await
    }

    /// When message `seq` of a publisher is due: all publishers' messages follow each other evenly.
    fn due(&self, publisher: usize, seq: u64, rate: u32) -> Mono {
        let number = seq * self.publishers.len() as u64 + publisher as u64;
        let micros = u128::from(number) * 1_000_000 / u128::from(rate);
        Mono(self.start.load(Ordering::Relaxed) + micros as u64)
    }

    /// Whether a subscriber's filter matches a publisher's topic.
    fn hears(&self, subscriber: usize, publisher: usize) -> bool {
        match self.args.pattern {
            Pattern::Pairs => subscriber % self.publishers.len() == publisher,
            Pattern::Fan | Pattern::Shared => true,
        }
    }
}

/// Runs a benchmark.
///
/// # Errors
/// A client cannot connect, or loses its connection.
pub async fn run(args: BenchArgs, on_progress: impl FnMut(&str)) -> Result<Report, ClientError> {
    let run = Arc::new(Run::new(args)?);
    let mut listeners = tokio::task::JoinSet::new();
    for (number, link) in connect_all(&run, "s", run.subscribers.len()).await?.into_iter().enumerate() {
        let link = subscriber::subscribe(&run, link, number).await?;
        listeners.spawn(subscriber::run(Arc::clone(&run), link, number));
    }
    let links = connect_all(&run, "p", run.publishers.len()).await?;
    run.start.store(run.clock.mono().0, Ordering::Relaxed);
    let mut senders = tokio::task::JoinSet::new();
    for (number, link) in links.into_iter().enumerate() {
        senders.spawn(publisher::run(Arc::clone(&run), link, number));
    }
    let pacer = publisher::pace(&run)?;
    let watched = watch(&run, &mut listeners, &mut senders, on_progress).await;
    run.over.store(true, Ordering::Relaxed);
    run.publishers.iter().for_each(|p| p.bell.notify_one());
    listeners.shutdown().await;
    senders.shutdown().await;
    if let Some(pacer) = pacer
        && pacer.join().is_err()
    {
        return Err(ClientError::new("the thread that keeps time failed"));
    }
    let sending = watched?;
    Ok(Report::of(&run, sending))
}

async fn connect_all(run: &Arc<Run>, role: &'static str, count: usize) -> Result<Vec<Link>, ClientError> {
    let mut links = Vec::with_capacity(count);
    let mut from = 0;
    while from < count {
        let mut opening = Vec::new();
        for number in from..count.min(from + CONNECTING) {
            let run = Arc::clone(run);
            opening.push(tokio::spawn(async move { run.connect(role, number).await }));
        }
        from += opening.len();
        for opened in opening {
            links.push(opened.await.map_err(|e| ClientError::new(e.to_string()))??);
        }
    }
    Ok(links)
}

type Tasks = tokio::task::JoinSet<Result<(), ClientError>>;

/// Waits until everything is sent and has come, or nothing comes any more; gives the time of sending.
async fn watch(
    run: &Run,
    listeners: &mut Tasks,
    senders: &mut Tasks,
    mut on_progress: impl FnMut(&str),
) -> Result<Duration, ClientError> {
    let start = run.start.load(Ordering::Relaxed);
    let duration = Duration::from_secs_f64(run.args.duration);
    let patience = Duration::from_secs_f64(run.args.patience);
    let age = |of: u64| Duration::from_micros(run.clock.mono().0.saturating_sub(of));
    let mut progress = report::Progress::default();
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    let mut sent_in = None;
    loop {
        tokio::select! {
            Some(ended) = listeners.join_next() => ended.map_err(|e| ClientError::new(e.to_string()))??,
            Some(ended) = senders.join_next() => ended.map_err(|e| ClientError::new(e.to_string()))??,
            _ = beat.tick() => {}
        }
        let elapsed = age(start);
        if let Some(line) = progress.line(run, elapsed) {
            on_progress(&line);
        }
        if elapsed >= duration && sent_in.is_none() {
            run.over.store(true, Ordering::Relaxed);
            run.publishers.iter().for_each(|p| p.bell.notify_one());
            sent_in = Some(elapsed);
        }
        let Some(sending) = sent_in else { continue };
        let last = run.last_received.load(Ordering::Relaxed).max(start + sending.as_micros() as u64);
        if senders.is_empty() && (report::all_here(run) || age(last) >= patience) {
            return Ok(sending);
        }
        // Publishers whose acknowledgements do not come are not waited for without end.
        if age(last) >= patience + Duration::from_secs(10) {
            return Ok(sending);
        }
    }
}
