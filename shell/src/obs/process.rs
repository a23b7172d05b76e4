//! Metrics of the process itself, from /proc.

use super::metrics::{Metrics, Samples};

/// Clock ticks per second in /proc/self/stat: fixed at 100 in Linux's interface to programs.
const TICKS: f64 = 100.0;

/// Registers build and process metrics.
pub fn register(metrics: &Metrics, node: &str) {
    let node = node.to_owned();
    metrics.register(move |samples| {
        let labels = &[("version", env!("CARGO_PKG_VERSION")), ("node", node.as_str())];
        samples.gauge("mast_build_info", "Constant 1; version and node's name are in the labels.", labels, 1);
        process(samples);
    });
}

/// What cannot be read is left out: a metric that is missing says more than a wrong zero.
fn process(samples: &mut Samples) {
    if let Some(bytes) = resident_bytes() {
        samples.gauge("mast_process_resident_memory_bytes", "Resident memory.", &[], bytes);
    }
    if let Some(seconds) = cpu_seconds() {
        samples.counter_f64("mast_process_cpu_seconds_total", "CPU time, user and system.", &[], seconds);
    }
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        samples.gauge("mast_process_open_files", "Open files.", &[], entries.count() as u64);
    }
    if let Some(limit) = open_file_limit() {
        samples.gauge("mast_process_max_files", "Limit on open files.", &[], limit);
    }
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Resident memory of this process that is backed by no file, in bytes: what the system cannot take back.
pub fn private_bytes() -> Option<u64> {
    status_bytes("RssAnon:").or_else(resident_bytes)
}

fn status_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name in parentheses and may hold anything; fields 14 and 15 are the times.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

/// The soft limit on open files.
pub fn open_file_limit() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|l| l.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The memory that this process may use, in bytes: the tightest limit of its control groups (version 2 or 1),
/// or the machine's memory.
pub fn memory_budget() -> Option<u64> {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let total: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let mut budget = total * 1024;
    // The file that names the groups: "0::/path" for version 2, "n:memory:/path" for version 1.
    for line in std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default().lines() {
        let (root, file, path) = match line.split_once("::") {
            Some((_, path)) => ("/sys/fs/cgroup", "memory.max", path),
            None => match line.split_once(":memory:") {
                Some((_, path)) => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", path),
                None => continue,
            },
        };
        // Every group above has its limit too.
        let mut path = path.trim_end_matches('/');
        loop {
            if let Some(limit) = number(&format!("{root}{path}/{file}")) {
                budget = budget.min(limit);
            }
            match path.rsplit_once('/') {
                Some((above, _)) => path = above,
                None => break,
            }
        }
    }
    Some(budget)
}

/// Raises the limit on open files as far as the system allows, and turns core dumps off: they would hold
/// passwords and messages. What the system refuses is logged.
pub fn limit_resources() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let files = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: files.maximum, maximum: files.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "the limit on open files could not be raised");
    }
    let cores = getrlimit(Resource::Core);
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: cores.maximum }) {
        tracing::warn!(%error, "core dumps could not be turned off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_budget_is_no_more_than_the_machine_has() {
        let budget = memory_budget().unwrap_or_default();
        assert!(budget > 16 << 20 && resident_bytes().is_some_and(|r| r < budget), "{budget}");
    }

    #[test]
    fn the_process_is_measured() {
        let metrics = Metrics::default();
        register(&metrics, "n1");
        let text = metrics.render();
        for name in [
            "mast_build_info{version=",
            "mast_process_resident_memory_bytes ",
            "mast_process_cpu_seconds_total ",
            "mast_process_open_files ",
            "mast_process_max_files ",
        ] {
            assert!(text.contains(name), "{name} is missing in {text}");
        }
    }
}
