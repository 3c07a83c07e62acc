//! The commands for schedules: arm them, look at them, pause and resume them, and run their events now.

mod apply;
mod view;

use std::collections::BTreeMap;

use hatchery::{
    ConnectError, Events, RegisterError, Word,
    internals::{
        ports::StateKind,
        schedule::{
            definition::Definition,
            rule::{Arm, Mode},
            state::{ScheduleState, Wanted},
            template::Template,
        },
        schedules::{self, RepairError},
        switches::{Name, Pause, Paused},
        words::nearest,
    },
};
use jiff::Timestamp;
use uuid::Uuid;

pub use self::view::{
    ActedSchedule, Backfilled, INSTANTS, LastRun, ScheduleInfo, ScheduleList, ScheduleView, WHEN, shown, when,
};
use crate::results::ScheduleChange;

/// The schedules of a topology, for people.
pub struct Schedules(pub Events);

/// Why a command for schedules failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulesError {
    /// The file has no such schedule.
    #[error("the file has no schedule `{name}`{}", .nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// The schedule was not applied.
    #[error("the schedule `{0}` was not applied; run `topology apply`")]
    NotApplied(String),
    /// The file has another definition than the one that was applied.
    #[error("the file has another definition of the schedule `{0}` than was applied; run `topology apply`")]
    AnotherDefinition(String),
    /// The schedule has no instants of its own.
    #[error("the schedule `{0}` has `mode: sequential`: it has no instants that could be made up for")]
    NoInstants(String),
    /// The id is none of an event of the schedule.
    #[error(
        "an id of an event of the schedule `{0}` begins with `{0}!`, and has up to 255 bytes without control characters"
    )]
    Id(String),
    /// A server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The event was not published, or the state was not changed.
    #[error(transparent)]
    Repair(#[from] RepairError),
}

/// Why not all events of a backfill were published.
#[derive(Debug, thiserror::Error)]
#[error("{done} of {all} events published, then: {error}")]
pub struct BackfillError {
    /// How many events were published.
    pub done: usize,
    all: usize,
    error: SchedulesError,
}

impl From<RegisterError> for SchedulesError {
    fn from(error: RegisterError) -> Self {
        Self::Repair(error.into())
    }
}

