//! Administration while running: the objects in the store, the changes of them, and what puts them in force. Its face is
//! the HTTP API in [`api`].
//!
//! A change is made by one task at a time: it is checked against the present state, written to the store together with
//! its record in the audit, put in force, and only then answered. So what was answered survives the process, and
//! nothing is half applied. What a configuration file sets is not here: no key has two owners.

pub mod api;
pub mod control;
pub mod desk;
pub mod doors;
pub mod ending;
pub mod problem;
pub mod records;
pub mod rules;
pub mod state;
pub mod tokens;
pub mod write;

use self::control::Control;
use self::desk::Desk;
use self::doors::Doors;
use self::problem::Problem;
use self::records::{
    AuditObject, LimitObject, MarkObject, Object, TokenObject, UserObject, encode, key, key_of,
};
use self::rules::RulesObject;
use self::state::{Kept, Kind, State};
use self::write::Writer;
use crate::driver::clock::Clock;
use mast_core::ask::Ask;
use mast_core::ids::TenantId;
use mast_core::store::port::{CommitResult, Expect, Write};
use serde_json::Value;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Changes that are remembered.
const AUDIT_KEPT: usize = 10_000;
/// How long a request waits for its change.
const PATIENCE: Duration = Duration::from_secs(20);
/// The author of what the broker does by itself.
pub const SELF: &str = "mast";

/// See the module.
pub struct Admin {
    state: RwLock<State>,
    writer: Writer,
    pub desk: Desk,
    pub control: Control,
    pub doors: Doors,
    clock: Clock,
    /// Held by the task that makes a change.
    changing: tokio::sync::Mutex<()>,
}

/// A change, made ready piece by piece.
pub struct Batch {
    who: String,
    at: u64,
    pieces: Vec<Piece>,
}

struct Piece {
    write: Write,
    install: Box<dyn FnOnce(&mut State, u64) + Send>,
    audit: Option<AuditObject>,
}

impl Batch {
    fn new(who: &str, at: u64) -> Batch {
        Batch { who: who.to_owned(), at, pieces: Vec::new() }
    }

    /// Makes or replaces an object.
    pub fn put<T: Kind + Send + 'static>(&mut self, state: &State, value: T) -> Result<(), Problem> {
        let before = T::table(state).get(&value.name()).map(|kept| kept.value.shown());
        let action = if before.is_some() { "update" } else { "create" };
        let audit = self.draft::<T>(action, &value.name(), value.tenant(), before, Some(value.shown()));
        self.put_unseen(value)?;
        if let Some(piece) = self.pieces.last_mut() {
            piece.audit = Some(audit);
        }
        Ok(())
    }

    /// The same without a word in the audit.
    fn put_unseen<T: Kind + Send + 'static>(&mut self, value: T) -> Result<(), Problem> {
        let encoded = encode(&value)
            .map_err(|e| Problem::invalid(format!("it cannot be kept: {e}"), "send other values"))?;
        let write = Write::Put { key: key(&value), value: encoded, expect: Expect::Any };
        let install = Box::new(move |state: &mut State, revision| {
            T::table_mut(state).insert(value.name(), Kept { value, revision });
        });
        self.pieces.push(Piece { write, install, audit: None });
        Ok(())
    }

    /// Removes an object.
    pub fn delete<T: Kind + Send + 'static>(&mut self, value: &T) {
        let audit = self.draft::<T>("delete", &value.name(), value.tenant(), Some(value.shown()), None);
        self.delete_unseen::<T>(value.name());
        if let Some(piece) = self.pieces.last_mut() {
            piece.audit = Some(audit);
        }
    }

    fn delete_unseen<T: Kind + Send + 'static>(&mut self, name: Vec<String>) {
        let write = Write::Delete { key: key_of(T::KIND, &name), expect: Expect::Any };
        let install = Box::new(move |state: &mut State, _| {
            T::table_mut(state).remove(&name);
        });
        self.pieces.push(Piece { write, install, audit: None });
    }

    /// A record of something that was done and is no object, such as a client disconnected.
    pub fn note(
        &mut self,
        state: &State,
        action: &str,
        object: String,
        tenant: Option<&str>,
    ) -> Result<(), Problem> {
        let number = state.next_change();
        self.put_unseen(AuditObject {
            number,
            at: self.at,
            who: self.who.clone(),
            action: action.to_owned(),
            object,
            tenant: tenant.map(str::to_owned),
            before: None,
            after: None,
        })
    }

    fn draft<T: Object>(
        &self,
        action: &str,
        name: &[String],
        tenant: Option<&str>,
        before: Option<Value>,
        after: Option<Value>,
    ) -> AuditObject {
        let object = std::iter::once(T::KIND).chain(name.iter().map(String::as_str));
        AuditObject {
            number: 0,
            at: self.at,
            who: self.who.clone(),
            action: action.to_owned(),
            object: object.collect::<Vec<_>>().join("/"),
            tenant: tenant.map(str::to_owned),
            before,
            after,
        }
    }

    /// Adds the records of the audit, and lets the oldest go.
    fn close(&mut self, state: &State) -> Result<(), Problem> {
        let mut number = state.next_change();
        let drafts: Vec<AuditObject> = self.pieces.iter_mut().filter_map(|p| p.audit.take()).collect();
        let kept = state.audit.len() + drafts.len();
        for mut audit in drafts {
            audit.number = number;
            number += 1;
            self.put_unseen(audit)?;
        }
        let old: Vec<Vec<String>> =
            state.audit.keys().take(kept.saturating_sub(AUDIT_KEPT)).cloned().collect();
        for name in old {
            self.delete_unseen::<AuditObject>(name);
        }
        Ok(())
    }
}

