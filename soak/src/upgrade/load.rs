//! Publishes events of all kinds through one publisher process at a time, and cancels some.

use std::{collections::BTreeMap, time::Duration};

use hatchery::CancellationToken;
use jiff::{Timestamp, TimestampRound, Unit};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc},
    time::MissedTickBehavior,
};

use super::{
    notes::{Sent, SharedNotes, Side},
    plan::{Kind, LONG, REFERENCES, delay},
    programs::{Programs, Publisher},
};
use crate::harness::Chance;

/// One in this many events of `later` is cancelled.
const CANCELLED: u64 = 12;

/// An event to cancel: its place among the notes, and the side that published it.
type Cancel = (usize, Side);

/// A publisher, whose process a roll-out replaces.
pub(super) struct Pod {
    pub(super) name: u32,
    running: Mutex<Option<Publisher>>,
}

impl Pod {
    pub(super) fn new(name: u32, publisher: Publisher) -> Self {
        Self { name, running: Mutex::new(Some(publisher)) }
    }

    /// Replaces the process by another one, or stops it.
    pub(super) async fn replace(&self, new: Option<Publisher>) -> anyhow::Result<()> {
        let old = std::mem::replace(&mut *self.running.lock().await, new);
        match old {
            Some(old) => old.process.stop().await,
            None => Ok(()),
        }
    }

    /// Publishes events until `stop` is cancelled, the next one after the confirm of the one before.
    pub(super) async fn publish(
        &self,
        seen: &SharedNotes,
        mut chance: Chance,
        every: Duration,
        cancels: mpsc::UnboundedSender<Cancel>,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut turn = tokio::time::interval(every);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut places: BTreeMap<Kind, u32> = BTreeMap::new();
        while stop.run_until_cancelled(turn.tick()).await.is_some() {
            let mut running = self.running.lock().await;
            let Some(publisher) = running.as_mut() else { break };
            let kind = Kind::draw(&mut chance);
            let place = places.entry(kind).or_default();
            let is_cancelled = kind == Kind::Later && chance.between(1, CANCELLED) == 1;
            let wait = match kind {
                Kind::Later if is_cancelled => LONG,
                Kind::Later => delay(&mut chance),
                _ => Duration::ZERO,
            };
            let (event, sent) = event(kind, self.name, *place, publisher.side, wait)?;
            *place += 1;
            publisher.publish(&event).await?;
            let (by, at) = (sent.by, {
                let mut notes = seen.lock();
                notes.sent.push(sent);
                notes.sent.len() - 1
            });
            if is_cancelled {
                let _ = cancels.send((at, by));
            }
        }
        Ok(())
    }
}

/// Returns the line of an event, and its note.
fn event(kind: Kind, publisher: u32, place: u32, by: Side, wait: Duration) -> anyhow::Result<(Value, Sent)> {
    let now = Timestamp::now().round(TimestampRound::new().smallest(Unit::Millisecond))?;
    let due = now + wait;
    let mut sent = Sent { kind, publisher, place, by, due: 0, cancelled: None };
    let mut event = json!({ "type": kind.name(), "id": sent.id(), "payload": { "place": place } });
    if kind == Kind::Change {
        event["reference"] = json!(format!("{publisher}-{}", place % REFERENCES));
    }
    if kind == Kind::Later {
        event["nbf"] = json!(due.to_string());
        sent.due = due.as_microsecond();
    }
    Ok((event, sent))
}

/// Cancels events, each by the side that has not published it. Returns how many commands failed.
pub(super) async fn cancel(
    programs: &Programs<'_>,
    seen: &SharedNotes,
    mut cancels: mpsc::UnboundedReceiver<Cancel>,
) -> anyhow::Result<usize> {
    let mut failed = 0;
    while let Some((at, by)) = cancels.recv().await {
        let id = seen.lock().sent[at].id();
        let arguments = ["events", "cancel", "--type", Kind::Later.name(), "--id", &id];
        if programs.run(by.other(), &arguments).await? == 0 {
            seen.lock().sent[at].cancelled = Some(Timestamp::now().as_microsecond());
        } else {
            failed += 1;
        }
    }
    Ok(failed)
}
