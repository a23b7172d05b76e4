//! What is sent to an authentication server and what its answer means, in mast's own form and in that of EMQX 5.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::StatusCode;
use mast_core::{codec::Version, conn::handshake::Claims, tenant::registry::check_name, time::Wall};
use serde_json::{Map, Value, json};

use crate::{auth::gate::User, config::HttpWire};

/// Longest name of a user or client id pattern, bytes.
const MAX_NAME: usize = 256;
/// Attributes of one client.
const MAX_ATTRIBUTES: usize = 64;
/// Groups of one client.
const MAX_GROUPS: usize = 256;
/// Longest name or value of an attribute, bytes.
const MAX_ATTRIBUTE: usize = 1024;

/// What is asked about a client.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    pub address: Option<std::net::IpAddr>,
    pub version: Version,
    pub clean_start: bool,
    /// Name of the listener.
    pub listener: &'a str,
    /// Common name of its verified certificate.
    pub certificate_cn: Option<&'a str>,
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow(Box<User>),
    Deny,
    /// It does not know the client: the next of the chain is asked.
    Ignore,
}

/// The request's body, or `None` where the wire has no form for a password that is no text.
pub fn request(wire: HttpWire, asked: &Asked<'_>) -> Option<Vec<u8>> {
    let text = asked.password.map(std::str::from_utf8);
    let address = asked.address.map(|a| a.to_string());
    let mut body = match wire {
        HttpWire::Mast => json!({
            "client_id": asked.client_id,
            "username": asked.user,
            "password": text.and_then(Result::ok),
            "remote_addr": address,
            "protocol_version": version(asked.version),
            "clean_start": asked.clean_start,
            "listener": asked.listener,
            "certificate_cn": asked.certificate_cn,
        }),
        HttpWire::Emqx => json!({
            "clientid": asked.client_id,
            "username": asked.user,
            "password": text.and_then(Result::ok),
            "peerhost": address,
            "proto_ver": asked.version as u8,
            "clean_start": asked.clean_start,
            "listener": asked.listener,
            "cert_common_name": asked.certificate_cn,
        }),
    };
    if let (Some(Err(_)), Some(password)) = (text, asked.password) {
        match wire {
            HttpWire::Mast => body["password_base64"] = Value::String(STANDARD.encode(password)),
            HttpWire::Emqx => return None,
        }
    }
    serde_json::to_vec(&body).ok()
}

fn version(version: Version) -> &'static str {
    match version {
        Version::V31 => "3.1",
        Version::V311 => "3.1.1",
        Version::V5 => "5",
    }
}

/// Reads an answer; the error is what is wrong with it. `name` is the user name of CONNECT, which counts where the
/// answer names none.
pub fn answer(
    wire: HttpWire,
    status: StatusCode,
    body: &[u8],
    name: Option<&str>,
    now: Wall,
) -> Result<Verdict, String> {
    if !status.is_success() {
        return Err(format!("status {}", status.as_u16()));
    }
    // EMQX takes an empty 204 as yes.
    let body = match wire {
        HttpWire::Emqx if status == StatusCode::NO_CONTENT => json!({ "result": "allow" }),
        HttpWire::Mast | HttpWire::Emqx => {
            serde_json::from_slice(body).map_err(|e| format!("no JSON (line {})", e.line()))?
        }
    };
    let Value::Object(body) = body else { return Err("no JSON object".to_owned()) };
    match body.get("result").and_then(Value::as_str) {
        Some("allow") => match wire {
            HttpWire::Mast => mast_user(&body, name, now),
            HttpWire::Emqx => emqx_user(&body, name, now),
        },
        Some("deny") => Ok(Verdict::Deny),
        Some("ignore") => Ok(Verdict::Ignore),
        Some(_) | None => Err("its result is none of allow, deny and ignore".to_owned()),
    }
}

fn mast_user(body: &Map<String, Value>, name: Option<&str>, now: Wall) -> Result<Verdict, String> {
    let text = |key: &str| match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(format!("its {key} is no text")),
    };
    let user = text("user")?.or(name);
    let claims = Claims {
        superuser: truth(body, "superuser")?,
        attributes: attributes(body.get("attributes"))?,
        groups: groups(body.get("groups"))?,
        source: None,
    };
    finish(user, text("tenant")?, text("client_id")?, expiry(body.get("expires_at"), now)?, claims)
}

