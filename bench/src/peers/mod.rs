//! Runs other job queues on the same servers, each beside hatchery.
//!
//! - [`install`]: puts the programs of `bench/peers` and their packages into a folder.
//! - [`program`]: runs such a program once.
//! - [`results`] and [`report`]: what the rounds come to, and the tables.

mod install;
mod program;
mod report;
mod results;

use hatchery_soak::console::Console;

use self::{install::Installed, results::Turn};
pub(crate) use self::{report::print, results::Results};
use crate::{
    args::Args,
    cases::{self, Case},
    load::Side,
    surroundings::Surroundings,
};

/// The usual number of events. The slowest peer needs a quarter of a minute for as many.
const USUAL: u32 = 20_000;

/// The cases that the peers are compared with.
const PUBLISH: &str = "publish-each";
const WORK: &str = "work-each";

struct Peer {
    name: &'static str,
    /// The program, a file of `bench/peers`.
    program: &'static str,
    server: Server,
    /// How many times as fast as the peer hatchery is to work at least.
    at_least: f64,
}

#[derive(Clone, Copy)]
enum Server {
    RabbitMq,
    Redis,
}

const ALL: [Peer; 3] = [
    Peer { name: "BullMQ", program: "bullmq.mjs", server: Server::Redis, at_least: 1.5 },
    Peer { name: "Dramatiq", program: "dramatiq_peer.py", server: Server::RabbitMq, at_least: 5.0 },
    Peer { name: "Celery", program: "celery_peer.py", server: Server::RabbitMq, at_least: 8.0 },
];

/// Runs each peer once in every round, right after hatchery has done the same.
pub(crate) async fn run(args: &Args, around: &mut Surroundings, console: &mut Console) -> anyhow::Result<Vec<Results>> {
    console.step("Install the peers");
    let installed = Installed::new(console).await?;
    console.step("The peers, in turns with publish-each and work-each");
    let [publish, work] = [cases::named(PUBLISH)?, cases::named(WORK)?];
    let mut rounds: Vec<(&Peer, Vec<Turn>)> = ALL.iter().map(|peer| (peer, Vec::new())).collect();
    let turns = ALL.len() * args.rounds() as usize;
    for round in 0..args.rounds() as usize {
        for (n, (peer, done)) in rounds.iter_mut().enumerate() {
            console.progress(round * ALL.len() + n, turns, "");
            done.push(turn(args, peer, &installed, [publish, work], around).await?);
        }
    }
    console.end_progress();
    Ok(rounds.into_iter().filter_map(|(peer, turns)| Results::of(peer.name, peer.at_least, &turns)).collect())
}

/// Runs hatchery, and then the peer.
async fn turn(
    args: &Args,
    peer: &Peer,
    installed: &Installed,
    [publish, work]: [&Case; 2],
    around: &mut Surroundings,
) -> anyhow::Result<Turn> {
    let load = args.load(USUAL);
    let publish = publish.run(around, &load, Side::Ours).await?;
    let work = work.run(around, &load, Side::Ours).await?;
    around.clear().await?;
    let servers = &around.stage.servers;
    let url = match peer.server {
        Server::RabbitMq => &servers.amqp,
        Server::Redis => &servers.redis,
    };
    let ran = program::run(installed.command(peer.program), url, &load, &around.meter).await?;
    Ok(Turn { publish, work, peer: ran })
}
