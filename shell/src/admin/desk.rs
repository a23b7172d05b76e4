//! Questions to the shards, and their answers.

use crate::driver::mailbox::{Mail, Mailbox};
use mast_core::ask::{Answer, Ask};
use mast_core::conn::handshake::shard_of;
use mast_core::ids::{ShardIx, TenantId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an answer may take: what is stored for it has 15 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, and the addresses of the connections in it.
pub type Answered = (Answer, Vec<Box<str>>);

/// Questions that wait for their answer.
#[derive(Debug, Default)]
pub struct Questions {
    open: Mutex<(u64, HashMap<u64, oneshot::Sender<Answered>>)>,
}

impl Questions {
    fn begin(&self) -> (u64, oneshot::Receiver<Answered>) {
        let (reply, answer) = oneshot::channel();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0 += 1;
        let token = open.0;
        open.1.insert(token, reply);
        (token, answer)
    }

    fn forget(&self, token: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&token);
    }

    /// A shard's answer.
    pub fn answered(&self, token: u64, answer: Answer, peers: Vec<Box<str>>) {
        let reply = self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&token);
        if let Some(reply) = reply {
            // Whoever asked may have given up.
            reply.send((answer, peers)).unwrap_or_default();
        }
    }
}

/// A shard gave no answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silent;

/// Asks.
#[derive(Clone)]
pub struct Desk {
    mailboxes: Vec<Arc<Mailbox>>,
    questions: Arc<Questions>,
}

impl Desk {
    pub fn new(mailboxes: Vec<Arc<Mailbox>>, questions: Arc<Questions>) -> Desk {
        Desk { mailboxes, questions }
    }

    /// Shards of the node.
    pub fn shards(&self) -> u16 {
        self.mailboxes.len() as u16
    }

    /// Asks one shard.
    pub async fn ask(&self, shard: ShardIx, ask: Ask) -> Result<Answered, Silent> {
        let mailbox = self.mailboxes.get(usize::from(shard.0)).ok_or(Silent)?;
        let (token, answer) = self.questions.begin();
        mailbox.push(Mail::Ask(token, ask));
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        self.questions.forget(token);
        answer.map_err(|_| Silent)?.map_err(|_| Silent)
    }

    /// Asks the shard that has a client of a tenant, which uses all shards (`spread`) or sits on one.
    pub async fn ask_of(
        &self,
        (tenant, spread): (TenantId, bool),
        client: &str,
        ask: Ask,
    ) -> Result<Answered, Silent> {
        self.ask(shard_of(tenant, client, self.shards(), spread), ask).await
    }

    /// Asks the shard that holds a tenant's retained messages.
    pub async fn ask_home(&self, tenant: TenantId, ask: Ask) -> Result<Answered, Silent> {
        self.ask(shard_of(tenant, "", self.shards(), false), ask).await
    }

    /// Asks all shards, one after the other.
    pub async fn ask_all(&self, ask: &Ask) -> Result<Vec<Answer>, Silent> {
        let mut answers = Vec::new();
        for shard in 0..self.shards() {
            answers.push(self.ask(ShardIx(shard), ask.clone()).await?.0);
        }
        Ok(answers)
    }
}
