//! The state of a schedule in Redis, and how it changes.
//!
//! These functions are the protocol of `docs/schedules-protocol.md`. The worker, `topology apply`, `topology schedule` and the model call
//! them. The state is one text in Redis. Whoever changes it compares it with the text that it has read, and begins again if the
//! state has changed meanwhile.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    definition::Definition,
    link::Link,
    rule::{Arm, CatchUp, Mode, OnScheduleFailure, Overlap},
    run::{RunOutcome, ScheduledRun},
};
use crate::domain::{switches::Pause, time};

/// How long after its due time an event that has not begun counts as lost, and is published again. It may also be behind others in its
/// queue, and then its copies are in vain. So each further copy waits as long again as the event is late.
pub const OVERDUE: Duration = Duration::from_mins(1);

/// By how much the clocks of two machines may differ. What lies further ahead was written by a wrong clock, or by nobody of the
/// topology.
pub const CLOCKS_DIFFER: Duration = Duration::from_mins(1);

/// How long an event waits whose schedule is unknown to its worker and to Redis. Within this time the workers whose files have the
/// schedule restore its state.
pub const UNKNOWN: Duration = Duration::from_mins(2);

/// The state of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScheduleState {
    /// The digest of the definition that is valid. Empty once the schedule has left the file.
    pub digest: String,
    /// The event that is next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub armed: Option<Armed>,
    /// The newest event that was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<ScheduledRun>,
    /// The lowest position that may still start. An event before it was due during a pause that is over, and is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// Set while the schedule is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SchedulePause>,
}

/// The next event of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Armed {
    /// The event.
    #[serde(flatten)]
    pub arm: Arm,
    /// When the broker has confirmed it last, in ms since 1970. `None` until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<i64>,
}

/// Since when and why a schedule is paused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedulePause {
    /// The time, in ms since 1970.
    pub since: i64,
    /// The reason, for people.
    pub reason: String,
    /// Whether it follows the switches on the broker. Otherwise a failed event has paused the schedule.
    #[serde(default, rename = "switch", skip_serializing_if = "std::ops::Not::not")]
    pub is_switched: bool,
    /// When the pause ends by itself, in ms since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// The decision about an event whose claim was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The event runs.
    Run,
    /// The event is settled without a run. The schedule goes on with the next event.
    Skip(&'static str),
    /// The event waits, because the run before it has not ended.
    Wait,
    /// The event is dropped, because it does not belong to the schedule any more. `is_armed` tells whether another copy of the event does.
    Drop {
        /// Why.
        why: &'static str,
        /// Whether an event with this id is to run, now or later.
        is_armed: bool,
    },
}

/// An event that the chain of a schedule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An event that nobody has published.
    Unpublished(Arm),
    /// An event that was published, and is late: lost, or behind others in its queue. Published again, it runs once.
    Late(Arm),
    /// An event in place of the armed one, which lies too far ahead.
    Ahead(Arm),
}

impl Wanted {
    /// Returns the event.
    #[must_use]
    pub const fn arm(self) -> Arm {
        match self {
            Self::Unpublished(arm) | Self::Late(arm) | Self::Ahead(arm) => arm,
        }
    }
}

