//! The report of a server on itself. A warning is logged once for each server that may evict keys, or does not tell. A server that evicts keys loses
//! marks, and nobody would notice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{aio::MultiplexedConnection, cmd};

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

    /// Asks the server over this connection, in the background.
    pub(super) fn look(&self, connection: &MultiplexedConnection) {
        if self.said.load(Ordering::Relaxed) {
            return;
        }
        let (mut connection, shown, said) = (connection.clone(), Arc::clone(&self.shown), Arc::clone(&self.said));
        tokio::spawn(async move {
            let mut asking = cmd("INFO");
            let asking = asking.arg("memory").query_async::<String>(&mut connection);
            let info = match tokio::time::timeout(LIMIT, asking).await {
                Ok(Ok(info)) => info,
                Ok(Err(error)) if error.code() == Some("NOPERM") => {
                    if !said.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "whether Redis at {shown} evicts keys is not known: the user may not call INFO; add +info to its \
                             rights, or make sure that maxmemory-policy is noeviction"
                        );
                    }
                    return;
                }
                // The next connection asks again.
                _ => return,
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

/// The report of a server on itself.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// The eviction policy, if the server may evict keys.
    pub evicts: Option<String>,
    /// For how long the server has run, if it says so.
    pub up_for: Option<Duration>,
}

impl ServerInfo {
    pub(super) fn read(info: &str) -> Self {
        let seconds = field(info, "uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
        Self { evicts: evicts(info).map(str::to_owned), up_for: seconds.map(Duration::from_secs) }
    }
}

/// Returns the eviction policy if keys may be evicted.
fn evicts(info: &str) -> Option<&str> {
    let is_bounded = field(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    field(info, "maxmemory_policy").filter(|policy| is_bounded && *policy != "noeviction")
}

fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
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
