//! A cluster of three nodes that suffers one fault after the other, with publishers and workers that know all nodes.

mod account;
mod crew;
mod fault;
mod nodes;
mod plan;
mod stalls;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use self::{
    account::Account,
    crew::{Crew, LATER, ORDERED},
    fault::Fault,
    nodes::{NODES, Nodes},
    plan::Plans,
    stalls::Stream,
};
use crate::harness::{Chance, Common, Console, Queues, Servers, Stage, Table, grouped, until_well};

const TOPOLOGY: &str = "\
version: 1
name: soak
hatcheries: [5s]
ladder: { resolution: 250ms, horizon: 1h }
defaults: { prefetch: 50, concurrency: 8, retry: { delays: [1s, 5s], max-attempts: 20 } }
types:
  now: {}
  later: {}
  ordered: { on-failure: block }
  change: { coalesce: { immediate: latest, window: 1s, max-wait: 5s } }
";

/// How long a cluster may take to be healthy again. RabbitMQ 3.10 keeps delayed events for up to six minutes after the
/// death of a node.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long a publisher may stall while a majority of the nodes is up. A publisher leaves a node that has confirmed
/// nothing for 10 s, and connects to another one.
const PUBLISHER_STILL: Duration = Duration::from_secs(25);
/// How long a worker may stall while a majority of the nodes is up. A worker consumes anew after 30 s without a
/// delivery, and leaves a node that does not answer within 10 s.
const WORKER_STILL: Duration = Duration::from_secs(50);
const TICK: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Publish at least this many events; more are published if the faults take longer
    #[arg(long, default_value_t = 3_000)]
    events: u32,
    /// Events a second, while no publisher stalls
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(12..=10_000))]
    rate: u32,
    /// Four faults instead of fifteen, and shorter ones
    #[arg(long)]
    short: bool,
    /// Only these faults, in this order
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// RabbitMQ's `cluster_partition_handling`. 4.3 has none
    #[arg(long, default_value = "pause_minority")]
    partition_handling: String,
    /// RabbitMQ's `net_ticktime`: after about this many seconds the nodes count a silent node as lost. Until then, a
    /// queue that a silent node leads stalls on 3.10. RabbitMQ's own default is 60
    #[arg(long, default_value_t = 15)]
    net_ticktime: u32,
}

/// The measurements during one fault.
struct Row {
    what: &'static str,
    publishers: Duration,
    workers: Duration,
    /// The stalls of these two, of delayed events and of ordered ones, and how long the cluster took to be healthy after the
    /// fault was undone; in seconds, as text.
    seconds: [String; 5],
    must_move: bool,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let mut chance = args.common.chance(console);
    let faults = order(args, &mut chance);
    let settings =
        format!("cluster_partition_handling = {}\nnet_ticktime = {}\n", args.partition_handling, args.net_ticktime);
    console.step("Start three nodes of RabbitMQ, and Redis, and apply the topology");
    let servers = Servers::start_cluster(args.common.version.as_deref(), NODES.len(), &settings).await?;
    let stage = Stage::on(console, servers, TOPOLOGY).await?;
    let nodes = Nodes::new(&stage.servers)?;
    let leads = nodes.places().await?.leads;
    let crew = Crew::start(&stage, args.rate, &mut chance).await?;
    let mut run = Running { args, stage, nodes, crew, chance, plans: Plans::default(), rows: Vec::new() };
    run.become_healthy(console, Instant::now()).await?;
    run.plans.ask(&run.stage, "before the first fault", true).await?;
    for (place, fault) in faults.iter().enumerate() {
        console.step(&format!("Fault {} of {}: {}", place + 1, faults.len(), fault.said()));
        run.spread(console).await?;
        run.suffer(*fault, console).await?;
    }
    let Running { stage, mut crew, plans, rows, .. } = run;

    console.step("Stop publishing, and wait until all events are handled");
    while crew.seen.confirmed() < args.events as usize {
        tokio::time::sleep(TICK).await;
    }
    crew.stop_publishing().await?;
    let queues = Queues::connect(&stage).await?;
    let (given_up, mut calm) = (Instant::now() + PATIENCE, 0);
    while calm < 4 && Instant::now() < given_up {
        tokio::time::sleep(TICK).await;
        let is_done = crew.seen.overdue(i64::MAX) == 0 && !queues.are_busy(&[]).await?;
        calm = if is_done { calm + 1 } else { 0 };
    }
    let seen = crew.stop().await?;
    let account = Account::take(&seen, &queues, &stage).await?;
    stage.keep("runs", &seen.runs.all())?;

    for wrong in &plans.wrong {
        console.note(&format!("wrong plan: {wrong}"));
    }
    let mut table = Table::new(&["", "", "must be"]);
    account.tell(&mut table);
    plans.tell(&mut table);
    leaders(&leads, &mut table);
    let holds = stage.conclude(console, &[stall_table(&rows), table]).await;
    console.note("Seconds for which publishers and workers (the slowest of each), delayed events and events of");
    console.note("the block type stalled, and seconds that the cluster then took to be healthy.");
    Ok(holds)
}

fn order(args: &Args, chance: &mut Chance) -> Vec<Fault> {
    if !args.faults.is_empty() {
        return args.faults.clone();
    }
    let mut faults =
        if args.short { Fault::SHORT.to_vec() } else { <Fault as clap::ValueEnum>::value_variants().to_vec() };
    chance.shuffle(&mut faults);
    faults
}

struct Running<'a> {
    args: &'a Args,
    stage: Stage,
    nodes: Nodes,
    crew: Crew,
    chance: Chance,
    plans: Plans,
    rows: Vec<Row>,
}