fn emqx_user(body: &Map<String, Value>, name: Option<&str>, now: Wall) -> Result<Verdict, String> {
    let mut attributes = attributes(body.get("client_attrs"))?;
    // The tenant is one of them, and decides; rules ask for it as %t.
    let tenant = attributes.as_mut().and_then(|all| std::sync::Arc::make_mut(all).remove("tenant"));
    let claims = Claims {
        superuser: truth(body, "is_superuser")?,
        attributes: attributes.filter(|all| !all.is_empty()),
        groups: None,
        source: None,
    };
    finish(name, tenant.as_deref(), None, expiry(body.get("expire_at"), now)?, claims)
}

fn finish(
    user: Option<&str>,
    tenant: Option<&str>,
    client_id: Option<&str>,
    expires: Option<Wall>,
    claims: Claims,
) -> Result<Verdict, String> {
    let plain =
        |text: &str| !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control);
    let name = user.ok_or("it names no user, and neither did the client")?;
    if !plain(name) {
        return Err("its user is malformed".to_owned());
    }
    if tenant.is_some_and(|t| check_name(t).is_err()) {
        return Err("its tenant is malformed".to_owned());
    }
    if client_id.is_some_and(|c| !plain(c)) {
        return Err("its client_id is malformed".to_owned());
    }
    Ok(Verdict::Allow(Box::new(User {
        name: name.to_owned(),
        tenant: tenant.map(str::to_owned),
        client_id: client_id.map(str::to_owned),
        expires,
        claims,
    })))
}

fn truth(body: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(yes)) => Ok(*yes),
        Some(_) => Err(format!("its {key} is neither true nor false")),
    }
}

/// Seconds since 1970. A proof that has ended already is no proof.
fn expiry(value: Option<&Value>, now: Wall) -> Result<Option<Wall>, String> {
    let at = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_u64().and_then(|s| s.checked_mul(1000)).ok_or("its expiry is no time")?,
    };
    if at <= now.0 {
        return Err("what it says has expired".to_owned());
    }
    Ok(Some(Wall(at)))
}

/// Attributes from an object of texts, numbers and truth values.
pub fn attributes(
    value: Option<&Value>,
) -> Result<Option<std::sync::Arc<mast_core::conn::handshake::Attributes>>, String> {
    let all = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(all)) => all,
        Some(_) => return Err("its attributes are no object".to_owned()),
    };
    if all.len() > MAX_ATTRIBUTES {
        return Err(format!("it has more than {MAX_ATTRIBUTES} attributes"));
    }
    let mut attributes: BTreeMap<Box<str>, Box<str>> = BTreeMap::new();
    for (name, value) in all {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(yes) => yes.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                return Err("an attribute is neither text nor number nor truth value".to_owned());
            }
        };
        if name.len().max(text.len()) > MAX_ATTRIBUTE || text.chars().any(char::is_control) {
            return Err("an attribute is too long, or no plain text".to_owned());
        }
        attributes.insert(name.as_str().into(), text.into());
    }
    Ok((!attributes.is_empty()).then(|| attributes.into()))
}

