//! Tokens whose keys come from a server, and tokens that are renewed while a client is connected.

use std::{
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use mast_core::codec::{Auth, Packet, PacketType};
use mast_tests::{
    Broker, Client, Connect, Property, Reason,
    broker::{target_dir, workspace},
    client::props_buf,
    covers,
    http::{Answer, Server},
    twin::runs_once,
};
use serde_json::{Value, json};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// A secret by its number, and the key of a set for it.
fn secret(number: u32) -> String {
    format!("secret number {number} of the tests, 32 bytes and more")
}

fn set(numbers: &[u32]) -> Value {
    let keys: Vec<Value> = numbers
        .iter()
        .map(|n| json!({ "kty": "oct", "alg": "HS256", "kid": format!("k{n}"), "k": base64_of(secret(*n).as_bytes()) }))
        .collect();
    json!({ "keys": keys })
}

/// Base 64 for URLs, without padding.
fn base64_of(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            text.push(char::from(LETTERS[(word >> (18 - 6 * i)) as usize & 63]));
        }
    }
    text
}

fn token(number: u32, tenant: &str, user: &str, seconds: u64) -> String {
    let header = Header { kid: Some(format!("k{number}")), ..Header::new(Algorithm::HS256) };
    let claims = json!({ "sub": user, "tenant": tenant, "exp": now() + seconds });
    encode(&header, &claims, &EncodingKey::from_secret(secret(number).as_bytes()).expect("a secret"))
        .expect("a token")
}

const TENANTS: &str = "[tenant.acme]\n[tenant.globex]\n[limits]\nlogin_rate_per_source = 0\n\
    [listener.main]\nbind = [\"{ip}\"]\nport = 1883\n";

fn by_url(url: &str, more: &str) -> Broker {
    Broker::with(&format!("[jwt]\nalgorithms = [\"HS256\"]\njwks_url = \"{url}\"\n{more}\n{TENANTS}"))
}

fn code(broker: &Broker, token: &str) -> u8 {
    Connect::v5("c").password(token.as_bytes()).attempt(broker).1.reason()
}

#[test]
fn keys_are_fetched_from_a_server_and_a_new_one_when_a_token_names_it() {
    let keys = Arc::new(Mutex::new(vec![1]));
    let shown = Arc::clone(&keys);
    let server = Server::start(move |_| Answer::ok(set(&shown.lock().expect("the keys"))));
    let broker = by_url(&server.url("/keys"), "jwks_pause = \"100ms\"\njwks_refresh = \"1h\"");
    assert_eq!(code(&broker, &token(1, "acme", "u", 600)), 0);
    assert!(server.seen()[0].line.starts_with("GET /keys "));
    *keys.lock().expect("the keys") = vec![2];
    // Rotated: the new key is fetched because a token names it, and the old one is gone with that.
    broker.until("the new key", || code(&broker, &token(2, "acme", "u", 600)) == 0);
    assert_eq!(code(&broker, &token(1, "acme", "u", 600)), 0x86);
}

#[test]
fn tokens_with_unknown_keys_do_not_make_the_broker_ask_again_and_again() {
    let server = Server::start(|_| Answer::ok(set(&[1])));
    let broker = by_url(&server.url("/"), "jwks_pause = \"1h\"\njwks_refresh = \"1h\"");
    assert_eq!(code(&broker, &token(1, "acme", "u", 600)), 0);
    for n in 10..30 {
        assert_eq!(code(&broker, &token(n, "acme", "u", 600)), 0x86);
    }
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn until_keys_could_be_fetched_tokens_are_refused_and_later_failures_keep_them() {
    let works = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&works);
    let server = Server::start(move |_| match now.load(Ordering::SeqCst) {
        true => Answer::ok(set(&[1])),
        false => Answer::with(503, "{}"),
    });
    let broker = by_url(&server.url("/"), "jwks_pause = \"100ms\"\njwks_refresh = \"1s\"");
    assert_eq!(code(&broker, &token(1, "acme", "u", 600)), 0x86);
    broker.until("a warning", || broker.log().contains("token keys could not be fetched"));
    works.store(true, Ordering::SeqCst);
    broker.until("the keys", || code(&broker, &token(1, "acme", "u", 600)) == 0);
    // Fetched again at intervals, and kept when that fails.
    works.store(false, Ordering::SeqCst);
    let before = server.seen().len();
    broker.until("another try", || server.seen().len() > before + 1);
    assert_eq!(code(&broker, &token(1, "acme", "u", 600)), 0);
    // A reload keeps them as well.
    assert!(broker.reload());
    assert_eq!(code(&broker, &token(1, "acme", "u", 600)), 0);
}

