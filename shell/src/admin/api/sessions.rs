//! Sessions and subscriptions of a tenant, as its shards have them now.

use super::wire::{Caller, Names, Page, Params, answer, bad_cursor, done, page_size};
use crate::admin::Admin;
use crate::admin::problem::Problem;
use axum::response::Response;
use mast_core::ask::{Answer, Ask, SessionFilter, SessionInfo, SubscriptionInfo};
use mast_core::codec::{Reason, Version};
use mast_core::ids::{ShardIx, TenantId};
use serde::{Deserialize, Serialize};

/// Questions that one request asks at most: a filter that hardly anything passes is looked through in several requests.
const QUESTIONS: usize = 64;

/// A session.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SessionView {
    pub client: String,
    /// Absent: anonymous.
    pub user: Option<String>,
    pub connected: bool,
    pub connection: Option<ConnectionView>,
    /// Milliseconds since the epoch, of a session without a connection.
    pub away_since: Option<u64>,
    /// It outlives its connections.
    pub persistent: bool,
    /// Seconds; absent: never.
    pub expiry: Option<u32>,
    pub subscriptions: u32,
    /// Messages sent and not acknowledged, and how many the client takes at once.
    pub inflight: u32,
    pub inflight_max: u16,
    /// QoS 2 messages received and not released.
    pub inbound: u32,
    /// Messages that wait in memory, and their bytes.
    pub queued: u32,
    pub queued_bytes: u64,
    /// Of a session that reads from the log: entries of the log, of all topics, between it and the newest one.
    pub lag: Option<u64>,
    pub will: bool,
    /// How often it was connected.
    pub connects: u64,
}

/// The connection of a session.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ConnectionView {
    pub address: String,
    /// `3.1`, `3.1.1` or `5`.
    pub version: &'static str,
    /// Seconds; 0: none.
    pub keep_alive: u32,
    /// Milliseconds since the epoch.
    pub since: u64,
    /// When what the client proved itself with ends.
    pub expires: Option<u64>,
    /// Bytes that wait for its socket.
    pub out_bytes: u64,
}

/// A subscription.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SubscriptionView {
    pub client: String,
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// 0: retained messages at every subscribe; 1: at a new one; 2: never.
    pub retain_handling: u8,
    /// Subscription Identifier.
    pub id: Option<u32>,
}

/// Which sessions.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionQuery {
    /// Entries at most: 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where to go on: `next` of the page before.
    after: Option<String>,
    /// The client id begins so.
    client_prefix: Option<String>,
    /// The user that owns it.
    user: Option<String>,
    /// With a connection, or without.
    connected: Option<bool>,
}

/// Which part of a list of subscriptions.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SubscriptionQuery {
    /// Entries at most: 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where to go on: `next` of the page before.
    after: Option<String>,
}

fn view(info: &SessionInfo, peer: &str) -> SessionView {
    let connection = info.connection.as_ref().map(|conn| ConnectionView {
        address: peer.to_owned(),
        version: match conn.version {
            Version::V31 => "3.1",
            Version::V311 => "3.1.1",
            Version::V5 => "5",
        },
        keep_alive: conn.keep_alive,
        since: conn.since.0,
        expires: conn.expires.map(|at| at.0),
        out_bytes: conn.out_bytes,
    });
    SessionView {
        client: info.client.to_string(),
        user: info.user.as_deref().map(str::to_owned),
        connected: connection.is_some(),
        connection,
        away_since: info.away_since.map(|at| at.0),
        persistent: info.persistent,
        expiry: Some(info.expiry_secs).filter(|secs| *secs != u32::MAX),
        subscriptions: info.subscriptions,
        inflight: info.inflight,
        inflight_max: info.inflight_max,
        inbound: info.inbound,
        queued: info.queued,
        queued_bytes: info.queued_bytes,
        lag: info.lag,
        will: info.will,
        connects: info.epoch,
    }
}

fn subscription_view(client: &str, info: &SubscriptionInfo) -> SubscriptionView {
    SubscriptionView {
        client: client.to_owned(),
        filter: info.filter.to_string(),
        qos: info.options.qos as u8,
        no_local: info.options.no_local,
        retain_as_published: info.options.retain_as_published,
        retain_handling: info.options.retain_handling,
        id: Some(info.id).filter(|id| *id != 0),
    }
}

/// A place among the sessions of a node: shard and slot. It stays good however sessions come and go; those that are
/// there all the time are told exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    shard: u16,
    slot: u32,
}

