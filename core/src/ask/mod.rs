//! Questions of administration to a shard, and small commands: sessions, subscriptions, retained messages, and the
//! end of a tenant. Each is a bounded piece of work; longer ones go on from the place that the answer names.
//! Every question names its tenant: nothing of another one can come back.

mod read;
mod tenant;

use crate::authz::Denied;
use crate::codec::{Reason, SubOptions, Version};
use crate::ids::{ConnId, SessionId, TenantId};
use crate::message::Message;
use crate::shard::Shard;
use crate::shard::input::Effect;
use crate::shard::ops::Op;
use crate::store::port::{CommitResult, Durability, Write};
use crate::sys::TenantCounters;
use crate::time::Wall;
use crate::topic::RetainedCursor;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Sessions that one question looks at, at most.
const LOOKED_AT: usize = 4096;
/// Retained names that one question looks at, at most.
const NAMES_LOOKED_AT: u32 = 4096;

/// Which sessions are asked for; an empty one is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The client id begins so.
    pub client_prefix: Box<str>,
    /// The user that owns it.
    pub user: Option<Box<str>>,
    /// With a connection, or without.
    pub connected: Option<bool>,
}

/// A question or command.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Nothing; the answer tells that everything before was taken in.
    Fence,
    /// Sessions from slot `from` on. Answered with [`Answer::Sessions`].
    Sessions {
        /// Whose.
        tenant: TenantId,
        /// Where to begin.
        from: u32,
        /// At most so many.
        max: u32,
        /// Which.
        filter: SessionFilter,
    },
    /// One session. Answered with [`Answer::Session`].
    Session {
        /// Whose.
        tenant: TenantId,
        /// The client id.
        client: Box<str>,
    },
    /// The subscriptions of a session, in the order of their filters. Answered with [`Answer::Subscriptions`].
    Subscriptions {
        /// Whose.
        tenant: TenantId,
        /// The client id.
        client: Box<str>,
        /// Begin behind this filter.
        after: Option<Box<str>>,
        /// At most so many.
        max: u32,
    },
    /// Ends a client's connection with this reason (3.x: without a word). For the session it is an unclean end.
    Disconnect {
        /// Whose.
        tenant: TenantId,
        /// The client id.
        client: Box<str>,
        /// For MQTT 5 clients.
        reason: Reason,
    },
    /// Ends the session of a client that is not connected: its will goes out, as at the end of every session. The
    /// answer comes once that is stored.
    EndSession {
        /// Whose.
        tenant: TenantId,
        /// The client id.
        client: Box<str>,
    },
    /// Retained messages, asked on the tenant's home shard. Answered with [`Answer::Retained`].
    Retained {
        /// Whose.
        tenant: TenantId,
        /// Which, and where to begin.
        cursor: Box<RetainedCursor>,
        /// At most so many.
        max: u32,
    },
    /// Removes the retained message of a topic, as an empty retained publish does; asked on the home shard. The answer
    /// comes once that is stored.
    RemoveRetained {
        /// Whose.
        tenant: TenantId,
        /// The topic.
        topic: Box<str>,
    },
    /// Counters of the tenant on this shard.
    Usage {
        /// Whose.
        tenant: TenantId,
    },
    /// What clients of the tenant were denied on this shard. Answered with [`Answer::Denials`].
    Denials {
        /// Whose.
        tenant: TenantId,
    },
    /// A piece of a tenant's end: disconnects clients, ends sessions without their wills, removes retained messages.
    /// Asked again and again until nothing is left; only of a tenant whose clients are not let in any more. Answered,
    /// once what it did is stored, with [`Answer::Left`].
    EndTenant {
        /// Whose.
        tenant: TenantId,
    },
    /// Lets go of what is still held of a tenant that has ended: groups, interest, counters.
    ForgetTenant {
        /// Whose.
        tenant: TenantId,
    },
}

/// The answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// There is none such.
    Missing,
    /// The client is connected, or its record is being written: not now.
    Busy,
    /// The store did not take it: refused, or no answer in time.
    Failed(CommitResult),
    /// A page of sessions, and where the next page begins.
    Sessions {
        /// In the order of their slots.
        sessions: Vec<SessionInfo>,
        /// `None`: these were the last.
        next: Option<u32>,
    },
    /// One session.
    Session(Box<SessionInfo>),
    /// A page of subscriptions.
    Subscriptions {
        /// In the order of their filters.
        subscriptions: Vec<SubscriptionInfo>,
        /// More follow.
        more: bool,
    },
    /// A page of retained messages.
    Retained {
        /// In the order of their topics.
        messages: Vec<Arc<Message>>,
        /// Where the next page begins; `None`: these were the last.
        next: Option<Box<RetainedCursor>>,
    },
    /// Counters.
    Usage(Box<TenantCounters>),
    /// What was denied, in no order that matters.
    Denials(Vec<Denied>),
    /// What is left of an ending tenant here.
    Left {
        /// Sessions, and on the home shard retained messages.
        count: u64,
    },
}

