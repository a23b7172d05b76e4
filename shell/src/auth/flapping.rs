//! Clients that connect again and again: whoever does it too often within a window is banned for a while. Two clients
//! that share an id, and take the session from each other for ever, look the same.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::config::Flapping;

/// Clients that are remembered. A flood of more forgets the oldest: other bounds deal with that one.
const MAX_CLIENTS: usize = 65_536;

/// The connects of one client in the present window.
struct Connects {
    since: Duration,
    count: u32,
}

#[derive(Default)]
struct Seen {
    /// By tenant and client id.
    clients: HashMap<(String, String), Connects>,
    /// In the order in which their windows began.
    order: VecDeque<((String, String), Duration)>,
}

/// Counts connects.
#[derive(Default)]
pub struct FlapDetector(Mutex<Seen>);

impl FlapDetector {
    /// A client was let in. True if it came too often. `now` counts from any fixed start.
    pub fn connected(&self, rule: &Flapping, tenant: &str, client_id: &str, now: Duration) -> bool {
        if rule.max_connects == 0 {
            return false;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { clients, order } = &mut *seen;
        while let Some((key, since)) = order.front() {
            if now.saturating_sub(*since) < rule.window && clients.len() < MAX_CLIENTS {
                break;
            }
            // A later window of the same client has an entry of its own.
            if clients.get(key).is_some_and(|c| c.since == *since) {
                clients.remove(key);
            }
            order.pop_front();
        }
        let key = (tenant.to_owned(), client_id.to_owned());
        let connects = clients.entry(key.clone()).or_insert_with(|| {
            order.push_back((key.clone(), now));
            Connects { since: now, count: 0 }
        });
        connects.count += 1;
        let too_often = connects.count > rule.max_connects;
        if too_often {
            // After the ban it begins anew.
            clients.remove(&key);
        }
        too_often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_comes_too_often_within_the_window_is_found_and_then_begins_anew() {
        let rule = Flapping { max_connects: 3, window: Duration::from_secs(10), ban: Duration::from_secs(1) };
        let detector = FlapDetector::default();
        let at = |id: &str, second| detector.connected(&rule, "acme", id, Duration::from_secs(second));
        assert_eq!([at("c", 0), at("c", 1), at("c", 2), at("c", 3)], [false, false, false, true]);
        assert!(!at("c", 4), "it begins anew");
        assert!(!detector.connected(&rule, "globex", "c", Duration::from_secs(4)), "of another tenant");
        // Slowly, for ever.
        assert!((0..100).all(|n| !at("d", n * 5)));
        let off = Flapping { max_connects: 0, ..rule };
        assert!((0..100).all(|_| !detector.connected(&off, "acme", "e", Duration::ZERO)));
    }
}
