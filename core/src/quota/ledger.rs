//! The ledger of a tenant that is spread over the shards: its home shard knows how much each shard holds, answers
//! those who ask for more, and leases them parts of its rates.
//!
//! Shards tell their use whole at every change of what holds for tenants (`era`), so an answer of an earlier era
//! counts for nothing and its question is asked again.

use crate::ids::{ShardIx, TenantId};
use crate::quota::rate::Rate;
use crate::quota::{Asking, retained::Answered};
use crate::shard::Shard;
use crate::shard::peer::PeerMsg;
use crate::tenant::limits::Row;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Rows that the ledger counts.
pub(crate) const COUNTED: [Row; 4] =
    [Row::Connections, Row::PersistentSessions, Row::Subscriptions, Row::SharedGroups];
/// Rows that it leases.
pub(crate) const LEASED: [Row; 4] = [
    Row::PublishesPerSecond,
    Row::PublishBytesPerSecond,
    Row::DeliveriesPerSecond,
    Row::DeliveryBytesPerSecond,
];

fn counted(row: Row) -> Option<usize> {
    COUNTED.iter().position(|r| *r == row)
}

/// Rows of which something is wanted: one of each.
#[derive(Clone, Debug, Default)]
pub struct Wants(SmallVec<[Row; 3]>);

impl Wants {
    pub(crate) fn push(&mut self, row: Row, wanted: bool) {
        if wanted {
            self.0.push(row);
        }
    }

    pub(crate) fn has(&self, row: Row) -> bool {
        self.0.contains(&row)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(Row) -> bool) {
        self.0.retain(|row| keep(*row));
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> + use<> {
        self.0.clone().into_iter()
    }
}

/// A question to a home shard.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Whose.
    pub tenant: TenantId,
    /// To match the answer.
    pub token: u64,
    /// Of the asker.
    pub era: u64,
    /// All or nothing.
    pub wants: Wants,
    /// Instead: as much of the subscriptions as there is, up to this.
    pub partial: u32,
}

/// Its answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whose.
    pub tenant: TenantId,
    /// From the question.
    pub token: u64,
    /// From the question.
    pub era: u64,
    /// What was asked for.
    pub wants: Wants,
    /// How much of `partial` there was.
    pub granted: u32,
    /// The row that refused.
    pub refused: Option<Row>,
}

/// Between a shard and the home shard of a tenant.
#[derive(Clone, Debug)]
pub enum QuotaMsg {
    /// May a client have more?
    Ask(Ask),
    /// It may, or not.
    Answer(Answer),
    /// What a client had is free.
    Give {
        /// Whose.
        tenant: TenantId,
        /// Of this row.
        row: Row,
        /// So much.
        n: u64,
    },
    /// A client has more, without asking: what it had in another form, or before a restart.
    Took {
        /// Whose.
        tenant: TenantId,
        /// Of this row.
        row: Row,
    },
    /// All that the sender's clients have of the counted rows.
    Use {
        /// Whose.
        tenant: TenantId,
        /// In the order of the rows of the ledger.
        used: [u64; 4],
    },
    /// So many tokens of a rate.
    LeaseAsk {
        /// Whose.
        tenant: TenantId,
        /// Number of the rate.
        rate: u8,
        /// How many.
        want: u64,
    },
    /// Here they are.
    Lease {
        /// Whose.
        tenant: TenantId,
        /// Number of the rate.
        rate: u8,
        /// How many.
        tokens: u64,
        /// So many of them are over a rate that only counts.
        over: u64,
    },
    /// May this topic be retained?
    RetainAsk {
        /// Whose.
        tenant: TenantId,
        /// To match the answer.
        token: u64,
        /// The topic.
        topic: Box<str>,
        /// Of the message.
        size: u64,
    },
    /// It may, or not.
    RetainAnswer {
        /// From the question.
        token: u64,
        /// Room was made; it has to be given back.
        held: bool,
        /// It may not.
        refused: bool,
    },
    /// The message was not stored.
    RetainGive {
        /// Whose.
        tenant: TenantId,
        /// Its topic.
        topic: Box<str>,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    held: BTreeMap<ShardIx, [u64; 4]>,
    /// The rates that are leased.
    pub masters: [Option<Rate>; 4],
    /// Leases that wait for tokens: to whom, of which rate, how many.
    leases: VecDeque<(ShardIx, u8, u64)>,
    /// What was asked before all shards had told what they restored.
    early: Vec<(ShardIx, QuotaMsg)>,
}

impl Ledger {
    /// What all shards have.
    pub fn totals(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|index| self.held(index))
    }