/// Groups from a list of texts.
pub fn groups(value: Option<&Value>) -> Result<Option<std::sync::Arc<[Box<str>]>>, String> {
    let list = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(list)) if list.len() <= MAX_GROUPS => list,
        Some(_) => return Err("its groups are no list, or too many".to_owned()),
    };
    let group = |value: &Value| match value {
        Value::String(text) if !text.is_empty() && text.len() <= MAX_NAME => Some(text.as_str().into()),
        _ => None,
    };
    let groups: Option<Vec<Box<str>>> = list.iter().map(group).collect();
    let groups = groups.ok_or("a group is no text")?;
    Ok((!groups.is_empty()).then(|| groups.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall(1_000_000);

    fn asked() -> Asked<'static> {
        Asked {
            client_id: "c1",
            user: Some("u"),
            password: Some(b"p"),
            address: Some([192, 0, 2, 1].into()),
            version: Version::V5,
            clean_start: true,
            listener: "main",
            certificate_cn: None,
        }
    }

    fn sent(wire: HttpWire) -> Value {
        let body = request(wire, &asked()).unwrap_or_default();
        serde_json::from_slice(&body).unwrap_or_default()
    }

    fn read(wire: HttpWire, body: &Value) -> Result<Verdict, String> {
        answer(wire, StatusCode::OK, body.to_string().as_bytes(), Some("u"), NOW)
    }

    fn user(wire: HttpWire, body: &Value) -> User {
        match read(wire, body) {
            Ok(Verdict::Allow(user)) => *user,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_says_what_is_known_of_the_client() {
        let mast = sent(HttpWire::Mast);
        assert_eq!(
            mast,
            json!({
                "client_id": "c1", "username": "u", "password": "p", "remote_addr": "192.0.2.1",
                "protocol_version": "5", "clean_start": true, "listener": "main", "certificate_cn": null,
            })
        );
        let emqx = sent(HttpWire::Emqx);
        assert_eq!(
            (&emqx["clientid"], &emqx["peerhost"], &emqx["proto_ver"]),
            (&json!("c1"), &json!("192.0.2.1"), &json!(5))
        );
        let binary = Asked { password: Some(&[0xFF, 1]), ..asked() };
        let body: Value =
            serde_json::from_slice(&request(HttpWire::Mast, &binary).unwrap_or_default()).unwrap_or_default();
        assert_eq!((&body["password"], &body["password_base64"]), (&Value::Null, &json!("/wE=")));
        assert_eq!(request(HttpWire::Emqx, &binary), None, "two passwords must not look the same");
    }

    #[test]
    fn an_answer_of_mast_gives_tenant_user_pattern_rights_and_expiry() {
        let body = json!({
            "result": "allow", "tenant": "acme", "user": "dev1", "client_id": "dev1-*", "superuser": true,
            "attributes": { "site": "berlin", "floor": 3, "lab": false }, "groups": ["ops"], "expires_at": 2000,
        });
        let found = user(HttpWire::Mast, &body);
        assert_eq!((found.name.as_str(), found.tenant.as_deref()), ("dev1", Some("acme")));
        assert_eq!((found.client_id.as_deref(), found.expires), (Some("dev1-*"), Some(Wall(2_000_000))));
        let claims = &found.claims;
        assert!(claims.superuser && claims.is_in("ops"));
        let attribute = |name| claims.attribute(name);
        assert_eq!(
            [attribute("site"), attribute("floor"), attribute("lab")],
            [Some("berlin"), Some("3"), Some("false")]
        );
        assert_eq!(user(HttpWire::Mast, &json!({ "result": "allow" })).name, "u", "the name of CONNECT");
    }

    #[test]
    fn an_answer_of_emqx_has_its_tenant_among_the_attributes() {
        let body = json!({
            "result": "allow", "is_superuser": true, "client_attrs": { "tenant": "acme", "site": "x" },
            "expire_at": 2000, "acl": [{ "permission": "allow" }],
        });
        let found = user(HttpWire::Emqx, &body);
        assert_eq!((found.name.as_str(), found.tenant.as_deref()), ("u", Some("acme")));
        assert!(found.claims.superuser && found.expires == Some(Wall(2_000_000)));
        assert_eq!((found.claims.attribute("site"), found.claims.attribute("tenant")), (Some("x"), None));
        let empty = answer(HttpWire::Emqx, StatusCode::NO_CONTENT, b"", Some("u"), NOW);
        assert!(matches!(empty, Ok(Verdict::Allow(_))), "{empty:?}");
        assert!(answer(HttpWire::Mast, StatusCode::NO_CONTENT, b"", Some("u"), NOW).is_err());
    }

    #[test]
    fn whatever_is_malformed_lets_nobody_in() {
        for wire in [HttpWire::Mast, HttpWire::Emqx] {
            for result in ["deny", "ignore"] {
                assert!(matches!(
                    read(wire, &json!({ "result": result })),
                    Ok(Verdict::Deny | Verdict::Ignore)
                ));
            }
            for bad in
                [json!({}), json!({ "result": "yes" }), json!({ "result": true }), json!([]), json!("allow")]
            {
                assert!(read(wire, &bad).is_err(), "{bad}");
            }
            for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_FOUND, StatusCode::FOUND] {
                let body = json!({ "result": "allow", "tenant": "acme" }).to_string();
                assert!(answer(wire, status, body.as_bytes(), Some("u"), NOW).is_err(), "{status}");
            }
            assert!(answer(wire, StatusCode::OK, b"{", Some("u"), NOW).is_err());
        }
        for (key, value) in [
            ("tenant", json!("a/b")),
            ("tenant", json!("")),
            ("tenant", json!(["acme"])),
            ("user", json!("")),
            ("user", json!("a\nb")),
            ("user", json!(7)),
            ("client_id", json!("")),
            ("superuser", json!("true")),
            ("attributes", json!([])),
            ("attributes", json!({ "a": ["b"] })),
            ("groups", json!("ops")),
            ("groups", json!([1])),
            ("expires_at", json!("soon")),
            ("expires_at", json!(999)),
        ] {
            let mut body = json!({ "result": "allow" });
            body[key] = value;
            assert!(read(HttpWire::Mast, &body).is_err(), "{body}");
        }
        let nobody = answer(HttpWire::Mast, StatusCode::OK, b"{\"result\":\"allow\"}", None, NOW);
        assert!(nobody.is_err(), "nobody has a name");
    }
}
