//! Redis deployments of several processes: the nodes of a Cluster, or a master with a replica and sentinels.

use std::{collections::BTreeMap, fs};

use redis::{FromRedisValue, RedisResult};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{
    broker::eventually,
    redis::{Server, connect, free_port},
};

/// The number of hash slots of a Redis Cluster.
const SLOTS: usize = 16384;

/// The cluster that the tests of one process share. Each test has its own key prefix, and none harms the cluster.
pub(crate) async fn shared() -> &'static Cluster {
    static STARTED: OnceCell<Cluster> = OnceCell::const_new();
    STARTED.get_or_init(|| Cluster::start(Kind::default())).await
}

/// A Redis process that a test may kill and start again.
pub(crate) struct Node {
    server: Option<Server>,
    /// The port that clients connect to.
    pub(crate) port: u16,
    /// A port that is open once the process runs.
    open: u16,
    options: Vec<String>,
    /// The URL by which the tests themselves talk to it.
    url: String,
}

impl Node {
    fn start(port: u16, options: Vec<String>, url: String) -> Self {
        let mut node = Self { server: None, port, open: port, options, url };
        node.restart();
        node
    }

    /// Kills the process with `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.server = None;
    }

    pub(crate) fn restart(&mut self) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.server = Some(Server::run(self.open, &options));
    }

    pub(crate) fn runs(&self) -> bool {
        self.server.is_some()
    }

    /// Sends a command and returns the answer.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let mut connection = connect(&self.url).await?;
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await
    }

    async fn tell(&self, command: &[&str]) {
        let () = self.ask(command).await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }

    /// Returns a field of a section of INFO.
    async fn info(&self, section: &str, field: &str) -> Option<String> {
        let info: String = self.ask(&["INFO", section]).await.ok()?;
        info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(|text| text.trim().to_owned())
    }

    pub(crate) async fn is_master(&self) -> bool {
        self.info("replication", "role").await.as_deref() == Some("master")
    }
}

fn strings(options: &[&str]) -> Vec<String> {
    options.iter().map(|option| (*option).to_owned()).collect()
}

/// Returns the options of every server. Each listens on two addresses, neither of which needs a name lookup.
fn plain(port: u16) -> Vec<String> {
    let port = port.to_string();
    strings(&[
        "--bind",
        "127.0.0.1",
        "127.0.0.2",
        "--port",
        &port,
        "--save",
        "",
        "--appendonly",
        "no",
        "--daemonize",
        "no",
    ])
}

/// Returns the options of every node of a cluster.
fn clustered(port: u16, bus: &str, folder: &TempDir, file: &str) -> Vec<String> {
    let mut options = plain(port);
    options.extend(strings(&["--cluster-enabled", "yes", "--cluster-port", bus]));
    options.extend(strings(&["--cluster-config-file", file, "--dir", folder.path().to_str().unwrap()]));
    options
}

/// Three masters with a third of the slots each, and replicas of some of them.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    scheme: &'static str,
    folder: TempDir,
}

/// How to start a cluster.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kind<'a> {
    /// How many of the masters, counted from the first, have a replica.
    pub(crate) replicas: usize,
    /// After how many milliseconds a node counts as failed. The default is 15 s.
    pub(crate) timeout: Option<u32>,
    /// Further options of every node.
    pub(crate) options: &'a [&'a str],
    /// The options by which all nodes speak TLS. Each node then also has a plain port, for the tests themselves.
    pub(crate) tls: Option<&'a [&'a str]>,
}