    fn held(&self, index: usize) -> u64 {
        self.held.values().map(|h| h[index]).sum()
    }
}

impl Shard {
    /// Tells the home shard what this one's clients have, if somebody keeps account.
    pub(crate) fn report_use(&mut self, tenant: TenantId) {
        let limited = COUNTED.into_iter().any(|row| self.limit(tenant, row).is_some());
        if limited && self.is_ledgered(tenant) {
            let usage = self.usage(tenant);
            let used = COUNTED.map(|row| usage.of(row).unwrap_or(0));
            self.tell_home(tenant, QuotaMsg::Use { tenant, used });
        }
    }

    /// What a client had is free again.
    pub(crate) fn give(&mut self, tenant: TenantId, row: Row, n: u64) {
        if n > 0 && self.limit(tenant, row).is_some() && self.is_ledgered(tenant) {
            self.tell_home(tenant, QuotaMsg::Give { tenant, row, n });
        }
    }

    /// A client has one more that was not asked for.
    pub(crate) fn took(&mut self, tenant: TenantId, row: Row) {
        if self.limit(tenant, row).is_some() && self.is_ledgered(tenant) {
            self.tell_home(tenant, QuotaMsg::Took { tenant, row });
        }
    }

    pub(crate) fn quota_msg(&mut self, from: ShardIx, msg: QuotaMsg) {
        match msg {
            QuotaMsg::Ask(_) | QuotaMsg::RetainAsk { .. } if !self.unheard.is_empty() || self.restoring => {
                let tenant = match &msg {
                    QuotaMsg::Ask(ask) => ask.tenant,
                    QuotaMsg::RetainAsk { tenant, .. } => *tenant,
                    _ => return,
                };
                match self.quota(tenant) {
                    Some(quota) => quota.ledger.early.push((from, msg)),
                    None => self.answer(from, msg),
                }
            }
            QuotaMsg::Ask(_) | QuotaMsg::RetainAsk { .. } => self.answer(from, msg),
            QuotaMsg::Answer(answer) => self.answered(&answer),
            QuotaMsg::Give { tenant, row, n } => {
                if let (Some(index), Some(quota)) = (counted(row), self.quota(tenant)) {
                    let held = quota.ledger.held.entry(from).or_default();
                    held[index] = held[index].saturating_sub(n);
                }
            }
            QuotaMsg::Took { tenant, row } => {
                if let (Some(index), Some(quota)) = (counted(row), self.quota(tenant)) {
                    quota.ledger.held.entry(from).or_default()[index] += 1;
                }
            }
            QuotaMsg::Use { tenant, used } => {
                // Its limits may come to this shard a little later.
                let Some(state) = self.tenant(tenant) else { return };
                let quota = state.quota.get_or_insert_with(|| Box::new(super::Quota::new()));
                quota.ledger.held.insert(from, used);
            }
            QuotaMsg::LeaseAsk { tenant, rate, want } => self.lease_asked(from, tenant, rate, want),
            QuotaMsg::Lease { tenant, rate, tokens, over } => self.leased(tenant, rate, tokens, over),
            QuotaMsg::RetainAnswer { token, held, refused } => self.retain_answered(token, held, refused),
            QuotaMsg::RetainGive { tenant, topic } => self.unretain(tenant, &topic),
        }
    }

    /// All shards have told what they restored.
    pub(crate) fn answer_early_asks(&mut self) {
        if self.restoring || !self.unheard.is_empty() {
            return;
        }
        let mut early = Vec::new();
        for tenant in &mut self.tenants {
            if let Some(quota) = &mut tenant.quota {
                early.append(&mut quota.ledger.early);
            }
        }
        for (from, msg) in early {
            self.answer(from, msg);
        }
    }