impl ScheduleState {
    /// Reads a state. A text that is not one counts as a lost state.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text in Redis.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Tells whether the schedule has left the file.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.digest.is_empty()
    }

    /// Returns the state after `topology apply` with this definition. The first event is to be published.
    #[must_use]
    pub fn applied(before: Option<Self>, definition: &Definition, now: Timestamp) -> Self {
        let digest = definition.digest();
        let before = before.unwrap_or_default().corrected(now);
        if before.digest == digest {
            return before;
        }
        let after = before.last_position(now);
        // The instant of the former definition that has passed without a run is made up for. While the schedule was removed,
        // its event was settled without a run.
        let is_owed = |at: &i64| !before.is_removed() && *at <= now.as_millisecond();
        let owed = before.armed.map(|armed| armed.arm.position).filter(is_owed);
        let first = definition.rule.first(&definition.name, now, after, owed);
        let armed = first.map(|arm| Armed { arm, published: None });
        Self { digest, armed, ..before }
    }

    /// Returns the state after `topology apply` with a file that does not have the schedule.
    #[must_use]
    pub fn removed(self) -> Self {
        Self { digest: String::new(), paused: None, ..self }
    }

    /// Returns the state with which a worker goes on: that in Redis, or that of the worker's own file if Redis has lost it. Workers with
    /// another file then leave it alone, until the next `topology apply`.
    #[must_use]
    pub fn restored(before: Option<Self>, digest: Option<&str>, now: Timestamp) -> Option<Self> {
        before
            .map(|before| before.corrected(now))
            .or_else(|| Some(Self { digest: digest?.to_owned(), ..Self::default() }))
    }

    /// Returns the state without what lies ahead, but for `armed`, whose rule must be known. A run that lies ahead may be under way all the
    /// same: it counts as begun now, and before every other event, so that these neither run beside it nor wait for that date.
    fn corrected(mut self, now: Timestamp) -> Self {
        let (now, latest) = (now.as_millisecond(), latest(now).as_millisecond());
        if let Some(run) = self.run.as_mut().filter(|run| run.position.max(run.started) > latest) {
            let length = run.until.saturating_sub(run.started).max(0);
            run.position = if run.position > latest { 0 } else { run.position };
            run.started = run.started.min(now);
            run.until = run.started.saturating_add(length);
            run.ended = run.ended.map(|ended| ended.min(now));
        }
        // No event after the armed one is left out because of a pause that was before.
        if let (Some(from), Some(armed)) = (self.from.as_mut(), self.armed) {
            *from = (*from).min(armed.arm.position);
        }
        self
    }

    /// Returns the missing event, if any, and the state to store before publishing it: no two definitions may give one number to two
    /// events.
    #[must_use]
    pub fn repaired(self, definition: &Definition, now: Timestamp) -> (Self, Option<Wanted>) {
        let Some(wanted) = self.wants(definition, now) else { return (self, None) };
        (Self { armed: Some(Armed { arm: wanted.arm(), published: None }), ..self }, Some(wanted))
    }

    fn wants(&self, definition: &Definition, now: Timestamp) -> Option<Wanted> {
        if self.digest != definition.digest() || self.paused.is_some() {
            return None;
        }
        let first = |owed| definition.rule.first(&definition.name, now, self.last_position(now), owed);
        let now_ms = now.as_millisecond();
        let Some(Armed { arm, published }) = self.armed else { return first(None).map(Wanted::Unpublished) };
        if definition.rule.is_ahead(&definition.name, arm, latest(now)) {
            // Instants since the last run are made up for, but none from before the wrong clock.
            let since = now_ms.saturating_sub(2 * millis(OVERDUE)).max(self.from.unwrap_or(i64::MIN));
            let owed = self.run.as_ref().map(|run| run.position.saturating_add(1).max(since));
            return first(owed).map(Wanted::Ahead);
        }
        let Some(published) = published else { return Some(Wanted::Unpublished(arm)) };
        let published = Some(published).filter(|published| *published <= latest(now).as_millisecond());
        let late = now_ms.saturating_sub(millis(OVERDUE));
        let run = self.run.as_ref().filter(|run| run.position >= arm.position);
        match (run, definition.rule.mode) {
            (None, _) => {
                let last = published.map_or(arm.due, |published| published.max(arm.due));
                let wait = millis(OVERDUE).max(last - arm.due);
                (now_ms - last > wait).then_some(Wanted::Late(arm))
            }
            // It was started, and arms the next one at its end.
            (Some(run), Mode::Sequential) => (run.until < late).then(|| first(None)).flatten().map(Wanted::Late),
            // It was started as an event of the former definition, after which nobody has armed the next one.
            (Some(_), Mode::Fixed) => {
                let next = || definition.rule.next(&definition.name, arm.position, now);
                (arm.due < late).then(next).flatten().map(Wanted::Late)
            }
        }
    }

    /// Returns what becomes of an event whose claim was granted. `is_again` tells whether a run of
    /// it has failed or was put off before.
    #[must_use]
    pub fn admit(&self, link: &Link, is_again: bool, now: Timestamp) -> Admission {
        let id = link.id();
        if is_again || self.run.as_ref().is_some_and(|run| run.id == id) {
            return Admission::Run;
        }
        // The chain of the new definition may be behind, and come to this instant later.
        let drop = |why| Admission::Drop {
            why,
            is_armed: self.armed.is_some_and(|armed| armed.arm.position <= link.position) && !self.is_removed(),
        };
        if self.is_removed() {
            return drop("its schedule was removed");
        }
        if self.digest != link.digest {
            return drop("its schedule has another definition now");
        }
        if self.paused.is_some() {
            return Admission::Drop { why: "its schedule is paused", is_armed: false };
        }
        if self.from.is_some_and(|from| link.position < from) {
            return Admission::Drop { why: "its schedule was paused when it was due", is_armed: false };
        }
        if self.is_next(link)
            && let Some(why) = link.is_too_late(now)
        {
            return Admission::Skip(why);
        }
        match (self.runs_before(link, now), link.rule.overlap) {
            (false, _) => Admission::Run,
            (true, Overlap::Queue) => Admission::Wait,
            (true, Overlap::Skip) => Admission::Skip("the run before has not ended"),
        }
    }

    /// Returns when the next event was due, if that has passed. `None` while the schedule is paused or a run of it is under way.
    #[must_use]
    pub fn overdue_since(&self, now: Timestamp) -> Option<Timestamp> {
        let now = now.as_millisecond();
        let runs = self.run.as_ref().is_some_and(|run| run.ended.is_none() && run.until > now);
        let due = self.armed.filter(|_| self.paused.is_none() && !runs)?.arm.due;
        Timestamp::from_millisecond(due).ok().filter(|_| due < now)
    }

    /// Tells whether this event is the one from which the chain goes on.
    #[must_use]
    pub fn is_next(&self, link: &Link) -> bool {
        let arms = self.digest == link.digest && self.paused.is_none();
        arms && self.armed.is_none_or(|armed| armed.arm.position <= link.position)
    }

    /// Tells whether the chain stands still at this event, which was settled before this copy of it came. Its run belonged to the
    /// former definition, or a person has cancelled it. So nobody has armed the next one.
    ///
    /// The state may still name the event before: it is written only after this event was published.
    #[must_use]
    pub fn stands_at(&self, link: &Link) -> bool {
        let id = link.id();
        let is_under_way = self.run.as_ref().is_some_and(|run| run.id == id && run.ended.is_none());
        self.armed.is_some() && self.is_next(link) && !is_under_way
    }

    /// Returns the state once the broker has confirmed an event.
    #[must_use]
    pub fn armed(self, digest: &str, arm: Arm, now: Timestamp) -> Self {
        let is_newer = self.armed.is_none_or(|armed| armed.arm.position <= arm.position);
        if self.digest != digest || !is_newer {
            return self;
        }
        Self { armed: Some(Armed { arm, published: Some(now.as_millisecond()) }), ..self }
    }

    /// Returns the state once an event is started. It will have ended by `until`, or been started again.
    #[must_use]
    pub fn started(self, link: &Link, now: Timestamp, until: Timestamp) -> Self {
        if self.run.as_ref().is_some_and(|run| run.position > link.position) {
            return self;
        }
        let (started, until) = (now.as_millisecond(), until.as_millisecond());
        let run = ScheduledRun { id: link.id(), position: link.position, started, until, ended: None, outcome: None };
        Self { run: Some(run), ..self }
    }

    /// Returns the state once an event is settled without a run. A run that is under way stays the newest one, because the events after
    /// it must not run beside it.
    #[must_use]
    pub fn skipped(self, link: &Link, now: Timestamp, why: &str) -> Self {
        if self.runs_before(link, now) {
            return self;
        }
        self.started(link, now, now).ended(link, now, &RunOutcome::Skipped(why.to_owned()))
    }

    /// Tells whether an earlier event runs, or waits for its next run.
    fn runs_before(&self, link: &Link, now: Timestamp) -> bool {
        let is_earlier = |run: &ScheduledRun| run.ended.is_none() && run.position < link.position;
        self.run.as_ref().is_some_and(|run| is_earlier(run) && run.until > now.as_millisecond())
    }

    /// Returns the state once a run has failed or was put off, and its event waits to run again.
    #[must_use]
    pub fn goes_on(mut self, link: &Link, until: Timestamp) -> Self {
        let id = link.id();
        if let Some(run) = self.run.as_mut().filter(|run| run.id == id) {
            run.until = until.as_millisecond();
        }
        self
    }

    /// Returns the state once an event has ended.
    #[must_use]
    pub fn ended(mut self, link: &Link, now: Timestamp, outcome: &RunOutcome) -> Self {
        let (id, now) = (link.id(), now.as_millisecond());
        if let Some(run) = self.run.as_mut().filter(|run| run.id == id) {
            (run.ended, run.outcome) = (Some(now), Some(outcome.clone()));
        }
        let failed = matches!(outcome, RunOutcome::DeadLetter(_));
        if failed && link.rule.on_failure == OnScheduleFailure::Pause && self.digest == link.digest {
            let reason = outcome.to_string();
            // A person's pause may end by itself, and this one must not.
            let paused = self.paused.take().filter(|paused| !paused.is_switched);
            self.paused = paused.or(Some(SchedulePause { since: now, reason, is_switched: false, until: None }));
        }
        self
    }

    /// Returns the state as the switches say, which pause this schedule or not. `definition` is that of the caller's file.
    #[must_use]
    pub fn switched(self, pause: Option<&Pause>, definition: Option<&Definition>, now: Timestamp) -> Self {
        let own = definition.filter(|definition| definition.digest() == self.digest);
        match (pause, &self.paused, own) {
            (Some(pause), _, _) => self.switched_on(pause),
            // The instants since the end of a pause that has ended by itself are made up for.
            (None, Some(SchedulePause { is_switched: true, until, .. }), Some(own)) => {
                let end = until.and_then(|until| Timestamp::from_millisecond(until).ok());
                self.resumed(own, end.map_or(now, |end| end.min(now)))
            }
            _ => self,
        }
    }

    /// Returns the state while the switches pause this schedule. The pause that a failed event has begun stays: a person ends it.
    #[must_use]
    pub fn switched_on(self, pause: &Pause) -> Self {
        if self.paused.as_ref().is_some_and(|paused| !paused.is_switched) {
            return self;
        }
        let since = self.paused.map_or(pause.since.as_millisecond(), |paused| paused.since);
        let until = pause.until.map(Timestamp::as_millisecond);
        Self { paused: Some(SchedulePause { since, reason: pause.reason.clone(), is_switched: true, until }), ..self }
    }

    /// Returns the state once a person has resumed the schedule. The event that was armed before the pause is next if its time has not
    /// come: it still waits. Otherwise another one is to be published.
    #[must_use]
    pub fn resumed(self, definition: &Definition, now: Timestamp) -> Self {
        if self.paused.is_none() {
            return self;
        }
        let is_ahead = |arm: Arm| definition.rule.is_ahead(&definition.name, arm, latest(now));
        if self.armed.is_some_and(|armed| armed.arm.due > now.as_millisecond() && !is_ahead(armed.arm)) {
            return Self { paused: None, ..self };
        }
        let first = definition.rule.first(&definition.name, now, self.last_position(now), None);
        let armed = first.map(|arm| Armed { arm, published: None });
        Self { paused: None, armed, from: first.map(|arm| arm.position), ..self }.corrected(now)
    }

    /// Returns the highest position that does not lie ahead.
    fn last_position(&self, now: Timestamp) -> Option<i64> {
        let (armed, latest) = (self.armed.map(|armed| armed.arm.position), latest(now).as_millisecond());
        let positions = armed.into_iter().chain(self.run.as_ref().map(|run| run.position));
        positions.filter(|position| *position <= latest).max()
    }
}

/// Returns the latest time that a right clock may show.
fn latest(now: Timestamp) -> Timestamp {
    time::later(now, CLOCKS_DIFFER)
}

impl Link {
    /// Tells whether the event lies ahead, so that the chain does not go on from it.
    #[must_use]
    pub fn is_ahead(&self, now: Timestamp) -> bool {
        self.position > latest(now).as_millisecond()
    }

    /// Returns why the event is not to run any more, if it is late and its schedule does not make up for it.
    fn is_too_late(&self, now: Timestamp) -> Option<&'static str> {
        let slot = self.slot()?;
        match self.rule.catch_up {
            CatchUp::All => None,
            CatchUp::Last => {
                // An event that its jitter puts off does not wait for a worker.
                let passed = time::earlier(now, self.rule.jitter);
                self.rule
                    .calendar
                    .last_at_or_before(passed, slot)
                    .map(|_| "a later instant has passed, and only the last one is caught up with")
            }
            CatchUp::None => (time::later(slot, self.rule.jitter.saturating_add(OVERDUE)) < now)
                .then_some("its instant passed more than a minute ago"),
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod ahead_tests;
