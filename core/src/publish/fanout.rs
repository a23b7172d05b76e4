//! From a message to its subscribers. Small fan-outs run at once; a huge one is a job that `poll`
//! resumes, and everything behind it waits its turn, so that order holds for every subscriber.

use crate::ids::{SessionUid, ShardIx};
use crate::message::Message;
use crate::publish::batch::{BATCHED_MAX, RouteBatch};
use crate::session::plane::{Grant, Outgoing};
use crate::session::{Session, Sub, Target};
use crate::shard::Shard;
use crate::shard::input::Effect;
use crate::shard::peer::PeerMsg;
use crate::shard::slab::Slab;
use crate::shard::tenants::{RemoteInterest, Retained};
use crate::store::port::Committed;
use crate::store::position::{Partition, Seq};
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Up to so many subscribers are served without a job.
const AT_ONCE: usize = 2048;

/// Messages that wait for their fan-out, in order.
#[derive(Debug)]
pub(crate) enum Work {
    /// Appends that were committed, from `next` on.
    Committed { batch: Arc<Committed>, next: usize },
    /// An unlogged message that came while a job ran.
    Offer { message: Arc<Message> },
    /// A fan-out under way.
    Job {
        message: Arc<Message>,
        pos: Option<(Partition, Seq)>,
        passed: bool,
        targets: Vec<(Target, Grant)>,
        next: usize,
    },
}

impl Shard {
    /// Routes an unlogged message: to subscribers here, and to other shards with interest. Tells whether
    /// anybody may be interested.
    pub(crate) fn route(&mut self, item: &mut Outgoing<'_>) -> bool {
        let remote = self.shards > 1 && self.route_to_peers(item);
        if !self.work.is_empty() {
            let message = item.message();
            self.work.push_back(Work::Offer { message });
            return true;
        }
        self.fan_out(item) || remote
    }

    fn route_to_peers(&mut self, item: &mut Outgoing<'_>) -> bool {
        let Some(tenant) = self.tenants.get(item.parts.tenant.0 as usize) else { return false };
        if tenant.remote.iter().all(|r| r.live.is_empty()) {
            return false;
        }
        // All interests of a process share their seed, so the topic is hashed once for all of them.
        let keys = tenant.own_live.keys_of_topic(item.parts.topic);
        let wanted = |r: &RemoteInterest| r.live.may_match_keys(&keys);
        let peers: SmallVec<[usize; 8]> =
            tenant.remote.iter().enumerate().filter(|(_, r)| wanted(r)).map(|(shard, _)| shard).collect();
        for shard in &peers {
            self.post(ShardIx(*shard as u16), item);
        }
        !peers.is_empty()
    }

    /// A message for another shard: with others if it is small, else alone.
    fn post(&mut self, to: ShardIx, item: &mut Outgoing<'_>) {
        if item.parts.payload.len() + item.parts.props.len() > BATCHED_MAX {
            let message = item.message();
            self.send(to, PeerMsg::Route { message });
            return;
        }
        let Some(batch) = self.batches.get_mut(to.0 as usize) else { return };
        batch.push(&item.parts);
        if batch.is_full() {
            self.send_batch(to);
        }
    }

    /// Sends what is collected for a shard. It goes before anything else that is sent to it.
    pub(crate) fn send_batch(&mut self, to: ShardIx) {
        let Some(batch) = self.batches.get_mut(to.0 as usize).filter(|b| !b.is_empty()) else { return };
        let batch = alloc::boxed::Box::new(core::mem::take(batch));
        self.effects.push(Effect::Peer { to, msg: PeerMsg::Routes(batch) });
    }

    /// Messages from another shard.
    pub(crate) fn routed_all(&mut self, batch: &RouteBatch) {
        for parts in batch.iter() {
            if self.work.is_empty() {
                self.fan_out(&mut Outgoing::borrowed(parts));
            } else {
                self.work.push_back(Work::Offer { message: Message::new(&parts) });
            }
        }
    }

