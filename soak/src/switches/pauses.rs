//! Pauses of a type that is published all the time, while workers are killed, the broker restarts and Redis is flushed.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use futures_util::StreamExt as _;
use hatchery::{CancellationToken, NewEvent, Publisher, internals::rabbitmq::connection::AmqpUrl};
use jiff::Timestamp;
use lapin::{
    options::{BasicConsumeOptions, BasicQosOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::harness::{
    Account, Chance, Console, Crew, Killer, Kills, Lateness, Look, Note, PATIENCE, PAYLOAD, Queues, Stage, Step, Table,
    connect_to_redis, grouped, millis, of, until_over,
};

const TYPE: &str = "held";
/// The type for the topology.
pub(super) const TYPES: &str = "  held: {}\n";

const TICK: Duration = Duration::from_millis(50);
/// How often the publisher publishes what is due.
const TURN: Duration = Duration::from_millis(20);
/// How long events may start after the snapshot with the pause, and after the return of `topology pause`, in microseconds. The command
/// returns seconds after the last start, because the broker tells late who consumes.
const LIMIT: i64 = 1_000_000;
/// In microseconds.
const SECOND: i64 = 1_000_000;
/// How many starts during a pause are printed.
const SHOWN: usize = 5;

#[derive(clap::Args)]
#[command(mut_arg("workers", |arg| arg.default_value("8")))]
#[command(mut_arg("kill_every", |arg| arg.default_value("2000")))]
pub(super) struct Pausing {
    #[command(flatten)]
    pub(super) kills: Kills,
    /// Events of the paused type that are published each second
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    rate: u32,
    /// Pauses
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
}

/// The harm that is done during a pause, beside the kills of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// RabbitMQ is killed with SIGKILL, and starts again.
    BrokerKilled,
    /// RabbitMQ stops and starts again.
    BrokerRestarted,
    /// All keys of Redis are deleted.
    RedisFlushed,
}

impl Fault {
    const ALL: [Self; 3] = [Self::BrokerKilled, Self::BrokerRestarted, Self::RedisFlushed];

    const fn said(self) -> &'static str {
        match self {
            Self::BrokerKilled => "RabbitMQ killed, and started again",
            Self::BrokerRestarted => "RabbitMQ restarted",
            Self::RedisFlushed => "Redis flushed",
        }
    }
}

/// A pause. Times are microseconds since 1970.
struct Pause {
    /// When `topology pause` was called.
    asked: i64,
    /// When its snapshot was on the stream.
    written: i64,
    /// When it returned.
    returned: i64,
    /// When `topology resume` was called.
    resumed: i64,
    /// Whether the command named workers that do not follow.
    names_workers: bool,
    fault: Fault,
}

/// The workers that are watched and killed.
struct Scene<'a> {
    stage: &'a mut Stage,
    crew: Crew,
    killer: Killer,
    chance: Chance,
}

pub(super) async fn run(
    args: &Pausing,
    console: &mut Console,
    stage: &mut Stage,
    mut chance: Chance,
    no_times: bool,
) -> anyhow::Result<Table> {
    let (rate, rounds) = (grouped(args.rate), args.rounds);
    console.step(&format!("Publish {rate} events a second, and pause their type {rounds} times"));
    let (hatchery, stop, started) = (stage.connect().await?, CancellationToken::new(), Instant::now());
    let publishing = tokio::spawn(publish(hatchery.publisher(), args.rate, stop.clone()));
    let crew = Crew::start(stage, "worker", args.kills.workers, &["--type", TYPE, "--pause", "2"])?;
    let killer = Killer::new(stage, &args.kills, chance.fork()).await?;
    let mut faults = Fault::ALL;
    chance.shuffle(&mut faults);
    let (mut scene, mut pauses) = (Scene { stage, crew, killer, chance }, Vec::new());
    for round in 0..args.rounds {
        console.progress(round as usize, rounds as usize, &scene.killer.said());
        pauses.push(scene.pause(faults[round as usize % faults.len()]).await?);
    }
    stop.cancel();
    let all = publishing.await??;
    let a_second = f64::from(all) / started.elapsed().as_secs_f64();
    hatchery.close().await;

    console.step(&format!("Handle what is left of {} events", grouped(all)));
    let Scene { stage, mut crew, killer, .. } = scene;
    // The broker was restarted.
    let queues = Queues::connect(stage).await?;
    let mut finished = vec![false; all as usize];
    finish(&mut finished, &crew.notes);
    until_over(console, PATIENCE, async || {
        finish(&mut finished, crew.look()?);
        let (done, all) = (finished.iter().filter(|done| **done).count(), finished.len());
        Ok(Look { done, all, said: String::new(), is_over: done == all && !queues.are_busy(&[]).await? })
    })
    .await?;
    crew.stop().await?;
    let names = stage.names();
    let dead = queues.ready(&[names.dead_letters(&TYPE.parse()?), names.unrouted()]).await?;
    let account = Account::take(0..all, of(&crew.notes, Step::Done).map(Note::number));
    let mut table = Table::new(&["pauses", "", "must be"]);
    table.must(account.handled == all as usize, &["handled", &grouped(account.handled), &grouped(all)]);
    table.tell(&["published each second", &format!("{a_second:.0}"), ""]);
    table.none("lost", account.missing.len() + account.strangers);
    table.none("in dead-letter and unrouted", dead);
    table.tell(&["handled twice, after kills and flushes", &grouped(account.twice.len()), ""]);
    table.at_least("workers killed", killer.killed.open.len(), args.kills.at_least);
    tell(&mut table, console, &pauses, &crew.notes, no_times);
    Ok(table)
}

