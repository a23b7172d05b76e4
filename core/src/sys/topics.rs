//! `$SYS/broker/…` per tenant, with Mosquitto's common names. Every shard reports its counters to the
//! tenant's home shard, which publishes the sums as retained messages of that tenant. They live in memory
//! alone: no restart should bring back yesterday's load.

use crate::ids::{SessionUid, ShardIx, TenantId};
use crate::message::{Message, MessageParts, QoS};
use crate::session::plane::Outgoing;
use crate::shard::peer::PeerMsg;
use crate::shard::tenants::Retained;
use crate::shard::{EMBEDDED, Shard};
use crate::store::position::Seq;
use crate::sys::TenantCounters;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Shard {
    /// Reports to the home shards; home shards publish what they last heard.
    pub(crate) fn publish_sys(&mut self) {
        let tenants: Vec<TenantId> = self.tenancy.registry.ids().collect();
        for id in tenants {
            let Some(counters) = self.tenant(id).map(|t| t.counters.clone()) else { continue };
            let home = self.home(id);
            self.send(home, PeerMsg::SysReport { tenant: id, counters: Box::new(counters) });
        }
    }

    /// A shard's counters of a tenant whose home is here.
    pub(crate) fn sys_report(&mut self, from: ShardIx, id: TenantId, counters: TenantCounters) {
        let me = self.me;
        let Some(tenant) = self.tenant(id) else { return };
        tenant.reports.insert(from, counters);
        if from != me {
            return;
        }
        let mut sum = TenantCounters::default();
        for report in tenant.reports.values() {
            sum.connected += report.connected;
            sum.sessions += report.sessions;
            sum.subscriptions += report.subscriptions;
            sum.retained += report.retained;
            sum.publish_in += report.publish_in;
            sum.publish_bytes_in += report.publish_bytes_in;
            sum.publish_out += report.publish_out;
        }
        let values: [(&str, u64); 11] = [
            ("clients/connected", sum.connected),
            ("clients/active", sum.connected),
            ("clients/disconnected", sum.sessions.saturating_sub(sum.connected)),
            ("clients/inactive", sum.sessions.saturating_sub(sum.connected)),
            ("clients/total", sum.sessions),
            ("subscriptions/count", sum.subscriptions),
            ("retained messages/count", sum.retained),
            ("messages/received", sum.publish_in),
            ("publish/messages/received", sum.publish_in),
            ("publish/bytes/received", sum.publish_bytes_in),
            ("publish/messages/sent", sum.publish_out),
        ];
        for (name, value) in values {
            self.publish_sys_value(id, name, &value.to_string());
        }
        self.publish_sys_value(id, "version", concat!("mast ", env!("CARGO_PKG_VERSION")));
    }

    fn publish_sys_value(&mut self, id: TenantId, name: &str, value: &str) {
        let mut topic = String::from("$SYS/broker/");
        topic.push_str(name);
        let Some(tenant) = self.tenant(id) else { return };
        let same = tenant.retained.get(&topic).is_some_and(|r| r.message.payload() == value.as_bytes());
        if same {
            return;
        }
        let message = Message::new(&MessageParts {
            tenant: id,
            qos: QoS::AtMostOnce,
            retain: true,
            expires: None,
            publisher: SessionUid(0),
            topic: &topic,
            props: &[],
            payload: value.as_bytes(),
        });
        let retained =
            Retained { partition: EMBEDDED, seq: Seq(0), message: alloc::sync::Arc::clone(&message) };
        tenant.set_retained(&topic, retained);
        self.route(&mut Outgoing::shared(&message, None));
    }
}
