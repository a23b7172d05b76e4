//! Users of a tenant and what they prove themselves with.

use super::wire::{Body, Caller, Names, Page, Params, Part, answer, answer_of, check_label, done, page_of};
use crate::admin::Admin;
use crate::admin::problem::Problem;
use crate::admin::records::UserObject;
use crate::admin::state::Kept;
use crate::auth::hash::StoredHash;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Longest user name and password, bytes.
const NAME_MAX: usize = 256;
const PASSWORD_MAX: usize = 1024;

/// A user. Its password is not told, nor the hash of it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct UserView {
    pub tenant: String,
    pub name: String,
    /// What the client id must match; absent: any.
    pub client_id: Option<String>,
    pub attributes: BTreeMap<String, String>,
    pub superuser: bool,
    pub enabled: bool,
    /// Milliseconds since the epoch.
    pub created: u64,
    /// Changes with every change.
    pub revision: u64,
}

/// A user to be made: with a password, or with the hash of one.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    pub name: String,
    /// Kept as an argon2id hash.
    pub password: Option<String>,
    /// A hash as password files have them: argon2id, bcrypt, $7$ or $6$.
    pub hash: Option<String>,
    /// What the client id must match: `*` is any text, `%u` the user name.
    pub client_id: Option<String>,
    /// Values for the placeholders of rules. They hold none of `/ + #`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// Rules do not bind it, within its tenant.
    #[serde(default)]
    pub superuser: bool,
    /// `false`: it cannot log in.
    pub enabled: Option<bool>,
}

/// What is to be changed of a user; what is absent stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    pub password: Option<String>,
    pub hash: Option<String>,
    /// An empty one: any client id.
    pub client_id: Option<String>,
    pub attributes: Option<BTreeMap<String, String>>,
    pub superuser: Option<bool>,
    pub enabled: Option<bool>,
}

fn view(kept: &Kept<UserObject>) -> UserView {
    let user = &kept.value;
    UserView {
        tenant: user.tenant.clone(),
        name: user.name.clone(),
        client_id: user.client_id.clone(),
        attributes: user.attributes.clone(),
        superuser: user.superuser,
        enabled: user.enabled,
        created: user.created,
        revision: kept.revision,
    }
}

/// The users of a tenant that are kept in the store.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/users", tag = "users",
    params(("tenant" = String, Path, description = "The tenant"), Part),
    responses((status = 200, body = Page<UserView>), (status = "4XX", body = Problem)))]
pub async fn list(
    caller: Caller,
    Names(tenant): Names<String>,
    Params(part): Params<Part>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    let state = caller.admin.state();
    let users = state.of_tenant::<UserObject>(&tenant);
    let page = page_of(users.map(|kept| (kept.value.name.clone(), kept)), &part)?;
    let page = Page { items: page.items.into_iter().map(view).collect(), next: page.next };
    Ok(answer(200, &page))
}

/// The users of a tenant belong to its file where the configuration names one.
fn owned_by_file(admin: &Admin, tenant: &str) -> Result<(), Problem> {
    let config = admin.control.config();
    let of_file = config.tenant_sections.get(tenant).is_some_and(|section| section.password_file.is_some());
    if of_file {
        let key = format!("tenant.{tenant}.password_file");
        return Err(Problem::of_file(
            &format!("the list of users of {tenant}"),
            &key,
            config.file.as_deref(),
        ));
    }
    Ok(())
}

fn check_attributes(attributes: &BTreeMap<String, String>) -> Result<(), Problem> {
    let good_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let bad_char = |c: char| c.is_control() || matches!(c, '/' | '+' | '#');
    let good_value = |value: &str| value.len() <= 256 && !value.contains(bad_char);
    if attributes.len() > 32 || !attributes.iter().all(|(name, value)| good_name(name) && good_value(value)) {
        return Err(Problem::invalid(
            "attributes: at most 32, names of A-Z, a-z, 0-9, _ and -, values of at most 256 bytes without / + #",
            "a value stands for one level of a topic at most",
        ));
    }
    Ok(())
}

/// A pattern takes the user name in, so such a name must not reach further than itself.
fn check_pattern(pattern: &str, user: &str) -> Result<(), Problem> {
    check_label("a pattern for client ids", pattern, 256)?;
    if pattern.contains("%u") && user.contains(['*', '%']) {
        return Err(Problem::invalid(
            "%u in client_id does not go with a user name that holds * or %",
            "write the pattern without %u",
        ));
    }
    Ok(())
}

/// The hash of a password, or a ready one. Hashing takes its time, and not that of a thread that serves others.
async fn hash_of(password: Option<String>, hash: Option<String>) -> Result<Option<String>, Problem> {
    match (password, hash) {
        (Some(_), Some(_)) => Err(Problem::invalid("password and hash are both given", "send one of them")),
        (None, None) => Ok(None),
        (None, Some(hash)) => {
            let sound = hash.len() <= 1024 && StoredHash::parse(&hash).is_ok();
            let problem = || {
                Problem::invalid(
                    "this is no hash that mast knows",
                    "known are $6$, $7$, $argon2id$ and bcrypt",
                )
            };
            sound.then_some(Some(hash)).ok_or_else(problem)
        }
        (Some(password), None) => {
            let password = Zeroizing::new(password);
            if password.is_empty() || password.len() > PASSWORD_MAX {
                return Err(Problem::invalid("a password is 1 to 1024 bytes", "choose another"));
            }
            let made = tokio::task::spawn_blocking(move || StoredHash::create(password.as_bytes())).await;
            match made {
                Ok(Ok(hash)) => Ok(Some(hash.to_string())),
                Ok(Err(_)) | Err(_) => Err(Problem::slow()),
            }
        }
    }
}

