//! Retained messages: what the store keeps is the last write, and a new subscriber gets all of it.

use super::{Oracle, Rest};
use crate::facts::{Fact, Publication, Uid};
use crate::ledger::Ledger;
use crate::scenario::Role;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct Retained {
    /// What the observers' last look found: (tenant, topic) -> publication.
    found: BTreeMap<(u8, String), Option<Uid>>,
    looking: bool,
}

impl Oracle for Retained {
    fn name(&self) -> &'static str {
        "retained"
    }

    fn take(&mut self, fact: &Fact, ledger: &Ledger) -> Result<(), String> {
        match fact {
            Fact::SubscribeSent { client, filters, .. } => {
                let look =
                    ledger.clients[*client].role == Role::Observer && filters.iter().any(|f| f.filter == "#");
                self.looking |= look;
            }
            Fact::Delivered(d)
                if self.looking && d.retain && ledger.clients[d.client].role == Role::Observer =>
            {
                self.found.insert((ledger.clients[d.client].tenant, d.topic.clone()), d.uid);
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, ledger: &Ledger, rest: &Rest) -> Result<(), String> {
        if !self.looking {
            return Ok(());
        }
        let kept: BTreeMap<(u8, String), Option<Uid>> =
            rest.retained.iter().map(|(tenant, topic, uid)| ((*tenant, topic.clone()), *uid)).collect();
        let watched = |tenant: u8| {
            ledger.clients.iter().any(|spec| spec.role == Role::Observer && spec.tenant == tenant)
        };
        let restricted = |key: &(u8, String)| ledger.rights.is_restricted(&key.1);
        for (key, uid) in kept.iter().filter(|(key, _)| watched(key.0) && !restricted(key)) {
            let expires = uid.is_some_and(|u| ledger.publications[u as usize].expiry_secs > 0);
            match self.found.get(key) {
                Some(found) if found == uid => {}
                None if expires => {}
                found => {
                    return Err(format!("{key:?}: the store keeps {uid:?}, a new subscriber saw {found:?}"));
                }
            }
        }
        if let Some(key) = self.found.keys().find(|key| !kept.contains_key(*key)) {
            return Err(format!("{key:?} was delivered as retained, but nothing is kept"));
        }
        let topics: BTreeSet<(u8, String)> = ledger
            .publications
            .iter()
            .filter(|p| p.retain && p.acked_at.is_some() && !ledger.rights.is_restricted(&p.topic))
            .map(|p| (p.tenant, p.topic.clone()))
            .collect();
        topics.iter().try_for_each(|key| last_write(key, kept.get(key).copied().flatten(), ledger))
    }
}

/// What is kept may not be older than an acknowledged write that began after it was acknowledged.
fn last_write(key: &(u8, String), kept: Option<Uid>, ledger: &Ledger) -> Result<(), String> {
    if ledger.crash_excuses && ledger.crashes > 0 {
        return Ok(());
    }
    let of_topic = |p: &&Publication| p.retain && p.tenant == key.0 && p.topic == key.1;
    let kept_acked = match kept {
        Some(uid) => match ledger.publications[uid as usize].acked_at {
            Some(at) => at,
            None => return Ok(()),
        },
        // Nothing is kept: fine if anything may have removed it.
        None if ledger.publications.iter().filter(of_topic).any(|p| p.clear || p.expiry_secs > 0) => {
            return Ok(());
        }
        None => 0,
    };
    let newer =
        ledger.publications.iter().filter(of_topic).find(|p| {
            p.acked_at.is_some() && p.expiry_secs == 0 && p.sent_at.is_some_and(|at| at > kept_acked)
        });
    match newer {
        Some(p) if Some(p.uid) != kept => Err(format!("{key:?}: {kept:?} is kept, but {} is newer", p.uid)),
        Some(_) | None => Ok(()),
    }
}
