//! Session Present tells the truth [MQTT-3.2.2-2], [MQTT-3.2.2-3].

use super::{Oracle, Rest};
use crate::facts::Fact;
use crate::ledger::{Known, Ledger};

/// See the module.
#[derive(Debug)]
pub struct Present;

impl Oracle for Present {
    fn name(&self) -> &'static str {
        "session present"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        let Fact::Connected { client, present, .. } = fact else { return Ok(()) };
        match (ledger.sessions[*client].expected_present, present) {
            (Known::Yes, false) => Err(format!("client {client}: its session is gone")),
            (Known::No, true) => Err(format!("client {client}: a session that cannot be there")),
            (Known::Yes | Known::Maybe, true) | (Known::No | Known::Maybe, false) => Ok(()),
        }
    }

    fn at_rest(&mut self, _: &Ledger, _: &Rest) -> Result<(), String> {
        Ok(())
    }
}