/// Makes a user. It can log in when the answer comes.
#[utoipa::path(post, path = "/api/v1/tenants/{tenant}/users", tag = "users", request_body = NewUser,
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 201, body = UserView), (status = "4XX", body = Problem)))]
pub async fn create(
    caller: Caller,
    Names(tenant): Names<String>,
    Body(new): Body<NewUser>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    caller.may_write()?;
    check_label("a user name", &new.name, NAME_MAX)?;
    check_attributes(&new.attributes)?;
    if let Some(pattern) = &new.client_id {
        check_pattern(pattern, &new.name)?;
    }
    if new.password.is_none() && new.hash.is_none() {
        return Err(Problem::invalid("a user needs a password, or the hash of one", "send password or hash"));
    }
    let view = caller
        .admin
        .clone()
        .change(|admin| async move {
            caller.tenant(&tenant)?;
            owned_by_file(&admin, &tenant)?;
            if admin.state().get::<UserObject>(&[&tenant, &new.name]).is_some() {
                return Err(Problem::exists("user", "change it with PATCH, or choose another name"));
            }
            let hash = hash_of(new.password, new.hash).await?.unwrap_or_default();
            let user = UserObject {
                tenant,
                name: new.name,
                hash,
                client_id: new.client_id,
                attributes: new.attributes,
                superuser: new.superuser,
                enabled: new.enabled.unwrap_or(true),
                created: admin.now(),
            };
            keep(&admin, &caller.who, user).await
        })
        .await?;
    Ok(answer_of(201, view.revision, &view))
}

/// Stores a user and puts it in force.
async fn keep(admin: &std::sync::Arc<Admin>, who: &str, user: UserObject) -> Result<UserView, Problem> {
    let mut batch = admin.batch(who);
    batch.put(&admin.state(), user.clone())?;
    let revision = admin.commit(batch).await?;
    admin.apply_users().await?;
    Ok(view(&Kept { value: user, revision }))
}

/// One user.
#[utoipa::path(get, path = "/api/v1/tenants/{tenant}/users/{user}", tag = "users",
    params(("tenant" = String, Path, description = "The tenant"), ("user" = String, Path, description = "Its name")),
    responses((status = 200, body = UserView), (status = "4XX", body = Problem)))]
pub async fn read(
    caller: Caller,
    Names((tenant, user)): Names<(String, String)>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    let kept = caller.admin.state().get::<UserObject>(&[&tenant, &user]).cloned();
    let kept = kept.ok_or_else(|| Problem::missing("user"))?;
    Ok(answer_of(200, kept.revision, &view(&kept)))
}

/// Changes a user. What it may do by its present connections stays until they end.
#[utoipa::path(patch, path = "/api/v1/tenants/{tenant}/users/{user}", tag = "users", request_body = UserChange,
    params(("tenant" = String, Path, description = "The tenant"), ("user" = String, Path, description = "Its name")),
    responses((status = 200, body = UserView), (status = "4XX", body = Problem)))]
pub async fn change(
    caller: Caller,
    Names((tenant, name)): Names<(String, String)>,
    Body(change): Body<UserChange>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    caller.may_write()?;
    if let Some(attributes) = &change.attributes {
        check_attributes(attributes)?;
    }
    if let Some(pattern) = change.client_id.as_deref().filter(|pattern| !pattern.is_empty()) {
        check_pattern(pattern, &name)?;
    }
    let view = caller
        .admin
        .clone()
        .change(|admin| async move {
            caller.tenant(&tenant)?;
            owned_by_file(&admin, &tenant)?;
            let kept = admin.state().get::<UserObject>(&[&tenant, &name]).cloned();
            let kept = kept.ok_or_else(|| Problem::missing("user"))?;
            caller.check_match(kept.revision)?;
            let mut user = kept.value;
            if let Some(hash) = hash_of(change.password, change.hash).await? {
                user.hash = hash;
            }
            if let Some(pattern) = change.client_id {
                user.client_id = Some(pattern).filter(|pattern| !pattern.is_empty());
            }
            user.attributes = change.attributes.unwrap_or(user.attributes);
            user.superuser = change.superuser.unwrap_or(user.superuser);
            user.enabled = change.enabled.unwrap_or(user.enabled);
            keep(&admin, &caller.who, user).await
        })
        .await?;
    Ok(answer_of(200, view.revision, &view))
}

/// Deletes a user. It cannot log in any more; its sessions stay until they end.
#[utoipa::path(delete, path = "/api/v1/tenants/{tenant}/users/{user}", tag = "users",
    params(("tenant" = String, Path, description = "The tenant"), ("user" = String, Path, description = "Its name")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn delete(
    caller: Caller,
    Names((tenant, name)): Names<(String, String)>,
) -> Result<Response, Problem> {
    caller.tenant(&tenant)?;
    caller.may_write()?;
    caller
        .admin
        .clone()
        .change(|admin| async move {
            owned_by_file(&admin, &tenant)?;
            let kept = admin.state().get::<UserObject>(&[&tenant, &name]).cloned();
            let kept = kept.ok_or_else(|| Problem::missing("user"))?;
            caller.check_match(kept.revision)?;
            let mut batch = admin.batch(&caller.who);
            batch.delete(&kept.value);
            admin.commit(batch).await?;
            admin.apply_users().await
        })
        .await?;
    Ok(done())
}
