//! Who is not let in: client ids and patterns of them, users, addresses, each of one tenant or of all, until a time or
//! for good.
//!
//! Bans have sources, each of which replaces its own alone: the configuration, administration, and the broker itself
//! (a client that comes and goes too often). They are looked at twice: before authentication with what is known then, so
//! that a banned address costs no hash, and after it with the tenant and user that were proven.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;

use mast_core::time::Wall;

use super::certificate::matches;
use crate::{listen::proxy::Cidr, obs::Metrics};

/// Who is banned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Banned {
    /// A client id.
    Client(String),
    /// Client ids; `*` stands for any text.
    Pattern(String),
    User(String),
    Address(Cidr),
}

/// One ban.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    /// `None`: all tenants.
    pub tenant: Option<String>,
    pub who: Banned,
    /// When it ends; `None`: never.
    pub until: Option<Wall>,
    /// Why, for people.
    pub reason: String,
}

/// Of what a ban is, for the metric's label `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BanKind {
    Client,
    Pattern,
    User,
    Address,
}

impl BanKind {
    const ALL: [BanKind; 4] = [BanKind::Client, BanKind::Pattern, BanKind::User, BanKind::Address];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            BanKind::Client => "client_id",
            BanKind::Pattern => "client_id_pattern",
            BanKind::User => "user",
            BanKind::Address => "address",
        }
    }
}

/// Who set a ban.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BanSource {
    Configuration,
    Administration,
    /// The broker itself.
    Flapping,
}

/// A client, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Suspect<'a> {
    /// `None`: not known yet, so that only bans of all tenants count.
    pub tenant: Option<&'a str>,
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    /// `None`: a unix socket.
    pub address: Option<IpAddr>,
}

impl Ban {
    /// Whether it is about a client now.
    pub fn holds(&self, suspect: &Suspect<'_>, now: Wall) -> bool {
        self.in_force(now)
            && self.tenant.as_deref().is_none_or(|t| suspect.tenant == Some(t))
            && match &self.who {
                Banned::Client(id) => suspect.client_id == id,
                Banned::Pattern(pattern) => matches(pattern, suspect.client_id),
                Banned::User(user) => suspect.user == Some(user),
                Banned::Address(network) => suspect.address.is_some_and(|a| network.contains(a)),
            }
    }

    /// Whether it has not ended.
    pub fn in_force(&self, now: Wall) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Of what kind it is.
    pub fn kind(&self) -> BanKind {
        match &self.who {
            Banned::Client(_) => BanKind::Client,
            Banned::Pattern(_) => BanKind::Pattern,
            Banned::User(_) => BanKind::User,
            Banned::Address(_) => BanKind::Address,
        }
    }

    /// Whether both are about the same.
    fn same(&self, tenant: Option<&str>, who: &Banned) -> bool {
        self.tenant.as_deref() == tenant && self.who == *who
    }
}

/// All bans, by what is looked up. Names have at most one entry per source and tenant, so the lists are short.
#[derive(Default)]
struct Index {
    clients: HashMap<String, Vec<Arc<Ban>>>,
    users: HashMap<String, Vec<Arc<Ban>>>,
    /// Looked through one by one: networks and patterns.
    others: Vec<Arc<Ban>>,
}

impl Index {
    fn new<'a>(bans: impl Iterator<Item = &'a Ban>) -> Index {
        let mut index = Index::default();
        for ban in bans {
            let ban = Arc::new(ban.clone());
            let list = match &ban.who {
                Banned::Client(id) => index.clients.entry(id.clone()).or_default(),
                Banned::User(user) => index.users.entry(user.clone()).or_default(),
                Banned::Pattern(_) | Banned::Address(_) => &mut index.others,
            };
            list.push(ban);
        }
        index
    }

    fn find(&self, suspect: &Suspect<'_>, now: Wall) -> Option<&Arc<Ban>> {
        let by_client = self.clients.get(suspect.client_id).into_iter().flatten();
        let by_user = suspect.user.and_then(|user| self.users.get(user)).into_iter().flatten();
        self.others.iter().chain(by_client).chain(by_user).find(|ban| ban.holds(suspect, now))
    }
}

/// See the module.
#[derive(Default)]
pub struct Bans {
    lists: Mutex<BTreeMap<BanSource, Vec<Ban>>>,
    index: ArcSwap<Index>,
    refused: [AtomicU64; BanKind::ALL.len()],
}

