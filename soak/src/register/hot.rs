//! One reference with very many dates: measures the memory of each date, and the time of a call about one of them.

use std::time::Duration;

use anyhow::Context as _;
use hatchery::internals::{
    ports::{Index as _, Register as _},
    redis::RedisRegister,
    register::{CopyVersion, DedupSlot, Subject},
};
use jiff::Timestamp;

use super::{
    calls::{BATCH, cancel, claim, note, register, reserve, settle, subject, version},
    server::Server,
};
use crate::harness::{Table, grouped};

const DATES: [u32; 4] = [1, 100, 1_000, 10_000];
/// Calls of each kind, each about one event.
const ROUNDS: u32 = 1_000;

/// Returns a table with a row for each number of dates.
pub(super) async fn table(server: &mut Server) -> anyhow::Result<Table> {
    let head = ["dates", "bytes", "reserve", "record", "claim", "settle", "cancel", "show", "cancel all", ""];
    let mut table = Table::new(&head);
    for dates in DATES {
        server.flush().await?;
        let register = register(server).await?;
        let cells = Hot { register, server, subject: subject(0)?, dates }.cells().await?;
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        table.tell(&cells);
    }
    Ok(table)
}

struct Hot<'a> {
    register: RedisRegister,
    server: &'a mut Server,
    subject: Subject,
    dates: u32,
}

/// Returns the slot of a date, and the date.
fn date(number: u32, begin: Timestamp) -> (CopyVersion, Timestamp) {
    let due = begin + Duration::from_hours(30 * 24) + Duration::from_millis(number.into());
    (CopyVersion { slot: DedupSlot::DatedAt(due.as_millisecond()), version: 0, generation: 0 }, due)
}

impl Hot<'_> {
    async fn cells(mut self) -> anyhow::Result<Vec<String>> {
        let empty = self.server.memory().await?;
        let begin = Timestamp::now();
        let all: Vec<_> = (0..self.dates).map(|number| date(number, begin)).collect();
        for batch in all.chunks(BATCH) {
            self.publish(batch).await?;
        }
        let bytes = self.server.memory().await?.saturating_sub(empty) / u64::from(self.dates);
        let mut cells = vec![grouped(self.dates), bytes.to_string()];
        for micros in self.lives(&all).await? {
            cells.push(format!("{micros:.0}"));
        }
        let before = self.server.scripts().await?;
        self.register.look(std::slice::from_ref(&self.subject)).await?;
        let between = self.server.scripts().await?;
        self.register.cancel(&[cancel(&self.subject, None)]).await?;
        let whole = self.server.scripts().await?;
        cells.push(format!("{:.0}", between - before));
        cells.push(format!("{:.0}", whole - between));
        cells.push(String::new());
        Ok(cells)
    }

    async fn publish(&mut self, batch: &[(CopyVersion, Timestamp)]) -> anyhow::Result<Vec<CopyVersion>> {
        let calls: Vec<_> = batch.iter().map(|(stamp, due)| reserve(&self.subject, stamp, *due)).collect();
        let mut stamps = Vec::new();
        for ((stamp, _), answer) in batch.iter().zip(self.register.reserve(&calls).await?) {
            stamps.push(CopyVersion { version: version(answer)?, ..stamp.clone() });
        }
        let calls: Vec<_> =
            batch.iter().zip(&stamps).map(|((_, due), stamp)| note(&self.subject, stamp, *due, None)).collect();
        self.register.record(&calls).await?;
        Ok(stamps)
    }

    /// Returns the mean times in µs of a *reserve*, a *record*, a *claim*, a *settle* and a *cancel* about one date.
    async fn lives(&mut self, all: &[(CopyVersion, Timestamp)]) -> anyhow::Result<[f64; 5]> {
        let mut took = [0.0; 5];
        let mut at = self.server.scripts().await?;
        let mut rounds = 0_u32;
        let apart = (all.len() / usize::try_from(ROUNDS)?).max(1);
        for (stamp, due) in all.iter().step_by(apart).cycle() {
            if rounds == ROUNDS {
                break;
            }
            rounds += 1;
            let subject = self.subject.clone();
            let mut step = 0;
            let mut tick = async |server: &mut Server| -> anyhow::Result<()> {
                let now = server.scripts().await?;
                *took.get_mut(step).context("five calls")? += now - at;
                (at, step) = (now, step + 1);
                Ok(())
            };
            let answer = self.register.reserve(&[reserve(&subject, stamp, *due)]).await?;
            tick(self.server).await?;
            let version = version(answer.into_iter().next().context("an answer")?)?;
            let stamp = CopyVersion { version, ..stamp.clone() };
            self.register.record(&[note(&subject, &stamp, *due, None)]).await?;
            tick(self.server).await?;
            let call = claim(&subject, &stamp, Timestamp::now());
            let answer = self.register.claim(std::slice::from_ref(&call)).await?;
            tick(self.server).await?;
            let call = settle((call, answer.into_iter().next().context("an answer")?))?;
            self.register.settle(&[call]).await?;
            tick(self.server).await?;
            self.register.cancel(&[cancel(&subject, Some(&stamp.slot))]).await?;
            tick(self.server).await?;
        }
        Ok(took.map(|micros| micros / f64::from(rounds)))
    }
}