    fn answer(&mut self, from: ShardIx, msg: QuotaMsg) {
        let answer = match msg {
            QuotaMsg::Ask(ask) => QuotaMsg::Answer(self.judge(from, ask)),
            QuotaMsg::RetainAsk { tenant, token, topic, size } => {
                let (held, refused) = self.hold_retained(tenant, &topic, size);
                QuotaMsg::RetainAnswer { token, held, refused }
            }
            _ => return,
        };
        self.send(from, PeerMsg::Quota(Box::new(answer)));
    }

    fn judge(&mut self, from: ShardIx, ask: Ask) -> Answer {
        let Ask { tenant, token, era, wants, partial } = ask;
        let mut answer = Answer { tenant, token, era, wants, granted: partial, refused: None };
        let rows: SmallVec<[Row; 3]> = answer.wants.rows().collect();
        for row in &rows {
            let there = match (counted(*row), self.quota(tenant)) {
                (Some(index), Some(quota)) => {
                    let held = quota.ledger.held(index);
                    !quota.over(*row, held + 1)
                }
                (Some(_), None) => true,
                (None, _) => self.take_connect(tenant),
            };
            if !there {
                answer.refused = Some(*row);
                return answer;
            }
        }
        let Some(quota) = self.quota(tenant) else { return answer };
        if partial > 0 {
            let index = counted(Row::Subscriptions).unwrap_or_default();
            let held = quota.ledger.held(index);
            for n in 1..=partial {
                if quota.over(Row::Subscriptions, held + u64::from(n)) {
                    answer.granted = n - 1;
                    break;
                }
            }
            // Each of the others is refused as well.
            for _ in answer.granted + 1..partial {
                quota.over(Row::Subscriptions, u64::MAX);
            }
            quota.ledger.held.entry(from).or_default()[index] += u64::from(answer.granted);
        }
        for index in rows.into_iter().filter_map(counted) {
            quota.ledger.held.entry(from).or_default()[index] += 1;
        }
        answer
    }

    fn answered(&mut self, answer: &Answer) {
        let Some(asking) = self.asking.remove(&answer.token) else { return };
        // What an earlier era granted is no more in the ledger.
        let current = answer.era == self.rules_version;
        let granted = answer.refused.is_none() && current;
        match asking {
            Asking::Connect { conn, admission } => {
                let waits = self.plane.conn(conn).is_some_and(|c| c.phase != crate::conn::Phase::Closing);
                if !waits {
                    if granted {
                        answer.wants.rows().for_each(|row| self.give(answer.tenant, row, 1));
                    }
                } else if let (Some(row), true) = (answer.refused, current) {
                    self.refuse_admission(conn, super::connect::refusal_of(row));
                } else {
                    if let Some(c) = self.plane.conn(conn) {
                        c.quota.wait = None;
                    }
                    if granted {
                        self.occupy(conn, answer.tenant, &answer.wants);
                    }
                    self.readmit.push((conn, admission));
                }
            }
            Asking::Filters { conn } => match self.plane.conn(conn) {
                Some(c) if c.phase != crate::conn::Phase::Closing => {
                    c.quota.wait = None;
                    c.quota.filters = current.then_some(answer.granted);
                    self.unheld.push(conn);
                }
                Some(_) | None if current => {
                    self.give(answer.tenant, Row::Subscriptions, u64::from(answer.granted));
                }
                Some(_) | None => {}
            },
            Asking::Group { from, join } => self.group_answered(from, *join, granted, current),
            Asking::Retain { .. } => {}
        }
    }

    /// Asks for one place of a group, before it is made.
    pub(crate) fn ask_group(&mut self, from: ShardIx, join: crate::shard::peer::GroupJoin) {
        let tenant = join.tenant;
        let token = self.new_token();
        let mut wants = Wants::default();
        wants.push(Row::SharedGroups, true);
        self.asking.insert(token, Asking::Group { from, join: Box::new(join) });
        let era = self.rules_version;
        self.tell_home(tenant, QuotaMsg::Ask(Ask { tenant, token, era, wants, partial: 0 }));
    }

    fn lease_asked(&mut self, from: ShardIx, tenant: TenantId, rate: u8, want: u64) {
        let Some(quota) = self.quota(tenant) else {
            self.lease(from, tenant, rate, want, 0);
            return;
        };
        quota.ledger.leases.push_back((from, rate, want));
        self.serve_leases(tenant);
    }

