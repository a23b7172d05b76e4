//! Metrics as Prometheus text: sources are closures that write samples when somebody asks.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, PoisonError, RwLock},
};

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type Source = Box<dyn Fn(&mut Samples) + Send + Sync>;

/// All sources. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    sources: Arc<RwLock<Vec<Source>>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics(..)")
    }
}

impl Metrics {
    /// Adds a source. It is called for every scrape and must not block.
    pub fn register(&self, source: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.sources.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(source));
    }

    /// Asks all sources.
    pub fn render(&self) -> String {
        let mut samples = Samples::default();
        for source in self.sources.read().unwrap_or_else(PoisonError::into_inner).iter() {
            source(&mut samples);
        }
        samples.into_text()
    }
}

/// Labels of a sample. Names come from {tenant, node, listener, qos, direction, reason, packet, version}: never
/// a client id or a topic, whose number has no bound.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// What the sources wrote, grouped by metric.
#[derive(Debug, Default)]
pub struct Samples {
    families: BTreeMap<&'static str, Family>,
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    lines: String,
}

impl Samples {
    /// A count that only grows; the name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: u64) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.sample(name, help, "counter", labels, &value);
    }

    /// A counter of seconds or another fractional unit.
    pub fn counter_f64(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.sample(name, help, "counter", labels, &value);
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: u64) {
        self.sample(name, help, "gauge", labels, &value);
    }

    /// A gauge with a fraction.
    pub fn gauge_f64(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.sample(name, help, "gauge", labels, &value);
    }

    /// A histogram: `counts` holds the observations of each bucket (not cumulative), one more than `bounds` for
    /// what lies above the last bound; `sum` is in the metric's base unit.
    pub fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        debug_assert_eq!(bounds.len() + 1, counts.len(), "{name}");
        let family = self.family(name, help, "histogram");
        let mut total = 0u64;
        for (i, count) in counts.iter().enumerate() {
            total += count;
            let bound = bounds.get(i).map_or_else(|| "+Inf".to_owned(), ToString::to_string);
            family.line(name, "_bucket", labels, Some(("le", &bound)), &total);
        }
        family.line(name, "_sum", labels, None, &sum);
        family.line(name, "_count", labels, None, &total);
    }

    fn sample(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: Labels<'_>,
        value: &dyn std::fmt::Display,
    ) {
        self.family(name, help, kind).line(name, "", labels, None, value);
    }

    fn family(&mut self, name: &'static str, help: &'static str, kind: &'static str) -> &mut Family {
        let family = self.families.entry(name).or_insert(Family { help, kind, lines: String::new() });
        debug_assert_eq!(family.kind, kind, "{name} has two kinds");
        family
    }

    fn into_text(self) -> String {
        let mut out = String::new();
        for (name, family) in self.families {
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            let head = write!(out, "# HELP {name} {help}\n# TYPE {name} {}\n", family.kind);
            debug_assert!(head.is_ok(), "writing to a string cannot fail");
            out.push_str(&family.lines);
        }
        out
    }
}

impl Family {
    fn line(
        &mut self,
        name: &str,
        suffix: &str,
        labels: Labels<'_>,
        extra: Option<(&str, &str)>,
        value: &dyn std::fmt::Display,
    ) {
        self.lines.push_str(name);
        self.lines.push_str(suffix);
        let mut separator = '{';
        for (label, text) in labels.iter().copied().chain(extra) {
            self.lines.push(separator);
            self.lines.push_str(label);
            self.lines.push_str("=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.lines.push_str("\\\\"),
                    '"' => self.lines.push_str("\\\""),
                    '\n' => self.lines.push_str("\\n"),
                    other => self.lines.push(other),
                }
            }
            self.lines.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.lines.push('}');
        }
        let written = writeln!(self.lines, " {value}");
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_stand_together_under_one_head() {
        let metrics = Metrics::default();
        for tenant in ["a", "b\"\\\n"] {
            metrics.register(move |s| {
                s.counter("mast_x_total", "Things.", &[("tenant", tenant), ("qos", "1")], 3);
                s.gauge("mast_a", "A gauge.", &[], 7);
            });
        }
        assert_eq!(
            metrics.render(),
            "# HELP mast_a A gauge.\n# TYPE mast_a gauge\nmast_a 7\nmast_a 7\n\
             # HELP mast_x_total Things.\n# TYPE mast_x_total counter\n\
             mast_x_total{tenant=\"a\",qos=\"1\"} 3\n\
             mast_x_total{tenant=\"b\\\"\\\\\\n\",qos=\"1\"} 3\n"
        );
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_in_infinity() {
        let mut samples = Samples::default();
        samples.histogram("mast_h_seconds", "Times.", &[("qos", "0")], &[0.1, 1.0], &[2, 3, 1], 4.5);
        assert_eq!(
            samples.into_text(),
            "# HELP mast_h_seconds Times.\n# TYPE mast_h_seconds histogram\n\
             mast_h_seconds_bucket{qos=\"0\",le=\"0.1\"} 2\n\
             mast_h_seconds_bucket{qos=\"0\",le=\"1\"} 5\n\
             mast_h_seconds_bucket{qos=\"0\",le=\"+Inf\"} 6\n\
             mast_h_seconds_sum{qos=\"0\"} 4.5\nmast_h_seconds_count{qos=\"0\"} 6\n"
        );
    }
}
