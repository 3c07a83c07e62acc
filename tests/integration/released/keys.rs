//! The register's keys as a release writes them.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};

use crate::support::redis::connect;

/// The keys by their names without the base.
pub(super) type Keys = BTreeMap<String, Key>;

/// A key's type and its value.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Key {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Zset(BTreeMap<Bytes, f64>),
}

/// Bytes: a text if they are printable, else base64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Bytes(String);

const BASE64: &str = "base64:";

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if !text.chars().any(char::is_control) => Self(text),
            Ok(text) => Self(format!("{BASE64}{}", BASE64_STANDARD.encode(text))),
            Err(error) => Self(format!("{BASE64}{}", BASE64_STANDARD.encode(error.as_bytes()))),
        }
    }
}

impl Bytes {
    fn bytes(&self) -> Vec<u8> {
        match self.0.strip_prefix(BASE64) {
            Some(base64) => BASE64_STANDARD.decode(base64).unwrap(),
            None => self.0.clone().into_bytes(),
        }
    }

    /// Returns what is the same in each value of this kind: a text without its digits, or the length.
    fn shape(&self) -> String {
        match self.0.strip_prefix(BASE64) {
            Some(_) => format!("{} bytes", self.bytes().len()),
            None => without_digits(&self.0),
        }
    }
}

/// Reads all keys whose names begin with `base`.
pub(super) async fn read(url: &str, base: &str) -> Keys {
    let mut redis = connect(url).await.unwrap();
    let pattern = format!("{}*", base.replace('{', "\\{"));
    let names: Vec<String> = redis.keys(&pattern).await.unwrap();
    let mut keys = Keys::new();
    for name in names {
        let key = read_one(&mut redis, &name).await;
        keys.insert(name[base.len()..].to_owned(), key);
    }
    // The owner is the broker of the recording.
    if let Some(Key::String(Bytes(last))) = keys.get_mut("last") {
        last.truncate(last.find('|').unwrap_or(last.len()));
    }
    keys
}

async fn read_one(redis: &mut MultiplexedConnection, name: &str) -> Key {
    let kind: String = redis::cmd("TYPE").arg(name).query_async(redis).await.unwrap();
    let pairs = |pairs: Vec<(Vec<u8>, Vec<u8>)>| pairs.into_iter().map(|(field, value)| (field.into(), value.into()));
    match kind.as_str() {
        "string" => Key::String(redis.get::<_, Vec<u8>>(name).await.unwrap().into()),
        "hash" => Key::Hash(pairs(redis.hgetall(name).await.unwrap()).collect()),
        "zset" => {
            let members: Vec<(Vec<u8>, f64)> = redis.zrange_withscores(name, 0, -1).await.unwrap();
            Key::Zset(members.into_iter().map(|(member, score)| (member.into(), score)).collect())
        }
        other => panic!("{name} is a {other}"),
    }
}

/// Writes keys as they were read.
pub(super) async fn write(url: &str, base: &str, keys: &Keys) {
    let mut redis = connect(url).await.unwrap();
    for (name, key) in keys {
        let name = format!("{base}{name}");
        let write = match key {
            Key::String(value) => redis::Cmd::set(&name, value.bytes()),
            Key::Hash(fields) => {
                let fields: Vec<_> = fields.iter().map(|(field, value)| (field.bytes(), value.bytes())).collect();
                redis::Cmd::hset_multiple(&name, &fields)
            }
            Key::Zset(members) => {
                let members: Vec<_> = members.iter().map(|(member, score)| (*score, member.bytes())).collect();
                redis::Cmd::zadd_multiple(&name, &members)
            }
        };
        let () = write.query_async(&mut redis).await.unwrap();
    }
}

/// Returns what has to be the same in each recording: names, types, and the forms of the values.
pub(super) fn shape(keys: &Keys) -> String {
    let mut lines = Vec::new();
    for (name, key) in keys {
        let name = without_digits(name);
        match key {
            Key::String(value) => {
                // The first byte of a packed string is its form.
                let form = if name == "last" { 0 } else { value.bytes()[0] };
                lines.push(format!("{name}: string {}, form {form}", value.shape()));
            }
            Key::Hash(fields) => {
                let field =
                    |(field, value): (&Bytes, &Bytes)| format!("{name}: hash {} {}", field.shape(), value.shape());
                lines.extend(fields.iter().map(field));
            }
            Key::Zset(members) => lines.extend(members.keys().map(|member| format!("{name}: zset {}", member.shape()))),
        }
    }
    lines.sort();
    lines.join("\n")
}

/// Replaces each digit, because the numbers of two recordings differ.
pub(super) fn without_digits(text: &str) -> String {
    text.replace(|c: char| c.is_ascii_digit(), "0")
}
