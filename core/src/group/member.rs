//! The member's side: deliveries from a leader into a session, and handing them back.

use crate::ids::SessionId;
use crate::message::{Message, QoS};
use crate::session::feed::{Queued, Source};
use crate::shard::Shard;
use crate::shard::peer::{GroupRef, MemberRef, PeerMsg, Settled};
use crate::store::position::{Partition, Seq};
use alloc::sync::Arc;
use smallvec::SmallVec;

impl Shard {
    /// A leader chose one of our sessions.
    pub(crate) fn group_deliver(
        &mut self,
        group: GroupRef,
        delivery: u64,
        member: MemberRef,
        message: Arc<Message>,
        seq: Option<(Partition, Seq)>,
        qos: QoS,
    ) {
        let id = member.session;
        let here = self.plane.is_attached(id) && self.plane.session(id).is_some_and(|s| s.uid == member.uid);
        if !here {
            self.send(
                group.leader,
                PeerMsg::GroupSettled { group, delivery, member, outcome: Settled::Returned },
            );
            return;
        }
        if !self.may_receive(id, message.topic()) {
            self.send(
                group.leader,
                PeerMsg::GroupSettled { group, delivery, member, outcome: Settled::Done },
            );
            return;
        }
        let Some(session) = self.plane.session(id) else { return };
        let subscription = session.subscriptions.values().find(|s| s.group == Some(group));
        let mut sub_ids = SmallVec::new();
        if let Some(sub_id) = subscription.map(|s| s.id).filter(|i| *i != 0) {
            sub_ids.push(sub_id);
        }
        let retain = message.retain && subscription.is_some_and(|s| s.options.retain_as_published);
        let queued =
            Queued { message, pos: seq, source: Source::Group { group, delivery }, qos, retain, sub_ids };
        self.plane.enqueue(id, queued);
        self.plane.pump(id);
    }

    /// Hands back what a session has not begun; and at its end also what it has not acknowledged of QoS 1.
    pub(crate) fn return_group_messages(&mut self, id: SessionId) {
        self.return_group_messages_of(id, None);
    }

    /// The same for one group; `None` = all.
    pub(crate) fn return_group_messages_of(&mut self, id: SessionId, only: Option<GroupRef>) {
        let me = self.me;
        let Some(session) = self.plane.session(id) else { return };
        let member = MemberRef { shard: me, session: id, uid: session.uid };
        let mut returned = alloc::vec::Vec::new();
        session.feed.pending.retain(|queued| match queued.source {
            Source::Group { group, delivery } if only.is_none_or(|o| o == group) => {
                returned.push((group, delivery));
                false
            }
            Source::Group { .. } | Source::Log | Source::Live | Source::Retained { .. } => true,
        });
        session.feed.recount();
        // At once, and not as follow-ups: what comes after a member's leaving is not heard any more.
        for (group, delivery) in returned {
            self.send(
                group.leader,
                PeerMsg::GroupSettled { group, delivery, member, outcome: Settled::Returned },
            );
        }
    }

    /// Hands back the QoS 1 messages in flight: the session ends, or was away for too long.
    pub(crate) fn return_inflight(&mut self, id: SessionId, only: Option<GroupRef>) {
        let me = self.me;
        let Some(session) = self.plane.session(id) else { return };
        let member = MemberRef { shard: me, session: id, uid: session.uid };
        let mut returned = alloc::vec::Vec::new();
        session.out.inflight.retain(|entry| match entry.source {
            Source::Group { group, delivery }
                if entry.qos == QoS::AtLeastOnce && only.is_none_or(|o| o == group) =>
            {
                returned.push((group, delivery));
                false
            }
            Source::Group { .. } | Source::Log | Source::Live | Source::Retained { .. } => true,
        });
        for (group, delivery) in returned {
            self.send(
                group.leader,
                PeerMsg::GroupSettled { group, delivery, member, outcome: Settled::Returned },
            );
        }
    }

    /// Tells the leader to forget what is still in flight: it stays with this session. QoS 2 that was begun goes to
    /// nobody else, also if the session ends. Whatever the leader keeps of a member that left is on its way
    /// here, and comes back from here.
    pub(crate) fn keep_inflight(&mut self, id: SessionId, only: Option<GroupRef>) {
        let me = self.me;
        let Some(session) = self.plane.session(id) else { return };
        let member = MemberRef { shard: me, session: id, uid: session.uid };
        let kept: alloc::vec::Vec<(GroupRef, u64)> = session
            .out
            .inflight
            .iter()
            .filter_map(|entry| match entry.source {
                Source::Group { group, delivery } if only.is_none_or(|o| o == group) => {
                    Some((group, delivery))
                }
                Source::Group { .. } | Source::Log | Source::Live | Source::Retained { .. } => None,
            })
            .collect();
        for (group, delivery) in kept {
            self.send(
                group.leader,
                PeerMsg::GroupSettled { group, delivery, member, outcome: Settled::Done },
            );
        }
    }

    /// The leader wants back what an absent member holds.
    pub(crate) fn group_recall(&mut self, group: GroupRef, member: MemberRef) {
        let away =
            self.plane.session(member.session).is_some_and(|s| s.uid == member.uid && s.conn.is_none());
        if away {
            self.return_inflight(member.session, Some(group));
        }
    }
}
