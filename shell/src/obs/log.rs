//! Structured logs: set-up, text of clients made harmless, repetition held back.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    io::IsTerminal,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, registry::LookupSpan, reload};

use crate::config::{LogFormat, LogLevel};

type ReloadTargets = reload::Handle<Targets, tracing_subscriber::Registry>;

/// Changes the level of a running log.
#[derive(Clone)]
pub struct LogHandle(ReloadTargets);

impl LogHandle {
    /// Sets the level. The error means that the log is gone, which only happens at the end of the process.
    pub fn set_level(&self, level: LogLevel) -> Result<(), LogError> {
        self.0.reload(targets(level)).map_err(|e| LogError(e.to_string()))
    }
}

/// Logging cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
#[error("logging: {0}")]
pub struct LogError(String);

/// Starts logging to standard error, for the whole process.
pub fn start(level: LogLevel, format: LogFormat) -> Result<LogHandle, LogError> {
    let (filter, handle) = reload::Layer::new(targets(level));
    let json = match format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let subscriber = tracing_subscriber::registry().with(output(json).with_filter(filter));
    tracing::subscriber::set_global_default(subscriber).map_err(|e| LogError(e.to_string()))?;
    Ok(LogHandle(handle))
}

fn output<S>(json: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if json {
        Box::new(layer.json().flatten_event(true).with_current_span(false).with_span_list(false))
    } else {
        Box::new(layer.with_ansi(std::io::stderr().is_terminal()).with_target(false))
    }
}

/// Our own crates at `level`; libraries from `warn`, or all of it at `trace`.
fn targets(level: LogLevel) -> Targets {
    let filter = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let libraries = if filter == LevelFilter::TRACE { filter } else { filter.min(LevelFilter::WARN) };
    Targets::new().with_default(libraries).with_target("mast", filter).with_target("mast_core", filter)
}

/// Text that came from a client: control characters escaped, length capped. For use in log fields with `%`.
#[derive(Clone, Copy)]
pub struct ClientText<'a> {
    text: &'a str,
    max_chars: usize,
}

impl<'a> ClientText<'a> {
    /// Shows at most `max_chars` characters of `text` (`limits.max_log_text`).
    pub fn new(text: &'a str, max_chars: usize) -> Self {
        Self { text, max_chars }
    }
}

impl fmt::Display for ClientText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let mut chars = self.text.char_indices();
        for (_, c) in chars.by_ref().take(self.max_chars) {
            // Bidirectional controls can make a terminal show another text than the one that is there.
            if c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                f.write_char(c)?;
            }
        }
        let rest = chars.as_str().len();
        if rest > 0 { write!(f, "…(+{rest} bytes)") } else { Ok(()) }
    }
}

/// Lets one event per cause and interval through, and counts the rest.
#[derive(Debug)]
pub struct RateLimited<K> {
    interval: Duration,
    max_causes: usize,
    causes: Mutex<HashMap<K, Cause>>,
    held_back: AtomicU64,
}

#[derive(Debug)]
struct Cause {
    next: Duration,
    suppressed: u64,
}

impl<K: Eq + Hash> RateLimited<K> {
    /// At most `max_causes` causes are told apart at a time.
    pub fn new(interval: Duration, max_causes: usize) -> Self {
        Self { interval, max_causes, causes: Mutex::new(HashMap::new()), held_back: AtomicU64::new(0) }
    }

    /// Events that were held back so far.
    pub fn held_back(&self) -> u64 {
        self.held_back.load(Ordering::Relaxed)
    }

    /// `Some(n)`: log it, and say that `n` events like it were held back since the last one. `now` counts from
    /// any fixed start.
    pub fn permit(&self, cause: K, now: Duration) -> Option<u64> {
        let mut causes = self.causes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if causes.len() >= self.max_causes && !causes.contains_key(&cause) {
            causes.retain(|_, c| c.next > now || c.suppressed > 0);
            if causes.len() >= self.max_causes {
                self.held_back.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        let entry = causes.entry(cause).or_insert(Cause { next: now, suppressed: 0 });
        if now < entry.next {
            entry.suppressed += 1;
            self.held_back.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        entry.next = now + self.interval;
        Some(std::mem::take(&mut entry.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_text_is_escaped_and_capped() {
        let shown = |text: &str, max| ClientText::new(text, max).to_string();
        assert_eq!(shown("a\nb\u{1b}[31m", 99), "a\\u{a}b\\u{1b}[31m");
        assert_eq!(shown("\u{202e}x", 99), "\\u{202e}x");
        assert_eq!(shown("ärger", 2), "är…(+3 bytes)");
        assert_eq!(shown("quote\" and space", 99), "quote\" and space");
    }

    #[test]
    fn repeated_events_are_held_back_and_counted() {
        let limited = RateLimited::new(Duration::from_secs(10), 2);
        let at = Duration::from_secs;
        assert_eq!(limited.permit("a", at(0)), Some(0));
        assert_eq!(limited.permit("a", at(1)), None);
        assert_eq!(limited.permit("a", at(2)), None);
        assert_eq!(limited.permit("b", at(2)), Some(0));
        assert_eq!(limited.permit("c", at(3)), None, "too many causes at a time");
        assert_eq!(limited.permit("a", at(10)), Some(2));
        assert_eq!(limited.permit("c", at(30)), Some(0), "an idle cause made room");
    }
}