impl Place {
    fn read(text: Option<&str>) -> Result<Place, Problem> {
        let Some(text) = text else { return Ok(Place { shard: 0, slot: 0 }) };
        let (shard, slot) = text.split_once('.').ok_or_else(bad_cursor)?;
        Ok(Place {
            shard: shard.parse().map_err(|_| bad_cursor())?,
            slot: slot.parse().map_err(|_| bad_cursor())?,
        })
    }

    fn write(self) -> String {
        format!("{}.{}", self.shard, self.slot)
    }
}

/// Sessions from a place on, and the place behind them.
async fn page(
    admin: &Admin,
    tenant: TenantId,
    mut place: Place,
    size: usize,
    filter: &SessionFilter,
) -> Result<(Vec<SessionView>, Option<Place>), Problem> {
    let mut items = Vec::new();
    for _ in 0..QUESTIONS {
        if place.shard >= admin.desk.shards() {
            return Ok((items, None));
        }
        let max = size.saturating_sub(items.len()) as u32;
        let ask = Ask::Sessions { tenant, from: place.slot, max, filter: filter.clone() };
        let answer = admin.desk.ask(ShardIx(place.shard), ask).await.map_err(|_| Problem::slow())?;
        let (Answer::Sessions { sessions, next }, peers) = answer else { return Err(Problem::slow()) };
        items.extend(sessions.iter().zip(&peers).map(|(info, peer)| view(info, peer)));
        place = match next {
            Some(slot) => Place { shard: place.shard, slot },
            None => Place { shard: place.shard + 1, slot: 0 },
        };
        if items.len() >= size {
            break;
        }
    }
    Ok((items, (place.shard < admin.desk.shards()).then_some(place)))
}

/// The sessions of a tenant, with and without a connection. A page may be shorter than asked for, or empty, and yet have
/// a next one.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/sessions", tag = "sessions",
    params(("tenant" = String, Path, description = "The tenant"), SessionQuery),
    responses((status = 200, body = Page<SessionView>), (status = "4XX", body = Problem)))]
pub async fn list(
    caller: Caller,
    Names(tenant): Names<String>,
    Params(query): Params<SessionQuery>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    let size = page_size(query.limit)?;
    let place = Place::read(query.after.as_deref())?;
    let filter = SessionFilter {
        client_prefix: query.client_prefix.unwrap_or_default().into(),
        user: query.user.map(Into::into),
        connected: query.connected,
    };
    let (items, next) = page(&caller.admin, id, place, size, &filter).await?;
    Ok(answer(200, &Page { items, next: next.map(Place::write) }))
}

async fn one(admin: &Admin, tenant: TenantId, client: &str) -> Result<SessionView, Problem> {
    let ask = Ask::Session { tenant, client: client.into() };
    match admin.ask_of(tenant, client, ask).await.map_err(|_| Problem::slow())? {
        (Answer::Session(info), peers) => Ok(view(&info, peers.first().map_or("", |peer| peer))),
        _ => Err(Problem::missing("session")),
    }
}

/// One session.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/sessions/{client}", tag = "sessions",
    params(("tenant" = String, Path, description = "The tenant"), ("client" = String, Path, description = "Client id")),
    responses((status = 200, body = SessionView), (status = "4XX", body = Problem)))]
pub async fn read(
    caller: Caller,
    Names((tenant, client)): Names<(String, String)>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    Ok(answer(200, &one(&caller.admin, id, &client).await?))
}

/// Writes down in the audit what was done to a session.
async fn note(caller: &Caller, action: &'static str, tenant: &str, client: &str) -> Result<(), Problem> {
    let (who, tenant, client) = (caller.who.clone(), tenant.to_owned(), client.to_owned());
    let noted = caller.admin.change(|admin| async move {
        let mut batch = admin.batch(&who);
        batch.note(&admin.state(), action, format!("session/{tenant}/{client}"), Some(&tenant))?;
        admin.commit(batch).await
    });
    noted.await.map(|_| ())
}

