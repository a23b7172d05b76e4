//! The objects that administration keeps in the store: one record each, under a key of their kind and name. In front of
//! a value stands the number of its format, so that a later version can read what an earlier one wrote.

use bytes::Bytes;
use mast_core::store::key::{Key, Space};
use mast_core::tenant::registry::OWN;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::collections::BTreeMap;

/// The format that this version writes, and the only one so far.
const FORMAT: u8 = 1;

/// Something that is kept.
pub trait Object: Serialize + DeserializeOwned + Clone {
    /// The first part of its key, and of its name in the audit.
    const KIND: &'static str;

    /// The other parts of its key. None of them holds a NUL.
    fn name(&self) -> Vec<String>;

    /// The tenant that it goes with when that is deleted.
    fn tenant(&self) -> Option<&str>;

    /// What the audit may say of it: everything that is not a secret.
    fn shown(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// A tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantObject {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Milliseconds since the epoch.
    pub created: u64,
    /// It is being deleted. Stays until nothing of it is left.
    #[serde(default)]
    pub ending: bool,
}

impl Object for TenantObject {
    const KIND: &'static str = "tenant";

    fn name(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn tenant(&self) -> Option<&str> {
        Some(&self.name)
    }
}

/// A user of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserObject {
    pub tenant: String,
    pub name: String,
    /// In the notation of the password file.
    pub hash: String,
    /// What the client id must match, with `*` for any text and `%u` for the user name.
    #[serde(default)]
    pub client_id: Option<String>,
    /// For the placeholders of rules.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// Rules do not bind it, within its tenant.
    #[serde(default)]
    pub superuser: bool,
    pub enabled: bool,
    pub created: u64,
}

impl Object for UserObject {
    const KIND: &'static str = "user";

    fn name(&self) -> Vec<String> {
        vec![self.tenant.clone(), self.name.clone()]
    }

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant)
    }

    fn shown(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("hash");
        }
        value
    }
}

/// A limit of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitObject {
    pub tenant: String,
    /// As the table of limits calls it.
    pub name: String,
    pub value: u64,
    /// It only counts.
    pub observe: bool,
}

impl Object for LimitObject {
    const KIND: &'static str = "limit";

    fn name(&self) -> Vec<String> {
        vec![self.tenant.clone(), self.name.clone()]
    }

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant)
    }
}

/// A token for this API.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenObject {
    pub id: String,
    #[serde(default)]
    pub description: String,
    /// SHA-256 of the token, in hexadecimal digits.
    pub digest: String,
    /// The tenant that it is for; `None` = all, and the broker itself.
    pub tenant: Option<String>,
    pub read_only: bool,
    /// Milliseconds since the epoch.
    pub expires: Option<u64>,
    pub created: u64,
    /// The first one, made by the broker itself.
    #[serde(default)]
    pub bootstrap: bool,
}

impl Object for TokenObject {
    const KIND: &'static str = "token";

    fn name(&self) -> Vec<String> {
        vec![self.id.clone()]
    }

    fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    fn shown(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("digest");
        }
        value
    }
}

/// What the broker remembers of its own administration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MarkObject {
    /// The bootstrap token was made, in this life of the data directory.
    pub bootstrapped: bool,
}

impl Object for MarkObject {
    const KIND: &'static str = "mark";

    fn name(&self) -> Vec<String> {
        Vec::new()
    }

    fn tenant(&self) -> Option<&str> {
        None
    }
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, utoipa::ToSchema)]
pub struct AuditObject {
    /// Counts changes.
    pub number: u64,
    /// Milliseconds since the epoch.
    pub at: u64,
    /// Id of the token that made it; `mast` = the broker itself.
    pub who: String,
    /// `create`, `update` or `delete`.
    pub action: String,
    /// Kind and name of the object, such as `user/acme/ann`.
    pub object: String,
    /// The tenant that it concerns.
    pub tenant: Option<String>,
    /// Before, without secrets.
    pub before: Option<Value>,
    /// After, without secrets.
    pub after: Option<Value>,
}

impl Object for AuditObject {
    const KIND: &'static str = "audit";

    fn name(&self) -> Vec<String> {
        // Fixed width: the order of keys is the order of changes.
        vec![format!("{:020}", self.number)]
    }

    fn tenant(&self) -> Option<&str> {
        None
    }
}

/// The key of an object.
pub fn key<T: Object>(object: &T) -> Key {
    key_of(T::KIND, &object.name())
}

/// The key of a kind and name.
pub fn key_of(kind: &str, name: &[String]) -> Key {
    let parts: Vec<&[u8]> =
        std::iter::once(kind.as_bytes()).chain(name.iter().map(String::as_bytes)).collect();
    Key::new(Space::Admin, OWN, &parts)
}

/// The kind that a key is of.
pub fn kind_of(key: &Key) -> Option<&str> {
    let (_, _, rest) = key.split()?;
    std::str::from_utf8(rest.split(|b| *b == 0).next()?).ok()
}

/// The value of an object.
pub fn encode<T: Object>(object: &T) -> Result<Bytes, serde_json::Error> {
    let mut value = vec![FORMAT];
    serde_json::to_writer(&mut value, object)?;
    Ok(value.into())
}

/// Reads a value back; the error tells what is wrong with it.
pub fn decode<T: Object>(value: &[u8]) -> Result<T, String> {
    match value.split_first() {
        Some((&FORMAT, json)) => serde_json::from_slice(json).map_err(|e| format!("{} record: {e}", T::KIND)),
        Some((format, _)) => Err(format!(
            "a {} record has format {format}, but this version reads format {FORMAT}; use the version that wrote it",
            T::KIND
        )),
        None => Err(format!("a {} record is empty", T::KIND)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_one_of_a_later_format_is_refused() {
        let tenant =
            TenantObject { name: "acme".into(), description: String::new(), created: 7, ending: true };
        let value = encode(&tenant).expect("encodable");
        let back: TenantObject = decode(&value).expect("the same");
        assert_eq!((back.name.as_str(), back.created, back.ending), ("acme", 7, true));
        assert_eq!(kind_of(&key(&tenant)), Some("tenant"));
        let mut later = value.to_vec();
        later[0] = 2;
        let error = decode::<TenantObject>(&later).expect_err("a later format");
        assert!(error.contains("format 2") && error.contains("use the version that wrote it"), "{error}");
    }

    #[test]
    fn what_the_audit_shows_holds_no_secret() {
        let user = UserObject {
            tenant: "acme".into(),
            name: "ann".into(),
            hash: "$secret$".into(),
            client_id: None,
            attributes: BTreeMap::new(),
            superuser: false,
            enabled: true,
            created: 0,
        };
        let token = TokenObject {
            id: "t".into(),
            description: String::new(),
            digest: "$secret$".into(),
            tenant: None,
            read_only: false,
            expires: None,
            created: 0,
            bootstrap: false,
        };
        assert!(
            !user.shown().to_string().contains("secret") && !token.shown().to_string().contains("secret")
        );
    }
}