impl Cluster {
    pub(crate) async fn start(kind: Kind<'_>) -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let node = |n: usize| {
            let (port, bus) = (free_port(), free_port().to_string());
            let timeout = kind.timeout.unwrap_or(15_000).to_string();
            let mut options = clustered(port, &bus, &folder, &format!("nodes-{n}.conf"));
            options.extend(strings(&["--cluster-node-timeout", &timeout]));
            // A replica takes over however long ago it last heard from its master.
            options.extend(strings(&["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"]));
            options.extend(strings(kind.options));
            let mut seen = port;
            if let Some(tls) = kind.tls {
                seen = free_port();
                options.extend(strings(&["--tls-port", &seen.to_string(), "--tls-cluster", "yes"]));
                options.extend(strings(tls));
            }
            (Node::start(port, options, format!("redis://127.0.0.1:{port}")), seen, bus)
        };
        let started: Vec<_> = (0..3 + kind.replicas).map(node).collect();
        let (first, ..) = &started[0];
        for (n, (node, seen, bus)) in started.iter().enumerate() {
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]).await;
            if n < 3 {
                let (from, to) = (SLOTS * n / 3, SLOTS * (n + 1) / 3 - 1);
                node.tell(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]).await;
            }
            if n > 0 {
                first.tell(&["CLUSTER", "MEET", "127.0.0.1", &seen.to_string(), bus]).await;
            }
        }
        let count = started.len().to_string();
        let scheme = if kind.tls.is_some() { "rediss-cluster" } else { "redis-cluster" };
        let nodes: Vec<Node> = started.into_iter().map(|(node, seen, _)| Node { port: seen, ..node }).collect();
        let cluster = Self { nodes, scheme, folder };
        for (n, node) in cluster.nodes.iter().enumerate() {
            eventually("every node knows all nodes", async || {
                let known: String = node.ask(&["CLUSTER", "INFO"]).await.ok()?;
                known.contains(&format!("cluster_known_nodes:{count}\r\n")).then_some(())
            })
            .await;
            if n >= 3 {
                let master: String = cluster.nodes[n - 3].ask(&["CLUSTER", "MYID"]).await.unwrap();
                eventually("the node becomes a replica", async || {
                    node.ask::<()>(&["CLUSTER", "REPLICATE", &master]).await.ok()
                })
                .await;
                let linked = async || node.info("replication", "master_link_status").await.filter(|link| link == "up");
                eventually("the replica is in sync", linked).await;
            }
        }
        cluster.wait_until_served().await;
        cluster
    }

    /// Starts a node that is not part of the cluster and serves no slots.
    pub(crate) fn stranger(&self) -> Node {
        let (port, bus) = (free_port(), free_port().to_string());
        let options = clustered(port, &bus, &self.folder, &format!("nodes-{port}.conf"));
        Node::start(port, options, format!("redis://127.0.0.1:{port}"))
    }

    /// Returns a URL that names the first two masters; the client finds the others.
    pub(crate) fn url(&self) -> String {
        self.url_of("")
    }

    /// Returns the same URL with credentials, such as `user:password@`.
    pub(crate) fn url_of(&self, credentials: &str) -> String {
        format!("{}://{credentials}127.0.0.1:{},127.0.0.1:{}", self.scheme, self.nodes[0].port, self.nodes[1].port)
    }

    /// Waits until every running node reports that all slots are served.
    pub(crate) async fn wait_until_served(&self) {
        for node in self.nodes.iter().filter(|node| node.runs()) {
            eventually("the cluster serves all slots", async || {
                let known: String = node.ask(&["CLUSTER", "INFO"]).await.ok()?;
                // Without `cluster-require-full-coverage` the state is `ok` before the node knows who serves each slot.
                let all_served = format!("\ncluster_slots_ok:{SLOTS}\r");
                (known.starts_with("cluster_state:ok") && known.contains(&all_served)).then_some(())
            })
            .await;
        }
    }

    /// Returns the index of the master that serves a key.
    pub(crate) async fn master_of(&self, key: &str) -> usize {
        let slot: usize = self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]).await.unwrap();
        (0..3).find(|n| slot < SLOTS * (n + 1) / 3).unwrap()
    }
}

/// A master, a replica, and three sentinels that watch them.
pub(crate) struct Watched {
    pub(crate) servers: Vec<Node>,
    pub(crate) sentinels: Vec<Node>,
    scheme: &'static str,
    _folder: TempDir,
}

/// How to start a master, a replica and their sentinels.
#[derive(Clone, Copy, Default)]
pub(crate) struct Guard<'a> {
    /// The credentials by which the tests connect to the servers, such as `:password@`, and further options of the
    /// servers.
    pub(crate) servers: (&'a str, &'a [&'a str]),
    /// The credentials and options of the sentinels. Their options are lines of their configuration file.
    pub(crate) sentinels: (&'a str, &'a str),
    /// The options by which all of them speak TLS. Each then also has a plain port, for the tests themselves.
    pub(crate) tls: Option<&'a [&'a str]>,
}

