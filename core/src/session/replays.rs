//! What a session is still owed of retained messages because of its SUBSCRIBEs. Retained messages are sent
//! in byte order of their names, so how far a replay is, is a name; it moves when a message leaves the
//! queue, and is stored with the cursor, so a lost connection or a restart goes on from there.
//!
//! Replays are numbered. The stored filter names the replay that its SUBSCRIBE began, so that both are one
//! write; the cursor tells up to which number it knows them, and where those are that are not over.

use crate::session::feed::Source;
use crate::session::record::{CursorRecord, StoredReplay};
use crate::session::{Session, Subscription};
use crate::store::position::{Partition, Seq};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// One replay.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub filter: Box<str>,
    pub number: u64,
    /// What is retained above this comes through the subscription. `None` = its SUBSCRIBE is not answered.
    pub fence: Option<(Partition, Seq)>,
    /// The last name that left the queue; empty = none.
    pub after: String,
    /// Its messages in the queue.
    pub queued: u32,
    /// Nothing follows behind what is queued.
    pub scanned: bool,
}

/// All replays of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replays {
    pub list: Vec<Replay>,
    /// The last number given.
    pub last: u64,
    /// Names of retained messages in flight whose bodies a restart took, by packet id.
    pub names: BTreeMap<u16, Box<str>>,
}

impl Replays {
    fn forget_finished(&mut self, number: u64) -> bool {
        let before = self.list.len();
        self.list.retain(|r| r.number != number || !r.scanned || r.queued > 0);
        self.list.len() < before
    }
}

impl Session {
    /// Notes that a SUBSCRIBE of the filter will owe retained messages; returns the number of the replay.
    pub fn owe_replay(&mut self, filter: &str) -> u64 {
        let replays = self.replays.get_or_insert_default();
        replays.last += 1;
        let number = replays.last;
        let filter = Box::from(filter);
        let after = String::new();
        replays.list.push(Replay { filter, number, fence: None, after, queued: 0, scanned: false });
        number
    }

    /// The replay that a stored filter names: the latest of the filter; 0 = none.
    pub fn replay_of(&self, filter: &str) -> u64 {
        let replays = self.replays.as_ref().into_iter().flat_map(|r| &r.list);
        replays.filter(|r| &*r.filter == filter).map(|r| r.number).max().unwrap_or(0)
    }

    /// The replay with this number.
    pub fn replay(&mut self, number: u64) -> Option<&mut Replay> {
        self.replays.as_mut()?.list.iter_mut().find(|r| r.number == number)
    }

    /// Forgets replays.
    pub fn end_replays(&mut self, over: impl Fn(&Replay) -> bool) {
        if let Some(replays) = &mut self.replays {
            replays.list.retain(|r| !over(r));
        }
    }

    /// A message of a replay left the queue; true if that ended the replay.
    pub fn replay_left(&mut self, number: u64, name: &str) -> bool {
        let Some(replay) = self.replay(number) else { return false };
        replay.queued = replay.queued.saturating_sub(1);
        replay.after.clear();
        replay.after.push_str(name);
        self.replays.as_mut().is_some_and(|r| r.forget_finished(number))
    }

    /// All of a replay is queued; true if that ended it.
    pub fn replay_scanned(&mut self, number: u64) -> bool {
        let Some(replay) = self.replay(number) else { return false };
        replay.scanned = true;
        self.replays.as_mut().is_some_and(|r| r.forget_finished(number))
    }

    /// Entries were taken from the queue, not by sending them.
    pub fn recount_replays(&mut self) {
        let Some(replays) = &mut self.replays else { return };
        for replay in &mut replays.list {
            let of = |s: Source| matches!(s, Source::Retained { replay: n } if n == replay.number);
            replay.queued = self.feed.pending.iter().filter(|q| of(q.source)).count() as u32;
        }
        replays.list.retain(|r| !r.scanned || r.queued > 0);
    }

    /// The connection is gone, and the queue with it: replays go on from their places.
    pub fn park_replays(&mut self) {
        for replay in self.replays.iter_mut().flat_map(|r| &mut r.list) {
            replay.queued = 0;
            replay.scanned = false;
        }
    }

    /// What the cursor says of replays.
    pub fn stored_replays(&self) -> (u64, Vec<StoredReplay>) {
        let Some(replays) = &self.replays else { return (0, Vec::new()) };
        let stored = |r: &Replay| StoredReplay {
            filter: r.filter.clone(),
            number: r.number,
            fence: r.fence,
            after: Box::from(&*r.after),
        };
        (replays.last, replays.list.iter().map(stored).collect())
    }

    /// After a restart: what is owed of the filter. `revision` = of the filter's record; what was retained
    /// when the SUBSCRIBE came lies below it.
    pub fn restore_replay(
        &mut self,
        filter: &str,
        number: u64,
        known: &CursorRecord,
        revision: (Partition, Seq),
        subscription: &Subscription,
    ) {
        if number == 0 {
            return;
        }
        let listed = known.replays.iter().find(|r| r.number == number && &*r.filter == filter);
        let replays = self.replays.get_or_insert_default();
        replays.last = replays.last.max(number).max(known.replays_upto);
        if !subscription.is_durable() || (listed.is_none() && number <= known.replays_upto) {
            return;
        }
        replays.list.push(Replay {
            filter: Box::from(filter),
            number,
            fence: Some(listed.and_then(|r| r.fence).unwrap_or(revision)),
            after: listed.map_or_else(String::new, |r| String::from(&*r.after)),
            queued: 0,
            scanned: false,
        });
    }
}