impl Bans {
    fn lists(&self) -> MutexGuard<'_, BTreeMap<BanSource, Vec<Ban>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, what: impl FnOnce(&mut BTreeMap<BanSource, Vec<Ban>>)) {
        let mut lists = self.lists();
        what(&mut lists);
        self.index.store(Arc::new(Index::new(lists.values().flatten())));
    }

    /// Puts all bans of a source in place of those that it had.
    pub fn replace(&self, source: BanSource, bans: Vec<Ban>) {
        self.change(|lists| {
            lists.insert(source, bans);
        });
    }

    /// Adds a ban, in place of the source's one about the same. What has ended goes.
    pub fn add(&self, source: BanSource, ban: Ban, now: Wall) {
        self.change(|lists| {
            let list = lists.entry(source).or_default();
            list.retain(|old| old.in_force(now) && !old.same(ban.tenant.as_deref(), &ban.who));
            list.push(ban);
        });
    }

    /// Removes a source's ban; whether there was one.
    pub fn remove(&self, source: BanSource, tenant: Option<&str>, who: &Banned) -> bool {
        let mut found = false;
        self.change(|lists| {
            let list = lists.entry(source).or_default();
            let before = list.len();
            list.retain(|ban| !ban.same(tenant, who));
            found = list.len() < before;
        });
        found
    }

    /// The bans in force, with their sources.
    pub fn list(&self, now: Wall) -> Vec<(BanSource, Ban)> {
        let lists = self.lists();
        let all = lists.iter().flat_map(|(source, bans)| bans.iter().map(|ban| (*source, ban.clone())));
        all.filter(|(_, ban)| ban.in_force(now)).collect()
    }

    /// Whether there is none at all, so that nobody need be looked at.
    pub fn is_empty(&self) -> bool {
        let index = self.index.load();
        index.clients.is_empty() && index.users.is_empty() && index.others.is_empty()
    }

    /// A ban that is about a client.
    pub fn find(&self, suspect: &Suspect<'_>, now: Wall) -> Option<Arc<Ban>> {
        self.index.load().find(suspect, now).cloned()
    }

    /// The same for a client that asks to be let in: it is counted.
    pub fn refuses(&self, suspect: &Suspect<'_>, now: Wall) -> Option<Arc<Ban>> {
        let ban = self.find(suspect, now)?;
        self.refused[ban.kind() as usize].fetch_add(1, Ordering::Relaxed);
        Some(ban)
    }

    /// Registers the counts.
    pub fn register(self: &Arc<Self>, metrics: &Metrics) {
        let bans = Arc::clone(self);
        metrics.register(move |out| {
            for kind in BanKind::ALL {
                let help = "Clients that were not let in because of a ban, by what it is about.";
                let n = bans.refused[kind as usize].load(Ordering::Relaxed);
                out.counter("mast_banned_total", help, &[("kind", kind.as_str())], n);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall(1000);

    fn ban(tenant: Option<&str>, who: Banned, until: Option<u64>) -> Ban {
        Ban { tenant: tenant.map(str::to_owned), who, until: until.map(Wall), reason: String::new() }
    }

    fn client<'a>(tenant: Option<&'a str>, id: &'a str, user: Option<&'a str>) -> Suspect<'a> {
        Suspect { tenant, client_id: id, user, address: Some([192, 0, 2, 7].into()) }
    }

    fn bans(list: Vec<Ban>) -> Bans {
        let bans = Bans::default();
        bans.replace(BanSource::Configuration, list);
        bans
    }

    #[test]
    fn each_kind_bans_whom_it_is_about_and_nobody_else() {
        let find = |who: Banned, suspect: Suspect<'_>| {
            bans(vec![ban(None, who, None)]).find(&suspect, NOW).is_some()
        };
        let id = |text: &str| Banned::Client(text.to_owned());
        assert!(
            find(id("dev1"), client(None, "dev1", None)) && !find(id("dev1"), client(None, "dev12", None))
        );
        assert!(
            !find(id("dev*"), client(None, "dev12", None)),
            "whoever is called so must not take others along"
        );
        let like = |text: &str| Banned::Pattern(text.to_owned());
        assert!(
            find(like("dev*"), client(None, "dev12", None))
                && !find(like("dev*"), client(None, "xdev", None))
        );
        let user = |text: &str| Banned::User(text.to_owned());
        assert!(find(user("u"), client(None, "c", Some("u"))) && !find(user("u"), client(None, "u", None)));
        let net = |text: &str| Banned::Address(text.parse().unwrap_or_else(|e| panic!("{e}")));
        assert!(find(net("192.0.2.0/24"), client(None, "c", None)));
        assert!(!find(net("192.0.3.0/24"), client(None, "c", None)));
        assert!(!find(net("0.0.0.0/0"), Suspect { client_id: "c", ..Suspect::default() }), "a unix socket");
    }

    #[test]
    fn a_ban_of_one_tenant_is_none_of_another_and_none_before_the_tenant_is_known() {
        let bans = bans(vec![ban(Some("acme"), Banned::Client("c".into()), None)]);
        assert!(bans.find(&client(Some("acme"), "c", None), NOW).is_some());
        assert!(bans.find(&client(Some("globex"), "c", None), NOW).is_none());
        assert!(bans.find(&client(None, "c", None), NOW).is_none());
    }

    #[test]
    fn a_ban_ends_at_its_time_and_is_replaced_or_removed_by_its_own_source_alone() {
        let who = || Banned::Client("c".to_owned());
        let bans = bans(vec![ban(None, who(), Some(1001))]);
        let found = |at| bans.find(&client(None, "c", None), Wall(at)).is_some();
        assert!(found(1000) && !found(1001));
        bans.add(BanSource::Administration, ban(None, who(), None), NOW);
        bans.add(BanSource::Administration, ban(None, who(), Some(2000)), NOW);
        assert!(found(1999) && !found(2000), "the later one replaced the earlier one");
        assert_eq!(bans.list(NOW).len(), 2);
        assert!(!bans.remove(BanSource::Flapping, None, &who()));
        assert!(bans.remove(BanSource::Administration, None, &who()) && !found(1001) && found(1000));
        bans.replace(BanSource::Configuration, Vec::new());
        assert!(bans.is_empty());
    }
}
