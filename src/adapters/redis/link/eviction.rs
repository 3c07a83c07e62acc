//! A Redis that evicts keys forgets marks, and nobody would notice: it is said, once for each server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{aio::MultiplexedConnection, cmd};

/// How long the question may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether it was asked and said.
pub(super) struct Eviction {
    shown: Arc<str>,
    said: Arc<AtomicBool>,
}

impl Eviction {
    pub(super) fn new(shown: &str) -> Self {
        Self { shown: shown.into(), said: Arc::default() }
    }

    /// Asks by this connection, in the background. Where the question is not allowed nothing is said.
    pub(super) fn look(&self, connection: &MultiplexedConnection) {
        if self.said.load(Ordering::Relaxed) {
            return;
        }
        let (mut connection, shown, said) = (connection.clone(), Arc::clone(&self.shown), Arc::clone(&self.said));
        tokio::spawn(async move {
            let info = cmd("INFO").arg("memory").to_owned();
            let Ok(Ok(info)) = tokio::time::timeout(LIMIT, info.query_async::<String>(&mut connection)).await else {
                return;
            };
            if let Some(policy) = evicts(&info).filter(|_| !said.swap(true, Ordering::Relaxed)) {
                tracing::warn!(
                    "Redis at {shown} evicts keys when its memory is full (maxmemory-policy {policy}): an evicted key is a \
                     forgotten mark, and its event may run again; noeviction is the policy to set"
                );
            }
        });
    }
}

/// The policy, where it makes room by forgetting.
fn evicts(info: &str) -> Option<&str> {
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
    fn only_what_makes_room_evicts(#[case] info: &str, #[case] expected: Option<&str>) {
        assert_eq!(evicts(info), expected);
    }
}