    /// An unlogged message from another shard.
    pub(crate) fn routed(&mut self, message: Arc<Message>) {
        if self.work.is_empty() {
            self.fan_out(&mut Outgoing::shared(&message, None));
        } else {
            self.work.push_back(Work::Offer { message });
        }
    }

    /// Delivers to all subscribers of this shard, or begins a job. Tells whether there was any.
    fn fan_out(&mut self, item: &mut Outgoing<'_>) -> bool {
        let Some(tenant) = self.tenants.get(item.parts.tenant.0 as usize) else { return false };
        let mut lists = core::mem::take(&mut self.lists);
        lists.clear();
        let generation = tenant.index.generation();
        let topic = item.parts.topic;
        let cache = self.route_now.as_mut();
        let known = match &cache {
            Some(own) => own.lists(topic, generation),
            None => self.routes.lists(item.parts.tenant, topic, generation),
        };
        if let Some(known) = known {
            lists.extend_from_slice(known);
        } else {
            let visited = tenant.index.matches(topic, &mut lists);
            // Its publisher's shard let it pass, and it may be stored: over the budget or not, it is delivered.
            self.plane.counters.match_over_budget += u64::from(visited > self.plane.settings.max_match_nodes);
            match cache {
                Some(own) => own.set_lists(topic, generation, &lists),
                None => self.routes.set(item.parts.tenant, topic, generation, &lists),
            }
        }
        let total: usize = lists.iter().map(|l| tenant.index.list(*l).len()).sum();
        let single = lists.len() == 1;
        if single && total <= AT_ONCE {
            // The usual case: nobody can be met twice.
            let mut groups: SmallVec<[(u32, u32); 2]> = SmallVec::new();
            for sub in tenant.index.list(lists[0]) {
                match sub.key.target() {
                    Target::Session(session) => {
                        let grant =
                            grant_of(sub, &self.plane.sessions, item.parts.publisher, item.parts.retain);
                        if let Some(grant) = grant {
                            self.plane.offer(session, item, &grant);
                        }
                    }
                    Target::Group { idx, generation } => groups.push((idx, generation)),
                }
            }
            self.lists = lists;
            for group in groups {
                self.group_offer(group, item);
            }
            return total > 0;
        }
        let mut targets: Vec<(Target, Grant)> = Vec::new();
        if total > 0 {
            let mut subs: Vec<Sub> = Vec::with_capacity(total);
            for list in &lists {
                subs.extend_from_slice(tenant.index.list(*list));
            }
            if !single {
                subs.sort_by_key(|s| s.key);
            }
            merge(&subs, &self.plane.sessions, item.parts.publisher, item.parts.retain, &mut targets);
        }
        self.lists = lists;
        if total <= AT_ONCE {
            for (target, grant) in &targets {
                self.deliver(*target, item, grant);
            }
        } else {
            let (message, pos, passed) = (item.message(), item.pos, item.passed);
            let job = Work::Job { message, pos, passed, targets, next: 0 };
            self.work.push_front(job);
        }
        total > 0
    }

    fn deliver(&mut self, target: Target, item: &mut Outgoing<'_>, grant: &Grant) {
        match target {
            Target::Session(session) => self.plane.offer(session, item, grant),
            Target::Group { idx, generation } => self.group_offer((idx, generation), item),
        }
    }

    /// Does a piece of the waiting fan-out.
    pub(crate) fn step_fanout(&mut self, budget: &mut u32) {
        let Some(work) = self.work.pop_front() else { return };
        match work {
            Work::Offer { message } => {
                *budget = budget.saturating_sub(1);
                self.fan_out(&mut Outgoing::shared(&message, None));
            }
            Work::Committed { batch, next } => self.step_committed(batch, next, budget),
            Work::Job { message, pos, passed, targets, next } => {
                let mut item = Outgoing::shared(&message, pos);
                item.passed = passed;
                let end = targets.len().min(next + *budget as usize);
                for (target, grant) in &targets[next..end] {
                    self.deliver(*target, &mut item, grant);
                }
                *budget -= (end - next) as u32;
                if end == targets.len() {
                    if let Some((partition, seq)) = pos {
                        self.plane.head.raise(partition, seq);
                    }
                } else {
                    self.work.push_front(Work::Job { message, pos, passed, targets, next: end });
                }
            }
        }
    }

