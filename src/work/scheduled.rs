//! Events of schedules: each arms the next one. `docs/schedules-protocol.md` has the protocol.
//!
//! With `mode: fixed` the next event is published before the handler starts, and with `mode: sequential` after it has ended. Either way
//! it is confirmed before the state says so, and the state is written before this event is acknowledged. A crash in between
//! publishes the next event again. It has the same id, so the register runs one of the two.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{
    lane::Lane,
    stage::{Claimed, Disposition, NotSettled},
};
use crate::{
    domain::{
        event::Event,
        schedule::{
            definition::Definition,
            link::Link,
            rule::{Arm, Mode, OnScheduleFailure},
            run::RunOutcome,
            state::{Admission, ScheduleState, UNKNOWN},
            template::Template,
        },
        settlement::{Decision, Finish},
        time,
        words::plain,
    },
    outage::backoff,
    schedules,
};

/// How soon a type that keeps its order looks again whether an event of a schedule may run.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How much longer than its handler may take a run counts as under way, before it counts as lost.
const ALLOWANCE: Duration = Duration::from_mins(1);

/// The state of an event's schedule as this worker has left it, or the decision for an event that does not run.
pub(super) type Admitted = ControlFlow<Decision, Option<ScheduleState>>;

impl Lane {
    /// Admits an event of a schedule, and arms the next one where that comes before the run. A publish of the next one that the broker
    /// does not confirm goes on if this is dropped, and the next admission waits for it.
    pub(super) async fn admit(self: &Arc<Self>, claimed: &mut Claimed) -> Result<Admitted, NotSettled> {
        let event = &*Arc::clone(claimed.event());
        let Some(link) = self.chain_link(event) else { return Ok(ControlFlow::Continue(None)) };
        let restored = self.restore(link).await.map_err(NotSettled::Answer)?;
        let now = self.common.clock.shared();
        let Some(state) = restored else {
            // Redis has lost the state, and this worker's file does not have the schedule.
            if time::later(event.due(), UNKNOWN) >= now {
                return Err(NotSettled::Waits);
            }
            return self.refuse(event, "no file has its schedule", true);
        };
        let skips = match state.admit(link, event.stamp.generation > 0, now) {
            Admission::Run => None,
            Admission::Skip(why) => Some(why),
            Admission::Wait => return Err(NotSettled::Waits),
            Admission::Drop { why, is_armed } => return self.refuse(event, why, is_armed),
        };
        let until = self.run_ends(now, Duration::ZERO);
        let mut last = Some(state.clone());
        if skips.is_none() {
            // Before the next event is published, which may be due at once, and waits for the end of this one. If this worker dies
            // now, the event runs again, also if its schedule has another definition by then.
            let started = self.change(link, Some(&state), |state| Some(state?.started(link, now, until)));
            last = started.await.map_err(NotSettled::Answer)?;
            fail_point!("work.schedule-started");
        }
        if link.rule.mode == Mode::Fixed || skips.is_some() {
            let arming = claimed.work.arming.get_or_insert_with(|| {
                let (lane, event, link, state) = (Arc::clone(self), event.clone(), link.clone(), state.clone());
                AbortOnDropHandle::new(tokio::spawn(async move { lane.publish_next(&event, &link, &state, now).await }))
            });
            let next = arming.await;
            claimed.work.arming = None;
            // A task that has ended without a result may have published nothing.
            let next = next.unwrap_or(Err(Disposition::GiveBack)).map_err(NotSettled::Answer)?;
            let now = self.common.clock.shared();
            let armed = self.arm(link, last.as_ref(), next, |state| match skips {
                Some(why) => state.skipped(link, now, why),
                None => state,
            });
            last = armed.await.map_err(NotSettled::Answer)?;
        }
        let Some(why) = skips else { return Ok(ControlFlow::Continue(last)) };
        tracing::info!(id = %plain(&event.id), event_type = %self.event_type, "event of a schedule skipped: {why}");
        Ok(ControlFlow::Break(Decision::Finish(Finish::Skip)))
    }

