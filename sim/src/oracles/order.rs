//! Order: what one publisher sends to one topic with one QoS reaches a subscriber in that order, first
//! deliveries counted [MQTT-4.6.0-5], [MQTT-4.6.0-6]. Shared subscriptions are not ordered.

use super::{Oracle, Rest};
use crate::facts::{Delivery, Fact, Uid};
use crate::ledger::{Known, Ledger, SubFacts};
use mast_core::authz::Access;
use std::collections::BTreeMap;

/// Receiver and incarnation, publisher, topic, QoS of publish and of delivery.
type Stream = (usize, u32, usize, String, u8, u8);

/// See the module.
#[derive(Debug, Default)]
pub struct Order {
    last: BTreeMap<Stream, (u32, Uid)>,
}

impl Oracle for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        let Fact::Delivered(delivery) = fact else { return Ok(()) };
        self.judge(delivery, ledger)
    }

    fn at_rest(&mut self, _: &Ledger, _: &Rest) -> Result<(), String> {
        Ok(())
    }
}

impl Order {
    fn judge(&mut self, delivery: &Delivery, ledger: &Ledger) -> Result<(), String> {
        let Some(uid) = delivery.uid.filter(|_| !delivery.repeated && !delivery.retain) else {
            return Ok(());
        };
        let session = &ledger.sessions[delivery.client];
        let publication = &ledger.publications[uid as usize];
        let first = session.received.get(&uid).is_some_and(|r| r.plain == 1 && r.forgotten == 0);
        if publication.will || !first || session.blind || session.has_shared(&delivery.topic) {
            return Ok(());
        }
        let topic = delivery.topic.clone();
        let stream =
            (delivery.client, session.incarnation, publication.client, topic, publication.qos, delivery.qos);
        let last = self.last.entry(stream).or_default();
        if publication.seq < last.0 {
            let earlier = &ledger.publications[last.1 as usize];
            // Sent first before the receiver subscribed: what it saw first may be the tail of the first try.
            let sent = publication.sent_at.unwrap_or(0);
            let own = publication.client == delivery.client;
            let owed = |sub: &SubFacts| {
                sub.since.is_some_and(|at| at < sent)
                    && sub.granted > 0
                    && !sub.unsure
                    && !(own && sub.spec.no_local)
                    && sub.matches(&delivery.topic)
            };
            if publication.sends > 1 && !session.subs.values().any(owed) {
                return Ok(());
            }
            // What was sent again starts its expiry anew; the copy that came in order may have expired.
            let expiry = u64::from(publication.expiry_secs) * 1_000_000;
            if publication.sends > 1 && expiry > 0 && sent + expiry < ledger.now + ledger.clock_forward {
                return Ok(());
            }
            // The copy that came in order may have been refused, by rules that were changed since.
            let user = &ledger.clients[publication.client].name;
            let allowed = ledger.rights.verdict(user, Access::Publish, &delivery.topic, sent, ledger.now);
            if publication.sends > 1 && allowed != Known::Yes {
                return Ok(());
            }
            // Withheld when it was due, and read once more after a crash under other rules.
            let user = &ledger.clients[delivery.client].name;
            let readable = ledger.rights.verdict(user, Access::Receive, &delivery.topic, sent, ledger.now);
            if ledger.crashes > 0 && readable != Known::Yes {
                return Ok(());
            }
            // A QoS 0 message that is retained goes through the store; nothing holds its publisher's next
            // connection back meanwhile.
            if publication.qos == 0 && ledger.sessions[publication.client].changed_at > sent {
                return Ok(());
            }
            // A store that loses one write and takes the next reorders what the client sends again.
            // So does QoS 0 that was dropped for a slow consumer the first time.
            if delivery.qos == 0 && (publication.sends > 1 || earlier.sends > 1) {
                return Ok(());
            }
            // So does an offline limit that drops the first copies, or refuses one by a PUBACK that is lost.
            if (ledger.store_harmed || ledger.offline_limited) && (publication.sends > 1 || earlier.sends > 1)
            {
                return Ok(());
            }
            // What was forbidden when it was sent first may be allowed when it is sent again.
            let judge = |client: usize, access| {
                let user = &ledger.clients[client].name;
                ledger.rights.verdict(user, access, &publication.topic, sent, ledger.now) == Known::Yes
            };
            if !judge(publication.client, Access::Publish) || !judge(delivery.client, Access::Receive) {
                return Ok(());
            }
            // Order is kept within a connection of the publisher: what waits for the store (a retained
            // message) is not waited for by the next one.
            let alone = publication.sends <= 1 && publication.acked_at.is_none();
            if publication.link != earlier.link && alone {
                return Ok(());
            }
            return Err(format!(
                "client {}: {uid} (number {}) came after {} (number {}): {delivery:?}",
                delivery.client, publication.seq, last.1, last.0
            ));
        }
        *last = (publication.seq, uid);
        Ok(())
    }
}