/// What is told of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The client id.
    pub client: Box<str>,
    /// The user that owns it; `None` = anonymous.
    pub user: Option<Box<str>>,
    /// Its connection, if it has one.
    pub connection: Option<ConnectionInfo>,
    /// Since when it is away.
    pub away_since: Option<Wall>,
    /// It outlives its connections.
    pub persistent: bool,
    /// Session Expiry Interval, seconds; `u32::MAX` = never.
    pub expiry_secs: u32,
    /// Subscriptions.
    pub subscriptions: u32,
    /// Messages that were sent and are not acknowledged.
    pub inflight: u32,
    /// How many of them the client takes at once.
    pub inflight_max: u16,
    /// QoS 2 messages received and not released.
    pub inbound: u32,
    /// Messages that wait in memory.
    pub queued: u32,
    /// Their bytes.
    pub queued_bytes: u64,
    /// It reads from the log: this many entries of the node's log, of all tenants, lie between it and the newest.
    pub lag: Option<u64>,
    /// It has a will.
    pub will: bool,
    /// How often it was connected.
    pub epoch: u64,
}

/// What is told of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The driver's handle, by which it knows the address.
    pub id: ConnId,
    /// Protocol version.
    pub version: Version,
    /// Keep alive, seconds; 0 = none.
    pub keep_alive: u32,
    /// Its CONNECT was admitted then.
    pub since: Wall,
    /// When what it proved itself with ends.
    pub expires: Option<Wall>,
    /// Bytes that wait for its socket.
    pub out_bytes: u64,
}

/// What is told of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionInfo {
    /// As the client wrote it.
    pub filter: Box<str>,
    /// Its options.
    pub options: SubOptions,
    /// Subscription Identifier; 0 = none.
    pub id: u32,
}

impl Shard {
    pub(crate) fn ask(&mut self, token: u64, ask: Ask) {
        let answer = match ask {
            Ask::Fence => Some(Answer::Done),
            Ask::Sessions { tenant, from, max, filter } => {
                Some(self.list_sessions(tenant, from, max, &filter))
            }
            Ask::Session { tenant, client } => Some(self.one_session(tenant, &client)),
            Ask::Subscriptions { tenant, client, after, max } => {
                Some(self.list_subscriptions(tenant, &client, after.as_deref(), max))
            }
            Ask::Disconnect { tenant, client, reason } => {
                Some(self.disconnect_client(tenant, &client, reason))
            }
            Ask::EndSession { tenant, client } => self.end_absent(token, tenant, &client),
            Ask::Retained { tenant, cursor, max } => Some(self.list_retained(tenant, cursor, max)),
            Ask::RemoveRetained { tenant, topic } => self.remove_retained(token, tenant, &topic),
            Ask::Usage { tenant } => Some(match self.tenant(tenant) {
                Some(tenant) => Answer::Usage(Box::new(tenant.counters.clone())),
                None => Answer::Missing,
            }),
            Ask::Denials { tenant } => Some(match self.tenant(tenant) {
                Some(tenant) => {
                    let denials = tenant.denials.iter().flat_map(|denials| denials.iter());
                    Answer::Denials(denials.cloned().collect())
                }
                None => Answer::Missing,
            }),
            Ask::EndTenant { tenant } => self.end_tenant(token, tenant),
            Ask::ForgetTenant { tenant } => {
                self.forget_tenant(tenant);
                Some(Answer::Done)
            }
        };
        if let Some(answer) = answer {
            self.effects.push(Effect::Answer { token, answer });
        }
    }

    /// Commits what was asked for; the answer follows the store's.
    fn commit_asked(&mut self, token: u64, then: Asked, writes: Vec<Write>) {
        self.commit(Op::Asked { token, then }, writes, Durability::Synced);
    }

    /// What was asked for is stored (or not).
    pub(crate) fn asked_stored(&mut self, token: u64, then: Asked, result: &CommitResult) {
        let answer = match (result, then) {
            (CommitResult::Done { .. }, Asked::Once) => Answer::Done,
            (CommitResult::Done { .. }, Asked::Tenant(tenant)) => {
                Answer::Left { count: self.left_of_tenant(tenant) }
            }
            (CommitResult::Refused(_) | CommitResult::Unknown, _) => Answer::Failed(result.clone()),
        };
        self.effects.push(Effect::Answer { token, answer });
    }

    fn client(&mut self, tenant: TenantId, client: &str) -> Option<SessionId> {
        self.tenant(tenant)?.clients.get(client).copied()
    }

    fn disconnect_client(&mut self, tenant: TenantId, client: &str, reason: Reason) -> Answer {
        let Some(id) = self.client(tenant, client) else { return Answer::Missing };
        match self.plane.session(id).and_then(|s| s.conn) {
            Some(conn) => {
                self.disconnect(conn, reason);
                Answer::Done
            }
            None => Answer::Missing,
        }
    }

    fn end_absent(&mut self, token: u64, tenant: TenantId, client: &str) -> Option<Answer> {
        let Some(id) = self.client(tenant, client) else { return Some(Answer::Missing) };
        let Some(session) = self.plane.session(id) else { return Some(Answer::Missing) };
        if session.conn.is_some() || session.busy {
            return Some(Answer::Busy);
        }
        let writes = self.end_session_writes(id);
        if writes.is_empty() {
            return Some(Answer::Done);
        }
        self.commit_asked(token, Asked::Once, writes);
        None
    }

    fn remove_retained(&mut self, token: u64, tenant: TenantId, topic: &str) -> Option<Answer> {
        let there = self.tenant(tenant).is_some_and(|t| t.retained.get(topic).is_some());
        if !there {
            return Some(Answer::Missing);
        }
        let write = tenant::burial(tenant, topic);
        self.commit_asked(token, Asked::Once, alloc::vec![Write::Append(write)]);
        None
    }
}

/// What follows once something that was asked for is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// It is done.
    Once,
    /// A piece of this tenant's end is done.
    Tenant(TenantId),
}
