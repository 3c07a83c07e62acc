//! A reference with very many dates: the cost of a call does not grow with their number.

use std::time::Duration;

use hatchery::{
    EventSelector, Events, Hatchery, State,
    internals::{
        ports::Register as _,
        redis::RedisRegister,
        register::{
            Cancel, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Record, Reserve, Reserved, Settle, Subject,
        },
    },
};
use jiff::Timestamp;
use redis::aio::MultiplexedConnection;

use super::bench::{EXCLUSIVE, HORIZON, event, given, register, reserve, stamp, token};
use crate::support::redis::{Server, connect, free_port, prefix};

/// How many events are measured.
const ROUNDS: usize = 200;

struct Hot {
    register: RedisRegister,
    connection: MultiplexedConnection,
}

impl Hot {
    /// Reserves and records an event for each of these dates, in one batch.
    async fn publish(&self, subject: &Subject, dates: &[i64]) -> Vec<CopyVersion> {
        let due = |date| Timestamp::from_millisecond(date).unwrap();
        let reserve = |date: &i64| Reserve { due: due(*date), ..reserve(subject, &DedupSlot::DatedAt(*date)) };
        let versions = self.register.reserve(&dates.iter().map(reserve).collect::<Vec<_>>()).await.unwrap();
        let stamp = |(date, answer): (&i64, Reserved)| stamp(&DedupSlot::DatedAt(*date), given(answer), 0);
        let stamps: Vec<CopyVersion> = dates.iter().zip(versions).map(stamp).collect();
        let record = |(date, stamp): (&i64, &CopyVersion)| Record {
            subject: subject.clone(),
            slot: stamp.slot.clone(),
            version: stamp.version,
            due: due(*date),
            reason: None,
            kept: None,
            terms: EXCLUSIVE,
        };
        self.register.record(&dates.iter().zip(&stamps).map(record).collect::<Vec<_>>()).await.unwrap();
        stamps
    }

    /// Publishes, claims, settles and cancels an event of one date.
    async fn live(&self, subject: &Subject, date: i64, round: usize) {
        let stamp = self.publish(subject, &[date]).await.remove(0);
        let (token, due, terms) = (token(u128::try_from(round).unwrap()), Timestamp::now(), EXCLUSIVE);
        let claim = Claim { subject: subject.clone(), stamp, token, due, alone: false, terms };
        let claimed = self.register.claim(&[claim]).await.unwrap().remove(0);
        let ClaimAnswer::Run { fence, stamp, .. } = claimed else { panic!("{claimed:?}") };
        let slot = Some(stamp.slot.clone());
        let settle = Settle { subject: subject.clone(), stamp, fence, token, due, end: End::Finished, terms };
        self.register.settle(&[settle]).await.unwrap();
        let cancel = Cancel { subject: subject.clone(), slot, due: None, horizon: HORIZON };
        self.register.cancel(&[cancel]).await.unwrap();
    }

    /// Publishes this many dates of one reference, and resets Redis' statistics.
    async fn publish_dates(&mut self, count: i64) -> (Subject, Vec<i64>) {
        let subject = event(&count.to_string(), "a");
        let first = (Timestamp::now() + Duration::from_hours(24)).as_millisecond();
        let dates: Vec<i64> = (first..first + count).collect();
        for batch in dates.chunks(500) {
            self.publish(&subject, batch).await;
        }
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut self.connection).await.unwrap();
        (subject, dates)
    }

    /// Returns the mean time in Redis, in µs, of the calls that cancel single dates of a reference with this many
    /// dates.
    async fn cost_of_cancel(&mut self, events: &Events, count: i64) -> f64 {
        let (_, dates) = self.publish_dates(count).await;
        for date in dates.iter().step_by(dates.len() / 20) {
            let which =
                EventSelector::reference("import", count.to_string()).at(Timestamp::from_millisecond(*date).unwrap());
            let cancelled = events.cancel(&which).await.unwrap();
            assert!(
                matches!(&cancelled[..], [slot] if slot.waiting && slot.slot == DedupSlot::DatedAt(*date)),
                "{cancelled:?}"
            );
            let shown = events.show(&which).await.unwrap();
            assert!(matches!(&shown[..], [event] if event.state == State::Cancelled), "{shown:?}");
        }
        self.per_call().await
    }

    /// Returns the mean time in Redis, in µs, of the calls about single dates of a reference with this many dates.
    async fn cost(&mut self, count: i64) -> f64 {
        let (subject, dates) = self.publish_dates(count).await;
        let apart = dates.len() / ROUNDS;
        for (round, date) in dates.iter().step_by(apart).take(ROUNDS).enumerate() {
            self.live(&subject, *date, round).await;
        }
        self.per_call().await
    }

    async fn per_call(&mut self) -> f64 {
        self.statistic("evalsha", "usec_per_call").await
    }

    /// Returns a figure of a command that Redis has counted since its statistics were reset.
    async fn statistic(&mut self, command: &str, name: &str) -> f64 {
        let told: String = redis::cmd("INFO").arg("commandstats").query_async(&mut self.connection).await.unwrap();
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let value = line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix(&format!("{name}="))));
        value.unwrap_or("0").parse().unwrap()
    }
}

#[tokio::test]
async fn a_cancel_costs_the_same_with_thousands_of_dates_as_with_tens() {
    let server = Server::start(free_port(), &[]);
    let connection = connect(&server.url).await.unwrap();
    let prefix = prefix();
    let mut hot = Hot { register: register(&server.url, &prefix, 1), connection };
    let file = format!(
        "version: 1\nname: billing\nredis: {{ prefix: {prefix} }}\ntypes: {{ import: {{ coalesce: latest }} }}"
    );
    let topology = hatchery::file::read(&file, "topology.yaml").unwrap();
    // Without a broker: cancels need Redis only.
    let events = Hatchery::builder(topology).redis_url(&server.url).events().unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (tens, thousands) = (hot.cost_of_cancel(&events, 40).await, hot.cost_of_cancel(&events, 20_000).await);
        if thousands < tens * 5.0 {
            return;
        }
        seen.push((tens, thousands));
    }
    panic!("the cost grows with the number of dates: {seen:?} µs");
}

#[tokio::test]
async fn a_batch_about_existing_dates_looks_for_expired_ones_once() {
    let server = Server::start(free_port(), &[]);
    let connection = connect(&server.url).await.unwrap();
    let mut hot = Hot { register: register(&server.url, &prefix(), 1), connection };
    let (subject, dates) = hot.publish_dates(1_000).await;
    for batch in dates.chunks(250) {
        hot.publish(&subject, batch).await;
    }
    let (calls, looks) = (hot.statistic("evalsha", "calls").await, hot.statistic("hrandfield", "calls").await);
    assert!(calls >= 8.0 && looks <= calls, "{looks} searches for expired dates in {calls} calls");
}

#[tokio::test]
async fn a_call_costs_the_same_with_thousands_of_dates_as_with_hundreds() {
    let server = Server::start(free_port(), &[]);
    let connection = connect(&server.url).await.unwrap();
    let mut hot = Hot { register: register(&server.url, &prefix(), 1), connection };
    // Other processes on this machine may slow down either measurement, hence three tries.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (hundreds, thousands) = (hot.cost(500).await, hot.cost(10_000).await);
        if thousands < hundreds * 3.0 {
            return;
        }
        seen.push((hundreds, thousands));
    }
    panic!("the cost grows with the number of dates: {seen:?} µs");
}
