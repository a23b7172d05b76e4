//! How much of the memory budget is in use, and what follows from it: from one share on no client is taken,
//! from the next on publishers are not read, and from the last on consumers to whom nothing is owed are cut. The
//! kernel's out-of-memory killer asks nobody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Metrics, process};
use crate::config::Limits;

/// Time between two looks.
const BEAT: Duration = Duration::from_millis(500);

/// The level in force. Acceptors and shards look at it.
#[derive(Debug, Default)]
pub struct Pressure {
    level: AtomicU8,
    budget: AtomicU64,
}

impl Pressure {
    /// `percent` of the budget is in use.
    pub fn set(&self, percent: u64, refuse: u8, pause: u8, cut: u8) -> u8 {
        let level = [refuse, pause, cut].into_iter().filter(|from| percent >= u64::from(*from)).count() as u8;
        self.level.store(level, Ordering::Relaxed);
        level
    }

    /// No connection is to be taken.
    pub fn refuses(&self) -> bool {
        self.level.load(Ordering::Relaxed) >= 1
    }

    /// Publishers are not to be read.
    pub fn pauses(&self) -> bool {
        self.level.load(Ordering::Relaxed) >= 2
    }

    /// Registers budget and level.
    pub fn register(self: &Arc<Self>, metrics: &Metrics) {
        let pressure = Arc::clone(self);
        metrics.register(move |samples| {
            let budget = pressure.budget.load(Ordering::Relaxed);
            samples.gauge("mast_memory_budget_bytes", "Memory that the broker may use.", &[], budget);
            let help = "0: enough memory; 1: no clients are taken; 2: publishers are not read either; 3: consumers are cut.";
            samples.gauge(
                "mast_memory_pressure",
                help,
                &[],
                u64::from(pressure.level.load(Ordering::Relaxed)),
            );
        });
    }
}

/// Looks at the memory for as long as it is polled. `limits` gives those in force, `cut` has connections cut.
pub async fn watch(pressure: Arc<Pressure>, limits: impl Fn() -> Limits, cut: impl Fn()) {
    let mut last = 0;
    loop {
        let limits = limits();
        let budget = match limits.memory_budget {
            0 => process::memory_budget(),
            set => Some(set),
        };
        // Without /proc nothing is known, so nothing is held back.
        if let (Some(budget @ 1..), Some(used)) = (budget, process::private_bytes()) {
            pressure.budget.store(budget, Ordering::Relaxed);
            let percent = used.saturating_mul(100) / budget;
            let (refuse, pause) = (limits.memory_refuse_percent, limits.memory_pause_percent);
            let level = pressure.set(percent, refuse, pause, limits.memory_cut_percent);
            if level == 3 {
                cut();
            }
            if level != last {
                let does = [
                    "all is taken",
                    "new clients are refused",
                    "publishers are not read",
                    "large QoS 0 consumers are cut",
                ];
                tracing::warn!(percent, budget, "memory: {}", does[usize::from(level)]);
                last = level;
            }
        }
        tokio::time::sleep(BEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_follow_the_percentages() {
        let pressure = Pressure::default();
        for (percent, level) in
            [(0, 0), (79, 0), (80, 1), (90, 2), (94, 2), (95, 3), (200, 3), (85, 1), (1, 0)]
        {
            assert_eq!(pressure.set(percent, 80, 90, 95), level, "{percent}");
            assert_eq!((pressure.refuses(), pressure.pauses()), (level >= 1, level >= 2));
        }
    }
}
