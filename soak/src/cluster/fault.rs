//! The faults of the cluster: how each is caused, and how it is undone.

use std::time::Duration;

use clap::ValueEnum;

use super::{
    crew::{Crew, worker_name},
    nodes::{NODES, Nodes, role},
};
use crate::harness::{Chance, Servers};

/// Events that are published at once while a node is killed.
const BURST: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// Node 1 is killed with `kill -9`
    KillFirst,
    /// Node 2 is killed
    KillSecond,
    /// Node 3 is killed
    KillThird,
    /// The node that leads most queues is killed
    KillLeader,
    /// The nodes are shut down and started again, one after the other
    RollingRestart,
    /// Two nodes are killed, so that no queue has a majority
    NoQuorum,
    /// A node is stopped with SIGSTOP
    Stall,
    /// The node that leads most queues is stopped with SIGSTOP
    StallLeader,
    /// A node has no connection to the other two
    Minority,
    /// No node has a connection to another one
    Apart,
    /// A memory alarm on one node
    MemoryAlarm,
    /// A disk alarm on one node
    DiskAlarm,
    /// The broker closes every connection
    CloseConnections,
    /// The node that a worker is connected to is killed during a burst
    KillInBurst,
    /// All nodes are stopped and started again
    RestartAll,
}

/// The nodes that a fault has hit.
pub(super) type Hit = Vec<usize>;

impl Fault {
    /// The faults of a short run.
    pub(super) const SHORT: [Self; 4] =
        [Self::KillLeader, Self::RollingRestart, Self::Minority, Self::CloseConnections];

    pub(super) const fn said(self) -> &'static str {
        match self {
            Self::KillFirst => "kill of node 1",
            Self::KillSecond => "kill of node 2",
            Self::KillThird => "kill of node 3",
            Self::KillLeader => "kill of the leading node",
            Self::RollingRestart => "rolling restart",
            Self::NoQuorum => "two nodes down",
            Self::Stall => "a stalled node",
            Self::StallLeader => "the leading node stalled",
            Self::Minority => "a node cut off",
            Self::Apart => "all nodes cut off",
            Self::MemoryAlarm => "memory alarm",
            Self::DiskAlarm => "disk alarm",
            Self::CloseConnections => "connections closed",
            Self::KillInBurst => "kill of a worker's node",
            Self::RestartAll => "restart of all nodes",
        }
    }

    /// Returns how long the fault lasts before it is undone.
    pub(super) const fn lasts(self, is_short: bool) -> Duration {
        let (long, short) = match self {
            Self::NoQuorum => (50, 10),
            Self::Stall | Self::StallLeader => (40, 15),
            // Longer than a publisher waits for a confirm, and than a worker waits for a sign of life of its broker.
            Self::Minority => (70, 60),
            Self::Apart => (60, 15),
            Self::RollingRestart | Self::CloseConnections => (0, 0),
            _ => (20, 10),
        };
        Duration::from_secs(if is_short { short } else { long })
    }

    /// Returns whether a majority of the nodes is up and takes messages all the time, so that no client has to wait for
    /// the end of the fault.
    pub(super) const fn leaves_majority(self) -> bool {
        !matches!(self, Self::NoQuorum | Self::Apart | Self::MemoryAlarm | Self::DiskAlarm | Self::RestartAll)
    }

    /// Causes the fault, and returns the nodes that it hits.
    pub(super) async fn strike(
        self,
        servers: &mut Servers,
        nodes: &Nodes,
        crew: &mut Crew,
        chance: &mut Chance,
    ) -> anyhow::Result<Hit> {
        let places = nodes.places().await?;
        let any = NODES[usize::try_from(chance.between(0, NODES.len() as u64 - 1))?];
        let others = |node| NODES.into_iter().filter(move |other| *other != node);
        let hit = match self {
            Self::KillFirst => vec![1],
            Self::KillSecond => vec![2],
            Self::KillThird => vec![3],
            Self::KillLeader | Self::StallLeader => vec![places.leading()],
            Self::Stall | Self::Minority | Self::MemoryAlarm | Self::DiskAlarm => vec![any],
            Self::KillInBurst => vec![places.of(&worker_name(0)).next().map_or(any, |(node, _)| node)],
            Self::NoQuorum => others(any).collect(),
            Self::RollingRestart | Self::Apart | Self::CloseConnections | Self::RestartAll => NODES.to_vec(),
        };
        let first = role(hit[0]);
        let line = match self {
            Self::KillInBurst => {
                crew.burst(BURST);
                format!("kill {first}")
            }
            Self::KillFirst | Self::KillSecond | Self::KillThird | Self::KillLeader | Self::NoQuorum => {
                format!("kill {}", roles(&hit))
            }
            Self::Stall | Self::StallLeader => format!("pause {first}"),
            Self::Minority => format!("partition {}|{first}", roles(&others(hit[0]).collect::<Vec<_>>())),
            Self::Apart => format!("partition {}", roles(&hit).replace(' ', "|")),
            Self::MemoryAlarm => format!("ctl {first} set_vm_memory_high_watermark 0.0000001"),
            Self::DiskAlarm => format!("ctl {first} set_disk_free_limit 1000000GB"),
            Self::CloseConnections => format!("ctl {first} close_all_connections --global soak"),
            Self::RestartAll => format!("stop {}", roles(&hit)),
            // The caller restarts the nodes itself, and asks for a plan while each is down.
            Self::RollingRestart => return Ok(hit),
        };
        servers.rabbitmq.tell(&line).await?;
        Ok(hit)
    }

    /// Undoes the fault.
    pub(super) async fn recover(self, servers: &mut Servers, hit: &Hit) -> anyhow::Result<()> {
        let first = role(hit[0]);
        let line = match self {
            Self::Stall | Self::StallLeader => format!("continue {first}"),
            Self::Minority | Self::Apart => "heal".to_owned(),
            Self::MemoryAlarm => format!("ctl {first} set_vm_memory_high_watermark 0.4"),
            Self::DiskAlarm => format!("ctl {first} set_disk_free_limit 50MB"),
            Self::CloseConnections | Self::RollingRestart => return Ok(()),
            _ => format!("start {}", roles(hit)),
        };
        servers.rabbitmq.tell(&line).await
    }
}

fn roles(nodes: &[usize]) -> String {
    nodes.iter().map(|node| role(*node)).collect::<Vec<_>>().join(" ")
}
