//! Making a failing scenario small: operations and faults are left out, in ever smaller groups, as long as
//! the same oracle still fails.

use crate::scenario::Scenario;
use crate::world::run;

/// The smallest failing scenario that was found with at most `budget` runs.
#[must_use]
pub fn shrink(scenario: &Scenario, oracle: &str, budget: u32) -> Scenario {
    let mut best = scenario.clone();
    let mut left = budget;
    let mut fails = |candidate: &Scenario, left: &mut u32| {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        run(candidate).failure.is_some_and(|f| f.oracle == oracle)
    };
    loop {
        let before = best.ops.len() + best.faults.len();
        cut(&mut best, &mut left, &mut fails, |s| &mut s.ops);
        cut(&mut best, &mut left, &mut fails, |s| &mut s.faults);
        narrow(&mut best, &mut left, &mut fails);
        if left == 0 || best.ops.len() + best.faults.len() == before {
            return best;
        }
    }
}

fn cut<T: Clone>(
    best: &mut Scenario,
    left: &mut u32,
    fails: &mut impl FnMut(&Scenario, &mut u32) -> bool,
    list: impl Fn(&mut Scenario) -> &mut Vec<T>,
) {
    let mut size = list(best).len().div_ceil(2);
    while size > 0 && *left > 0 {
        let mut at = 0;
        while at < list(best).len() {
            let mut candidate = best.clone();
            let all = list(&mut candidate);
            let end = (at + size).min(all.len());
            all.drain(at..end);
            if fails(&candidate, left) {
                *best = candidate;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
}

/// Fewer publishes per operation, fewer shards.
fn narrow(best: &mut Scenario, left: &mut u32, fails: &mut impl FnMut(&Scenario, &mut u32) -> bool) {
    for at in 0..best.ops.len() {
        let mut candidate = best.clone();
        if let crate::scenario::Op::Publish { count, .. } = &mut candidate.ops[at].op
            && *count > 1
        {
            *count = 1;
            if fails(&candidate, left) {
                *best = candidate;
            }
        }
    }
    while best.topology.shards > 1 {
        let mut candidate = best.clone();
        candidate.topology.shards -= 1;
        if !fails(&candidate, left) {
            return;
        }
        *best = candidate;
    }
}
