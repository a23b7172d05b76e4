//! Ends the connections of clients that were banned while they were connected.

use super::Admin;
use super::desk::Silent;
use crate::auth::{Bans, Suspect};
use mast_core::ask::{Answer, Ask, SessionFilter};
use mast_core::codec::Reason;
use mast_core::ids::{ShardIx, TenantId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Sessions looked at in one question.
const PAGE: u32 = 1000;

/// Looks at all connected clients and disconnects (0x98) those that a ban is about. Returns how many they were.
///
/// # Errors
/// A shard did not answer in time; those that it has stay.
pub async fn evict(admin: &Arc<Admin>, bans: &Bans) -> Result<usize, Silent> {
    let mut gone = 0;
    if bans.is_empty() {
        return Ok(gone);
    }
    for name in admin.control.tenant_names() {
        let Some(tenant) = admin.control.tenant(&name) else { continue };
        for shard in 0..admin.desk.shards() {
            for client in banned_on(admin, bans, (&name, tenant), ShardIx(shard)).await? {
                let ask = Ask::Disconnect { tenant, client, reason: Reason::ADMINISTRATIVE_ACTION };
                if matches!(admin.desk.ask(ShardIx(shard), ask).await?.0, Answer::Done) {
                    gone += 1;
                }
            }
        }
    }
    Ok(gone)
}

async fn banned_on(
    admin: &Arc<Admin>,
    bans: &Bans,
    (name, tenant): (&str, TenantId),
    shard: ShardIx,
) -> Result<Vec<Box<str>>, Silent> {
    let now = admin.clock.now().wall;
    let mut found = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let filter = SessionFilter { connected: Some(true), ..SessionFilter::default() };
        let ask = Ask::Sessions { tenant, from: at, max: PAGE, filter };
        let (Answer::Sessions { sessions, next }, peers) = admin.desk.ask(shard, ask).await? else { break };
        for (session, peer) in sessions.into_iter().zip(peers) {
            let user = session.user.as_deref();
            let suspect =
                Suspect { tenant: Some(name), client_id: &session.client, user, address: address(&peer) };
            if bans.find(&suspect, now).is_some() {
                found.push(session.client);
            }
        }
        from = next;
    }
    Ok(found)
}

/// The address in what is told of a connection: address and port, and the client id behind them.
fn address(peer: &str) -> Option<IpAddr> {
    let text = peer.split(' ').next().unwrap_or_default();
    text.parse::<SocketAddr>().ok().map(|a| a.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_what_is_told_of_a_connection() {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        assert_eq!(address("192.0.2.1:4711 (c 1)"), ip("192.0.2.1"));
        assert_eq!(address("[2001:db8::1]:4711 (c)"), ip("2001:db8::1"));
        assert_eq!(address("[::ffff:192.0.2.1]:4711"), ip("192.0.2.1"));
        assert_eq!(address("/run/mast.sock (c)"), None);
    }
}
