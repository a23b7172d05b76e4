//! The way of administration to the store: commits, and their answers.

use crate::store::{Event, Sink, StoreClient};
use mast_core::ids::{OpId, ShardIx};
use mast_core::store::port::{CommitResult, Durability, Write};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Commits that wait for their answer.
#[derive(Debug, Default)]
pub struct Waiting {
    open: Mutex<(u32, HashMap<u32, oneshot::Sender<CommitResult>>)>,
}

impl Waiting {
    fn begin(&self) -> (OpId, oneshot::Receiver<CommitResult>) {
        let (reply, answer) = oneshot::channel();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0 = open.0.wrapping_add(1);
        let idx = open.0;
        open.1.insert(idx, reply);
        (OpId { idx, generation: 0 }, answer)
    }

    fn end(&self, op: OpId, result: CommitResult) {
        let reply = self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&op.idx);
        if let Some(reply) = reply {
            // Whoever asked may have given up.
            reply.send(result).unwrap_or_default();
        }
    }
}

/// Takes the store's answers.
pub struct AnswerSink(pub Arc<Waiting>);

impl Sink for AnswerSink {
    fn deliver(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::CommitDone { op, result } => self.0.end(op, result),
                // Only shards read, and only they hear of messages.
                Event::ReadDone { .. } | Event::Committed(_) => {}
            }
        }
    }
}

/// Writes.
pub struct Writer {
    client: StoreClient,
    /// The number of our sink: the first behind those of the shards.
    sink: ShardIx,
    waiting: Arc<Waiting>,
}

impl Writer {
    pub fn new(client: StoreClient, sink: ShardIx, waiting: Arc<Waiting>) -> Writer {
        Writer { client, sink, waiting }
    }

    /// Commits, and waits until it is on stable storage. All or nothing.
    pub async fn commit(&self, writes: Vec<Write>) -> CommitResult {
        let (op, answer) = self.waiting.begin();
        if let Err(refusal) = self.client.commit(self.sink, op, writes, Durability::Synced) {
            self.waiting.end(op, CommitResult::Refused(refusal));
        }
        answer.await.unwrap_or(CommitResult::Unknown)
    }
}
