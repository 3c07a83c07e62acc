//! Reads the state of the three nodes from their management API.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail, ensure};
use reqwest::{Client, Response, Url};
use serde_json::Value;

use crate::harness::Servers;

/// The nodes of the cluster, by their numbers.
pub(super) const NODES: [usize; 3] = [1, 2, 3];

/// How long a node may take to answer. A node that is stopped with SIGSTOP never answers.
const LIMIT: Duration = Duration::from_secs(15);

/// Returns the name of a node in `scripts/services`.
pub(super) fn role(node: usize) -> String {
    format!("rabbitmq{node}")
}

pub(super) struct Nodes {
    client: Client,
    /// The URL of each node's management API.
    urls: BTreeMap<usize, Url>,
}

/// The nodes of queue leaders and of connections.
pub(super) struct Places {
    /// How many queues each node leads.
    pub(super) leads: BTreeMap<usize, usize>,
    /// The connections of all clients.
    connections: Vec<Connection>,
}

struct Connection {
    /// The broker's name for it.
    name: String,
    /// The name that the client gave it.
    client: String,
    node: usize,
}

impl Nodes {
    pub(super) fn new(servers: &Servers) -> anyhow::Result<Self> {
        let url =
            |node| anyhow::Ok((node, servers.rabbitmq.said(&format!("RABBITMQ_MANAGEMENT_URL_{node}"))?.parse()?));
        let urls = NODES.into_iter().map(url).collect::<Result<_, _>>()?;
        Ok(Self { client: Client::builder().timeout(LIMIT).build()?, urls })
    }

    /// Returns the first trouble that a node sees in the cluster, or `None` if all is well. A node that does not answer is a
    /// trouble.
    pub(super) async fn trouble(&self) -> Option<String> {
        self.seen_trouble().await.unwrap_or_else(|error| Some(format!("{error:#}")))
    }

    async fn seen_trouble(&self) -> anyhow::Result<Option<String>> {
        for node in NODES {
            let nodes = self.get(node, "nodes?columns=name,running,partitions,mem_alarm,disk_free_alarm").await?;
            for other in nodes.as_array().context("a list of nodes")? {
                let is_set = |key: &str| other[key].as_bool().unwrap_or(false);
                let is_parted = other["partitions"].as_array().is_some_and(|parted| !parted.is_empty());
                if !is_set("running") || is_set("mem_alarm") || is_set("disk_free_alarm") || is_parted {
                    return Ok(Some(format!("node {node} sees {other}")));
                }
            }
        }
        for queue in self.queues().await? {
            let online = queue["online"].as_array().map_or(0, Vec::len);
            if queue["type"] == "quorum" && (online < NODES.len() || leader(&queue).is_none()) {
                return Ok(Some(format!("a queue lacks members or a leader: {queue}")));
            }
        }
        Ok(None)
    }

    pub(super) async fn places(&self) -> anyhow::Result<Places> {
        let mut leads: BTreeMap<usize, usize> = NODES.into_iter().map(|node| (node, 0)).collect();
        for node in self.queues().await?.iter().filter_map(leader) {
            *leads.entry(node).or_default() += 1;
        }
        let list = self.get(NODES[0], "connections?columns=name,user_provided_name,node").await?;
        let connections = list.as_array().context("a list of connections")?.iter().filter_map(|connection| {
            let text = |key: &str| Some(connection[key].as_str()?.to_owned());
            let node = number(connection["node"].as_str()?)?;
            Some(Connection { name: text("name")?, client: text("user_provided_name")?, node })
        });
        Ok(Places { leads, connections: connections.collect() })
    }

    /// Makes the broker close a connection. Its client then connects to another node.
    pub(super) async fn close(&self, name: &str) -> anyhow::Result<()> {
        let mut url = self.urls[&NODES[0]].join("api/connections/")?;
        url.path_segments_mut().ok().context("a path")?.pop_if_empty().push(name);
        let status = self.client.delete(url).send().await?.status();
        // The connection may be closed already (404), or its node may not be ready yet (3.10 answers 500). The caller
        // tries again.
        ensure!(status == 404 || !status.is_client_error(), "closing {name}: {status}");
        Ok(())
    }

    async fn queues(&self) -> anyhow::Result<Vec<Value>> {
        match self.get(NODES[0], "queues?columns=name,type,leader,online").await? {
            Value::Array(queues) => Ok(queues),
            other => bail!("no list of queues: {other}"),
        }
    }

    async fn get(&self, node: usize, path: &str) -> anyhow::Result<Value> {
        let url = self.urls[&node].join("api/")?.join(path)?;
        let answer = self.client.get(url).send().await.and_then(Response::error_for_status)?;
        Ok(serde_json::from_slice(&answer.bytes().await?)?)
    }
}

impl Places {
    /// Returns the node that leads most queues.
    pub(super) fn leading(&self) -> usize {
        self.leads.iter().max_by_key(|(_, leads)| **leads).map_or(NODES[0], |(node, _)| *node)
    }

    /// Returns the node, and the broker's name, of each connection of this client.
    pub(super) fn of(&self, client: &str) -> impl Iterator<Item = (usize, &str)> {
        let of = self.connections.iter().filter(move |connection| connection.client == client);
        of.map(|connection| (connection.node, &*connection.name))
    }
}

fn leader(queue: &Value) -> Option<usize> {
    number(queue["leader"].as_str()?)
}

/// Returns the number of a node: 2 for `hatchery2@localhost`.
fn number(name: &str) -> Option<usize> {
    name.split('@').next()?.strip_prefix("hatchery")?.parse().ok()
}