impl Admin {
    pub fn new(state: State, writer: Writer, desk: Desk, control: Control, clock: Clock) -> Admin {
        Admin {
            state: RwLock::new(state),
            writer,
            desk,
            control,
            doors: Doors::default(),
            clock,
            changing: tokio::sync::Mutex::new(()),
        }
    }

    /// The objects. Not to be held across anything that waits.
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Milliseconds since the epoch.
    pub fn now(&self) -> u64 {
        self.clock.now().wall.0
    }

    /// Makes a change, alone, in a task of its own: that whoever asked goes away does not leave it half done.
    pub async fn change<F, R>(self: &Arc<Admin>, what: impl FnOnce(Arc<Admin>) -> F) -> Result<R, Problem>
    where
        F: Future<Output = Result<R, Problem>> + Send + 'static,
        R: Send + 'static,
    {
        let admin = Arc::clone(self);
        let work = what(Arc::clone(self));
        let task = tokio::spawn(async move {
            let _alone = admin.changing.lock().await;
            work.await
        });
        match tokio::time::timeout(PATIENCE, task).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) | Err(_) => Err(Problem::slow()),
        }
    }

    /// A change to be made ready; only within [`Admin::change`].
    pub fn batch(&self, who: &str) -> Batch {
        Batch::new(who, self.now())
    }

    /// Stores a change and takes it over; gives the revision of its first piece. Only within [`Admin::change`].
    pub async fn commit(&self, mut batch: Batch) -> Result<u64, Problem> {
        batch.close(&self.state())?;
        let count = batch.pieces.len() as u64;
        let (writes, installs): (Vec<Write>, Vec<_>) =
            batch.pieces.into_iter().map(|piece| (piece.write, piece.install)).unzip();
        if writes.is_empty() {
            return Ok(0);
        }
        match self.writer.commit(writes).await {
            CommitResult::Done { last } => {
                // The pieces are numbered consecutively up to the last.
                let first = (last.0 + 1).saturating_sub(count);
                let mut state = self.state_mut();
                for (revision, install) in (first..).zip(installs) {
                    install(&mut state, revision);
                }
                Ok(first)
            }
            result @ (CommitResult::Refused(_) | CommitResult::Unknown) => Err(Problem::not_stored(&result)),
        }
    }

    /// Writes without objects: what a deleted tenant leaves.
    pub(super) async fn commit_raw(&self, writes: Vec<Write>) -> Result<(), Problem> {
        match self.writer.commit(writes).await {
            CommitResult::Done { .. } => Ok(()),
            result @ (CommitResult::Refused(_) | CommitResult::Unknown) => Err(Problem::not_stored(&result)),
        }
    }

    /// Asks the shard that has a client.
    pub async fn ask_of(
        &self,
        tenant: TenantId,
        client: &str,
        ask: Ask,
    ) -> Result<desk::Answered, desk::Silent> {
        self.desk.ask_of((tenant, self.control.is_spread(tenant)), client, ask).await
    }

    /// Waits until all shards have taken in what they were told.
    pub async fn settle(&self) -> Result<(), Problem> {
        self.desk.ask_all(&mast_core::ask::Ask::Fence).await.map(|_| ()).map_err(|_| Problem::slow())
    }

    /// Puts the users in force as they are now.
    pub async fn apply_users(self: &Arc<Admin>) -> Result<(), Problem> {
        let users: Vec<UserObject> = self.state().users.values().map(|kept| kept.value.clone()).collect();
        let admin = Arc::clone(self);
        let set = tokio::task::spawn_blocking(move || admin.control.set_users(&users)).await;
        match set {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Problem::slow()),
        }
    }

    /// Puts the rules in force as they are now: all shards judge by them when this is over.
    pub async fn apply_rules(self: &Arc<Admin>) -> Result<(), Problem> {
        let lists: Vec<RulesObject> = self.state().rules.values().map(|kept| kept.value.clone()).collect();
        self.control.set_rules(&lists)?;
        self.control.tell_shards();
        self.settle().await
    }

    /// Puts the limits in force as they are now.
    pub async fn apply_limits(self: &Arc<Admin>) -> Result<(), Problem> {
        let limits: Vec<LimitObject> = self.state().limits.values().map(|kept| kept.value.clone()).collect();
        self.control.set_limits(&limits);
        self.control.tell_shards();
        self.settle().await
    }

    /// What has to be done once the shards run: the first token, and what a crash interrupted.
    pub async fn begin(self: &Arc<Admin>) -> Result<(), Problem> {
        self.apply_users().await?;
        self.apply_rules().await?;
        self.apply_limits().await?;
        self.bootstrap().await?;
        let ending: Vec<String> = {
            let state = self.state();
            let ending = state.tenants.values().filter(|kept| kept.value.ending);
            ending.map(|kept| kept.value.name.clone()).collect()
        };
        for name in ending {
            ending::start(self, name);
        }
        Ok(())
    }

    /// At the first start there is no token: one is made and shown once.
    async fn bootstrap(self: &Arc<Admin>) -> Result<(), Problem> {
        let config = self.control.config();
        if config.admin_addresses.is_empty() || !self.state().marks.is_empty() {
            return Ok(());
        }
        let random = |_| Problem::new(503, "no_random", "the system has no random bytes", "try again");
        let (token, digest) = tokens::make().map_err(random)?;
        let id = tokens::make_id().map_err(random)?;
        // First the file: a token that nobody can read would be of no use to anybody.
        if let Err(error) = tokens::leave(&config.data_dir, &token) {
            tracing::error!(%error, "the bootstrap token could not be written to the data directory");
        }
        let created = self.now();
        self.change(|admin| async move {
            let mut batch = admin.batch(SELF);
            batch.put(
                &admin.state(),
                TokenObject {
                    id,
                    description: "bootstrap".into(),
                    digest,
                    tenant: None,
                    read_only: false,
                    expires: None,
                    created,
                    bootstrap: true,
                },
            )?;
            batch.put_unseen(MarkObject { bootstrapped: true })?;
            admin.commit(batch).await
        })
        .await?;
        let file = config.data_dir.join(tokens::BOOTSTRAP_FILE);
        tracing::warn!(
            file = %file.display(),
            "first start: the token for administration is {token} (also in the file). Use it as MAST_TOKEN with \
             `mast token create`, or as `Authorization: Bearer` at /api/v1; it ends when another global token is made"
        );
        Ok(())
    }
}
