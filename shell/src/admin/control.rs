//! What puts the objects of administration in force: tells the store, the shards, the acceptors and authentication.

use super::problem::Problem;
use super::records::{LimitObject, TenantObject, UserObject};
use super::rules::{NODE, RulesObject, build};
use super::state::State;
use crate::accept::{Acceptor, InForce};
use crate::auth::hash::StoredHash;
use crate::auth::{AuthState, StoredUser};
use crate::config::Config;
use crate::driver::mailbox::{Mail, Mailbox};
use crate::serve::OpenListener;
use crate::store::StoreClient;
use arc_swap::ArcSwap;
use mast_core::authz::RuleList;
use mast_core::ids::TenantId;
use mast_core::store::key::Key;
use mast_core::store::port::CommitResult;
use mast_core::tenant::Tenancy;
use mast_core::tenant::limits::{Limit, Limits, Row, TenantLimits};
use mast_core::tenant::registry::{NameError, Registry};
use mast_core::tenant::rules::Rules;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// The tenants of the node.
#[derive(Debug, Default)]
struct Tenants {
    /// All that there is something of.
    all: Registry,
    /// Of these, those whose clients are let in no more.
    closed: BTreeSet<TenantId>,
}

impl Tenants {
    fn served(&self) -> Registry {
        self.closed.iter().fold(self.all.clone(), |registry, id| registry.without(*id))
    }
}

/// See the module.
pub struct Control {
    config: ArcSwap<Config>,
    tenants: Mutex<Tenants>,
    auth: Arc<AuthState>,
    /// Rules that are kept in the store, by tenant; those of the node under [`NODE`].
    rules: ArcSwap<BTreeMap<String, Arc<RuleList>>>,
    /// Limits that are kept in the store, by tenant.
    limits: ArcSwap<BTreeMap<String, TenantLimits>>,
    store: StoreClient,
    acceptor: Arc<Acceptor>,
    mailboxes: Vec<Arc<Mailbox>>,
}

/// The tenants of a configuration and of administration, those being deleted among them.
pub fn registry_of(config: &Config, state: &State) -> Result<Registry, (String, NameError)> {
    let made = state.tenants.values().map(|kept| kept.value.name.as_str());
    let mut registry = Registry::default();
    for (name, spread) in config.placed_tenants().into_iter().chain(made.map(|name| (name, false))) {
        registry = registry.with_placed(name, spread).map_err(|error| (name.to_owned(), error))?;
    }
    Ok(registry)
}

