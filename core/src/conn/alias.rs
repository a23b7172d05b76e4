//! Topic aliases of one connection, in both directions. They die with it [MQTT-3.3.2-7].

use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Aliases that the client set.
#[derive(Debug, Default)]
pub(crate) struct AliasesIn {
    max: u16,
    topics: Vec<Option<Box<str>>>,
}

/// Why an alias was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasError {
    /// 0 or above the announced maximum [MQTT-3.3.2-8], [MQTT-3.3.2-9].
    Range,
    /// Used before it was set.
    Unknown,
}

impl AliasesIn {
    /// The announced maximum.
    pub fn max(&self) -> u16 {
        self.max
    }

    pub fn new(max: u16) -> AliasesIn {
        AliasesIn { max, topics: Vec::new() }
    }

    /// Sets `alias` to `topic`.
    pub fn set(&mut self, alias: u16, topic: &str) -> Result<(), AliasError> {
        if alias == 0 || alias > self.max {
            return Err(AliasError::Range);
        }
        let slot = alias as usize - 1;
        if self.topics.len() <= slot {
            self.topics.resize(slot + 1, None);
        }
        if self.topics[slot].as_deref() != Some(topic) {
            self.topics[slot] = Some(Box::from(topic));
        }
        Ok(())
    }

    /// What `alias` stands for.
    pub fn get(&self, alias: u16) -> Result<&str, AliasError> {
        if alias == 0 || alias > self.max {
            return Err(AliasError::Range);
        }
        self.topics.get(alias as usize - 1).and_then(|t| t.as_deref()).ok_or(AliasError::Unknown)
    }
}

/// Aliases that we set towards the client: the first topics get one, for as long as there are any.
#[derive(Debug, Default)]
pub(crate) struct AliasesOut {
    max: u16,
    topics: HashMap<Box<str>, u16, foldhash::fast::FixedState>,
}

/// How a topic goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasOut {
    /// Topic alone.
    None,
    /// Topic and a fresh alias.
    New(u16),
    /// The alias instead of the topic.
    Known(u16),
}

impl AliasesOut {
    /// At most `max` aliases [MQTT-3.1.2-26], [MQTT-3.1.2-27]; `seed` keys the hash.
    pub fn new(max: u16, seed: u64) -> AliasesOut {
        AliasesOut { max, topics: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)) }
    }

    #[inline]
    pub fn look(&self, topic: &str) -> AliasOut {
        if self.max == 0 {
            return AliasOut::None;
        }
        match self.topics.get(topic) {
            Some(alias) => AliasOut::Known(*alias),
            None if self.topics.len() < self.max as usize => AliasOut::New(self.topics.len() as u16 + 1),
            None => AliasOut::None,
        }
    }

    /// The client has been sent the fresh alias.
    pub fn sent(&mut self, topic: &str, alias: u16) {
        self.topics.insert(Box::from(topic), alias);
    }
}
