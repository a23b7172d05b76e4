//! Tokens of this API.

use super::wire::{Body, Caller, Names, Page, Params, Part, answer, check_description, done, page_of};
use crate::admin::problem::Problem;
use crate::admin::records::TokenObject;
use crate::admin::tokens as secret;
use axum::response::Response;
use serde::{Deserialize, Serialize};

/// A token, without its secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct TokenView {
    pub id: String,
    pub description: String,
    /// The tenant that it is for; absent: all, and the broker itself.
    pub tenant: Option<String>,
    pub read_only: bool,
    /// Milliseconds since the epoch; absent: never.
    pub expires: Option<u64>,
    pub created: u64,
}

/// A token to be made.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    #[serde(default)]
    pub description: String,
    /// The tenant that it is for; absent: all, and the broker itself.
    pub tenant: Option<String>,
    #[serde(default)]
    pub read_only: bool,
    /// It ends after so many seconds; absent: never.
    #[schema(minimum = 1)]
    pub expires_in: Option<u64>,
}

/// A new token. Its secret is told here and never again.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct MadeToken {
    /// To be sent as `Authorization: Bearer`.
    pub token: String,
    #[serde(flatten)]
    pub about: TokenView,
}

fn view(token: &TokenObject) -> TokenView {
    TokenView {
        id: token.id.clone(),
        description: token.description.clone(),
        tenant: token.tenant.clone(),
        read_only: token.read_only,
        expires: token.expires,
        created: token.created,
    }
}

/// A caller for one tenant sees that tenant's tokens.
fn sees(caller: &Caller, token: &TokenObject) -> bool {
    caller.tenant.is_none() || caller.tenant == token.tenant
}

/// The tokens that the caller may see.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", params(Part),
    responses((status = 200, body = Page<TokenView>), (status = "4XX", body = Problem)))]
pub async fn list(caller: Caller, Params(part): Params<Part>) -> Result<Response, Problem> {
    let state = caller.admin.state();
    let seen = state.tokens.values().map(|kept| &kept.value).filter(|token| sees(&caller, token));
    Ok(answer(200, &page_of(seen.map(|token| (token.id.clone(), view(token))), &part)?))
}

/// Makes a token. A caller for one tenant makes tokens for that tenant. With the first global token that may write, the
/// one of the first start ends.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = NewToken,
    responses((status = 201, body = MadeToken), (status = "4XX", body = Problem)))]
pub async fn create(caller: Caller, Body(new): Body<NewToken>) -> Result<Response, Problem> {
    caller.may_write()?;
    check_description(&new.description)?;
    let tenant = new.tenant.or_else(|| caller.tenant.clone());
    if let Some(tenant) = &tenant {
        caller.tenant(tenant)?;
    }
    if new.expires_in == Some(0) {
        return Err(Problem::invalid(
            "expires_in is at least 1 second",
            "leave it out for a token without end",
        ));
    }
    let random = |_| Problem::new(503, "no_random", "the system has no random bytes", "try again");
    let (token, digest) = secret::make().map_err(random)?;
    let id = secret::make_id().map_err(random)?;
    let created = caller.admin.now();
    let expires = new.expires_in.map(|secs| created.saturating_add(secs.saturating_mul(1000)));
    let object = TokenObject {
        id,
        description: new.description,
        digest,
        tenant,
        read_only: new.read_only,
        expires,
        created,
        bootstrap: false,
    };
    let about = view(&object);
    caller
        .admin
        .clone()
        .change(|admin| async move {
            if let Some(tenant) = &object.tenant {
                caller.tenant(tenant)?;
            }
            let replaces = object.tenant.is_none() && !object.read_only && object.expires.is_none();
            let mut batch = admin.batch(&caller.who);
            {
                let state = admin.state();
                batch.put(&state, object)?;
                for kept in state.tokens.values().filter(|kept| replaces && kept.value.bootstrap) {
                    batch.delete(&kept.value);
                }
            }
            admin.commit(batch).await?;
            if replaces {
                secret::take_away(&admin.control.config().data_dir);
            }
            Ok(())
        })
        .await?;
    Ok(answer(201, &MadeToken { token, about }))
}

/// Revokes a token: it is of no use when the answer comes.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn revoke(caller: Caller, Names(id): Names<String>) -> Result<Response, Problem> {
    caller.may_write()?;
    caller
        .admin
        .clone()
        .change(|admin| async move {
            let mut batch = admin.batch(&caller.who);
            let bootstrap = {
                let state = admin.state();
                let kept = state.get::<TokenObject>(&[&id]).filter(|kept| sees(&caller, &kept.value));
                let kept = kept.ok_or_else(|| Problem::missing("token"))?;
                let stays = |token: &TokenObject| {
                    token.id != id && token.tenant.is_none() && !token.read_only && token.expires.is_none()
                };
                let last = kept.value.tenant.is_none()
                    && !kept.value.read_only
                    && !state.tokens.values().any(|other| stays(&other.value));
                if last {
                    return Err(Problem::new(
                        409,
                        "last_token",
                        "this is the last global token that may write and does not expire",
                        "make another one first: without one nobody could administer the broker",
                    ));
                }
                batch.delete(&kept.value);
                kept.value.bootstrap
            };
            admin.commit(batch).await?;
            if bootstrap {
                secret::take_away(&admin.control.config().data_dir);
            }
            Ok(())
        })
        .await?;
    Ok(done())
}
