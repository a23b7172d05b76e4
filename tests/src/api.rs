//! The broker's HTTP API as an operator's script would use it: one connection a request, JSON in and out.

use crate::broker::{Broker, DEADLINE};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A token and where to use it.
#[derive(Clone, Debug)]
pub struct Api {
    address: SocketAddr,
    token: String,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Header lines, in small letters.
    pub headers: String,
    pub text: String,
}

impl Answer {
    /// The body; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The code of a problem.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The body of a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }

    /// Fails unless the answer is this problem.
    #[track_caller]
    pub fn is(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{self:?}");
        let body = self.json();
        assert!(!body["what"].as_str().unwrap_or_default().is_empty(), "{self:?}");
        assert!(!body["way_out"].as_str().unwrap_or_default().is_empty(), "{self:?}");
    }

    /// Values of a field of all items.
    #[track_caller]
    pub fn items(&self, field: &str) -> Vec<String> {
        let body = self.ok();
        let items = body["items"].as_array().unwrap_or_else(|| panic!("no items: {self:?}"));
        items.iter().map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Api {
    /// With the token of the broker's first start.
    pub fn first(broker: &Broker) -> Api {
        let file = broker.data_dir().join("bootstrap-token");
        let token = std::fs::read_to_string(file).expect("the file with the first token");
        Api { address: broker.admin(), token: token.trim().to_owned() }
    }

    /// With another token; an empty one is none.
    pub fn with(&self, token: &str) -> Api {
        Api { address: self.address, token: token.to_owned() }
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// With a new token for one tenant.
    pub fn of_tenant(&self, tenant: &str) -> Api {
        let made = self.post("/api/v1/tokens", &serde_json::json!({ "tenant": tenant })).ok();
        self.with(made["token"].as_str().expect("a token"))
    }

    /// A request with header lines of one's own, each ended by CR LF.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect_timeout(&self.address, DEADLINE).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        let token = match self.token.as_str() {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n{token}{headers}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("send");
        stream.write_all(body).expect("send");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        Answer { status, headers: head.to_lowercase(), text: text.to_owned() }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "", body.to_string().as_bytes())
    }

    pub fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send("PATCH", path, "", body.to_string().as_bytes())
    }

    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, "", body.to_string().as_bytes())
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", b"")
    }
}