    /// Notes that a run of a schedule's event is over, and arms the next event where that comes after the run. `last` is the state as this
    /// worker has left it; if it is known, and nobody has changed it since, it need not be read.
    pub(super) async fn end_scheduled(
        &self,
        event: &Event,
        decision: &Decision,
        mut last: Option<ScheduleState>,
    ) -> Result<(), Disposition> {
        let Some(link) = self.chain_link(event) else { return Ok(()) };
        let now = self.common.clock.shared();
        let outcome = match decision {
            // The event has not run. Its admission has armed the next one, if the schedule goes on.
            Decision::Finish(Finish::Skip) => return Ok(()),
            Decision::Finish(Finish::Cancelled) => RunOutcome::Cancelled,
            Decision::Finish(_) => RunOutcome::Done,
            Decision::Drop { reason } => RunOutcome::Dropped(reason.clone()),
            Decision::DeadLetter(failed) | Decision::Expire(_, failed) => {
                RunOutcome::DeadLetter(failed.error().to_owned())
            }
            Decision::Retry { ttl, .. } => return self.note_wait(link, ttl.as_duration(), last).await,
            Decision::RetryAfter { after, .. } => return self.note_wait(link, *after, last).await,
            Decision::Requeue { at, .. } => return self.note_wait(link, time::until(now, *at), last).await,
        };
        let pauses = matches!(outcome, RunOutcome::DeadLetter(_)) && link.rule.on_failure == OnScheduleFailure::Pause;
        let mut next = None;
        if link.rule.mode == Mode::Sequential && !pauses {
            last = self.restore(link).await?;
            next = self.publish_next(event, link, &last.clone().unwrap_or_default(), now).await?;
        }
        self.arm(link, last.as_ref(), next, |state| state.ended(link, now, &outcome)).await?;
        fail_point!("work.schedule-ended");
        if pauses {
            tracing::warn!(schedule = %link.schedule, "schedule paused, because its event went to dead-letter; `topology schedule resume` resumes it");
        }
        Ok(())
    }

    /// Notes that the event waits for its next run.
    pub(super) async fn note_wait(
        &self,
        link: &Link,
        wait: Duration,
        last: Option<ScheduleState>,
    ) -> Result<(), Disposition> {
        let until = self.run_ends(self.common.clock.shared(), wait);
        self.change(link, last.as_ref(), |state| Some(state?.goes_on(link, until))).await.map(drop)
    }

    /// Arms the next event of a chain that stands still at an event that was settled elsewhere. The error says how to answer the delivery
    /// of this copy.
    pub(super) async fn pass(&self, event: &Event) -> Result<(), Disposition> {
        let Some(link) = self.chain_link(event) else { return Ok(()) };
        let Some(state) = self.restore(link).await?.filter(|state| state.stands_at(link)) else { return Ok(()) };
        let now = self.common.clock.shared();
        let next = self.publish_next(event, link, &state, now).await?;
        if next.is_none() {
            return Ok(());
        }
        self.arm(link, Some(&state), next, |state| state).await?;
        tracing::info!(id = %plain(&event.id), event_type = %self.event_type, "event of a schedule was settled before; its schedule goes on with the next one");
        Ok(())
    }

    /// Publishes the next event, if the chain goes on from this one.
    async fn publish_next(
        &self,
        event: &Event,
        link: &Link,
        state: &ScheduleState,
        now: Timestamp,
    ) -> Result<Option<(Arm, Event)>, Disposition> {
        let next = || link.rule.next(&link.schedule, link.position, now);
        let goes_on = state.is_next(link) && !link.is_ahead(now);
        let Some(arm) = goes_on.then(next).flatten() else { return Ok(None) };
        let Some(template) = Template::of_event(event) else { return Ok(None) };
        let next = template.event(arm, now);
        self.send_on(&next, next.early_by(now)).await?;
        self.common.journal.records().tell_published(&next, next.due());
        fail_point!("work.schedule-armed");
        Ok(Some((arm, next)))
    }

