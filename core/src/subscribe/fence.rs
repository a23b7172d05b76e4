//! A SUBSCRIBE comes behind every message that was acknowledged before it was sent.
//!
//! A publisher's acknowledgement leaves its own shard once the store has announced the commit to all of them; another
//! shard may still have the announcement unread, or the fan-out of it unfinished. A subscription that began in between
//! would get the message live, as if it had been there first: a retained one without its flag. So a SUBSCRIBE waits
//! until its shard has read the mail that was there when it came, and has delivered the commits in it.

use crate::ids::ConnId;
use crate::shard::Shard;
use crate::shard::input::Effect;
use crate::shard::peer::PeerMsg;
use alloc::vec::Vec;

/// How far a connection's SUBSCRIBE has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fence {
    /// There is none, or it was handled.
    #[default]
    Open,
    /// It waits; nothing behind it is handled meanwhile.
    Waiting,
    /// It is next.
    Passed,
}

/// The commits that this shard was told of.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Batches announced.
    pub announced: u64,
    /// Batches delivered; they are delivered in order.
    pub delivered: u64,
    /// Connections whose SUBSCRIBE waits until so many are delivered.
    waiting: Vec<(u64, ConnId)>,
}

impl Shard {
    /// True if a SUBSCRIBE may be handled now. Otherwise it is asked for again later.
    pub(crate) fn may_subscribe(&mut self, id: ConnId) -> bool {
        let (me, alone) = (self.me, self.shards == 1);
        let all_delivered = self.commits.announced == self.commits.delivered;
        let Some(conn) = self.plane.conn(id) else { return false };
        if conn.fence == Fence::Passed || (alone && all_delivered) {
            conn.fence = Fence::Open;
            return true;
        }
        conn.fence = Fence::Waiting;
        if alone {
            self.commits.waiting.push((self.commits.announced, id));
        } else {
            // Through the driver's mailbox, and not by the short way for mail to itself.
            self.effects.push(Effect::Peer { to: me, msg: PeerMsg::Fence { conn: id } });
        }
        false
    }

    /// The mail that was there when a SUBSCRIBE came has been read.
    pub(crate) fn fence_read(&mut self, conn: ConnId) {
        self.commits.waiting.push((self.commits.announced, conn));
        self.pass_fences();
    }

    /// Lets pass whose commits are delivered.
    pub(crate) fn pass_fences(&mut self) {
        let delivered = self.commits.delivered;
        let mut waiting = core::mem::take(&mut self.commits.waiting);
        waiting.retain(|(until, id)| {
            let waits = *until > delivered;
            if !waits
                && let Some(conn) = self.plane.conn(*id)
                && conn.fence == Fence::Waiting
            {
                conn.fence = Fence::Passed;
                self.unheld.push(*id);
            }
            waits
        });
        self.commits.waiting = waiting;
    }
}
