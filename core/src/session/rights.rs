//! The rights of sessions: made when a client connects and whenever rules change. What a session may not have any
//! more leaves its queue; what is denied to its client is recorded.

use crate::authz::{Access, Denials, Policy, Principal, Request, Verdict, Who, denied::Attempt};
use crate::codec::{Property, PropsBuf};
use crate::conn::identity::Claims;
use crate::ids::{ConnId, SessionId, TenantId};
use crate::message::QoS;
use crate::session::feed::Source;
use crate::session::plane::Followup;
use crate::shard::Shard;
use crate::sys::Drop;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

impl Shard {
    /// The rules of a client; `None` where everything is allowed.
    pub(crate) fn rights_of(
        &self,
        tenant: TenantId,
        user: Option<&str>,
        client_id: &str,
        claims: &Claims,
    ) -> Option<Box<Principal>> {
        let policy = self.tenancy.rules.of(tenant)?;
        let name = self.tenants.get(tenant.0 as usize).map_or("", |t| &*t.name);
        let principal = policy.resolve(&Who { tenant: name, user, client_id, claims });
        (!principal.is_open()).then(|| Box::new(principal))
    }

    /// New rules are in use: every session's rights are made anew.
    pub(crate) fn refresh_rights(&mut self) {
        let mut changed = Vec::new();
        for (idx, generation, session) in self.plane.sessions.iter() {
            let (tenant, user) = (session.mount.tenant(), session.principal.as_deref());
            let rights = self.rights_of(tenant, user, &session.client_id, &session.claims);
            if rights.is_some() || session.rights.is_some() {
                changed.push((SessionId { idx, generation }, rights));
            }
        }
        for (id, rights) in changed {
            self.give_rights(id, rights);
        }
    }

    /// A session has these rights from now on.
    pub(crate) fn give_rights(&mut self, id: SessionId, rights: Option<Box<Principal>>) {
        let Some(session) = self.plane.session(id) else { return };
        session.rights = rights;
        let shares = session.subscriptions.values().any(|s| s.group.is_some());
        let online = session.conn.is_some();
        if let Some(conn) = session.conn
            && let Some(conn) = self.plane.conn(conn)
        {
            // What is known of its topic was found out under other rights.
            conn.route = None;
        }
        if online {
            self.withhold(id);
        }
        if online && shares {
            self.tell_presence(id);
        }
    }

    /// Takes out of a session's queue what its client may not receive any more.
    fn withhold(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        let Some(rights) = session.rights.as_deref().filter(|r| !r.reads_everything()) else { return };
        let mut settled = Vec::new();
        let before = session.feed.pending.len();
        session.feed.pending.retain(|queued| {
            let allowed = rights.check(&Request::receive(queued.message.topic())).allowed;
            if let (false, Source::Group { group, delivery }) = (allowed, queued.source) {
                settled.push(Followup::Settled { group, delivery, session: id, done: true });
            }
            allowed
        });
        let gone = before - session.feed.pending.len();
        if gone == 0 {
            return;
        }
        session.feed.recount();
        session.recount_replays();
        if session.persistent && !session.stored.moved {
            session.stored.moved = true;
            settled.push(Followup::Moved(id));
        }
        self.plane.followups.append(&mut settled);
        self.plane.counters.drop_many(Drop::NotAuthorized, gone as u64);
        self.plane.pump(id);
    }

    /// Whether a shared subscription of a session can bring it anything.
    pub(crate) fn may_share(&mut self, id: SessionId, filter: &str, qos: QoS) -> bool {
        let rights = self.plane.session(id).and_then(|s| s.rights.as_deref());
        rights.is_none_or(|r| r.check(&Request::subscribe(filter, qos)).allowed)
    }

    /// Whether a session may get messages of this topic.
    pub(crate) fn may_receive(&mut self, session: SessionId, topic: &str) -> bool {
        let rights = self.plane.session(session).and_then(|s| s.rights.as_deref());
        let allowed = rights.is_none_or(|r| r.check(&Request::receive(topic)).allowed);
        if !allowed {
            self.plane.counters.drop(Drop::NotAuthorized);
        }
        allowed
    }

    /// Notes that a client was denied what it attempted.
    pub(crate) fn note_denial(
        &mut self,
        tenant: TenantId,
        client_id: &str,
        access: Access,
        topic: &str,
        verdict: Verdict,
    ) {
        let most = usize::from(self.plane.settings.denials_kept);
        let (now, rules, seed) = (self.plane.now.wall, self.rules_version, self.hash_seed);
        let policy = self.tenancy.rules.of(tenant).unwrap_or_default();
        let Some(tenant) = self.tenants.get_mut(tenant.0 as usize).filter(|_| most > 0) else { return };
        let denials = tenant.denials.get_or_insert_with(|| Box::new(Denials::new(seed)));
        let attempt = Attempt { client_id, access, topic, verdict };
        denials.note(most, now, &attempt, rules, || policy.reason(verdict));
    }

    /// As [`Shard::note_denial`], of a session's client.
    pub(crate) fn note_denied(&mut self, id: SessionId, access: Access, topic: &str, verdict: Verdict) {
        let Some(session) = self.plane.session(id) else { return };
        let tenant = session.mount.tenant();
        // Taken out for the call, and put back.
        let client_id = core::mem::take(&mut session.client_id);
        self.note_denial(tenant, &client_id, access, topic, verdict);
        if let Some(session) = self.plane.session(id) {
            session.client_id = client_id;
        }
    }

    /// What decided, in words.
    pub(crate) fn reason_of_denial(&self, tenant: TenantId, verdict: Verdict) -> String {
        self.tenancy.rules.of(tenant).as_ref().unwrap_or(&Policy::default()).reason(verdict)
    }

    /// A Reason String for a client that wants such [MQTT-3.1.2-29], where clients may know why.
    pub(crate) fn explanation(&mut self, id: ConnId, why: &str) -> PropsBuf {
        let mut props = PropsBuf::new();
        let wanted = self.plane.settings.explain_denials
            && self.plane.conn(id).is_some_and(|c| c.version.is_v5() && c.problem_info);
        if wanted && props.push(&Property::ReasonString(why)).is_err() {
            // Longer than a property may be: none then.
            return PropsBuf::new();
        }
        props
    }

    /// What clients were denied, by tenant.
    pub fn denials(&self) -> impl Iterator<Item = (&str, &Denials)> {
        self.tenants.iter().filter_map(|t| Some((&*t.name, t.denials.as_deref()?)))
    }
}
