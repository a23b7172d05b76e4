//! From an admitted CONNECT to CONNACK: which session, whose, and what must be stored first.

use crate::authz::{Access, Request};
use crate::codec::{ConnAck, Connect, Packet, Property, PropsBuf, Reason, Version};
use crate::conn::alias::{AliasesIn, AliasesOut};
use crate::conn::handshake::{Admission, put_refusal};
use crate::conn::{Conn, Phase};
use crate::ids::{ConnId, SessionId, SessionUid};
use crate::quota::connect::Room;
use crate::session::Session;
use crate::session::will::Will;
use crate::shard::Shard;
use crate::shard::input::{Effect, LogEvent};
use crate::shard::ops::{Connecting, Op};
use crate::store::port::CommitResult;
use crate::sys::Drop;
use crate::tenant::mount::Mount;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Shard {
    pub(crate) fn admit(&mut self, id: ConnId, admission: Box<Admission>) {
        let mount = Mount::new(admission.identity.tenant);
        let placeholder = SessionId { idx: u32::MAX, generation: u32::MAX };
        let mut conn = Conn::new(id, admission.version, mount, placeholder, self.plane.now);
        let Ok(connect) = admission.packet() else {
            // The handshake decoded these bytes; if they no longer decode, the driver mixed something up.
            self.log(LogEvent::Invariant { what: "admitted CONNECT does not decode" });
            self.effects.push(Effect::Close { conn: id, flush: false });
            return;
        };
        self.fill_conn(&mut conn, &connect, &admission);
        let slot = id.idx as usize;
        if self.plane.conns.len() <= slot {
            self.plane.conns.resize_with(slot + 1, || None);
        }
        self.plane.conns[slot] = Some(Box::new(conn));
        if let Some(tenant) = self.tenant(mount.tenant()) {
            tenant.counters.connected += 1;
        }
        if !self.serves(mount.tenant()) {
            self.refuse_admission(id, Reason::NOT_AUTHORIZED);
            return;
        }
        if self.draining {
            self.refuse_admission(id, Reason::SERVER_SHUTTING_DOWN);
            return;
        }
        self.choose_session(id, &connect, &admission);
    }

    fn fill_conn(&mut self, conn: &mut Conn, connect: &Connect<'_>, admission: &Admission) {
        let settings = &self.plane.settings;
        let tenant = admission.identity.tenant;
        let caps = self.caps(tenant);
        conn.bridge = connect.bridge;
        conn.max_packet_out = connect.props.maximum_packet_size().unwrap_or(u32::MAX);
        conn.problem_info = connect.props.request_problem_info().unwrap_or(true);
        conn.acks_max = caps.receive_maximum;
        conn.max_packet_in = caps.max_packet;
        let quota = self.tenants.get(tenant.0 as usize).and_then(|t| t.quota.as_ref());
        conn.quota.limited = quota.is_some_and(|q| q.packets);
        conn.quota.out_limited = self.plane.rates.get(tenant.0 as usize).is_some_and(Option::is_some);
        conn.aliases_in = AliasesIn::new(caps.aliases);
        let out_max = connect.props.topic_alias_maximum().unwrap_or(0).min(settings.topic_alias_out_max);
        conn.aliases_out = AliasesOut::new(out_max, self.hash_seed);
        conn.username.clone_from(&admission.identity.principal);
        conn.expires = admission.identity.expires;
        conn.auth_method.clone_from(&admission.auth_method);
        let keep_alive = caps.keep_alive(connect.version, connect.keep_alive);
        conn.keep_alive_micros = u64::from(keep_alive) * 1_500_000;
        conn.hold.clone_from(&admission.leftover);
    }

    /// Finds or makes the session.
    fn choose_session(&mut self, id: ConnId, connect: &Connect<'_>, admission: &Admission) {
        let mount = Mount::new(admission.identity.tenant);
        let client_id = &admission.client_id;
        let identity = &admission.identity;
        let user = identity.principal.as_deref();
        let rights = self.rights_of(mount.tenant(), user, client_id, &identity.claims);
        if let (Some(rights), Some(will)) = (&rights, &connect.will) {
            let verdict = rights.check(&Request::publish(will.topic, will.qos, will.retain));
            if !verdict.allowed {
                // A will that could never go out is no will; its client is told before it relies on it.
                self.plane.counters.drop(Drop::NotAuthorized);
                self.note_denial(mount.tenant(), client_id, Access::Publish, will.topic, verdict);
                self.refuse_admission(id, Reason::NOT_AUTHORIZED);
                return;
            }
        }
        let found = self.tenant(mount.tenant()).and_then(|t| t.clients.get(&**client_id).copied());
        let mut present = false;
        let mut old_epoch = 0;
        let mut discarded = None;
        let mut chosen = None;
        if let Some(old) = found {
            let Some(session) = self.plane.session(old) else { return };
            if session.principal != admission.identity.principal {
                // Only the principal that owns a session may take it over (MQTT 5, 5.4.2).
                self.refuse_admission(id, Reason::NOT_AUTHORIZED);
                return;
            }
            old_epoch = session.epoch;
            let (busy, persistent, succeeds) = (session.busy, session.persistent, session.conn);
            // One whose record is being written is looked at when that is over.
            let room =
                if busy { Room::There } else { self.room_for(id, connect, admission, succeeds, persistent) };
            if !self.has_room(id, &room) {
                return;
            }
            let Some(session) = self.plane.session(old) else { return };
            if let Some(loser) = session.conn.filter(|_| !session.busy) {
                let replaying = session.scans > 0;
                self.plane.counters.takeovers += 1;
                self.plane.counters.takeovers_replaying += u64::from(replaying);
                self.log(LogEvent::TakenOver { conn: loser });
                // [MQTT-3.1.4-3]
                self.disconnect(loser, Reason::SESSION_TAKEN_OVER);
            }
            if let Some(session) = self.plane.session(old).filter(|s| s.busy) {
                // Its record is being written. The last to ask waits; whoever waited before has lost to it.
                let waiting = session.waiting.replace((id, Box::new(admission.clone())));
                if let Some((loser, _)) = waiting {
                    self.refuse_admission(loser, Reason::SERVER_BUSY);
                }
                return;
            }
            // A session of expiry 0 ended just now, with its connection.
            if self.plane.session(old).is_some() {
                if connect.clean_start {
                    // [MQTT-3.1.2-4] A pending will goes out, as the session ends (MQTT 5, 3.1.3.2.2).
                    discarded = Some(old);
                } else {
                    present = true;
                    chosen = Some(old);
                }
            }
        }
        if found.is_none() {
            let room = self.room_for(id, connect, admission, None, false);
            if !self.has_room(id, &room) {
                return;
            }
        }
        let mut writes = Vec::new();
        let mut fired = None;
        if let Some(old) = discarded {
            writes = self.end_session_writes(old);
        } else if let Some(old) = chosen
            && self.will_is_due(old)
        {
            // Its connection ended and its delay is over: that the client is back does not call it back.
            fired = self.plane.session(old).and_then(|s| s.will.clone());
            writes = self.fire_will(old);
        }
        let session_id = chosen.unwrap_or_else(|| {
            let uid = SessionUid(self.rng.next_u64() | 1);
            let session = Session::new(mount, uid, client_id.clone(), admission.identity.principal.clone());
            self.add_session(session)
        });
        let caps = self.caps(mount.tenant());
        let expiry = caps.expiry(connect, self.plane.settings.v3_session_expiry);
        let settings_quota = self.plane.settings.max_inflight_out;
        let quota = connect.props.receive_maximum().unwrap_or(u16::MAX).min(settings_quota).max(1);
        let will = connect.will.as_ref().map(|w| Box::new(Will::from_packet(w, &self.plane.settings)));
        let Some(session) = self.plane.session(session_id) else { return };
        session.epoch = session.epoch.max(old_epoch) + 1;
        session.expiry_secs = expiry;
        let persists = !session.persistent && expiry > 0;
        session.persistent = session.persistent || expiry > 0;
        session.rights = rights;
        session.claims.clone_from(&admission.identity.claims);
        session.out.quota = quota;
        session.conn = Some(id);
        session.away = None;
        // [MQTT-3.1.3-9] A will whose delay ran is replaced, so never sent.
        let replaced = core::mem::replace(&mut session.will, will);
        let previous = if writes.is_empty() { replaced } else { fired };
        let must_store = session.persistent || session.will.is_some() || session.stored.revision.is_some();
        session.busy = must_store || !writes.is_empty();
        if let Some(conn) = self.plane.conn(id) {
            conn.session = session_id;
        }
        if persists {
            self.session_persists(id, mount.tenant());
        }
        let admission = Box::new(admission.clone());
        let connecting = Connecting { conn: id, session: session_id, present, admission, previous };
        if must_store {
            writes.push(self.session_write(session_id));
        }
        if writes.is_empty() {
            self.go_online(connecting);
        } else {
            let class = self.class();
            self.commit(Op::Connect(Box::new(connecting)), writes, class);
        }
    }

    /// A connection that waited for its session's record.
    pub(crate) fn choose_again(&mut self, id: ConnId, admission: &Admission) {
        let waits = self.plane.conn(id).is_some_and(|c| c.phase == Phase::Connecting);
        if let (true, Ok(connect)) = (waits, admission.packet()) {
            self.choose_session(id, &connect, admission);
        }
    }

    /// The session's record is stored (or not).
    pub(crate) fn connect_stored(&mut self, connecting: Connecting, result: &CommitResult) {
        let id = connecting.conn;
        let still = self.plane.conn(id).is_some_and(|c| c.phase == Phase::Connecting);
        if self.adopt_revision(connecting.session, result) {
            let write = self.session_write(connecting.session);
            let class = self.class();
            self.commit(Op::Connect(Box::new(connecting)), alloc::vec![write], class);
            return;
        }
        let Some(session) = self.plane.session(connecting.session) else { return };
        session.busy = false;
        let waiting = session.waiting.take();
        self.readmit.extend(waiting);
        let Some(session) = self.plane.session(connecting.session) else { return };
        match result {
            CommitResult::Done { last } => {
                if session.persistent || session.will.is_some() || session.stored.revision.is_some() {
                    session.stored.revision = Some(*last);
                    session.stored.unsure = false;
                }
                if still {
                    self.go_online(connecting);
                } else {
                    // The client left meanwhile.
                    self.left_while_connecting(connecting.session);
                }
            }
            CommitResult::Refused(_) | CommitResult::Unknown => {
                let reason = match crate::shard::complete::reason_of(result) {
                    Reason::QUOTA_EXCEEDED => Reason::QUOTA_EXCEEDED,
                    _ => Reason::SERVER_UNAVAILABLE,
                };
                if still {
                    self.refuse_admission(id, reason);
                }
                // Without an answer the will that was due may have gone out with the record.
                let previous = connecting.previous.filter(|_| *result != CommitResult::Unknown);
                self.connect_failed(connecting.session, connecting.present, previous);
            }
        }
    }

    /// Refuses after admission: CONNACK with the reason, close.
    pub(crate) fn refuse_admission(&mut self, id: ConnId, reason: Reason) {
        // One that waited for a session may be on its way out by now, and was counted out.
        if self.plane.conn(id).is_none_or(|conn| conn.phase == Phase::Closing) {
            return;
        }
        self.plane.counters.refused += 1;
        self.plane.write(id, |conn| put_refusal(reason, conn.version, conn.max_packet_out, conn.out.tail()));
        let Some(conn) = self.plane.conn(id) else { return };
        conn.phase = Phase::Closing;
        let tenant = conn.mount.tenant();
        if let Some(tenant) = self.tenant(tenant) {
            tenant.counters.connected -= 1;
        }
        self.release_conn(id, tenant);
        self.effects.push(Effect::Close { conn: id, flush: true });
    }

    /// CONNACK, and the session runs.
    fn go_online(&mut self, connecting: Connecting) {
        let Connecting { conn: id, session, present, admission, previous: _ } = connecting;
        self.plane.counters.connects += 1;
        let Ok(connect) = admission.packet() else { return };
        if !self.put_connack(id, session, present, &connect, &admission) {
            // It was never accepted, so its will has no cause.
            self.shut(id, false);
            if let Some(made) = self.plane.session(session).filter(|_| !present) {
                // Nor was it told under which name it could come back.
                made.expiry_secs = 0;
            }
            self.left_while_connecting(session);
            return;
        }
        if let Some(conn) = self.plane.conn(id) {
            conn.phase = Phase::Online;
        }
        self.arm_idle(id);
        self.attach(id, session);
        self.unhold(id);
        self.check_pause(id);
    }

    /// False if the CONNACK is larger than the client takes; then none is written.
    fn put_connack(
        &mut self,
        id: ConnId,
        session: SessionId,
        present: bool,
        connect: &Connect<'_>,
        admission: &Admission,
    ) -> bool {
        let expiry = self.plane.session(session).map_or(0, |s| s.expiry_secs);
        let mut props = PropsBuf::new();
        let Some(conn) = self.plane.conn(id) else { return false };
        // As the connection holds them: limits may have changed since.
        let (acks_max, max_packet, aliases) = (conn.acks_max, conn.max_packet_in, conn.aliases_in.max());
        if admission.version == Version::V5 {
            let s = &self.plane.settings;
            let caps = self.caps(admission.identity.tenant);
            let keep_alive = caps.keep_alive(connect.version, connect.keep_alive);
            let mut list: Vec<Property<'_>> = Vec::new();
            if connect.props.session_expiry().unwrap_or(0) != expiry {
                list.push(Property::SessionExpiry(expiry));
            }
            if acks_max != u16::MAX {
                list.push(Property::ReceiveMaximum(acks_max));
            }
            if caps.max_qos < crate::message::QoS::ExactlyOnce {
                list.push(Property::MaximumQos(caps.max_qos as u8));
            }
            if !caps.retain {
                list.push(Property::RetainAvailable(false));
            }
            list.push(Property::MaximumPacketSize(max_packet));
            if admission.assigned {
                list.push(Property::AssignedClientId(&admission.client_id));
            }
            if aliases > 0 {
                list.push(Property::TopicAliasMaximum(aliases));
            }
            if !caps.wildcards {
                list.push(Property::WildcardAvailable(false));
            }
            if !s.subscription_id_available {
                list.push(Property::SubscriptionIdAvailable(false));
            }
            if !caps.shared {
                list.push(Property::SharedAvailable(false));
            }
            if keep_alive != connect.keep_alive {
                list.push(Property::ServerKeepAlive(keep_alive));
            }
            if let Some(method) = admission.auth_method.as_deref() {
                list.push(Property::AuthMethod(method));
            }
            if let Some(data) = admission.auth_data.as_deref() {
                list.push(Property::AuthData(data));
            }
            for property in &list {
                if props.push(property).is_err() {
                    self.log(LogEvent::Invariant { what: "CONNACK property too long" });
                }
            }
        }
        let packet = Packet::ConnAck(ConnAck {
            session_present: present,
            code: Reason::SUCCESS,
            props: props.as_props(),
        });
        let mut failed = false;
        self.plane.write(id, |conn| {
            // [MQTT-3.1.2-24] What cannot be left out and is still too large cannot be said at all.
            failed = packet.encoded_len(conn.version) > conn.max_packet_out as usize
                || packet.encode(conn.version, conn.out.tail()).is_err();
        });
        !failed
    }

    /// Whether a CONNECT may go on; one that may not is answered.
    fn has_room(&mut self, id: ConnId, room: &Room) -> bool {
        match room {
            Room::There => true,
            Room::Asked => false,
            Room::Refused(reason) => {
                self.refuse_admission(id, *reason);
                false
            }
        }
    }
}
