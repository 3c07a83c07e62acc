//! Client for RabbitMQ's management API, 3.10 to 4.3: reads all objects and statistics of a virtual host, and writes
//! policies.
//!
//! The credentials go into a header and never into a requested URL, so no error can show the password.

mod client;
mod port;
mod statistics;
mod url;

use std::collections::BTreeMap;

use async_trait::async_trait;
use hatchery::internals::compile::Policy;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use self::client::{Client, Name, Named};
pub use self::{
    port::{Management, ManagementError},
    url::{ManagementUrl, ManagementUrlError},
};
use crate::live::{Counts, LivePolicy, LiveQueue, Observed};

/// The management API, for one virtual host.
pub struct ManagementApi {
    client: Client,
    vhost: String,
}

impl ManagementApi {
    /// Creates a client, which connects at its first call.
    ///
    /// # Errors
    /// When the URL is an `https` one and this machine trusts no certificate authority.
    pub fn new(url: ManagementUrl, vhost: &str) -> Result<Self, ManagementError> {
        Ok(Self { client: Client::new(url)?, vhost: vhost.to_owned() })
    }
}

#[derive(Deserialize)]
struct Overview {
    rabbitmq_version: Option<String>,
    cluster_name: Option<String>,
}

#[derive(Deserialize)]
struct Replicated {
    #[serde(default)]
    members: Vec<String>,
}

/// The query for a list without the statistics that make it slow.
const PLAIN: [(&str, &str); 1] = [("disable_stats", "true")];

/// The query for a list of queues with their message counts. RabbitMQ 4.3 leaves out queues that have no leader or
/// whose node is down (measured), so the queues themselves come from a list with `PLAIN`.
const TOTALS: [(&str, &str); 2] = [("disable_stats", "true"), ("enable_queue_totals", "true")];

#[async_trait]
impl Management for ManagementApi {
    async fn observe(&self) -> Result<Observed, ManagementError> {
        self.objects(true).await
    }

    async fn put_policy(&self, policy: &Policy) -> Result<(), ManagementError> {
        let body = json!({
            "pattern": policy.pattern,
            "definition": policy.definition,
            "priority": Policy::PRIORITY,
            "apply-to": Policy::APPLY_TO,
        });
        self.client.put(&["policies", &self.vhost, &policy.name], &body).await
    }

    async fn delete_policy(&self, name: &str) -> Result<(), ManagementError> {
        self.client.delete(&["policies", &self.vhost, name]).await
    }

    async fn counts(&self) -> Result<BTreeMap<String, Counts>, ManagementError> {
        let columns = "name,messages,messages_ready,messages_unacknowledged,messages_dlx,messages_delayed,consumers";
        let counted: Vec<Named<Counts>> = self.client.pages(&["queues", &self.vhost], &[("columns", columns)]).await?;
        Ok(counted.into_iter().map(|Named { name, rest }| (name, rest)).collect())
    }
}

/// Adds the message counts to the queues, where they are known.
fn with_totals(queues: Vec<LiveQueue>, totals: Vec<LiveQueue>) -> Vec<LiveQueue> {
    let mut totals: BTreeMap<String, LiveQueue> = totals.into_iter().map(|live| (live.name.clone(), live)).collect();
    let with_totals = |queue: LiveQueue| match totals.remove(&queue.name) {
        Some(LiveQueue { messages_ready, messages_unacknowledged, messages, .. }) => {
            LiveQueue { messages_ready, messages_unacknowledged, messages, ..queue }
        }
        None => queue,
    };
    queues.into_iter().map(with_totals).collect()
}

impl ManagementApi {
    /// Reads all objects of the virtual host; their message counts only if `with_counts` is set, because they take the
    /// broker as long as all else together.
    ///
    /// # Errors
    /// When the API is unreachable or refuses.
    pub async fn objects(&self, with_counts: bool) -> Result<Observed, ManagementError> {
        let vhost = self.vhost.as_str();
        // The first call goes alone: it shows whether this user may use the API at all.
        let overview: Overview = self.client.get(&["overview"]).await?;
        let at = Some(Timestamp::now());
        let paths = ["exchanges", "queues", "bindings", "policies"].map(|what| [what, vhost]);
        let (exchanges, queues, totals, bindings, policies, operator_policies) = tokio::try_join!(
            self.client.get_with(&paths[0], &PLAIN),
            self.client.get_with::<Vec<LiveQueue>>(&paths[1], &PLAIN),
            self.totals(with_counts),
            self.client.get(&paths[2]),
            self.client.get(&paths[3]),
            self.operator_policies(),
        )?;
        let Overview { rabbitmq_version: version, cluster_name } = overview;
        let queues = with_totals(queues, totals);
        Ok(Observed { at, version, cluster_name, exchanges, queues, bindings, policies, operator_policies })
    }

    /// Returns the queues with their message counts, or none.
    async fn totals(&self, are_wanted: bool) -> Result<Vec<LiveQueue>, ManagementError> {
        if are_wanted { self.client.get_with(&["queues", &self.vhost], &TOTALS).await } else { Ok(Vec::new()) }
    }

    /// Returns the cluster name of the broker. `None` if it has none.
    ///
    /// # Errors
    /// When the API is unreachable or refuses.
    pub async fn cluster_name(&self) -> Result<Option<String>, ManagementError> {
        Ok(self.client.get::<Overview>(&["overview"]).await?.cluster_name)
    }

    /// Returns the URL of the API, without credentials.
    #[must_use]
    pub fn shown(&self) -> String {
        self.client.shown()
    }

    /// Returns the nodes of the cluster that have no replica of a stream. Empty if this user may not see the nodes.
    ///
    /// # Errors
    /// When the API is unreachable or refuses.
    pub async fn without_replica(&self, stream: &str) -> Result<Vec<String>, ManagementError> {
        let Some(nodes) = self.nodes().await? else { return Ok(Vec::new()) };
        let Replicated { members } =
            self.client.get_with(&["queues", &self.vhost, stream], &[("columns", "members")]).await?;
        // A broker that tells no members is not known to lack any.
        Ok(nodes.into_iter().filter(|node| !(members.is_empty() || members.contains(node))).collect())
    }

    /// Returns the names of all nodes of the cluster, those that are down included. `None` if this user lacks the tag
    /// `monitoring`.
    ///
    /// # Errors
    /// When the API is unreachable.
    pub async fn nodes(&self) -> Result<Option<Vec<String>>, ManagementError> {
        match self.client.get_with::<Vec<Name>>(&["nodes"], &[("columns", "name")]).await {
            Ok(nodes) => Ok(Some(nodes.into_iter().map(|node| node.name).collect())),
            Err(ManagementError::Refused { reason, .. }) => {
                tracing::debug!(reason, "the list of nodes is not shown to this user");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the operator policies, or none if this user may not see them. Each existing queue still shows which
    /// operator policy applies to it.
    async fn operator_policies(&self) -> Result<Vec<LivePolicy>, ManagementError> {
        match self.client.get(&["operator-policies", &self.vhost]).await {
            Err(ManagementError::Refused { reason, .. }) => {
                tracing::debug!(reason, "operator policies are not shown to this user");
                Ok(Vec::new())
            }
            answer => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_totals_holds_an_unknown_number() {
        let live =
            |name: &str, ready| LiveQueue { name: name.to_owned(), messages_ready: ready, ..LiveQueue::default() };
        let queues = with_totals(vec![live("led", None), live("led-by-none", None)], vec![live("led", Some(7))]);
        assert_eq!(queues, [live("led", Some(7)), live("led-by-none", None)]);
    }
}
