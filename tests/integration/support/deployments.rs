//! Redis in more than one process: the nodes of a Cluster, or a master with a replica and sentinels.

use std::{collections::BTreeMap, fs};

use redis::{FromRedisValue, RedisResult};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{
    broker::eventually,
    redis::{Server, connect, free_port},
};

/// Slots of a cluster.
const SLOTS: usize = 16384;

/// The shared cluster. Tests keep apart by their prefixes, and none of them harms it.
pub(crate) async fn shared() -> &'static Cluster {
    static STARTED: OnceCell<Cluster> = OnceCell::const_new();
    STARTED.get_or_init(|| Cluster::start(Kind::default())).await
}

/// A process that may be killed and started again.
pub(crate) struct Node {
    server: Option<Server>,
    /// That clients see.
    pub(crate) port: u16,
    /// That is open once it runs.
    open: u16,
    options: Vec<String>,
    /// How the tests speak to it.
    url: String,
}

impl Node {
    fn start(port: u16, options: Vec<String>, url: String) -> Self {
        let mut node = Self { server: None, port, open: port, options, url };
        node.restart();
        node
    }

    /// With `kill -9`.
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

    /// Gives it a command.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let mut connection = connect(&self.url).await?;
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await
    }

    async fn tell(&self, command: &[&str]) {
        let () = self.ask(command).await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }

    /// A field of what INFO says.
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

/// What every server of the tests has. It has two names, neither of which has to be looked up.
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

/// What every node of a cluster has.
fn clustered(port: u16, bus: &str, folder: &TempDir, file: &str) -> Vec<String> {
    let mut options = plain(port);
    options.extend(strings(&["--cluster-enabled", "yes", "--cluster-port", bus]));
    options.extend(strings(&["--cluster-config-file", file, "--dir", folder.path().to_str().unwrap()]));
    options
}

/// Three masters with a third of the slots each, and replicas of the first ones.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    scheme: &'static str,
    folder: TempDir,
}

/// How to start a cluster.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kind<'a> {
    /// How many of the masters have a replica.
    pub(crate) replicas: usize,
    /// After how many milliseconds a node counts as gone; 15 s where nothing is said.
    pub(crate) timeout: Option<u32>,
    /// Further options of every node.
    pub(crate) options: &'a [&'a str],
    /// They speak TLS alone, by these options; the tests by this plain port of each node's all the same.
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
            // A replica takes over however long it has not heard of its master.
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
            eventually("all know all", async || {
                let known: String = node.ask(&["CLUSTER", "INFO"]).await.ok()?;
                known.contains(&format!("cluster_known_nodes:{count}\r\n")).then_some(())
            })
            .await;
            if n >= 3 {
                let master: String = cluster.nodes[n - 3].ask(&["CLUSTER", "MYID"]).await.unwrap();
                eventually("it is a replica", async || node.ask::<()>(&["CLUSTER", "REPLICATE", &master]).await.ok())
                    .await;
                let linked = async || node.info("replication", "master_link_status").await.filter(|link| link == "up");
                eventually("it is in step", linked).await;
            }
        }
        cluster.whole().await;
        cluster
    }

    /// A node that has met none of the others, and serves no slots.
    pub(crate) fn stranger(&self) -> Node {
        let (port, bus) = (free_port(), free_port().to_string());
        let options = clustered(port, &bus, &self.folder, &format!("nodes-{port}.conf"));
        Node::start(port, options, format!("redis://127.0.0.1:{port}"))
    }

    /// The first master of all, which is enough to find the others.
    pub(crate) fn url(&self) -> String {
        self.url_of("")
    }

    /// The same with credentials, such as `user:password@`.
    pub(crate) fn url_of(&self, credentials: &str) -> String {
        format!("{}://{credentials}127.0.0.1:{},127.0.0.1:{}", self.scheme, self.nodes[0].port, self.nodes[1].port)
    }

    /// Waits until every node that runs says that every slot is served.
    pub(crate) async fn whole(&self) {
        for node in self.nodes.iter().filter(|node| node.runs()) {
            eventually("the cluster is whole", async || {
                let known: String = node.ask(&["CLUSTER", "INFO"]).await.ok()?;
                known.starts_with("cluster_state:ok").then_some(())
            })
            .await;
        }
    }

    /// The node that serves a key.
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

/// How to start them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Guard<'a> {
    /// How the servers let the tests in, such as by `:password@`, and their further options.
    pub(crate) servers: (&'a str, &'a [&'a str]),
    /// The same of the sentinels, whose options are lines of their files.
    pub(crate) sentinels: (&'a str, &'a str),
    /// All of them speak TLS by these options; the tests by a plain port of each all the same.
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
            // A replica writes down there what it is sent at first.
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
        eventually("the replica is in step", linked).await;
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
        watched.ready().await;
        watched
    }

    /// Waits until the sentinels know each other, and the replica.
    pub(crate) async fn ready(&self) {
        for sentinel in &self.sentinels {
            eventually("the sentinels know what they watch", async || {
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

    /// Waits until the sentinels name this server.
    pub(crate) async fn named(&self, server: usize) {
        let port = self.servers[server].port.to_string();
        for sentinel in &self.sentinels {
            eventually("the fail-over", async || {
                let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
                let (_, named): (String, String) = sentinel.ask(&question).await.ok()?;
                (named == port).then_some(())
            })
            .await;
        }
        eventually("it is the master", async || self.servers[server].is_master().await.then_some(())).await;
    }
}