    fn lease(&mut self, to: ShardIx, tenant: TenantId, rate: u8, tokens: u64, over: u64) {
        let msg = QuotaMsg::Lease { tenant, rate, tokens, over };
        self.send(to, PeerMsg::Quota(Box::new(msg)));
    }

    /// Leases what there is, to those who asked first.
    pub(crate) fn serve_leases(&mut self, tenant: TenantId) {
        let now = self.plane.now.mono;
        let Some(quota) = self.quota(tenant) else { return };
        let ledger = &mut quota.ledger;
        let mut served: SmallVec<[(ShardIx, u8, u64, u64); 4]> = SmallVec::new();
        let mut blocked = [false; 4];
        let mut wait = u64::MAX;
        ledger.leases.retain(|(to, rate, want)| {
            let index = usize::from(*rate).min(3);
            match &mut ledger.masters[index] {
                None => served.push((*to, *rate, *want, 0)),
                Some(master) if master.observe => {
                    let there = master.tokens(now).min(*want);
                    master.take(there);
                    served.push((*to, *rate, *want, *want - there));
                }
                Some(master) => {
                    if blocked[index] || !master.is_ready(*want, now) {
                        blocked[index] = true;
                        wait = wait.min(master.wait(*want));
                        return true;
                    }
                    master.take(*want);
                    served.push((*to, *rate, *want, 0));
                }
            }
            false
        });
        for (to, rate, tokens, over) in served {
            self.lease(to, tenant, rate, tokens, over);
        }
        if wait != u64::MAX {
            self.arm_rates(tenant, wait);
        }
    }

    fn leased(&mut self, tenant: TenantId, rate: u8, tokens: u64, over: u64) {
        let row = LEASED[usize::from(rate).min(3)];
        let deliveries = matches!(row, Row::DeliveriesPerSecond | Row::DeliveryBytesPerSecond);
        if over > 0
            && let Some(quota) = self.quota(tenant)
        {
            let bytes = matches!(row, Row::PublishBytesPerSecond | Row::DeliveryBytesPerSecond);
            quota.hits.observed[row as usize] += if bytes { 1 } else { over };
        }
        let target =
            if deliveries { self.plane.delivery_rate(tenant, row) } else { self.publish_rate(tenant, row) };
        if let Some(rate) = target {
            rate.add(tokens);
        }
        if deliveries {
            self.wake_deliveries(tenant);
        } else {
            self.wake_publishers(tenant);
        }
        // Meanwhile there may be want of more.
        self.ask_leases(tenant);
    }

    /// Asks for the tokens that are missing.
    pub(crate) fn ask_leases(&mut self, tenant: TenantId) {
        for (number, row) in (0u8..).zip(LEASED) {
            let deliveries = number > 1;
            let target = if deliveries {
                self.plane.delivery_rate(tenant, row)
            } else {
                self.publish_rate(tenant, row)
            };
            let Some(rate) = target.filter(|r| r.leased && !r.asked && r.want > 0) else { continue };
            rate.asked = true;
            let want = rate.want;
            self.tell_home(tenant, QuotaMsg::LeaseAsk { tenant, rate: number, want });
        }
    }

    pub(crate) fn publish_rate(&mut self, tenant: TenantId, row: Row) -> Option<&mut Rate> {
        let quota = self.quota(tenant)?;
        if row == Row::PublishesPerSecond { quota.publishes.as_mut() } else { quota.publish_bytes.as_mut() }
    }

    /// The home shard answered about a retained publish.
    fn retain_answered(&mut self, token: u64, held: bool, refused: bool) {
        let Some(Asking::Retain { conn, topic, size }) = self.asking.remove(&token) else { return };
        let answered = Answered { topic, size, held, refused };
        match self.plane.conn(conn) {
            Some(c) if c.phase != crate::conn::Phase::Closing => {
                c.quota.wait = None;
                c.quota.retain = Some(Box::new(answered));
                self.unheld.push(conn);
            }
            Some(c) => {
                let tenant = c.mount.tenant();
                self.give_retain(tenant, &answered);
            }
            None => {}
        }
    }
}
