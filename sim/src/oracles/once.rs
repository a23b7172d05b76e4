//! QoS 2 exactly once, QoS 0 at most once, and QoS 1 not twice without a cause.

use super::{Oracle, Rest};
use crate::facts::{Delivery, Fact};
use crate::ledger::Ledger;

/// See the module.
#[derive(Debug, Default)]
pub struct Once;

impl Oracle for Once {
    fn name(&self) -> &'static str {
        "exactly once"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        let Fact::Delivered(delivery) = fact else { return Ok(()) };
        judge(delivery, ledger)
    }

    fn at_rest(&mut self, _: &Ledger, _: &Rest) -> Result<(), String> {
        Ok(())
    }
}

fn judge(delivery: &Delivery, ledger: &Ledger) -> Result<(), String> {
    let Some(uid) = delivery.uid.filter(|_| !delivery.repeated) else { return Ok(()) };
    let session = &ledger.sessions[delivery.client];
    let Some(received) = session.received.get(&uid) else { return Ok(()) };
    let publication = &ledger.publications[uid as usize];
    let subscribes = session.subscribes_matching(&delivery.topic) as u32;
    // A shared subscription brings its own copy.
    let copies = session.copies(&delivery.topic);
    let scans = if publication.retain { subscribes } else { 0 };
    let total = received.plain + received.retained;
    let tell = |what: &str| {
        Err(format!("client {}: {what}: {received:?} of {publication:?} by {delivery:?}", delivery.client))
    };
    if session.blind || publication.doubtful {
        return Ok(());
    }
    if publication.qos == 0 && total > copies + scans {
        return tell("QoS 0 more than once");
    }
    // A group's cursor and its members' windows are not one write: a crash may repeat a group's delivery.
    let crashed = ledger.crashed_at.iter().any(|at| *at >= publication.sent_at.unwrap_or(0));
    let repeats = crashed && session.has_shared(&delivery.topic);
    if publication.qos == 2 && delivery.qos == 2 && !repeats && received.qos2 > copies + scans {
        return tell("QoS 2 more than once");
    }
    let sent = publication.sent_at.unwrap_or(0);
    let undisturbed = publication.sends <= 1 && ledger.crashed_at.iter().all(|at| *at < sent);
    if undisturbed && session.changed_at < sent && copies <= 1 && total > copies + scans && !publication.will
    {
        return tell("twice without a cause");
    }
    Ok(())
}
