//! Retained messages of a tenant.

use super::wire::{Caller, Names, Page, Params, answer, bad_cursor, done, page_size};
use crate::admin::Admin;
use crate::admin::problem::Problem;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mast_core::ask::{Answer, Ask};
use mast_core::ids::TenantId;
use mast_core::message::Message;
use mast_core::topic::{Limits, RetainedCursor, check_filter, check_name};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Questions after which a request is content with what it has found.
const QUESTIONS: usize = 64;
/// Topics and filters of any length that MQTT knows.
const ANY: Limits = Limits { max_bytes: 65_535, max_levels: 65_535, max_plus: u16::MAX };

/// A retained message, without its payload.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RetainedView {
    pub topic: String,
    pub qos: u8,
    /// Bytes of the payload.
    pub size: usize,
    /// Milliseconds since the epoch; absent: never.
    pub expires: Option<u64>,
}

/// A retained message.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RetainedMessage {
    #[serde(flatten)]
    pub about: RetainedView,
    /// In base64.
    pub payload: String,
}

/// Which messages.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RetainedQuery {
    /// A topic filter; absent: `#`.
    filter: Option<String>,
    /// Entries at most: 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where to go on: `next` of the page before.
    after: Option<String>,
}

/// Which topic.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TopicQuery {
    topic: String,
}

fn view(message: &Message) -> RetainedView {
    RetainedView {
        topic: message.topic().to_owned(),
        qos: message.qos as u8,
        size: message.payload().len(),
        expires: message.expires.map(|at| at.0),
    }
}

async fn scan(
    admin: &Admin,
    tenant: TenantId,
    cursor: Box<RetainedCursor>,
    max: u32,
) -> Result<(Vec<Arc<Message>>, Option<Box<RetainedCursor>>), Problem> {
    let answer = admin.desk.ask_home(tenant, Ask::Retained { tenant, cursor, max }).await;
    match answer.map_err(|_| Problem::slow())?.0 {
        Answer::Retained { messages, next } => Ok((messages, next)),
        _ => Err(Problem::missing("tenant")),
    }
}

/// The retained messages of a tenant whose topics match a filter, in the order of their topics.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/retained", tag = "retained",
    params(("tenant" = String, Path, description = "The tenant"), RetainedQuery),
    responses((status = 200, body = Page<RetainedView>), (status = "4XX", body = Problem)))]
pub async fn list(
    caller: Caller,
    Names(tenant): Names<String>,
    Params(query): Params<RetainedQuery>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    let size = page_size(query.limit)?;
    let filter = query.filter.as_deref().unwrap_or("#");
    if check_filter(filter, &ANY).is_err() {
        return Err(Problem::invalid("filter is no topic filter", "write it as a client would subscribe"));
    }
    let mut cursor = RetainedCursor::new(filter);
    if let Some(after) = &query.after {
        check_name(after, &ANY).map_err(|_| bad_cursor())?;
        cursor = cursor.behind(after);
    }
    let mut cursor = Box::new(cursor);
    let mut items: Vec<RetainedView> = Vec::new();
    for asked in 1.. {
        let max = (size - items.len()) as u32;
        let (messages, next) = scan(&caller.admin, id, cursor, max).await?;
        items.extend(messages.iter().map(|message| view(message)));
        match next {
            None => return Ok(answer(200, &Page { items, next: None })),
            Some(next) => cursor = next,
        }
        if items.len() >= size || (asked >= QUESTIONS && !items.is_empty()) {
            break;
        }
    }
    // So many topics between two matches that the look for them was given up: the last match is where to go on.
    let next = items.last().map(|last| last.topic.clone());
    Ok(answer(200, &Page { items, next }))
}

async fn find(admin: &Admin, tenant: TenantId, topic: &str) -> Result<Arc<Message>, Problem> {
    if check_name(topic, &ANY).is_err() {
        return Err(Problem::invalid("topic is no topic name", "write it as a client would publish to it"));
    }
    let (messages, _) = scan(admin, tenant, Box::new(RetainedCursor::new(topic)), 1).await?;
    messages.into_iter().next().ok_or_else(|| Problem::missing("retained message"))
}

/// The retained message of a topic, with its payload.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/retained/message", tag = "retained",
    params(("tenant" = String, Path, description = "The tenant"), TopicQuery),
    responses((status = 200, body = RetainedMessage), (status = "4XX", body = Problem)))]
pub async fn read(
    caller: Caller,
    Names(tenant): Names<String>,
    Params(query): Params<TopicQuery>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    let message = find(&caller.admin, id, &query.topic).await?;
    let payload = STANDARD.encode(message.payload());
    Ok(answer(200, &RetainedMessage { about: view(&message), payload }))
}

/// Removes the retained message of a topic, as an empty retained publish does.
#[utoipa::path(delete, path = "/api/v1/tenants/{tenant}/retained/message", tag = "retained",
    params(("tenant" = String, Path, description = "The tenant"), TopicQuery),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn delete(
    caller: Caller,
    Names(tenant): Names<String>,
    Params(query): Params<TopicQuery>,
) -> Result<Response, Problem> {
    let id = caller.tenant(&tenant)?;
    caller.may_write()?;
    find(&caller.admin, id, &query.topic).await?;
    if query.topic.starts_with('$') {
        return Err(Problem::invalid("this message is the broker's own", "it is published again and again"));
    }
    let (who, topic) = (caller.who.clone(), query.topic);
    let noted = topic.clone();
    caller
        .admin
        .change(|admin| async move {
            let mut batch = admin.batch(&who);
            batch.note(&admin.state(), "delete", format!("retained/{tenant}/{noted}"), Some(&tenant))?;
            admin.commit(batch).await
        })
        .await?;
    let ask = Ask::RemoveRetained { tenant: id, topic: topic.as_str().into() };
    match caller.admin.desk.ask_home(id, ask).await.map_err(|_| Problem::slow())?.0 {
        Answer::Done => Ok(done()),
        Answer::Failed(result) => Err(Problem::not_stored(&result)),
        _ => Err(Problem::missing("retained message")),
    }
}