fn by_secret() -> Broker {
    let mut broker = Broker::prepared();
    broker.write("secret", &secret(1));
    broker.configure(&format!(
        "[jwt]\nalgorithms = [\"HS256\"]\nsecret_file = \"{{dir}}/secret\"\n{TENANTS}\
         [listener.open]\nbind = [\"{{ip}}\"]\nport = 1884\nallow_anonymous = true\nauthenticators = [\"password\"]\n"
    ));
    broker.launch();
    broker
}

fn by_method(id: &str, method: &str, token: &str) -> Connect {
    Connect::v5(id).prop(Property::AuthMethod(method)).prop(Property::AuthData(token.as_bytes()))
}

fn renew(client: &mut Client, token: &str) {
    let props = props_buf(&[Property::AuthMethod("JWT"), Property::AuthData(token.as_bytes())]);
    client.send(&Packet::Auth(Auth { reason: Reason::REAUTHENTICATE, props: props.as_props() }));
}

#[test]
fn the_method_jwt_takes_a_token_and_a_new_one_while_connected() {
    covers!["MQTT-4.12.0-1", "MQTT-4.12.1-1", "MQTT-4.12.1-2", "MQTT-4.12.0-5"];
    let broker = by_secret();
    let mut short = by_method("short", "JWT", &token(1, "acme", "u", 4)).open(&broker);
    let mut long = by_method("long", "JWT", &token(1, "acme", "u", 4)).open(&broker);
    assert_eq!(long.connack().props().auth_method(), Some("JWT"));
    renew(&mut long, &token(1, "acme", "u", 600));
    let done = long.expect(PacketType::Auth);
    assert_eq!((done.reason(), done.props().auth_method()), (0, Some("JWT")));
    // The one that was not renewed ends; the other lives on behind that time.
    short.expect_end(0x87);
    long.ping();
    assert!(long.publish("t", "x", 1) < 0x80);
    // Renewed to an earlier end, it ends then.
    renew(&mut long, &token(1, "acme", "u", 2));
    assert_eq!(long.expect(PacketType::Auth).reason(), 0);
    long.expect_end(0x87);
}

#[test]
fn nobody_becomes_another_by_a_new_token_and_a_bad_one_ends_the_connection() {
    covers!["MQTT-4.12.1-2"];
    let broker = by_secret();
    for bad in [
        token(1, "acme", "somebody else", 600),
        token(1, "globex", "u", 600),
        token(2, "acme", "u", 600),
        token(1, "acme", "u", 0),
        "no token".to_owned(),
        String::new(),
    ] {
        let mut c = by_method("c", "JWT", &token(1, "acme", "u", 600)).open(&broker);
        renew(&mut c, &bad);
        c.expect_end(0x87);
    }
    for bad in [token(2, "acme", "u", 600), token(1, "acme", "u", 0), "no token".to_owned(), String::new()] {
        by_method("d", "JWT", &bad).expect_refusal(&broker, 0x87);
    }
}

#[test]
fn a_method_that_is_not_offered_is_refused_where_it_is_not() {
    covers!["MQTT-4.12.0-1"];
    let broker = by_secret();
    let good = token(1, "acme", "u", 600);
    by_method("c", "SCRAM-SHA-1", &good).expect_refusal(&broker, 0x8C);
    // A listener without tokens in its chain takes none this way either.
    let at = |connect: Connect| connect.attempt_on(mast_tests::ws::tcp(broker.at(1884))).1.reason();
    assert_eq!(at(by_method("c", "JWT", &good)), 0x8C);
    // Without a method there is nothing to renew.
    let mut c = Connect::v5("c").password(good.as_bytes()).open(&broker);
    renew(&mut c, &good);
    c.expect_end(0x82);
}

#[test]
fn mqttjs_renews_its_token() {
    runs_once("a real client");
    let broker = by_secret();
    let place = target_dir().join("real-clients/node/node_modules");
    assert!(place.exists(), "run tests/setup.sh first");
    let output = Command::new("node")
        .env("NODE_PATH", place)
        .arg(workspace().join("tests/clients/mqttjs_reauth.js"))
        .arg(format!("mqtt://{}", broker.address()))
        .args([token(1, "acme", "u", 4), token(1, "acme", "u", 600), token(1, "acme", "another", 600)])
        .output()
        .expect("node runs");
    assert!(output.stdout.ends_with(b"ok\n"), "{output:?}");
}