    fn step_committed(&mut self, batch: Arc<Committed>, mut next: usize, budget: &mut u32) {
        let partition = batch.partition;
        while let Some(entry) = batch.entries.get(next) {
            if *budget == 0 {
                self.work.push_front(Work::Committed { batch, next });
                return;
            }
            next += 1;
            *budget -= 1;
            let append = &entry.append;
            if append.retain {
                self.set_retained(partition, entry.seq, &append.message);
            }
            if append.log && append.spill.is_none() {
                self.count_backlogs(&append.message, entry.seq);
            }
            if append.spill.is_none() {
                let before = self.work.len();
                let mut item =
                    Outgoing::shared(&append.message, append.log.then_some((partition, entry.seq)));
                item.passed = !append.log;
                self.fan_out(&mut item);
                let began_job = self.work.len() > before;
                if began_job {
                    // The job is in front; the rest of the batch follows behind it.
                    self.work.insert(1, Work::Committed { batch, next });
                    return;
                }
            }
            self.plane.head.raise(partition, entry.seq);
        }
        self.plane.head.raise(partition, batch.upto);
        self.commits.delivered += 1;
        self.pass_fences();
        self.scans.head_moved(&self.plane.head);
        self.answer_early_gets();
    }

    /// The tenant's home shard keeps its retained messages; commits come in sequence order, so the last one stands.
    fn set_retained(&mut self, partition: Partition, seq: Seq, message: &Arc<Message>) {
        if self.home(message.tenant) != self.me {
            return;
        }
        let Some(tenant) = self.tenants.get_mut(message.tenant.0 as usize) else { return };
        if message.payload().is_empty() {
            // [MQTT-3.3.1-6], [MQTT-3.3.1-7]
            tenant.remove_retained(message.topic());
        } else {
            tenant.set_retained(message.topic(), Retained { partition, seq, message: Arc::clone(message) });
            self.unretain(message.tenant, message.topic());
        }
    }
}

/// What one subscription grants; `None` for the publisher's own message under No Local [MQTT-3.8.3-3].
#[inline]
fn grant_of(sub: &Sub, sessions: &Slab<Session>, publisher: SessionUid, retain: bool) -> Option<Grant> {
    if sub.no_local()
        && let Target::Session(id) = sub.key.target()
        && sessions.get(id.idx, id.generation).is_some_and(|s| s.uid == publisher)
    {
        return None;
    }
    let mut sub_ids = SmallVec::new();
    if sub.id != 0 {
        sub_ids.push(sub.id);
    }
    Some(Grant { qos: sub.qos(), retain: retain && sub.retain_as_published(), sub_ids })
}

/// Overlapping subscriptions of one session become one copy with all identifiers, at the highest QoS
/// [MQTT-3.3.4-2], [MQTT-3.3.4-3]. `subs` is sorted by key.
fn merge(
    subs: &[Sub],
    sessions: &Slab<Session>,
    publisher: SessionUid,
    retain: bool,
    out: &mut Vec<(Target, Grant)>,
) {
    let mut last = None;
    for sub in subs {
        let Some(grant) = grant_of(sub, sessions, publisher, retain) else { continue };
        if last == Some(sub.key)
            && let Some((Target::Session(_), merged)) = out.last_mut()
        {
            merged.qos = merged.qos.max(grant.qos);
            merged.retain |= grant.retain;
            merged.sub_ids.extend(grant.sub_ids);
            continue;
        }
        last = Some(sub.key);
        out.push((sub.key.target(), grant));
    }
}
