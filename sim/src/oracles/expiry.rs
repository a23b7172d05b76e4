//! A message's expiry interval never grows on its way [MQTT-3.3.2-6], except by what the wall clock was set
//! back: it is by the wall clock that messages expire.

use super::{Oracle, Rest};
use crate::facts::Fact;
use crate::ledger::Ledger;

/// See the module.
#[derive(Debug)]
pub struct Expiry;

impl Oracle for Expiry {
    fn name(&self) -> &'static str {
        "message expiry"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        let Fact::Delivered(delivery) = fact else { return Ok(()) };
        let Some(publication) = delivery.uid.map(|uid| &ledger.publications[uid as usize]) else {
            return Ok(());
        };
        let back = ledger.clock_back.div_ceil(1_000_000);
        match delivery.expiry {
            Some(left) if publication.expiry_secs == 0 => Err(format!("{left} s of {publication:?}")),
            Some(left) if u64::from(left) > u64::from(publication.expiry_secs) + back => {
                Err(format!("{left} s are left of {publication:?}"))
            }
            None if publication.expiry_secs > 0 && ledger.clients[delivery.client].v5 => {
                Err(format!("no expiry interval in a delivery of {publication:?}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn at_rest(&mut self, _: &Ledger, _: &Rest) -> Result<(), String> {
        Ok(())
    }
}
