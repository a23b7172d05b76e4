//! Tokens made here, by the names of what is wrong with them.

use std::path::{Path, PathBuf};

use jsonwebtoken::{EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData};
use serde_json::json;

use super::*;
use crate::config::{Config, Place, Sources};

const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
/// 2030, in seconds.
const NOW: u64 = 1_900_000_000;

fn at(seconds: u64) -> Wall {
    Wall(seconds * 1000)
}

struct Setup {
    dir: tempfile::TempDir,
    verifier: JwtVerifier,
}

fn load(dir: &Path, section: &str) -> Config {
    let file = dir.join("mast.toml");
    let text = format!("[jwt]\n{}", section.replace("{dir}", &dir.display().to_string()));
    std::fs::write(&file, text).expect("write");
    let place = Place { is_root: true, ..Place::default() };
    Sources { file: Some(file), place, ..Sources::default() }.load().unwrap_or_else(|e| panic!("{e}"))
}

fn setup(section: &str, files: &[(&str, &[u8])]) -> Setup {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("write");
    }
    let verifier = JwtVerifier::new(&load(dir.path(), section).jwt).unwrap_or_else(|e| panic!("{e}"));
    Setup { dir, verifier }
}

fn by_secret(more: &str) -> Setup {
    let section = format!("algorithms = [\"HS256\"]\nsecret_file = \"{{dir}}/secret\"\n{more}");
    setup(&section, &[("secret", &[SECRET.as_slice(), b"\n"].concat())])
}

fn by(secret: &[u8]) -> EncodingKey {
    EncodingKey::from_secret(secret).expect("a secret")
}

fn signed(claims: &Value) -> String {
    encode(&Header::new(Algorithm::HS256), claims, &by(SECRET)).expect("a token")
}

/// Signs any bytes as header and claims.
fn signed_raw(header: &str, claims: &str) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let key = by(SECRET);
    let signature = jsonwebtoken::crypto::sign(text.as_bytes(), &key, Algorithm::HS256).expect("a signature");
    format!("{text}.{signature}")
}

fn good() -> Value {
    json!({ "sub": "ann", "tenant": "acme", "exp": NOW + 60 })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = good();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = good();
    claims.as_object_mut().expect("an object").remove(name);
    claims
}

impl Setup {
    fn verify(&self, token: &str) -> Token {
        self.verifier.verify(token.as_bytes(), at(NOW))
    }