/// Disconnects a client (MQTT 5: 0x98). Its session stays as after any lost connection, and its will goes out.
#[utoipa::path(post, path = "/api/v1/tenants/{tenant}/sessions/{client}/disconnect", tag = "sessions",
    params(("tenant" = String, Path, description = "The tenant"), ("client" = String, Path, description = "Client id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn disconnect(
    caller: Caller,
    Names((tenant, client)): Names<(String, String)>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    caller.may_write()?;
    one(&caller.admin, id, &client).await?;
    note(&caller, "disconnect", &tenant, &client).await?;
    let reason = Reason::ADMINISTRATIVE_ACTION;
    let ask = Ask::Disconnect { tenant: id, client: client.as_str().into(), reason };
    match caller.admin.ask_of(id, &client, ask).await.map_err(|_| Problem::slow())?.0 {
        Answer::Done => Ok(done()),
        _ => Err(Problem::new(
            409,
            "not_connected",
            "this client is not connected",
            "its session can be deleted",
        )),
    }
}

/// Deletes the session of a client that is not connected; its will, if it waits, goes out.
#[utoipa::path(delete, path = "/api/v1/tenants/{tenant}/sessions/{client}", tag = "sessions",
    params(("tenant" = String, Path, description = "The tenant"), ("client" = String, Path, description = "Client id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn delete(
    caller: Caller,
    Names((tenant, client)): Names<(String, String)>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    caller.may_write()?;
    one(&caller.admin, id, &client).await?;
    note(&caller, "delete", &tenant, &client).await?;
    let ask = Ask::EndSession { tenant: id, client: client.as_str().into() };
    match caller.admin.ask_of(id, &client, ask).await.map_err(|_| Problem::slow())?.0 {
        Answer::Done => Ok(done()),
        Answer::Busy => Err(Problem::new(
            409,
            "connected",
            "this client is connected, or was a moment ago",
            "disconnect it first, then delete its session",
        )),
        Answer::Failed(result) => Err(Problem::not_stored(&result)),
        _ => Err(Problem::missing("session")),
    }
}

async fn subscriptions_of(
    admin: &Admin,
    tenant: TenantId,
    client: &str,
    after: Option<&str>,
    size: usize,
) -> Result<(Vec<SubscriptionView>, bool), Problem> {
    let ask =
        Ask::Subscriptions { tenant, client: client.into(), after: after.map(Into::into), max: size as u32 };
    match admin.ask_of(tenant, client, ask).await.map_err(|_| Problem::slow())?.0 {
        Answer::Subscriptions { subscriptions, more } => {
            Ok((subscriptions.iter().map(|info| subscription_view(client, info)).collect(), more))
        }
        _ => Err(Problem::missing("session")),
    }
}

/// The subscriptions of one session, in the order of their filters.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/sessions/{client}/subscriptions", tag = "sessions",
    params(("tenant" = String, Path, description = "The tenant"), ("client" = String, Path, description = "Client id"),
        SubscriptionQuery),
    responses((status = 200, body = Page<SubscriptionView>), (status = "4XX", body = Problem)))]
pub async fn subscriptions(
    caller: Caller,
    Names((tenant, client)): Names<(String, String)>,
    Params(query): Params<SubscriptionQuery>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    let size = page_size(query.limit)?;
    let (items, more) = subscriptions_of(&caller.admin, id, &client, query.after.as_deref(), size).await?;
    let next = items.last().filter(|_| more).map(|last| last.filter.clone());
    Ok(answer(200, &Page { items, next }))
}

/// The subscriptions of all sessions of a tenant, session by session. A page may be shorter than asked for, or empty, and
/// yet have a next one.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/subscriptions", tag = "sessions",
    params(("tenant" = String, Path, description = "The tenant"), SubscriptionQuery),
    responses((status = 200, body = Page<SubscriptionView>), (status = "4XX", body = Problem)))]
pub async fn all_subscriptions(
    caller: Caller,
    Names(tenant): Names<String>,
    Params(query): Params<SubscriptionQuery>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    let size = page_size(query.limit)?;
    // The place of a session, and the filter behind which to go on within it.
    let (at, mut after) = match query.after.as_deref().map(|text| text.split_once(':').unwrap_or((text, "")))
    {
        Some((at, filter)) => (Some(at), Some(filter).filter(|f| !f.is_empty()).map(str::to_owned)),
        None => (None, None),
    };
    let mut place = Place::read(at)?;
    let mut items: Vec<SubscriptionView> = Vec::new();
    for _ in 0..QUESTIONS {
        let (sessions, next) = page(&caller.admin, id, place, 1, &SessionFilter::default()).await?;
        if let Some(session) = sessions.first() {
            let left = size - items.len();
            let found = subscriptions_of(&caller.admin, id, &session.client, after.as_deref(), left).await;
            // It may have ended in between.
            let (more_items, more) = found.unwrap_or_default();
            items.extend(more_items);
            if let (true, Some(last)) = (more, items.last()) {
                let next = format!("{}:{}", place.write(), last.filter);
                return Ok(answer(200, &Page { items, next: Some(next) }));
            }
        }
        after = None;
        match next {
            None => return Ok(answer(200, &Page { items, next: None })),
            Some(next) => place = next,
        }
        if items.len() >= size {
            break;
        }
    }
    Ok(answer(200, &Page { items, next: Some(place.write()) }))
}
