//! Oracles: each judges the facts by one promise. They share the ledger and nothing else.

pub mod auth;
pub mod expiry;
pub mod foreign;
pub mod loss;
pub mod matching;
pub mod once;
pub mod order;
pub mod present;
pub mod replay;
pub mod retained;
pub mod rights;
pub mod shared;
pub mod wills;
pub mod wire;

use crate::facts::Fact;
use crate::ledger::Ledger;
use mast_core::sys::Drop;

/// What is known of the node when everything has come to rest.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// Drops by reason, over all shards and lives of the node.
    pub drops: [u64; mast_core::sys::DROPS.len()],
    /// Retained messages of the store: (tenant, topic, publication or `None` if it is none of ours).
    pub retained: Vec<(u8, String, Option<u32>)>,
}

impl Rest {
    /// How often something was dropped for a reason.
    #[must_use]
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.drops[reason as usize]
    }
}

/// A judge of one promise.
pub trait Oracle {
    /// Its name.
    fn name(&self) -> &'static str;

    /// A fact came; the ledger has it already.
    ///
    /// # Errors
    /// How it breaks the promise.
    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String>;

    /// Faults are long over, all clients are connected, nothing moves.
    ///
    /// # Errors
    /// How what is missing breaks the promise.
    fn at_rest(&mut self, ledger: &Ledger, rest: &Rest) -> Result<(), String>;
}

/// All oracles of a run.
pub struct Judges {
    oracles: Vec<Box<dyn Oracle>>,
    /// The first promise that was broken: oracle and how.
    pub failure: Option<(&'static str, String)>,
}

impl Default for Judges {
    fn default() -> Judges {
        Judges {
            oracles: vec![
                Box::new(present::Present),
                Box::new(matching::Matching),
                Box::new(once::Once),
                Box::new(order::Order::default()),
                Box::new(shared::SharedGroups::default()),
                Box::new(wills::Wills::default()),
                Box::new(retained::Retained::default()),
                Box::new(replay::RetainedOwed::default()),
                Box::new(loss::Loss),
                Box::new(rights::RightsOracle::default()),
                Box::new(auth::Authentication::default()),
                Box::new(expiry::Expiry),
            ],
            failure: None,
        }
    }
}

impl Judges {
    /// Shows a fact to all.
    pub fn take(&mut self, fact: &Fact, ledger: &Ledger) {
        for oracle in &mut self.oracles {
            if self.failure.is_none()
                && let Err(how) = oracle.take(fact, ledger)
            {
                self.failure = Some((oracle.name(), how));
            }
        }
    }

    /// Everything is at rest.
    pub fn at_rest(&mut self, ledger: &Ledger, rest: &Rest) {
        for oracle in &mut self.oracles {
            if self.failure.is_none()
                && let Err(how) = oracle.at_rest(ledger, rest)
            {
                self.failure = Some((oracle.name(), how));
            }
        }
    }
}
