//! What a run says: a line each second, and the result.

use std::{
    fmt,
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use super::{Pattern, Run, histogram::Histogram, ledger::Ledger};

/// Percentiles in thousandths, with their names.
const PERCENTILES: [(u64, &str); 4] = [(500, "p50"), (900, "p90"), (990, "p99"), (999, "p99.9")];

/// The line of each second.
#[derive(Default)]
pub(super) struct Progress {
    second: u64,
    sent: u64,
    received: u64,
}

impl Progress {
    /// A line, if a second has passed since the last.
    pub fn line(&mut self, run: &Run, elapsed: Duration) -> Option<String> {
        if elapsed.as_secs() <= self.second {
            return None;
        }
        let seconds = elapsed.as_secs() - std::mem::replace(&mut self.second, elapsed.as_secs());
        let sent: u64 = run.publishers.iter().map(|p| p.sent.load(Ordering::Relaxed)).sum();
        let mut recent = Histogram::default();
        for subscriber in &run.subscribers {
            let mut subscriber = subscriber.lock().unwrap_or_else(PoisonError::into_inner);
            if subscriber.recent.total() > 0 {
                recent.merge(&std::mem::take(&mut subscriber.recent));
            }
        }
        self.received += recent.total();
        let rate = (sent - std::mem::replace(&mut self.sent, sent)) / seconds;
        Some(format!(
            "{:>4} s  sent {rate}/s  received {}/s  p50 {} µs  p99 {} µs  max {} µs",
            self.second,
            recent.total() / seconds,
            recent.per_mille(500),
            recent.per_mille(990),
            recent.max()
        ))
    }
}

/// How many messages of a publisher must reach those who hear it: at QoS 0 what was sent, else what was acknowledged.
fn promised(run: &Run, publisher: usize) -> u64 {
    let p = &run.publishers[publisher];
    if run.qos == 0 { p.sent.load(Ordering::Relaxed) } else { p.acknowledged.load(Ordering::Relaxed) }
}

/// Whether everything has come that must.
pub(super) fn all_here(run: &Run) -> bool {
    missing(run, &ledgers(run)) == 0
}

/// By subscriber; a group counts as one.
fn ledgers(run: &Run) -> Vec<Vec<Ledger>> {
    let all =
        run.subscribers.iter().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).ledgers.clone());
    if run.args.pattern != Pattern::Shared {
        return all.collect();
    }
    let joined = all.reduce(|mut sum, other| {
        sum.iter_mut().zip(&other).for_each(|(mine, theirs)| mine.join(theirs));
        sum
    });
    joined.into_iter().collect()
}

fn missing(run: &Run, ledgers: &[Vec<Ledger>]) -> u64 {
    let mut missing = 0;
    for (subscriber, of) in ledgers.iter().enumerate() {
        for publisher in (0..run.publishers.len()).filter(|p| run.hears(subscriber, *p)) {
            let at = if run.args.pattern == Pattern::Pairs { 0 } else { publisher };
            missing += promised(run, publisher).saturating_sub(of[at].unique());
        }
    }
    missing
}

/// The result.
#[derive(Debug, Clone)]
pub struct Report {
    qos: u8,
    sending: Duration,
    /// Messages that were due; with a window, those that were sent.
    pub due: u64,
    pub sent: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub received: u64,
    pub missing: u64,
    pub duplicates: u64,
    pub reordered: u64,
    /// Messages that no publisher of this run sent.
    pub foreign: u64,
    delivery: Histogram,
    acknowledgement: Histogram,
}

impl Report {
    pub(super) fn of(run: &Run, sending: Duration) -> Report {
        let sum = |get: fn(&super::Publishing) -> u64| run.publishers.iter().map(get).sum::<u64>();
        let sent = sum(|p| p.sent.load(Ordering::Relaxed));
        let ledgers = ledgers(run);
        let mut report = Report {
            qos: run.qos,
            sending,
            due: if run.args.rate.is_some() { sum(|p| p.due.load(Ordering::Relaxed)) } else { sent },
            sent,
            acknowledged: sum(|p| p.acknowledged.load(Ordering::Relaxed)),
            refused: sum(|p| p.refused.load(Ordering::Relaxed)),
            received: 0,
            missing: missing(run, &ledgers),
            duplicates: ledgers.iter().flatten().map(|l| l.duplicates).sum(),
            reordered: ledgers.iter().flatten().map(|l| l.reordered).sum(),
            foreign: 0,
            delivery: Histogram::default(),
            acknowledgement: run.acknowledgements.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        for subscriber in &run.subscribers {
            let subscriber = subscriber.lock().unwrap_or_else(PoisonError::into_inner);
            report.delivery.merge(&subscriber.latency);
            report.foreign += subscriber.foreign;
        }
        report.received = report.delivery.total();
        report
    }

    /// What the broker did that it must not do, if anything. At QoS 0 it may lose messages.
    pub fn fault(&self) -> Option<String> {
        let faults = [
            (self.missing, self.qos > 0, "missing"),
            (self.duplicates, true, "duplicate"),
            (self.reordered, true, "out of order"),
            (self.foreign, true, "not of this run"),
        ];
        let found: Vec<String> = faults
            .iter()
            .filter(|(n, counts, _)| *n > 0 && *counts)
            .map(|(n, _, what)| format!("{n} messages {what}"))
            .collect();
        (!found.is_empty()).then(|| found.join(", "))
    }

    fn per_second(&self, n: u64) -> u64 {
        (n as f64 / self.sending.as_secs_f64().max(0.001)) as u64
    }

    /// The result for machines.
    pub fn json(&self) -> String {
        let latency = |h: &Histogram| {
            let mut all: serde_json::Map<String, serde_json::Value> = PERCENTILES
                .iter()
                .map(|(mille, name)| ((*name).to_owned(), h.per_mille(*mille).into()))
                .collect();
            all.insert("max".to_owned(), h.max().into());
            all.insert("count".to_owned(), h.total().into());
            all
        };
        serde_json::json!({
            "seconds": self.sending.as_secs_f64(),
            "qos": self.qos,
            "due": self.due,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "received": self.received,
            "missing": self.missing,
            "duplicates": self.duplicates,
            "out_of_order": self.reordered,
            "foreign": self.foreign,
            "delivery_micros": latency(&self.delivery),
            "acknowledgement_micros": latency(&self.acknowledgement),
        })
        .to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, n: u64| {
            writeln!(f, "{name:<14}{n:>12}  {:>10}/s", self.per_second(n))
        };
        line(f, "sent", self.sent)?;
        if self.due > self.sent {
            line(f, "due, not sent", self.due - self.sent)?;
        }
        if self.qos > 0 {
            line(f, "acknowledged", self.acknowledged)?;
            line(f, "refused", self.refused)?;
        }
        line(f, "received", self.received)?;
        writeln!(
            f,
            "missing {}, duplicates {}, out of order {}",
            self.missing, self.duplicates, self.reordered
        )?;
        write!(f, "{:<14}", "µs since due")?;
        for (_, name) in PERCENTILES {
            write!(f, "{name:>10}")?;
        }
        writeln!(f, "{:>10}", "max")?;
        for (name, histogram) in [("delivery", &self.delivery), ("acknowledged", &self.acknowledgement)] {
            if histogram.total() == 0 {
                continue;
            }
            write!(f, "{name:<14}")?;
            for (mille, _) in PERCENTILES {
                write!(f, "{:>10}", histogram.per_mille(mille))?;
            }
            writeln!(f, "{:>10}", histogram.max())?;
        }
        Ok(())
    }
}
