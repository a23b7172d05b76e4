//! From a verified client certificate to a user: the names in it, and the ordered rules that read them.

use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

use super::gate::{Denial, User};
use crate::config::{CertificateKeys, UsernameFrom};

/// Parts of a subject that a rule may name, with their object identifiers.
const PARTS: [(&str, &str); 10] = [
    ("CN", "2.5.4.3"),
    ("O", "2.5.4.10"),
    ("OU", "2.5.4.11"),
    ("C", "2.5.4.6"),
    ("ST", "2.5.4.8"),
    ("L", "2.5.4.7"),
    ("serialNumber", "2.5.4.5"),
    ("UID", "0.9.2342.19200300.100.1.1"),
    ("DC", "0.9.2342.19200300.100.1.25"),
    ("emailAddress", "1.2.840.113549.1.9.1"),
];

/// Longest user name or client id pattern that a certificate may lead to, bytes.
const MAX_NAME: usize = 256;

/// Why a client certificate gives no user name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateNameError {
    #[error("the client certificate cannot be parsed")]
    Unparsable,
    #[error("the client certificate has no such name")]
    Missing,
    #[error("the client certificate has several common names")]
    Ambiguous,
    #[error("the name in the client certificate is not plain text")]
    BadText,
}

/// The names in a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// Alternative names: DNS, e-mail, URI.
    pub sans: Vec<String>,
    /// Parts of the subject by the words of [`PARTS`]; `None` where one is no text.
    pub subject: Vec<(&'static str, Option<String>)>,
}

impl CertificateNames {
    /// Reads a certificate that TLS has verified.
    pub fn read(der: &[u8]) -> Result<Self, CertificateNameError> {
        let parsed = X509Certificate::from_der(der);
        let (_, parsed) = parsed.map_err(|_| CertificateNameError::Unparsable)?;
        let mut names = Self::default();
        for part in parsed.subject().iter_attributes() {
            let oid = part.attr_type().to_id_string();
            if let Some((word, _)) = PARTS.iter().find(|(_, id)| *id == oid) {
                names.subject.push((word, part.as_str().ok().map(str::to_owned)));
            }
        }
        let general = parsed.subject_alternative_name().map_err(|_| CertificateNameError::Unparsable)?;
        for name in general.iter().flat_map(|g| &g.value.general_names) {
            match name {
                GeneralName::DNSName(t) | GeneralName::RFC822Name(t) | GeneralName::URI(t) => {
                    names.sans.push((*t).to_owned());
                }
                GeneralName::OtherName(..)
                | GeneralName::X400Address(_)
                | GeneralName::DirectoryName(_)
                | GeneralName::EDIPartyName(_)
                | GeneralName::IPAddress(_)
                | GeneralName::RegisteredID(_)
                | GeneralName::Invalid(..) => {}
            }
        }
        Ok(names)
    }

    /// The common name, if there is exactly one.
    pub fn cn(&self) -> Result<&str, CertificateNameError> {
        let mut cns = self.subject.iter().filter(|(word, _)| *word == "CN");
        match (cns.next(), cns.next()) {
            (Some((_, cn)), None) => cn.as_deref().ok_or(CertificateNameError::BadText),
            (Some(_), Some(_)) => Err(CertificateNameError::Ambiguous),
            (None, _) => Err(CertificateNameError::Missing),
        }
    }

    /// The user name that the certificate stands for by itself; `None` where certificates give none.
    pub fn user_name(&self, from: UsernameFrom) -> Result<Option<String>, CertificateNameError> {
        let name = match from {
            UsernameFrom::None => return Ok(None),
            UsernameFrom::Cn => self.cn()?,
            UsernameFrom::San => self.sans.first().ok_or(CertificateNameError::Missing)?,
        };
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(CertificateNameError::BadText);
        }
        Ok(Some(name.to_owned()))
    }
}

/// One rule, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRule {
    cn: Option<String>,
    san: Option<String>,
    subject: Vec<(&'static str, String)>,
    tenant: Option<String>,
    user: String,
    client_id: Option<String>,
}

/// Checks the keys of a rule; the error is a key and what is wrong with it.
pub fn rule(keys: &CertificateKeys) -> Result<CertificateRule, (&'static str, String)> {
    let mut subject = Vec::new();
    for text in &keys.subject {
        let part = text.split_once('=').and_then(|(word, pattern)| {
            let known = PARTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word.trim()))?;
            Some((known.0, pattern.trim().to_owned()))
        });
        let words = || PARTS.map(|(word, _)| word).join(", ");
        let problem = || {
            (
                "subject",
                format!("\"{text}\" is not a part and a pattern, such as \"O=acme\"; parts: {}", words()),
            )
        };
        subject.push(part.ok_or_else(problem)?);
    }
    if keys.cn.is_none() && keys.san.is_none() && subject.is_empty() {
        return Err((
            "cn",
            "a rule needs a condition: cn, san or subject; cn = \"*\" takes every common name".into(),
        ));
    }
    if keys.user.is_empty() {
        return Err(("user", "a rule needs a user name".into()));
    }
    let rule = CertificateRule {
        cn: keys.cn.clone(),
        san: keys.san.clone(),
        subject,
        tenant: keys.tenant.clone(),
        user: keys.user.clone(),
        client_id: keys.client_id.clone(),
    };
    Ok(rule)
}

impl CertificateRule {
    /// Whether every certificate that has a common name satisfies it.
    pub fn matches_all(&self) -> bool {
        self.cn.as_deref() == Some("*") && self.san.is_none() && self.subject.is_empty()
    }

