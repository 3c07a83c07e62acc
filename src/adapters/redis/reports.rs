//! What workers and publishers tell `topology status` beside the protocol, in the first shard.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};

use super::{RedisRegister, ReportedClock, scripts};
use crate::{
    adapters::oldest::longest_waiting,
    domain::{
        register::{
            ended_runs::{EndedRuns, Reported, Unrecorded},
            state::millis,
        },
        words::EventType,
    },
    ports::{Index as _, RegisterError, Reports},
};

const SHARD: u16 = 0;

/// The name under which a slice counts the records that the broker has not taken, beside the types. No type can have it.
const UNRECORDED: &str = ".unrecorded";

/// The number of slices of ten seconds that are read.
const SLICES: u16 = 181;

/// The size of a worker's page of events, and the number of pages: as many events as `topology status` reads. A worker looks every half
/// a minute, and reads one page unless dead letters are older than what waits.
const OLDEST: (usize, usize) = (50, 20);

/// The number of types that are looked at together.
const AT_A_TIME: usize = 10;

impl RedisRegister {
    pub(super) async fn ask_reports(&self, arguments: &[&str]) -> Result<Vec<String>, RegisterError> {
        let mut script = self.begin(&scripts::REPORTS, SHARD);
        for argument in arguments {
            script.arg(argument);
        }
        Ok(self.call(&script, SHARD, self.limit.into()).await?.0)
    }

    /// Returns what workers and publishers have told of these types.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call.
    pub async fn reported(&self, types: &[EventType]) -> Result<Reported, RegisterError> {
        let mut texts = self.ask_reports(&["read", &SLICES.to_string()]).await?.into_iter();
        let emptied = texts.next().and_then(|millis| Timestamp::from_millisecond(millis.parse().ok()?).ok());
        let (mut runs, mut unrecorded) = (Vec::new(), Unrecorded::default());
        while let Some(age) = texts.next() {
            let mut fields = BTreeMap::new();
            while let Some(name) = texts.next().filter(|name| !name.is_empty()) {
                fields.insert(name, texts.next().unwrap_or_default());
            }
            let named = |name: &str| {
                let field = |part: &str| fields.get(&format!("{name}:{part}"));
                let number = |part: &str| field(part).and_then(|number| number.parse().ok()).unwrap_or_default();
                EndedRuns { ended: number("n"), failed: number("f"), error: field("e").cloned() }
            };
            let of = |event_type: &EventType| named(self.keys.event_type(event_type));
            let lost = named(UNRECORDED);
            unrecorded.records += lost.ended;
            unrecorded.why = unrecorded.why.or(lost.error);
            let age = Duration::from_secs(age.parse().unwrap_or_default());
            runs.push((age, types.iter().map(|event_type| (event_type.clone(), of(event_type))).collect()));
        }
        Ok(Reported { emptied, runs, unrecorded })
    }

    /// Returns the newest report of a machine whose clock is wrong.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call.
    pub async fn reported_clock(&self) -> Result<Option<ReportedClock>, RegisterError> {
        Ok(self.ask_reports(&["clock"]).await?.pop().as_deref().and_then(ReportedClock::parse))
    }
}

#[async_trait]
impl Reports for RedisRegister {
    async fn report_runs(
        &self,
        runs: &BTreeMap<EventType, EndedRuns>,
        unrecorded: &Unrecorded,
    ) -> Result<(), RegisterError> {
        let mut arguments = vec!["ran".to_owned()];
        for (event_type, runs) in runs {
            arguments.push(self.keys.event_type(event_type).to_owned());
            arguments.extend([runs.ended, runs.failed].map(|number| number.to_string()));
            arguments.push(runs.error.clone().unwrap_or_default());
        }
        if unrecorded.records > 0 {
            arguments.extend([UNRECORDED.to_owned(), unrecorded.records.to_string(), "0".to_owned()]);
            arguments.push(unrecorded.why.clone().unwrap_or_default());
        }
        self.ask_reports(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await.map(drop)
    }

    async fn report_clock(&self, ahead: SignedDuration, length: Duration) -> Result<(), RegisterError> {
        let report = ReportedClock::here(ahead).text();
        self.ask_reports(&["wrong_clock", &report, &millis(length).to_string()]).await.map(drop)
    }

    async fn oldest_due(&self, types: &[EventType], now: Timestamp) -> Result<Vec<Option<Timestamp>>, RegisterError> {
        let counts = self.count(types).await?;
        let looks = types.iter().zip(counts).map(|(event_type, counts)| {
            let look = async move {
                if counts.due == 0 {
                    return Ok(Some(now));
                }
                let waiting = longest_waiting(self, event_type, now, OLDEST).await?;
                let none = (!waiting.may_be_more).then_some(now);
                Ok(waiting.events.first().and_then(|event| event.due).or(none))
            };
            look.boxed()
        });
        let looks: Vec<_> = looks.collect();
        stream::iter(looks).buffered(AT_A_TIME).try_collect().await
    }
}
