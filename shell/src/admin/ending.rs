//! The end of a tenant: its clients are disconnected, and all that was kept of it goes. The record of the tenant says
//! that it is ending until nothing is left, so a crash in between only makes it begin again.

use super::doors::DoorObject;
use super::records::{LimitObject, Object, TenantObject, TokenObject, UserObject};
use super::rules::RulesObject;
use super::state::Kind;
use super::{Admin, Batch, SELF};
use crate::admin::problem::Problem;
use mast_core::ask::{Answer, Ask};
use mast_core::ids::{ShardIx, TenantId};
use mast_core::store::port::{Expect, Write};
use std::sync::Arc;
use std::time::Duration;

/// Pause after a piece that got nowhere: a record was being written, or the store was in trouble.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause after the store refused.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// Keys that one commit removes.
const KEYS: usize = 1000;

/// Lets the work begin. It goes on until it is done, or the process ends.
pub fn start(admin: &Arc<Admin>, name: String) {
    let admin = Arc::clone(admin);
    tokio::spawn(async move {
        while let Err(problem) = end(&admin, &name).await {
            tracing::warn!(tenant = name, problem = problem.what, "deleting a tenant waits");
            tokio::time::sleep(LONG_PAUSE).await;
        }
        tracing::info!(tenant = name, "the tenant is deleted");
    });
}

async fn end(admin: &Arc<Admin>, name: &str) -> Result<(), Problem> {
    // `None`: only its records are left.
    if let Some(id) = admin.control.close_tenant(name) {
        for shard in 0..admin.desk.shards() {
            end_on(admin, ShardIx(shard), id).await?;
        }
        admin.desk.ask_all(&Ask::ForgetTenant { tenant: id }).await.map_err(|_| Problem::slow())?;
        admin.control.end_log(name);
        while admin.control.log_of(id).1 > 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
    remove_keys(admin, name).await?;
    let name = name.to_owned();
    admin
        .change(|admin| async move {
            let mut batch = admin.batch(SELF);
            {
                let state = admin.state();
                all_of::<UserObject>(&mut batch, &state, &name);
                all_of::<LimitObject>(&mut batch, &state, &name);
                all_of::<RulesObject>(&mut batch, &state, &name);
                for kept in state.of_tenant::<DoorObject>(&name) {
                    admin.doors.close(&kept.value.name);
                }
                all_of::<DoorObject>(&mut batch, &state, &name);
                all_of::<TokenObject>(&mut batch, &state, &name);
                all_of::<TenantObject>(&mut batch, &state, &name);
            }
            admin.commit(batch).await?;
            if let Some(id) = admin.control.id_of(&name) {
                admin.control.drop_tenant(id);
            }
            admin.apply_users().await?;
            admin.apply_rules().await?;
            admin.apply_limits().await
        })
        .await
}

fn all_of<T: Kind + Send + 'static>(batch: &mut Batch, state: &super::state::State, tenant: &str) {
    for kept in state.of_tenant::<T>(tenant) {
        if T::KIND == TenantObject::KIND {
            batch.delete(&kept.value);
        } else {
            // The record of the tenant's end tells of them.
            batch.delete_unseen::<T>(kept.value.name());
        }
    }
}

/// Asks one shard until it has nothing of the tenant any more.
async fn end_on(admin: &Arc<Admin>, shard: ShardIx, tenant: TenantId) -> Result<(), Problem> {
    let mut before = u64::MAX;
    loop {
        let answer = admin.desk.ask(shard, Ask::EndTenant { tenant }).await;
        match answer.map_err(|_| Problem::slow())?.0 {
            Answer::Left { count: 0 } => return Ok(()),
            Answer::Left { count } => {
                if count >= before {
                    tokio::time::sleep(PAUSE).await;
                }
                before = count;
            }
            Answer::Failed(result) => return Err(Problem::not_stored(&result)),
            Answer::Done
            | Answer::Missing
            | Answer::Busy
            | Answer::Sessions { .. }
            | Answer::Session(_)
            | Answer::Subscriptions { .. }
            | Answer::Retained { .. }
            | Answer::Usage(_)
            | Answer::Denials(_) => return Err(Problem::slow()),
        }
    }
}

/// Removes what no session claimed: watermarks, groups, and what failed deletes left.
async fn remove_keys(admin: &Arc<Admin>, name: &str) -> Result<(), Problem> {
    loop {
        let keys = admin.control.keys_of(name).await?;
        if keys.is_empty() {
            return Ok(());
        }
        for keys in keys.chunks(KEYS) {
            let writes = keys.iter().map(|key| Write::Delete { key: key.clone(), expect: Expect::Any });
            admin.commit_raw(writes.collect()).await?;
        }
    }
}
