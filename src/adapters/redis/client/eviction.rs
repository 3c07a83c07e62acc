//! Warns once for each server that may evict keys. A server that evicts keys loses marks, and nobody would notice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, aio::MultiplexedConnection, cmd};

/// How long the command `INFO` may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Warns of evictions by one server.
pub(super) struct Eviction {
    shown: Arc<str>,
    said: Arc<AtomicBool>,
}

impl Eviction {
    pub(super) fn new(shown: &str) -> Self {
        Self { shown: shown.into(), said: Arc::default() }
    }

    /// Asks the server over this connection, in the background. Logs nothing if `INFO` is not allowed.
    pub(super) fn look(&self, connection: &MultiplexedConnection) {
        if self.said.load(Ordering::Relaxed) {
            return;
        }
        let (mut connection, shown, said) = (connection.clone(), Arc::clone(&self.shown), Arc::clone(&self.said));
        tokio::spawn(async move {
            let Ok(Ok(info)) = tokio::time::timeout(LIMIT, info().query_async::<String>(&mut connection)).await else {
                return;
            };
            if let Some(policy) = evicts(&info).filter(|_| !said.swap(true, Ordering::Relaxed)) {
                tracing::warn!(
                    "Redis at {shown} evicts keys when its memory is full (maxmemory-policy {policy}): an event whose \
                     key is evicted may run again; set maxmemory-policy to noeviction"
                );
            }
        });
    }
}

/// Returns the command whose answer [`evicts`] reads.
pub(super) fn info() -> Cmd {
    cmd("INFO").arg("memory").to_owned()
}

/// Returns the eviction policy if keys may be evicted.
pub(super) fn evicts(info: &str) -> Option<&str> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let is_bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
    field("maxmemory_policy").filter(|policy| is_bounded && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "# Memory\r\nmaxmemory:100\r\nmaxmemory_human:100B\r\nmaxmemory_policy:allkeys-lru\r\n",
        Some("allkeys-lru")
    )]
    #[case("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n", None)]
    #[case("maxmemory:0\r\nmaxmemory_policy:volatile-ttl\r\n", None)]
    #[case("", None)]
    fn only_a_bounded_memory_with_an_eviction_policy_is_reported(#[case] info: &str, #[case] expected: Option<&str>) {
        assert_eq!(evicts(info), expected);
    }
}