/// Notes which events are finished.
fn finish(finished: &mut [bool], notes: &[Note]) {
    for note in of(notes, Step::Done) {
        if let Some(finished) = finished.get_mut(note.number() as usize) {
            *finished = true;
        }
    }
}

/// Publishes until it is stopped. An event that is not confirmed is published again. Returns the number of events.
async fn publish(publisher: Publisher, rate: u32, stop: CancellationToken) -> anyhow::Result<u32> {
    let (mut turn, started) = (interval(TURN), Instant::now());
    turn.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut next, mut left) = (0, Vec::new());
    while !stop.is_cancelled() || !left.is_empty() {
        turn.tick().await;
        if left.is_empty() {
            // After an outage of the broker it catches up, a second's events at a time.
            let due = u32::try_from(u128::from(rate) * started.elapsed().as_millis() / 1_000)?;
            let until = due.min(next + rate);
            left.extend(next..until);
            next = until;
        }
        let event = |number: &u32| NewEvent::new(TYPE, PAYLOAD.to_vec()).id(number.to_string());
        let published = publisher.publish_batch(left.iter().map(event).collect()).await;
        let mut confirmed = published.iter().map(Result::is_ok);
        left.retain(|_| confirmed.next() != Some(true));
    }
    Ok(next)
}

impl Scene<'_> {
    /// Lets events be handled, pauses the type, lets a fault happen, and resumes.
    async fn pause(&mut self, fault: Fault) -> anyhow::Result<Pause> {
        self.live(1_000, 3_000).await?;
        let snapshot = next_snapshot(self.stage).await?;
        let asked = now();
        let mut pausing = self.stage.topology(&["pause", TYPE, "--reason", "a soak"])?.spawn()?;
        let status = loop {
            self.tick().await?;
            if let Some(status) = pausing.try_wait()? {
                break status;
            }
        };
        let (written, returned) = (snapshot.await??, now());
        // 5: it is paused, and some workers do not follow.
        ensure!(matches!(status.code(), Some(0 | 5)), "topology pause: {status}");
        let names_workers = status.code() == Some(5);
        self.live(500, 2_000).await?;
        match fault {
            Fault::BrokerKilled => {
                self.stage.servers.rabbitmq.tell("kill rabbitmq").await?;
                self.live(500, 2_000).await?;
                self.stage.servers.rabbitmq.tell("start rabbitmq").await?;
            }
            Fault::BrokerRestarted => {
                self.stage.servers.ctl("stop_app").await?;
                self.live(500, 2_000).await?;
                self.stage.servers.ctl("start_app").await?;
            }
            Fault::RedisFlushed => {
                let mut connection = connect_to_redis(&self.stage.servers.redis).await?;
                redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
            }
        }
        self.live(2_000, 5_000).await?;
        let resumed = now();
        let status = self.stage.topology(&["resume", TYPE])?.status().await?;
        ensure!(status.success(), "topology resume: {status}");
        Ok(Pause { asked, written, returned, resumed, names_workers, fault })
    }

    /// Goes on for a random time between these milliseconds.
    async fn live(&mut self, low: u64, high: u64) -> anyhow::Result<()> {
        let until = Instant::now() + Duration::from_millis(self.chance.between(low, high));
        while Instant::now() < until {
            self.tick().await?;
        }
        Ok(())
    }

    /// Kills a worker if it is time.
    async fn tick(&mut self) -> anyhow::Result<()> {
        sleep(TICK).await;
        self.crew.look()?;
        self.killer.kill_if_due(&mut self.crew, self.stage).await
    }
}

fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Adds what the starts of events say about the pauses.
fn tell(table: &mut Table, console: &Console, pauses: &[Pause], notes: &[Note], no_times: bool) {
    let mut starts: Vec<(i64, u32)> = of(notes, Step::Begun).map(|note| (note.at, note.by)).collect();
    starts.sort_unstable();
    let from = |time: i64| starts.partition_point(|(at, _)| *at < time);
    let (mut last, mut first, mut during) = (Vec::new(), Vec::new(), 0);
    let before = pauses.iter().map(|pause| from(pause.asked) - from(pause.asked - SECOND));
    for pause in pauses {
        last.extend(starts[from(pause.written)..from(pause.resumed)].last().map(|(at, _)| at - pause.written));
        first.extend(starts.get(from(pause.resumed)).map(|(at, _)| at - pause.resumed));
        let late = &starts[from(pause.returned + LIMIT).min(from(pause.resumed))..from(pause.resumed)];
        during += late.len();
        for (at, by) in late.iter().take(SHOWN) {
            let after = millis(at - pause.returned);
            console.note(&format!("a start by worker {by} {after} after the pause of {}", pause.returned));
        }
    }
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for pause in pauses {
        *faults.entry(pause.fault.said()).or_default() += 1;
    }
    for (said, times) in faults {
        table.tell(&[said, &grouped(times), ""]);
    }
    let [least, most] = [before.clone().min(), before.max()].map(|starts| grouped(starts.unwrap_or_default()));
    table.tell(&["starts in the second before a pause", &format!("{least} to {most}"), ""]);
    table.none("starts from 1 s after the return of `pause` on", during);
    table.none("pauses that named workers", pauses.iter().filter(|pause| pause.names_workers).count());
    let took = Lateness::of(pauses.iter().map(|pause| pause.returned - pause.asked));
    let [last, first] = [last, first].map(Lateness::of);
    table.tell(&["snapshot to the last start, p50", &millis(last.permille(500)), ""]);
    let (what, most) = ("snapshot to the last start, at most", millis(last.permille(1_000)));
    if no_times {
        table.tell(&[what, &most, ""]);
    } else {
        table.must(last.permille(1_000) < LIMIT, &[what, &most, &format!("below {}", millis(LIMIT))]);
    }
    table.tell(&["call of `pause` to its return, at most", &millis(took.permille(1_000)), ""]);
    table.tell(&["call of `resume` to the first start, at most", &millis(first.permille(1_000)), ""]);
}

/// Waits for the next snapshot of the switches, as any program can. The task returns when it came, in microseconds since 1970.
async fn next_snapshot(stage: &Stage) -> anyhow::Result<JoinHandle<anyhow::Result<i64>>> {
    let connection = AmqpUrl::new(&stage.servers.amqp)?.connect("soak switches").await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(1, BasicQosOptions::default()).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-stream-offset".into(), AMQPValue::LongString("next".into()));
    let (stream, options) = (stage.names().control(), BasicConsumeOptions::default());
    let mut consumer = channel.basic_consume(stream.into(), "".into(), options, arguments).await?;
    Ok(tokio::spawn(async move {
        consumer.next().await.context("the stream of the switches has ended")??;
        let at = Timestamp::now().as_microsecond();
        connection.close(200, "done".into()).await?;
        Ok(at)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_must_not_start_later_than_a_second_after_a_pause() {
        let holds = |starts: &[i64], no_times: bool| {
            let begun = |at: &i64| Note {
                by: 1,
                step: Step::Begun,
                event_type: TYPE.to_owned(),
                id: "7".to_owned(),
                attempts: 0,
                at: *at,
            };
            let notes: Vec<Note> = starts.iter().map(begun).collect();
            let (fault, names_workers) = (Fault::RedisFlushed, false);
            let pause =
                Pause { asked: 0, written: 1_000, returned: 5_000_000, resumed: 9_000_000, names_workers, fault };
            let mut table = Table::new(&["pauses", "", "must be"]);
            tell(&mut table, &Console::new(), &[pause], &notes, no_times);
            table.holds()
        };
        assert!(holds(&[-1, 1_000_999, 9_000_000], false));
        assert!(!holds(&[1_001_000, 9_000_000], false), "before the command has returned");
        assert!(holds(&[1_001_000, 9_000_000], true));
        assert!(!holds(&[6_000_000, 9_000_000], true));
        assert!(!holds(&[8_999_999], true));
    }
}
