//! All objects of administration in memory, as the store holds them.

use super::doors::DoorObject;
use super::records::{
    AuditObject, LimitObject, MarkObject, Object, TenantObject, TokenObject, UserObject, decode, kind_of,
};
use super::rules::RulesObject;
use crate::store::AdminRecord;
use std::collections::BTreeMap;

/// An object and the revision of its record.
#[derive(Clone, Debug)]
pub struct Kept<T> {
    pub value: T,
    /// Sequence of its last write.
    pub revision: u64,
}

/// Objects of one kind by name.
pub type Table<T> = BTreeMap<Vec<String>, Kept<T>>;

/// See the module.
#[derive(Debug, Default)]
pub struct State {
    pub tenants: Table<TenantObject>,
    pub users: Table<UserObject>,
    pub rules: Table<RulesObject>,
    pub listeners: Table<DoorObject>,
    pub limits: Table<LimitObject>,
    pub tokens: Table<TokenObject>,
    pub marks: Table<MarkObject>,
    pub audit: Table<AuditObject>,
}

/// A kind of object that the state has a table of.
pub trait Kind: Object {
    fn table(state: &State) -> &Table<Self>;
    fn table_mut(state: &mut State) -> &mut Table<Self>;
}

macro_rules! kinds {
    ($($kind:ty => $table:ident),* $(,)?) => {
        $(impl Kind for $kind {
            fn table(state: &State) -> &Table<Self> {
                &state.$table
            }

            fn table_mut(state: &mut State) -> &mut Table<Self> {
                &mut state.$table
            }
        })*

        /// Takes one record in.
        fn take(state: &mut State, record: &AdminRecord) -> Result<(), String> {
            let kind = kind_of(&record.key).unwrap_or_default();
            $(if kind == <$kind>::KIND {
                let value: $kind = decode(&record.value)?;
                state.$table.insert(value.name(), Kept { value, revision: record.revision.0 });
                return Ok(());
            })*
            Err(format!("this version knows no records of kind \"{kind}\"; use the version that wrote it"))
        }
    };
}

kinds! {
    TenantObject => tenants,
    UserObject => users,
    RulesObject => rules,
    DoorObject => listeners,
    LimitObject => limits,
    TokenObject => tokens,
    MarkObject => marks,
    AuditObject => audit,
}

impl State {
    /// From the records that the store held.
    pub fn read(records: &[AdminRecord]) -> Result<State, String> {
        let mut state = State::default();
        for record in records {
            take(&mut state, record)?;
        }
        Ok(state)
    }

    /// An object by name.
    pub fn get<T: Kind>(&self, name: &[&str]) -> Option<&Kept<T>> {
        let name: Vec<String> = name.iter().map(|part| (*part).to_owned()).collect();
        T::table(self).get(&name)
    }

    /// The objects of a kind that belong to a tenant.
    pub fn of_tenant<'a, T: Kind + 'a>(&'a self, tenant: &'a str) -> impl Iterator<Item = &'a Kept<T>> {
        T::table(self).values().filter(move |kept| kept.value.tenant() == Some(tenant))
    }

    /// The number of the next change.
    pub fn next_change(&self) -> u64 {
        self.audit.values().next_back().map_or(1, |last| last.value.number + 1)
    }
}