impl Schedules {
    /// Returns what [`Schedules::apply`] would do now, and changes nothing.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn plan(&self) -> Result<Vec<(String, ScheduleChange)>, SchedulesError> {
        let (mut states, now) =
            (self.0.shared.register.states(StateKind::Schedule).await?, self.0.shared.clock.shared());
        let mut changes = Vec::new();
        for (name, definition) in &self.0.shared.topology.schedules {
            let before = states.remove(name.as_str()).as_deref().and_then(ScheduleState::parse);
            let is_changed = is_changed(before.as_ref(), definition);
            let (_, wanted) = ScheduleState::applied(before, definition, now).repaired(definition, now);
            changes.push((name.to_string(), ScheduleChange::of(wanted, is_changed)));
        }
        let removed =
            states.into_iter().filter(|(_, text)| ScheduleState::parse(text).is_some_and(|state| !state.is_removed()));
        changes.extend(removed.map(|(name, _)| (name, ScheduleChange::Removed)));
        Ok(changes)
    }

    /// Arms every schedule of the file that is new, has another definition, or has lost its next event, and removes the schedules
    /// that have left the file. A second call changes nothing.
    ///
    /// # Errors
    /// When Redis or the broker does not answer. The schedules before the failed one are armed.
    pub async fn apply(&self) -> Result<Vec<(String, ScheduleChange)>, SchedulesError> {
        let mut changes = Vec::new();
        for definition in self.0.shared.topology.schedules.values() {
            changes.push((definition.name.to_string(), self.apply_one(definition).await?));
        }
        for name in self.0.shared.register.states(StateKind::Schedule).await?.into_keys() {
            if self.0.shared.topology.schedules.contains_key(name.as_str()) {
                continue;
            }
            let mut was_there = false;
            schedules::change(&*self.0.shared.register, &name, None, |state| {
                was_there = state.as_ref().is_some_and(|state| !state.is_removed());
                Some(state.unwrap_or_default().removed())
            })
            .await?;
            if was_there {
                changes.push((name, ScheduleChange::Removed));
            }
        }
        Ok(changes)
    }

    async fn apply_one(&self, definition: &Definition) -> Result<ScheduleChange, SchedulesError> {
        let mut was_changed = false;
        let repairer = self.0.shared.repairer();
        let repaired = repairer.repair(definition, |state| {
            was_changed = is_changed(state.as_ref(), definition);
            Some(ScheduleState::applied(state, definition, self.0.shared.clock.shared()))
        });
        Ok(ScheduleChange::of(repaired.await?, was_changed))
    }

    /// Returns the schedules of the file and those that Redis knows besides, by name. Removed schedules are left out.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn list(&self) -> Result<Vec<ScheduleInfo>, SchedulesError> {
        let states = self.0.shared.register.states(StateKind::Schedule).await?;
        let mut all: BTreeMap<String, ScheduleInfo> = states
            .into_iter()
            .map(|(name, text)| {
                (name.clone(), ScheduleInfo { name, definition: None, state: ScheduleState::parse(&text) })
            })
            .filter(|(_, info)| info.state.as_ref().is_none_or(|state| !state.is_removed()))
            .collect();
        for (name, definition) in &self.0.shared.topology.schedules {
            let name = name.to_string();
            let info = ScheduleInfo { name: name.clone(), definition: None, state: None };
            all.entry(name).or_insert(info).definition = Some(definition.clone());
        }
        Ok(all.into_values().collect())
    }

    /// Notes the pause of a schedule: its next event does not run, and nothing is armed until somebody resumes it. A run that has begun
    /// goes on.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn hold(&self, name: &str, pause: &Pause) -> Result<(), SchedulesError> {
        let held = schedules::change(&*self.0.shared.register, name, None, |state| Some(state?.switched_on(pause)));
        Ok(held.await.map(drop)?)
    }

    /// Returns the pauses of schedules that are in Redis alone: a failed event has begun them, or a version that knew no others.
    pub(crate) async fn unswitched(&self) -> Result<Vec<Pause>, SchedulesError> {
        let schedules = self.list().await?.into_iter().filter(|info| info.definition.is_some());
        let pauses = schedules.filter_map(|info| {
            let paused = info.state?.paused.filter(|paused| !paused.is_switched)?;
            let of = Paused::Schedule(Name(info.name.parse().ok()?));
            Some(Pause::of_person(of, &paused.reason, schedules::time(paused.since), None))
        });
        Ok(pauses.collect())
    }

    /// Resumes a paused schedule. Returns when its next event is due; `None` if it was not paused.
    ///
    /// # Errors
    /// When the schedule is unknown or was applied with another definition, or Redis or the broker does not answer. The call
    /// may be repeated.
    pub async fn resume(&self, name: &str) -> Result<Option<Timestamp>, SchedulesError> {
        let definition = self.definition(name)?;
        let (mut before, mut due) = (None, None);
        let repairer = self.0.shared.repairer();
        let repaired = repairer.repair(definition, |state| {
            before.clone_from(&state);
            let state = state.filter(|state| !is_changed(Some(state), definition))?;
            let resumed = state.resumed(definition, self.0.shared.clock.shared());
            due = resumed.armed.map(|armed| schedules::time(armed.arm.due));
            Some(resumed)
        });
        repaired.await?;
        match before {
            None => Err(SchedulesError::NotApplied(name.to_owned())),
            Some(state) if is_changed(Some(&state), definition) => {
                Err(SchedulesError::AnotherDefinition(name.to_owned()))
            }
            Some(state) => Ok(due.filter(|_| state.paused.is_some())),
        }
    }

    /// Publishes an event of the schedule that runs now, beside those of its chain, also while the schedule is paused. Published twice with
    /// one id, it runs once.
    ///
    /// # Errors
    /// When the schedule is unknown, the id is not as those of [`new_id`](Self::new_id), or the broker does not answer.
    pub async fn run_now(&self, name: &str, id: &str) -> Result<(), SchedulesError> {
        self.definition(name)?;
        let is_of_it = id.strip_prefix(name).is_some_and(|rest| rest.len() > 1 && rest.starts_with('!'));
        if !is_of_it || id.len() > 255 || id.chars().any(char::is_control) {
            return Err(SchedulesError::Id(name.to_owned()));
        }
        self.publish(name, id, None).await
    }

    /// Returns an id for an event that [`run_now`](Self::run_now) publishes.
    #[must_use]
    pub fn new_id(name: &str) -> String {
        format!("{name}!{}", Uuid::now_v7())
    }

    /// Returns what [`backfill`](Self::backfill) would publish for the instants from `from` until before `to`, at most `limit`.
    ///
    /// # Errors
    /// When the schedule is unknown, or has no instants.
    pub fn would_backfill(
        &self,
        name: &str,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Backfilled, SchedulesError> {
        let definition = self.definition(name)?;
        if definition.rule.mode == Mode::Sequential {
            return Err(SchedulesError::NoInstants(name.to_owned()));
        }
        let before = Timestamp::from_nanosecond(from.as_nanosecond() - 1).unwrap_or(from);
        let next = |at: &Timestamp| definition.rule.calendar.next_after(*at);
        let instants = std::iter::successors(next(&before), next).take_while(|at| *at < to);
        let mut instants: Vec<Timestamp> = instants.take(limit + 1).collect();
        let more = instants.len() > limit;
        instants.truncate(limit);
        let ids = instants.iter().map(|instant| format!("{name}!{instant}")).collect();
        Ok(Backfilled { schedule: name.to_owned(), dry_run: true, instants, ids, more })
    }

    /// Publishes the events of a dry run. They run now, also if their instants have run before. Their ids are not those of the chain's
    /// events, which the register may call finished although a pause has dropped them. Published twice, they run once.
    ///
    /// # Errors
    /// When the broker does not answer. The events before the failed one are published.
    pub async fn backfill(&self, would: Backfilled) -> Result<Backfilled, BackfillError> {
        for (done, (instant, id)) in would.instants.iter().zip(&would.ids).enumerate() {
            let published = self.publish(&would.schedule, id, Some(*instant)).await;
            published.map_err(|error| BackfillError { done, all: would.ids.len(), error })?;
        }
        Ok(Backfilled { dry_run: false, ..would })
    }

    /// Publishes an event of the schedule that runs now, for an instant.
    async fn publish(&self, name: &str, id: &str, instant: Option<Timestamp>) -> Result<(), SchedulesError> {
        let definition = self.definition(name)?;
        let now = self.0.shared.clock.shared();
        let arm = Arm { position: instant.unwrap_or(now).as_millisecond(), due: now.as_millisecond() };
        let event = Template::of(definition).extra(id.to_owned(), arm, now);
        match self.0.shared.repairer().send(&event).await {
            // The event is published, and runs without its record. An error would make people publish another one.
            Err(RepairError::Register(error)) => {
                tracing::warn!(%error, id = %event.id, "event published and not recorded");
                Ok(())
            }
            sent => Ok(sent?),
        }
    }

    fn definition(&self, name: &str) -> Result<&Definition, SchedulesError> {
        let schedules = &self.0.shared.topology.schedules;
        schedules.get(name).ok_or_else(|| SchedulesError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, schedules.keys().map(Word::as_str)).map(str::to_owned),
        })
    }
}

fn is_changed(state: Option<&ScheduleState>, definition: &Definition) -> bool {
    state.is_none_or(|state| state.digest != definition.digest())
}

impl ScheduleChange {
    /// Returns the change of a schedule of the file, from the event that is published for it.
    fn of(wanted: Option<Wanted>, is_changed: bool) -> Self {
        match wanted {
            Some(Wanted::Unpublished(arm)) => Self::Armed(schedules::time(arm.due)),
            Some(Wanted::Late(arm) | Wanted::Ahead(arm)) => Self::ArmedAgain(schedules::time(arm.due)),
            None if is_changed => Self::Paused,
            None => Self::Unchanged,
        }
    }
}
