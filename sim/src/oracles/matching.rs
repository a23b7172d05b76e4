//! Nothing is delivered that no subscription asks for, and subscription identifiers name subscriptions
//! that match [MQTT-3.3.4-3].

use super::{Oracle, Rest};
use crate::facts::{Delivery, Fact};
use crate::ledger::{Ledger, SubFacts, inner};
use mast_core::topic::naive::naive_matches;

/// See the module.
#[derive(Debug)]
pub struct Matching;

impl Oracle for Matching {
    fn name(&self) -> &'static str {
        "no delivery without a subscription"
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
    let session = &ledger.sessions[delivery.client];
    // A resend, and a QoS 2 message whose id was reserved, finishes what was begun [MQTT-3.10.4-3].
    if session.blind || delivery.dup || delivery.repeated || delivery.qos == 2 {
        return Ok(());
    }
    let matching: Vec<&SubFacts> = session.subs.values().filter(|s| s.matches(&delivery.topic)).collect();
    if matching.is_empty() {
        return Err(format!("client {}: nothing matches {delivery:?}", delivery.client));
    }
    // What was queued under an earlier, higher QoS may still come with it.
    let ever = session
        .ever_qos
        .iter()
        .any(|(filter, qos)| *qos >= delivery.qos && naive_matches(inner(filter), &delivery.topic));
    if !ever && !matching.iter().any(|s| s.unsure) {
        return Err(format!("client {}: QoS above what was granted: {delivery:?}", delivery.client));
    }
    if matching.iter().any(|s| s.unsure) {
        return Ok(());
    }
    if let Some(id) = delivery.ids.iter().find(|id| !matching.iter().any(|s| s.id == **id)) {
        // The subscription may have had another identifier when the message was queued.
        if session.changed_ids.contains(id) {
            return Ok(());
        }
        return Err(format!("client {}: identifier {id} does not belong to {delivery:?}", delivery.client));
    }
    if came_before(delivery, &matching, ledger) {
        return Err(format!(
            "client {}: stored and acknowledged before its SUBSCRIBE was sent: {delivery:?}",
            delivery.client
        ));
    }
    let own = delivery.uid.is_some_and(|uid| ledger.publications[uid as usize].client == delivery.client);
    // A message of an earlier session of the same client id is nobody's own.
    if own && !delivery.retain && matching.iter().all(|s| s.spec.no_local) {
        let uid = delivery.uid.unwrap_or_default();
        let sent = ledger.publications[uid as usize].sent_at.unwrap_or(0);
        // Options that changed since do not concern it.
        let since = |s: &&SubFacts| s.since.is_some_and(|at| at < sent);
        if sent > session.began_at && matching.iter().all(since) {
            return Err(format!("[MQTT-3.8.3-3] client {}: its own message: {delivery:?}", delivery.client));
        }
    }
    Ok(())
}

/// True for a message that was acknowledged to its publisher before any of the subscriptions was asked for: it may come
/// as a retained one, and not as if the subscription had been there.
fn came_before(delivery: &Delivery, matching: &[&SubFacts], ledger: &Ledger) -> bool {
    let session = &ledger.sessions[delivery.client];
    let Some(publication) = delivery.uid.map(|uid| &ledger.publications[uid as usize]) else { return false };
    let Some(acked) = publication.acked_at.filter(|_| publication.sends == 1 && !publication.refused) else {
        return false;
    };
    let ever = session.ever_qos.keys().filter(|f| naive_matches(inner(f), &delivery.topic)).count();
    // A new member of a shared group gets what the group has waiting.
    if session.ever_qos.keys().any(|f| f.starts_with("$share/") && naive_matches(inner(f), &delivery.topic)) {
        return false;
    }
    !delivery.retain
        && publication.qos > 0
        && ever == matching.len()
        && matching.iter().all(|s| s.asked > acked)
}
