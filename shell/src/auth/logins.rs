//! All password files together: the node's own and those of tenants, and which of them a login is for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::password_file::PasswordFile;

/// The password files in use.
#[derive(Debug, Default)]
pub struct Logins {
    /// Users of no tenant of their own.
    shared: Option<Arc<PasswordFile>>,
    tenants: BTreeMap<Arc<str>, Arc<PasswordFile>>,
    /// Whose a name is, where only one file has it.
    owners: HashMap<String, Owner>,
}

/// In which files a name stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    Shared,
    Tenant(Arc<str>),
    Several,
}

/// What a check of a login gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The password is right. The tenant is that of the user's file; `None`: the file has none.
    Right(Option<Arc<str>>),
    Wrong,
    /// There is no such user; it took as long as if there were.
    Unknown,
}

impl Logins {
    pub fn new(shared: Option<PasswordFile>, tenants: BTreeMap<Arc<str>, PasswordFile>) -> Self {
        let tenants = tenants.into_iter().map(|(tenant, file)| (tenant, Arc::new(file))).collect();
        Self::of(shared.map(Arc::new), tenants)
    }

    fn of(shared: Option<Arc<PasswordFile>>, tenants: BTreeMap<Arc<str>, Arc<PasswordFile>>) -> Self {
        let mut owners: HashMap<String, Owner> = HashMap::new();
        let mut add = |user: &str, owner: Owner| {
            owners.entry(user.to_owned()).and_modify(|o| *o = Owner::Several).or_insert(owner);
        };
        // Without files of tenants there is nothing to decide.
        if !tenants.is_empty() {
            shared.iter().flat_map(|file| file.users()).for_each(|user| add(user, Owner::Shared));
            for (tenant, file) in &tenants {
                file.users().for_each(|user| add(user, Owner::Tenant(Arc::clone(tenant))));
            }
        }
        Self { shared, tenants, owners }
    }

    /// The node's own file alone.
    pub fn shared(file: PasswordFile) -> Self {
        Self::new(Some(file), BTreeMap::new())
    }

    /// Checks a login at a door of `tenant` (`None`: a door of no fixed tenant). Blocks for the time of a hash.
    ///
    /// At a tenant's door its own file counts, or, where it has none, the node's. At another door the name tells the
    /// file; a name of several files is unknown there, as nothing tells whose it is.
    pub fn verify(&self, tenant: Option<&str>, user: &str, password: &[u8]) -> Checked {
        let (file, owner) = match tenant.and_then(|t| self.tenants.get_key_value(t)) {
            Some((tenant, file)) => (Some(file), Some(Arc::clone(tenant))),
            None if tenant.is_some() || self.tenants.is_empty() => (self.shared.as_ref(), None),
            None => match self.owners.get(user) {
                Some(Owner::Tenant(tenant)) => (self.tenants.get(tenant), Some(Arc::clone(tenant))),
                Some(Owner::Shared) => (self.shared.as_ref(), None),
                Some(Owner::Several) | None => {
                    self.waste(password);
                    return Checked::Unknown;
                }
            },
        };
        match file.and_then(|file| file.verify(user, password)) {
            Some(true) => Checked::Right(owner),
            Some(false) => Checked::Wrong,
            None => Checked::Unknown,
        }
    }

    /// These and the users of tenants that are kept in the store; a tenant with a file of its own keeps that.
    pub fn with(&self, stored: &BTreeMap<Arc<str>, Arc<PasswordFile>>) -> Self {
        let mut tenants = stored.clone();
        tenants.extend(self.tenants.clone());
        Self::of(self.shared.clone(), tenants)
    }

    /// Takes the time of the dearest check.
    fn waste(&self, password: &[u8]) {
        let files = self.shared.iter().chain(self.tenants.values());
        if let Some(file) = files.max_by_key(|file| file.decoy_cost()) {
            file.waste(password);
        }
    }

    /// Names that stand in several files, in order.
    pub fn ambiguous(&self) -> Vec<&str> {
        let several = self.owners.iter().filter(|(_, owner)| **owner == Owner::Several);
        let mut names: Vec<&str> = several.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// All files, with their tenants.
    pub fn files(&self) -> impl Iterator<Item = (Option<&str>, &PasswordFile)> {
        let shared = self.shared.iter().map(|file| (None, &**file));
        shared.chain(self.tenants.iter().map(|(tenant, file)| (Some(&**tenant), &**file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(users: &[(&str, &str)]) -> PasswordFile {
        let line = |(user, password): &(&str, &str)| {
            format!("{user}:{}\n", bcrypt::hash(password, 4).unwrap_or_default())
        };
        PasswordFile::parse(&users.iter().map(line).collect::<String>()).unwrap_or_default()
    }

    #[test]
    fn a_name_is_of_the_tenant_whose_file_has_it() {
        let tenants = [
            (Arc::from("acme"), file(&[("ann", "a1"), ("bob", "b1"), ("root", "r1")])),
            (Arc::from("globex"), file(&[("ann", "a2"), ("eve", "e2")])),
        ];
        let logins = Logins::new(Some(file(&[("root", "r0"), ("sue", "s0")])), tenants.into());
        let acme = Checked::Right(Some(Arc::from("acme")));
        assert_eq!(logins.verify(None, "bob", b"b1"), acme);
        assert_eq!(logins.verify(None, "sue", b"s0"), Checked::Right(None));
        assert_eq!(logins.verify(None, "eve", b"b1"), Checked::Wrong);
        // Nothing tells which ann, or which root: nobody gets in, and no password tells either.
        assert_eq!(logins.ambiguous(), ["ann", "root"]);
        for password in ["a1", "a2", "r0", "r1"] {
            assert_eq!(logins.verify(None, "ann", password.as_bytes()), Checked::Unknown);
            assert_eq!(logins.verify(None, "root", password.as_bytes()), Checked::Unknown);
        }
        // At a tenant's own door its file alone counts.
        assert_eq!(logins.verify(Some("acme"), "ann", b"a1"), acme);
        assert_eq!(logins.verify(Some("acme"), "ann", b"a2"), Checked::Wrong);
        assert_eq!(logins.verify(Some("acme"), "eve", b"e2"), Checked::Unknown);
        assert_eq!(logins.verify(Some("acme"), "sue", b"s0"), Checked::Unknown);
        // A tenant without a file has the node's users.
        assert_eq!(logins.verify(Some("initech"), "sue", b"s0"), Checked::Right(None));
        assert_eq!(logins.verify(Some("initech"), "eve", b"e2"), Checked::Unknown);
    }
}
