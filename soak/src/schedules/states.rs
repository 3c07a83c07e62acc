//! Reads the states of the schedules from Redis, and flushes Redis.

use std::collections::BTreeMap;

use anyhow::Context as _;
use redis::{AsyncCommands as _, aio::MultiplexedConnection};

use crate::harness::{Stage, connect_to_redis, register_key};

pub(crate) struct States {
    connection: MultiplexedConnection,
    key: String,
}

impl States {
    pub(crate) async fn connect(stage: &Stage) -> anyhow::Result<Self> {
        let connection = connect_to_redis(&stage.servers.redis).await?;
        Ok(Self { connection, key: register_key(&stage.topology) + "schedules" })
    }

    /// Returns the position of each schedule's next event.
    pub(crate) async fn armed(&mut self) -> anyhow::Result<BTreeMap<String, i64>> {
        let texts: BTreeMap<String, String> = self.connection.hgetall(&self.key).await?;
        let position = |(name, text): (String, String)| {
            let state: serde_json::Value = serde_json::from_str(&text)?;
            let position = state["armed"]["position"].as_i64();
            let position = position.with_context(|| format!("{name} has no next event: {text}"))?;
            Ok((name, position))
        };
        texts.into_iter().map(position).collect()
    }

    /// Returns the states, for people.
    pub(crate) async fn texts(&mut self, names: &[String]) -> anyhow::Result<Vec<String>> {
        let mut texts = Vec::new();
        for name in names {
            let text: Option<String> = self.connection.hget(&self.key, name).await?;
            texts.push(format!("{name}: {}", text.unwrap_or_default()));
        }
        Ok(texts)
    }

    /// Deletes all keys of the soak's own Redis.
    pub(crate) async fn flush(&mut self) -> anyhow::Result<()> {
        Ok(redis::cmd("FLUSHDB").query_async(&mut self.connection).await?)
    }
}