impl Watched {
    pub(crate) async fn start() -> Self {
        Self::start_with(Guard::default()).await
    }

    pub(crate) async fn start_with(guard: Guard<'_>) -> Self {
        let folder = TempDir::new().unwrap();
        let Guard { servers: (access, more), sentinels: (own, lines), tls } = guard;
        let server = |replica_of: Option<u16>| {
            let port = free_port();
            let mut options = plain(port);
            // A replica writes the first snapshot from its master into this folder.
            let file = format!("{port}.rdb");
            options.extend(strings(&["--dir", folder.path().to_str().unwrap(), "--dbfilename", &file]));
            options.extend(strings(&["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]));
            options.extend(strings(more));
            let mut seen = port;
            if let Some(tls) = tls {
                seen = free_port();
                options.extend(strings(&["--tls-port", &seen.to_string(), "--tls-replication", "yes"]));
                options.extend(strings(tls));
            }
            if let Some(master) = replica_of {
                options.extend(strings(&["--replicaof", "127.0.0.1", &master.to_string()]));
            }
            let node = Node::start(port, options, format!("redis://{access}127.0.0.1:{port}"));
            Node { port: seen, ..node }
        };
        let master = server(None);
        let replica = server(Some(master.port));
        let linked = async || replica.info("replication", "master_link_status").await.filter(|link| link == "up");
        eventually("the replica is in sync", linked).await;
        let sentinel = |n: usize| {
            let (port, file) = (free_port(), folder.path().join(format!("sentinel-{n}.conf")));
            let mut text = format!(
                "port {port}\nbind 127.0.0.1 127.0.0.2\ndir {}\nsentinel monitor mymaster 127.0.0.1 {} 2\n\
                 sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n{lines}",
                folder.path().display(),
                master.port
            );
            let mut seen = port;
            if let Some(tls) = tls {
                seen = free_port();
                let lines =
                    tls.chunks(2).map(|option| format!("{} {}\n", option[0].trim_start_matches('-'), option[1]));
                text.extend([format!("tls-port {seen}\ntls-replication yes\n")].into_iter().chain(lines));
            }
            fs::write(&file, text).unwrap();
            let options = strings(&[file.to_str().unwrap(), "--sentinel"]);
            let node = Node::start(port, options, format!("redis://{own}127.0.0.1:{port}"));
            Node { port: seen, ..node }
        };
        let sentinels: Vec<Node> = (0..3).map(sentinel).collect();
        let scheme = if tls.is_some() { "rediss-sentinel" } else { "redis-sentinel" };
        let watched = Self { servers: vec![master, replica], sentinels, scheme, _folder: folder };
        watched.wait_until_ready().await;
        watched
    }

    /// Waits until every sentinel knows the two others, the master and its replica.
    pub(crate) async fn wait_until_ready(&self) {
        for sentinel in &self.sentinels {
            eventually("the sentinel knows the master, the replica and the other sentinels", async || {
                let known: BTreeMap<String, String> = sentinel.ask(&["SENTINEL", "MASTER", "mymaster"]).await.ok()?;
                let knows =
                    known["num-slaves"] == "1" && known["num-other-sentinels"] == "2" && known["flags"] == "master";
                knows.then_some(())
            })
            .await;
        }
    }

    pub(crate) fn url(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("{}://{}#mymaster", self.scheme, sentinels.join(","))
    }

    /// Waits until all sentinels name this server as the master, and it is one.
    pub(crate) async fn wait_for_master(&self, server: usize) {
        let port = self.servers[server].port.to_string();
        for sentinel in &self.sentinels {
            eventually("the sentinel names the new master", async || {
                let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
                let (_, named): (String, String) = sentinel.ask(&question).await.ok()?;
                (named == port).then_some(())
            })
            .await;
        }
        eventually("the named server is the master", async || self.servers[server].is_master().await.then_some(()))
            .await;
    }
}