    /// Changes the state once the broker has confirmed the next event, if there is one. The register's index learns of that event
    /// meanwhile: neither call needs the other one's answer.
    async fn arm(
        &self,
        link: &Link,
        last: Option<&ScheduleState>,
        next: Option<(Arm, Event)>,
        mut change: impl FnMut(ScheduleState) -> ScheduleState + Send,
    ) -> Result<Option<ScheduleState>, Disposition> {
        let now = self.common.clock.shared();
        let recorded = async {
            let (Some((_, next)), asked) = (&next, Instant::now()) else { return };
            if let Err(error) = schedules::record(&*self.common.register, &self.common.topology, next).await {
                let lacks = "the next event of a schedule is not recorded, and `events list` lacks it";
                self.unanswered(asked, &error, &next.id, lacks);
            }
        };
        let changed = self.change(link, last, |state| {
            let state = next.iter().fold(state?, |state, (arm, _)| state.armed(&link.digest, *arm, now));
            Some(change(state))
        });
        tokio::join!(recorded, changed).1
    }

    /// Returns the link of an event of a chain. Without the register there are no schedules, and whoever has written the link into the
    /// message gets a plain run.
    pub(super) fn chain_link<'a>(&self, event: &'a Event) -> Option<&'a Link> {
        event.schedule.as_deref().filter(|link| !link.is_extra && self.spec.register)
    }

    /// Drops an event that does not belong to its schedule any more.
    fn refuse(&self, event: &Event, why: &str, is_armed: bool) -> Result<Admitted, NotSettled> {
        tracing::info!(id = %plain(&event.id), event_type = %self.event_type, "event of a schedule dropped: {why}");
        if is_armed {
            // Another copy with this id may be about to run: the claim is released, and the event is not settled.
            return Err(NotSettled::Answer(Disposition::Acknowledge));
        }
        Ok(ControlFlow::Break(Decision::Finish(Finish::Skip)))
    }

    /// Returns when a run that begins after `wait` has ended, unless it is lost.
    fn run_ends(&self, now: Timestamp, wait: Duration) -> Timestamp {
        time::later(now, wait.saturating_add(self.spec.handler_timeout).saturating_add(ALLOWANCE))
    }

    /// Returns the state of a schedule. If Redis has lost it, it is that of this worker's file, if the file has the schedule.
    async fn restore(&self, link: &Link) -> Result<Option<ScheduleState>, Disposition> {
        let own = self.common.topology.schedules.get(&link.schedule);
        let digest = own.map(Definition::digest);
        self.change(link, None, |state| {
            let now = self.common.clock.shared();
            let state = ScheduleState::restored(state, digest.as_deref(), now)?;
            Some(match self.common.pause(&link.schedule) {
                Some(pause) => state.switched(pause.as_ref(), own, now),
                None => state,
            })
        })
        .await
    }

    /// Changes the state of a schedule, however long it takes until Redis answers.
    async fn change(
        &self,
        link: &Link,
        last: Option<&ScheduleState>,
        mut change: impl FnMut(Option<ScheduleState>) -> Option<ScheduleState> + Send,
    ) -> Result<Option<ScheduleState>, Disposition> {
        let mut pauses = backoff().build();
        loop {
            let asked = Instant::now();
            match schedules::change(&*self.common.register, link.schedule.as_str(), last, &mut change).await {
                Ok(state) => {
                    self.common.health.answered(asked);
                    return Ok(state);
                }
                Err(error) => {
                    tracing::debug!(%error, schedule = %link.schedule, "the state of a schedule cannot be changed; trying again");
                    self.common.register_failed(asked, &error);
                }
            }
            let pause = tokio::time::sleep(pauses.next().unwrap_or_default());
            if self.common.give_back.run_until_cancelled(pause).await.is_none() {
                return Err(Disposition::GiveBack);
            }
        }
    }
}