impl Running<'_> {
    /// Causes a fault in a healthy cluster, undoes it, and waits until the cluster is healthy again.
    async fn suffer(&mut self, fault: Fault, console: &mut Console) -> anyhow::Result<()> {
        let Self { stage, nodes, crew, chance, plans, .. } = self;
        let from = Instant::now();
        let hit = fault.strike(&mut stage.servers, nodes, crew, chance).await?;
        let until = Instant::now() + fault.lasts(self.args.short);
        if fault == Fault::RollingRestart {
            for node in &hit {
                let role = nodes::role(*node);
                stage.servers.rabbitmq.tell(&format!("stop {role}")).await?;
                plans.ask(stage, &format!("{}, while node {node} is down", fault.said()), false).await?;
                stage.servers.rabbitmq.tell(&format!("start {role}")).await?;
                // A restart of the next node before the queues have all their members again would be an outage.
                until_well(PATIENCE, TICK, async || Ok(nodes.trouble().await)).await?;
            }
        } else {
            // A node's view of the others is some seconds old.
            let noticed = Duration::from_secs(5).min(fault.lasts(self.args.short) / 2);
            tokio::time::sleep(noticed).await;
            plans.ask(stage, &format!("{}, {} s after it", fault.said(), noticed.as_secs()), false).await?;
        }
        tokio::time::sleep(until.saturating_duration_since(Instant::now())).await;
        let all: Vec<String> = hit.iter().map(ToString::to_string).collect();
        console.note(&format!("node {}; lasted {:.0} s", all.join(", "), from.elapsed().as_secs_f64()));
        fault.recover(&mut self.stage.servers, &hit).await?;
        let undone = Instant::now();
        self.become_healthy(console, undone).await?;
        let to = Instant::now();
        self.plans.ask(&self.stage, &format!("{}, when it is over", fault.said()), true).await?;
        let longest = |streams: &[Stream]| self.crew.seen.marks.longest(streams, from, to);
        let (publishers, workers) = (longest(&crew::confirms()), longest(&crew::workers()));
        let [delayed, ordered] = [LATER, ORDERED].map(|event_type| longest(&[Stream::Handled(event_type)]));
        let seconds =
            [publishers, workers, delayed, ordered, to - undone].map(|time| format!("{:.1}", time.as_secs_f64()));
        console.note(&format!("{}  {}", fault.said(), seconds.join("  ")));
        let row = Row { what: fault.said(), publishers, workers, seconds, must_move: fault.leaves_majority() };
        self.rows.push(row);
        Ok(())
    }

    /// Waits until all nodes and all members of the queues are up, no stream stalls, and no event is late.
    async fn become_healthy(&mut self, console: &mut Console, since: Instant) -> anyhow::Result<()> {
        until_well(PATIENCE, TICK, async || {
            self.crew.require_alive().await?;
            let trouble = self.nodes.trouble().await.or_else(|| self.crew.still_since(since));
            if let Some(trouble) = &trouble {
                console.progress(self.crew.seen.runs.len(), self.crew.seen.confirmed(), &format!("; {trouble}"));
            }
            Ok(trouble)
        })
        .await?;
        console.end_progress();
        Ok(())
    }

    /// Spreads the clients, so that a publisher and a worker are connected to each node. A client whose connection the
    /// broker closes connects to the next node.
    async fn spread(&mut self, console: &mut Console) -> anyhow::Result<()> {
        // The broker updates its list of connections every second.
        until_well(PATIENCE, TICK * 3, async || {
            let places = self.nodes.places().await?;
            let mut is_spread = true;
            for clients in crew::connections() {
                // A worker that has left a node may still have its old connection besides the new one.
                let found: Vec<(usize, &str)> = clients.iter().flat_map(|client| places.of(client)).collect();
                let count = |node| found.iter().filter(|(other, _)| *other == node).count();
                let empty = NODES.iter().any(|node| count(*node) == 0);
                // A client whose connection was just closed may still be connecting.
                let are_connected = clients.iter().all(|client| places.of(client).next().is_some());
                is_spread &= !empty && are_connected;
                if empty && are_connected {
                    let (_, name) = found.iter().max_by_key(|(node, _)| count(*node)).context("a connection")?;
                    self.nodes.close(name).await?;
                }
            }
            if is_spread {
                let leads: Vec<String> =
                    places.leads.iter().map(|(node, n)| format!("node {node} leads {n}")).collect();
                console.note(&leads.join(", "));
            }
            Ok((!is_spread).then(|| "the connections do not spread over the nodes".to_owned()))
        })
        .await
    }
}

/// Adds how many queues one node led at most right after `apply`. Leaders must be spread over the nodes.
fn leaders(leads: &BTreeMap<usize, usize>, table: &mut Table) {
    let (queues, most) = (leads.values().sum::<usize>(), leads.values().max().copied().unwrap_or(0));
    let half = queues.div_ceil(2);
    let must = format!("at most {half} of {queues}");
    table.must(most <= half, &["queues that one node leads", &grouped(most), &must]);
}

fn stall_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["", "publisher", "worker", "delayed", "block", "healthy", "must be"]);
    let limit = format!("{} and {}", PUBLISHER_STILL.as_secs(), WORKER_STILL.as_secs());
    for row in rows {
        let [publishers, workers, delayed, ordered, healthy] = row.seconds.each_ref().map(String::as_str);
        let cells = |must| [row.what, publishers, workers, delayed, ordered, healthy, must];
        if row.must_move {
            table.must(row.publishers <= PUBLISHER_STILL && row.workers <= WORKER_STILL, &cells(&limit));
        } else {
            table.tell(&cells(""));
        }
    }
    table
}