    fn holds(&self, names: &CertificateNames) -> bool {
        self.cn.as_ref().is_none_or(|p| names.cn().is_ok_and(|cn| matches(p, cn)))
            && self.san.as_ref().is_none_or(|p| names.sans.iter().any(|san| matches(p, san)))
            && self.subject.iter().all(|(word, pattern)| {
                let holds = |value: &Option<String>| value.as_ref().is_some_and(|v| matches(pattern, v));
                names.subject.iter().any(|(have, value)| have == word && holds(value))
            })
    }

    /// The user it makes of a certificate that it holds for.
    fn user(&self, names: &CertificateNames) -> Option<User> {
        let san = match &self.san {
            Some(pattern) => names.sans.iter().find(|san| matches(pattern, san)),
            None => names.sans.first(),
        };
        let fill = |template: &str, user: Option<&str>| {
            let values = [("%cn", names.cn().ok()), ("%san", san.map(String::as_str)), ("%u", user)];
            fill(template, &values)
        };
        let name = fill(&self.user, None)?;
        let client_id = match &self.client_id {
            Some(pattern) => Some(fill(pattern, Some(&name))?),
            None => None,
        };
        Some(User { name, tenant: self.tenant.clone(), client_id, expires: None, ..User::default() })
    }
}

/// What the rules say: a user, a refusal, or nothing (`Ok(None)`) where no rule holds.
pub fn map(rules: &[CertificateRule], names: &CertificateNames) -> Result<Option<User>, Denial> {
    match rules.iter().find(|rule| rule.holds(names)) {
        None => Ok(None),
        // A rule was meant for it, and its names don't give what the rule needs: no other rule may take it.
        Some(rule) => rule.user(names).map(Some).ok_or(Denial::NotAuthorized),
    }
}

/// Puts values in. `None` where one is missing or could act as a pattern or hide in a log.
fn fill(template: &str, values: &[(&str, Option<&str>)]) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        match values.iter().find(|(word, _)| tail.starts_with(word)) {
            Some((word, value)) => {
                let value = value.filter(|v| {
                    !v.is_empty() && !v.contains(['*', '%']) && !v.chars().any(char::is_control)
                })?;
                out.push_str(value);
                rest = &tail[word.len()..];
            }
            None => {
                out.push('%');
                rest = &tail[1..];
            }
        }
    }
    out.push_str(rest);
    (!out.is_empty() && out.len() <= MAX_NAME).then_some(out)
}

/// Whether `text` matches a pattern in which `*` stands for any text, also none. Linear in the worst case of one star,
/// and never worse than the product of the lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(cn: &str, subject: &[&str], user: &str, client_id: &str) -> CertificateKeys {
        let some = |t: &str| (!t.is_empty()).then(|| t.to_owned());
        CertificateKeys {
            cn: some(cn),
            san: None,
            subject: subject.iter().map(|s| (*s).to_owned()).collect(),
            tenant: Some("acme".into()),
            user: user.into(),
            client_id: some(client_id),
        }
    }

    fn names(cn: &str, o: &[&str]) -> CertificateNames {
        let mut subject = vec![("CN", Some(cn.to_owned()))];
        subject.extend(o.iter().map(|o| ("O", Some((*o).to_owned()))));
        CertificateNames { sans: vec![format!("{cn}.example")], subject }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, yes) in [
            ("*", "", true),
            ("dev-*", "dev-1", true),
            ("dev-*", "xdev-1", false),
            ("*-a-*-b", "1-a-2-b", true),
            ("a*a", "a", false),
            ("ab*ba", "aba", false),
            ("a", "ab", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, text), yes, "{pattern} {text}");
        }
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        let made = |k: &CertificateKeys| rule(k).unwrap_or_else(|e| panic!("{e:?}"));
        let rules = [made(&keys("admin-*", &["O=acme"], "root", "")), made(&keys("*", &[], "u-%cn", "%u-*"))];
        let user = |n: &CertificateNames| map(&rules, n).unwrap_or_else(|e| panic!("{e:?}")).map(|u| u.name);
        assert_eq!(user(&names("admin-1", &["acme"])).as_deref(), Some("root"));
        // The organisation is a part of its own: a name that only looks like one does not count.
        assert_eq!(user(&names("admin-1, O=acme", &["x, O=acme"])).as_deref(), Some("u-admin-1, O=acme"));
        let second = map(&rules, &names("d1", &[])).unwrap_or_default().unwrap_or_else(|| panic!("a user"));
        assert_eq!((second.client_id.as_deref(), second.tenant.as_deref()), (Some("u-d1-*"), Some("acme")));
        assert_eq!(map(&rules, &CertificateNames::default()), Ok(None));
    }

    #[test]
    fn a_name_that_would_widen_a_pattern_is_refused() {
        let rules = [rule(&keys("*", &[], "%cn", "%u*")).unwrap_or_else(|e| panic!("{e:?}"))];
        for bad in ["*", "a*b", "%san", "a\nb", ""] {
            assert_eq!(map(&rules, &names(bad, &[])), Err(Denial::NotAuthorized), "{bad:?}");
        }
    }

    #[test]
    fn a_rule_without_a_condition_or_with_an_unknown_part_is_no_rule() {
        assert_eq!(rule(&keys("", &[], "%cn", "")).map_err(|e| e.0), Err("cn"));
        assert_eq!(rule(&keys("", &["XX=1"], "%cn", "")).map_err(|e| e.0), Err("subject"));
        assert_eq!(rule(&keys("*", &[], "", "")).map_err(|e| e.0), Err("user"));
    }
}
