//! Whether the broker is ready: components say what they wait for or suffer from.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The state of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Ready,
    /// Not ready; says why.
    NotReady(String),
}

/// All components. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Health {
    components: Arc<Mutex<BTreeMap<String, Condition>>>,
}

/// One component's handle.
#[derive(Debug, Clone)]
pub struct Component {
    name: String,
    health: Health,
}

impl Health {
    /// Adds a component, which is not ready before it says so.
    pub fn register(&self, name: &str) -> Component {
        let component = Component { name: name.to_owned(), health: self.clone() };
        component.not_ready("starting");
        component
    }

    /// Whether all components are ready.
    pub fn is_ready(&self) -> bool {
        self.lock().values().all(|c| *c == Condition::Ready)
    }

    /// One line for each component.
    pub fn report(&self) -> String {
        let mut out = String::new();
        for (name, condition) in self.lock().iter() {
            let line = match condition {
                Condition::Ready => writeln!(out, "{name}: ready"),
                Condition::NotReady(why) => writeln!(out, "{name}: not ready: {why}"),
            };
            debug_assert!(line.is_ok(), "writing to a string cannot fail");
        }
        out
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Condition>> {
        self.components.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Component {
    pub fn ready(&self) {
        self.health.lock().insert(self.name.clone(), Condition::Ready);
    }

    pub fn not_ready(&self, why: &str) {
        self.health.lock().insert(self.name.clone(), Condition::NotReady(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_every_component_is() {
        let health = Health::default();
        assert!(health.is_ready());
        let (store, listeners) = (health.register("store"), health.register("listeners"));
        assert!(!health.is_ready());
        store.ready();
        listeners.ready();
        assert!(health.is_ready());
        store.not_ready("the disk is full");
        assert_eq!(health.report(), "listeners: ready\nstore: not ready: the disk is full\n");
    }
}