impl Control {
    pub fn new(
        config: &Arc<Config>,
        registry: Registry,
        state: &State,
        (auth, store): (Arc<AuthState>, StoreClient),
        acceptor: Arc<Acceptor>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Control {
        let ending = state.tenants.values().filter(|kept| kept.value.ending);
        let closed = ending.filter_map(|kept| registry.id(&kept.value.name)).collect();
        let tenants = Tenants { all: registry, closed };
        acceptor.authenticator.set_tenants(tenants.served());
        let config = ArcSwap::new(Arc::clone(config));
        Control {
            config,
            tenants: Mutex::new(tenants),
            auth,
            rules: ArcSwap::default(),
            limits: ArcSwap::default(),
            store,
            acceptor,
            mailboxes,
        }
    }

    fn tenants(&self) -> MutexGuard<'_, Tenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration in use.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// A tenant that is served.
    pub fn tenant(&self, name: &str) -> Option<TenantId> {
        self.tenants().served().id(name)
    }

    /// The names of all tenants that are served.
    pub fn tenant_names(&self) -> Vec<String> {
        let served = self.tenants().served();
        served.ids().filter_map(|id| served.name(id)).map(str::to_owned).collect()
    }

    /// Tells all shards the settings, the tenants and their rules as they are now.
    pub fn tell_shards(&self) {
        let registry = self.tenants().served();
        let (rules, limits) = (self.rules(&registry), self.limits(&registry));
        self.store.set_log_limits(&registry, &limits);
        let config = self.config.load();
        let settings = crate::engine::settings_of(&config);
        for mailbox in &self.mailboxes {
            let tenancy =
                Tenancy { registry: registry.clone(), rules: rules.clone(), limits: limits.clone() };
            mailbox.push(Mail::Reconfigure(Box::new(settings.clone()), tenancy));
        }
    }

    /// The rules of the files, and those that are kept in the store.
    fn rules(&self, registry: &Registry) -> Rules {
        let mut rules = self.auth.rules(registry);
        for (of, list) in self.rules.load().iter() {
            if self.rules_owned_by_file(of).is_err() {
                continue;
            }
            if of == NODE {
                rules.set_node(Some(Arc::clone(list)));
            } else if let Some(id) = registry.id(of) {
                rules.give_ordered(id, Arc::clone(list));
            }
        }
        rules
    }

    /// Takes over the lists of rules that are kept in the store.
    pub fn set_rules(&self, lists: &[RulesObject]) -> Result<(), Problem> {
        let built = lists.iter().map(|list| Ok((list.of.clone(), build(&list.of, &list.rules)?)));
        self.rules.store(Arc::new(built.collect::<Result<_, Problem>>()?));
        Ok(())
    }

    /// Takes over the limits that are kept in the store.
    pub fn set_limits(&self, limits: &[LimitObject]) {
        let mut tenants: BTreeMap<String, TenantLimits> = BTreeMap::new();
        for kept in limits {
            let limit = Limit { value: kept.value, observe: kept.observe };
            let own = tenants.entry(kept.tenant.clone()).or_default();
            if let Err(bad) = own.set(&kept.name, Some(limit)) {
                tracing::error!(tenant = kept.tenant, limit = kept.name, "not in force: {}", bad.0);
            }
        }
        self.limits.store(Arc::new(tenants));
    }

    /// The limits of all tenants: those of the configuration, and behind them those that are kept in the store.
    fn limits(&self, registry: &Registry) -> Limits {
        let config = self.config.load();
        let mut limits = crate::engine::limits_of(registry, &config);
        for (tenant, own) in self.limits.load().iter() {
            if let Some(id) = registry.id(tenant) {
                let of_file = config.own_limits.get(tenant);
                limits.give(id, of_file.map_or_else(|| own.clone(), |file| file.over(own)));
            }
        }
        limits
    }

    /// The limits in force for a tenant.
    pub fn limits_of(&self, tenant: &str) -> TenantLimits {
        let registry = self.tenants().served();
        registry.id(tenant).map(|id| self.limits(&registry).of(id)).unwrap_or_default()
    }

    /// Refuses changes of a limit that the configuration sets for its tenant.
    ///
    /// # Errors
    /// Names the file and the key.
    pub fn limit_owned_by_file(&self, tenant: &str, row: Row) -> Result<(), Problem> {
        let config = self.config.load();
        if config.own_limits.get(tenant).is_some_and(|own| own.get(row).is_some()) {
            let key = format!("tenant.{tenant}.limits.{}", row.name());
            return Err(Problem::of_file("this limit", &key, config.file.as_deref()));
        }
        Ok(())
    }

    /// Refuses changes of a list of rules that the configuration sets.
    ///
    /// # Errors
    /// Names the file and the key.
    pub fn rules_owned_by_file(&self, of: &str) -> Result<(), Problem> {
        let config = self.config.load();
        let key = match of {
            NODE if config.rules.node.is_some() => "[[rule]]".to_owned(),
            of if config.rules.tenants.contains_key(of) => format!("[[tenant.{of}.rule]]"),
            _ => return Ok(()),
        };
        Err(Problem::of_file("this list of rules", &key, config.file.as_deref()))
    }

    /// Puts a configuration in force; its new tenants come in. Those that it names no more stay until a restart.
    pub fn reload(&self, config: &Arc<Config>, in_force: InForce) {
        self.config.store(Arc::clone(config));
        for (name, spread) in config.placed_tenants() {
            // The names were checked with the configuration.
            self.enter(name, spread);
        }
        self.tell_shards();
        self.acceptor.reconfigure(in_force);
        self.acceptor.authenticator.set_tenants(self.tenants().served());
    }

    fn enter(&self, name: &str, spread: bool) {
        let mut tenants = self.tenants();
        if let Ok(all) = tenants.all.with_placed(name, spread) {
            self.store.set_tenants(&all);
            tenants.all = all;
        }
    }

    /// Lets a new tenant in: first the store, then all shards, then the doors. The mailboxes keep the order, so no client
    /// of it is anywhere before the shards know it.
    pub fn open_tenant(&self, name: &str) {
        self.enter(name, false);
        self.tell_shards();
        self.acceptor.authenticator.set_tenants(self.tenants().served());
    }

    /// Lets no clients of a tenant in any more.
    pub fn close_tenant(&self, name: &str) -> Option<TenantId> {
        let mut tenants = self.tenants();
        let id = tenants.all.id(name)?;
        tenants.closed.insert(id);
        let served = tenants.served();
        drop(tenants);
        self.acceptor.authenticator.set_tenants(served);
        self.tell_shards();
        Some(id)
    }

    /// Nothing is left of a closed tenant: its number and name are given up.
    pub fn drop_tenant(&self, id: TenantId) {
        let mut tenants = self.tenants();
        tenants.closed.remove(&id);
        tenants.all = tenants.all.without(id);
        self.store.set_tenants(&tenants.all);
    }

    /// Starts the accept loops of a listener.
    pub fn listen(&self, open: OpenListener) -> std::io::Result<Vec<JoinHandle<()>>> {
        self.acceptor.listen(open)
    }

    /// Whether there are users with passwords.
    pub fn has_passwords(&self) -> bool {
        self.auth.passwords().is_some()
    }

    /// Whether a tenant uses all shards, or sits on one.
    pub fn is_spread(&self, id: TenantId) -> bool {
        self.tenants().all.is_spread(id)
    }

    /// The number of a tenant, served or not.
    pub fn id_of(&self, name: &str) -> Option<TenantId> {
        self.tenants().all.id(name)
    }

    /// All keys that the store has under a tenant's name.
    pub async fn keys_of(&self, name: &str) -> Result<Vec<Key>, Problem> {
        self.store.keys_of(name).await.map_err(|refusal| Problem::not_stored(&CommitResult::Refused(refusal)))
    }

    /// Nothing of a deleted tenant's log is needed any more.
    pub fn end_log(&self, name: &str) {
        self.store.end_log(name);
    }

    /// Bytes and messages that the log holds of a tenant.
    pub fn log_of(&self, tenant: TenantId) -> (u64, u64) {
        self.store.log_of(tenant)
    }

    /// Puts the users that are kept in the store in place of the former ones. Blocks for a moment where there are many.
    pub fn set_users(&self, users: &[UserObject]) -> Result<(), crate::auth::AuthError> {
        let mut list = Vec::with_capacity(users.len());
        for user in users.iter().filter(|user| user.enabled) {
            // It was checked when it was kept.
            let Ok(hash) = StoredHash::parse(&user.hash) else {
                tracing::error!(tenant = user.tenant, user = user.name, "the stored hash makes no sense");
                continue;
            };
            list.push(StoredUser {
                tenant: user.tenant.as_str().into(),
                name: user.name.clone(),
                hash,
                client_id: user.client_id.clone(),
                attributes: user.attributes.clone(),
                superuser: user.superuser,
            });
        }
        self.auth.set_stored(list)
    }

    /// Whether the configuration has a tenant of this name.
    pub fn is_of_file(&self, tenant: &str) -> bool {
        self.config.load().tenants.iter().any(|name| name == tenant)
    }
}

/// How a tenant of the configuration file is told.
pub fn tenant_of_file(name: &str) -> TenantObject {
    TenantObject { name: name.to_owned(), description: String::new(), created: 0, ending: false }
}