    fn refused(&self, token: &str) -> &'static str {
        match self.verify(token) {
            Token::Refused(why) => why,
            Token::UnknownKey => NO_KEY,
            other @ (Token::NotMine | Token::Accepted(_)) => panic!("{other:?} for {token}"),
        }
    }

    fn accepts(&self, token: &str) -> bool {
        matches!(self.verify(token), Token::Accepted(_))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn a_good_token_names_user_tenant_and_end() {
    let s = by_secret("user_claim = \"name\"\ntenant_claim = \"org\"");
    let token = signed(&json!({ "name": "ann", "org": "acme", "exp": NOW + 60, "sub": "x", "tenant": "y" }));
    let user = User {
        name: "ann".into(),
        tenant: Some("acme".into()),
        client_id: None,
        expires: Some(at(NOW + 60)),
        ..User::default()
    };
    assert_eq!(s.verify(&token), Token::Accepted(user));
}

#[test]
fn what_is_no_token_is_handed_on() {
    let s = by_secret("");
    for password in ["", "secret", "a.b.c", "..", "eyJhbGciOiJIUzI1NiJ9.x", "e30.e30.x"] {
        assert_eq!(s.verify(password), Token::NotMine, "{password}");
    }
}

#[test]
fn claims_that_are_missing_or_malformed_refuse() {
    let s = by_secret("issuer = \"us\"\naudience = [\"mast\", \"mqtt\"]");
    let full = |name: &str, value: Value| {
        let mut claims =
            json!({ "sub": "ann", "tenant": "acme", "exp": NOW + 60, "iss": "us", "aud": "mast" });
        claims[name] = value;
        signed(&claims)
    };
    assert!(s.accepts(&full("aud", json!(["other", "mqtt"]))));
    for (name, bad) in [
        ("exp", json!(NOW)),
        ("exp", json!("tomorrow")),
        ("exp", json!(-1)),
        ("exp", Value::Null),
        ("nbf", json!(NOW + 1)),
        ("nbf", json!("now")),
        ("iss", json!("them")),
        ("iss", json!(["us"])),
        ("aud", json!("other")),
        ("aud", Value::Null),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("sub", json!("a\nb")),
        ("tenant", json!("")),
        ("tenant", json!("a/b")),
        ("tenant", json!("#")),
        ("tenant", json!("_sys")),
        ("tenant", json!(["acme", "globex"])),
        ("tenant", json!({ "acme": 1 })),
        ("tenant", Value::Null),
    ] {
        s.refused(&full(name, bad.clone()));
    }
    let s = by_secret("");
    for name in ["exp", "sub", "tenant"] {
        s.refused(&signed(&without(name)));
    }
    assert!(
        s.accepts(&signed(&with("nbf", json!(NOW))))
            && s.accepts(&signed(&with("exp", json!(NOW as f64 + 0.5))))
    );
}

#[test]
fn a_token_with_two_tenants_is_refused() {
    let s = by_secret("");
    let twice = format!(r#"{{"sub":"ann","tenant":"acme","tenant":"globex","exp":{}}}"#, NOW + 60);
    s.refused(&signed_raw(r#"{"alg":"HS256"}"#, &twice));
    assert!(s.accepts(&signed_raw(r#"{"alg":"HS256"}"#, &good().to_string())));
}

#[test]
fn leeway_moves_both_ends_and_the_end_of_the_connection() {
    let s = by_secret("leeway = \"10s\"");
    let old = signed(&with("exp", json!(NOW - 9)));
    let Token::Accepted(user) = s.verify(&old) else { panic!("refused") };
    assert_eq!(user.expires, Some(at(NOW + 1)));
    assert!(s.accepts(&signed(&with("nbf", json!(NOW + 10)))));
    s.refused(&signed(&with("exp", json!(NOW - 10))));
    s.refused(&signed(&with("nbf", json!(NOW + 11))));
}

#[test]
fn only_listed_algorithms_count_and_none_never() {
    let s = by_secret("");
    let claims = URL_SAFE_NO_PAD.encode(good().to_string());
    for alg in ["none", "None", "NONE", "", "HS257", "RS256"] {
        let head = URL_SAFE_NO_PAD.encode(json!({ "alg": alg }).to_string());
        assert_eq!(s.refused(&format!("{head}.{claims}.")), "its algorithm is not accepted");
    }
    let hs384 = encode(&Header::new(Algorithm::HS384), &good(), &by(SECRET)).expect("a token");
    assert_eq!(s.refused(&hs384), "its algorithm is not accepted");
    assert_eq!(
        s.refused(&signed_raw(r#"{"alg":"HS256","crit":["b64"]}"#, &good().to_string())),
        "it has extensions that must be understood"
    );
    let mut tampered = signed(&good());
    tampered.pop();
    s.refused(&tampered);
    let other = encode(&Header::default(), &good(), &by(&[b'x'; 32])).expect("a token");
    s.refused(&other);
}

#[test]
fn a_public_key_is_never_a_secret() {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    let pem = pair.public_key_pem();
    // Both kinds are allowed, and yet the published key must not work as a secret.
    let section = "algorithms = [\"ES256\", \"HS256\"]\nkey_file = \"{dir}/key\"";
    let s = setup(section, &[("key", pem.as_bytes())]);
    let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key");
    assert!(s.accepts(&encode(&Header::new(Algorithm::ES256), &good(), &key).expect("a token")));
    for secret in [pem.as_bytes(), pem.trim().as_bytes(), pair.der_bytes()] {
        let forged = encode(&Header::default(), &good(), &by(secret)).expect("a token");
        assert_eq!(s.refused(&forged), "no key has its algorithm and kid");
    }
}

#[test]
fn ed25519_keys_work_and_private_keys_or_short_secrets_are_refused() {
    let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let section = "algorithms = [\"EdDSA\"]\nkey_file = \"{dir}/key\"";
    let s = setup(section, &[("key", pair.public_key_pem().as_bytes())]);
    let key = EncodingKey::from_ed_pem(pair.serialize_pem().as_bytes()).expect("a key");
    assert!(s.accepts(&encode(&Header::new(Algorithm::EdDSA), &good(), &key).expect("a token")));
    std::fs::write(s.path("key"), pair.serialize_pem()).expect("write");
    let error =
        JwtVerifier::new(&load(s.dir.path(), section).jwt).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("private key"), "{error}");
    std::fs::write(s.path("secret"), "too short\n").expect("write");
    let config = load(s.dir.path(), "algorithms = [\"HS256\"]\nsecret_file = \"{dir}/secret\"");
    let error = JwtVerifier::new(&config.jwt).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("9 bytes"), "{error}");
}

fn set_of(keys: &[(&str, &KeyPair)]) -> String {
    let key = |(kid, pair): &(&str, &KeyPair)| {
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key");
        let mut jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&key, Algorithm::ES256).expect("a key");
        jwk.common.key_id = Some((*kid).to_owned());
        serde_json::to_value(jwk).expect("JSON")
    };
    json!({ "keys": keys.iter().map(key).collect::<Vec<_>>() }).to_string()
}

#[test]
fn a_set_of_keys_is_read_again_when_it_changes_and_a_broken_one_is_not_used() {
    let [one, two] = [(); 2].map(|()| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key"));
    let token = |kid: &str, pair: &KeyPair| {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(kid.to_owned());
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key");
        encode(&header, &good(), &key).expect("a token")
    };
    let section = "algorithms = [\"ES256\"]\njwks_file = \"{dir}/set\"";
    let s = setup(section, &[("set", set_of(&[("1", &one)]).as_bytes())]);
    // A new file in the place of the old, as careful writers do it.
    let put = |text: &str| {
        std::fs::write(s.path("new"), text).expect("write");
        std::fs::rename(s.path("new"), s.path("set")).expect("rename");
    };
    assert!(s.accepts(&token("1", &one)));
    assert_eq!(s.refused(&token("2", &two)), "no key has its algorithm and kid");
    // Another's name does not help.
    s.refused(&token("1", &two));
    put(&set_of(&[("1", &one), ("2", &two)]));
    assert!(s.accepts(&token("1", &one)) && s.accepts(&token("2", &two)));
    put("{\"keys\": [");
    assert!(s.accepts(&token("1", &one)) && s.accepts(&token("2", &two)));
    put(&set_of(&[("2", &two)]));
    s.refused(&token("1", &one));
    assert!(s.accepts(&token("2", &two)));
}

#[test]
fn a_token_may_carry_what_rules_ask_for() {
    let s = by_secret("superuser_claim = \"root\"\nattributes_claim = \"attrs\"\ngroups_claim = \"groups\"");
    let claims = |more: Value| {
        let mut all = json!({ "sub": "u", "tenant": "acme", "exp": NOW + 60 });
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
            all.extend(more);
        }
        signed(&all)
    };
    let token = claims(json!({ "root": true, "attrs": { "site": "x", "floor": 2 }, "groups": ["ops"] }));
    let Token::Accepted(user) = s.verify(&token) else { panic!("refused") };
    assert!(user.claims.superuser && user.claims.is_in("ops"));
    assert_eq!((user.claims.attribute("site"), user.claims.attribute("floor")), (Some("x"), Some("2")));
    let Token::Accepted(user) = s.verify(&claims(json!({}))) else { panic!("refused") };
    assert!(!user.claims.says_something());
    for bad in [json!({ "root": "true" }), json!({ "attrs": ["x"] }), json!({ "groups": "ops" })] {
        assert!(matches!(s.verify(&claims(bad)), Token::Refused(_)));
    }
    // Claims that nobody configured mean nothing.
    let plain = by_secret("");
    let Token::Accepted(user) = plain.verify(&token) else { panic!("refused") };
    assert!(!user.claims.says_something());
}
