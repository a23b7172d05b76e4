//! Answers from outside, led back to what waited for them. A late answer for an operation whose
//! deadline was faster finds nothing and is dropped.

use crate::codec::Reason;
use crate::conn::handshake::AuthAnswer;
use crate::ids::{OpId, ShardIx};
use crate::session::plane::Followup;
use crate::shard::Shard;
use crate::shard::input::LogEvent;
use crate::shard::ops::Op;
use crate::shard::peer::{MemberRef, PeerMsg, Settled};
use crate::store::port::{CommitResult, ReadResult, Refusal};
use crate::sys::Drop;

/// The MQTT 5 reason for what could not be stored.
pub(crate) fn reason_of(result: &CommitResult) -> Reason {
    match result {
        CommitResult::Done { .. } => Reason::SUCCESS,
        CommitResult::Refused(Refusal::Full | Refusal::TooLarge) => Reason::QUOTA_EXCEEDED,
        CommitResult::Refused(Refusal::Unavailable | Refusal::Conflict { .. }) | CommitResult::Unknown => {
            Reason::UNSPECIFIED_ERROR
        }
    }
}

fn outcome(result: &CommitResult) -> &'static str {
    match result {
        CommitResult::Done { .. } => "done",
        CommitResult::Refused(Refusal::Full) => "full",
        CommitResult::Refused(Refusal::TooLarge) => "too large",
        CommitResult::Refused(Refusal::Unavailable) => "unavailable",
        CommitResult::Refused(Refusal::Conflict { .. }) => "conflict",
        CommitResult::Unknown => "no answer",
    }
}

impl Shard {
    pub(crate) fn commit_done(&mut self, id: OpId, result: CommitResult) {
        if let Some(op) = self.ops.end(id) {
            self.complete(op, result);
        }
    }

    fn complete(&mut self, op: Op, result: CommitResult) {
        if !matches!(result, CommitResult::Done { .. }) {
            self.plane.counters.store_failures += 1;
            let what = name(&op);
            self.log(LogEvent::StoreTrouble { what, outcome: outcome(&result) });
        }
        match op {
            Op::Connect(connecting) => self.connect_stored(*connecting, &result),
            Op::Publish { conn, number, key, inbound, retained } => {
                self.publish_stored(conn, number, key, inbound, retained, &result)
            }
            Op::Release { conn, session, packet_id } => {
                self.release_stored(conn, session, packet_id, &result)
            }
            Op::Gate { idx, generation } => self.gate_stored((idx, generation), &result),
            Op::Cursor { session, version, flush } => self.cursor_stored(session, version, flush, &result),
            Op::Spill { session } => self.spill_stored(session, &result),
            Op::GroupSpill { idx, generation } => self.group_spill_stored((idx, generation), &result),
            Op::GroupCursor { idx, generation } => self.group_cursor_stored((idx, generation), &result),
            Op::Will { session, will, again } => self.will_stored(session, will, again, &result),
            Op::Away { session, cursor: true } => self.left(session, &result),
            Op::Away { session, cursor: false } => self.away_stored(session, &result),
            Op::End { will } => {
                if will && !matches!(result, CommitResult::Done { .. }) {
                    self.plane.counters.drop(Drop::StoreRefused);
                }
            }
            Op::Watermark => {}
            Op::Asked { token, then } => self.asked_stored(token, then, &result),
            // Not commits.
            Op::Page { .. }
            | Op::Bound { .. }
            | Op::Backlog { .. }
            | Op::Revive { .. }
            | Op::GroupPage { .. }
            | Op::Auth { .. } => {}
        }
    }

    pub(crate) fn read_done(&mut self, id: OpId, result: ReadResult) {
        let Some(op) = self.ops.end(id) else { return };
        match op {
            Op::Page { session } => self.page_read(id, session, result),
            Op::Bound { session } => self.bound_read(id, session, result),
            Op::Backlog { session } => self.backlog_read(id, session, result),
            Op::Revive { session } => self.revived(id, session, result),
            Op::GroupPage { idx, generation } => self.group_page_read(id, (idx, generation), result),
            // Not reads.
            Op::Connect(_)
            | Op::Publish { .. }
            | Op::Release { .. }
            | Op::Gate { .. }
            | Op::Cursor { .. }
            | Op::Spill { .. }
            | Op::GroupSpill { .. }
            | Op::GroupCursor { .. }
            | Op::Will { .. }
            | Op::Away { .. }
            | Op::End { .. }
            | Op::Watermark
            | Op::Asked { .. }
            | Op::Auth { .. } => {}
        }
    }

    /// No answer came in time: the outcome is unknown.
    pub(crate) fn overdue(&mut self, id: OpId, op: Op) {
        match op {
            Op::Page { .. }
            | Op::Bound { .. }
            | Op::Backlog { .. }
            | Op::Revive { .. }
            | Op::GroupPage { .. } => {
                self.plane.counters.store_failures += 1;
                let failed = ReadResult::Failed(Refusal::Unavailable);
                match op {
                    Op::Page { session } => self.page_read(id, session, failed),
                    Op::Bound { session } => self.bound_read(id, session, failed),
                    Op::Backlog { session } => self.backlog_read(id, session, failed),
                    Op::Revive { session } => self.revived(id, session, failed),
                    Op::GroupPage { idx, generation } => {
                        self.group_page_read(id, (idx, generation), failed);
                    }
                    _ => {}
                }
            }
            Op::Auth { conn } => {
                self.reauthenticated(conn, AuthAnswer::Refuse { reason: Reason::SERVER_BUSY });
            }
            op => self.complete(op, CommitResult::Unknown),
        }
    }

    pub(crate) fn auth_done(&mut self, id: OpId, answer: AuthAnswer) {
        if let Some(Op::Auth { conn }) = self.ops.end(id) {
            self.reauthenticated(conn, answer);
        }
    }

    pub(crate) fn follow_up(&mut self, followup: Followup) {
        match followup {
            Followup::Read(session) => self.read_on(session),
            Followup::Store(session) => self.store_cursor(session),
            Followup::Moved(session) => {
                self.moved.push(session);
                self.arm_flush();
            }
            Followup::Spill { session, message } => self.spill(session, message),
            Followup::Settled { group, delivery, session, done } => {
                let uid = self.plane.uid_of(session);
                let member = MemberRef { shard: self.me, session, uid };
                let outcome = if done { Settled::Done } else { Settled::Returned };
                self.send(group.leader, PeerMsg::GroupSettled { group, delivery, member, outcome });
            }
            Followup::Scan(session) => self.scans.wake(session),
            Followup::Tokens(tenant) => self.tokens_missed(tenant),
        }
    }

    pub(crate) fn peer(&mut self, from: ShardIx, msg: PeerMsg) {
        match msg {
            PeerMsg::Interest { token, changes } => self.interest(from, token, changes),
            PeerMsg::InterestSeen { token } => self.gate_token(token),
            PeerMsg::Fence { conn } => self.fence_read(conn),
            PeerMsg::Full { tenant, session, filters, full } => {
                self.session_full(tenant, session, &filters, full);
            }
            PeerMsg::Route { message } => self.routed(message),
            PeerMsg::Routes(batch) => self.routed_all(&batch),
            PeerMsg::RetainedRead { tenant, cursor, fence, max, token } => {
                self.retained_read(from, tenant, cursor, fence, max, token);
            }
            PeerMsg::RetainedPage { token, cursor, entries, done } => {
                self.retained_page(token, cursor, entries, done);
            }
            PeerMsg::RetainedGet { tenant, session, fence, names } => {
                self.retained_get(from, tenant, session, fence, names);
            }
            PeerMsg::RetainedGot { session, entries } => self.retained_got(session, &entries),
            PeerMsg::GroupJoin(join) => self.group_join(from, *join),
            PeerMsg::Joined { token, member, group, ok } => self.joined(token, member, group, ok),
            PeerMsg::GroupLeave { group, member } => self.group_leave(group, member),
            PeerMsg::GroupPresence { group, member, window } => self.group_presence(group, member, window),
            PeerMsg::GroupDeliver { group, delivery, member, message, seq, qos } => {
                self.group_deliver(group, delivery, member, message, seq, qos);
            }
            PeerMsg::GroupSettled { group, delivery, member, outcome } => {
                self.group_settled(group, delivery, member, outcome);
            }
            PeerMsg::GroupRecall { group, member } => self.group_recall(group, member),
            PeerMsg::Quota(msg) => self.quota_msg(from, *msg),
            PeerMsg::SysReport { tenant, counters } => self.sys_report(from, tenant, *counters),
        }
    }
}

fn name(op: &Op) -> &'static str {
    match op {
        Op::Connect(_) => "session at connect",
        Op::Publish { .. } => "publish",
        Op::Release { .. } => "release of a QoS 2 id",
        Op::Gate { .. } => "subscription",
        Op::Cursor { .. } => "cursor",
        Op::Spill { .. } | Op::GroupSpill { .. } => "overflow of a slow consumer",
        Op::Page { .. } | Op::GroupPage { .. } => "replay",
        Op::Bound { .. } | Op::Backlog { .. } => "offline limit",
        Op::Revive { .. } => "messages in flight",
        Op::Away { .. } => "session going away",
        Op::End { .. } => "session end",
        Op::Will { .. } => "will",
        Op::GroupCursor { .. } => "group cursor",
        Op::Watermark => "watermark",
        Op::Asked { .. } => "a change by administration",
        Op::Auth { .. } => "authentication",
    }
}
