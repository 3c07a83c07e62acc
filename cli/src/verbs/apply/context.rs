//! The report of an apply: its plan, its result, and the reason if it stopped; and its JSON.

use std::{
    io,
    time::{Duration, Instant},
};

use hatchery_admin::{
    AdminError, Applied, Asked, Planned,
    plan::{Address, Plan},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::summary::{stays, text};
use crate::{
    besides::Besides,
    connect::told,
    exit::{Ended, Exit},
    leftover_types,
    output::Output,
    plan_document::{Document, Source, document},
    render,
};

/// The answer of `topology apply`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer {
    Ended(Box<Report>),
    Unfinished(Unfinished),
}

/// An apply that is done, or that was refused before anything was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// The plan at the time of the first write.
    #[serde(flatten)]
    plan: Document,
    /// Whether the broker is as the file says now.
    applied: bool,
    /// The number of messages that were moved.
    moved: u64,
    /// The number of objects that were removed.
    removed: usize,
    /// Objects that `--prune` had to leave.
    not_removed: Vec<NotRemoved>,
    /// How long it took in milliseconds; `null` if nothing was written.
    elapsed_ms: Option<u64>,
}

/// An object that stays for now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NotRemoved {
    #[serde(flatten)]
    address: Address,
    /// The cause that keeps the object.
    why: String,
}

/// An apply that stopped half-way.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Unfinished {
    /// Always `false`.
    applied: bool,
    /// The objects that are left to write, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<Vec<String>>,
}

pub(super) struct Apply {
    pub(super) source: Source,
    pub(super) output: Output,
    pub(super) asked: Asked,
}

impl Apply {
    pub(super) fn render(&self, plan: &Plan, besides: &Besides) -> String {
        render::plan(plan, besides, &self.source.file, self.output.verbose, self.asked, Output::drawing_columns())
    }

    /// Prints the JSON document of a plan that is blocked, and returns the error.
    pub(super) fn refused(&self, planned: Planned) -> io::Result<anyhow::Error> {
        let is_blocked = planned.plan.is_blocked(self.asked.migrate);
        let besides = Besides::planned(&planned);
        let applied = Applied::from(planned);
        self.report(&applied, &besides, false, None)?;
        Ok(match applied.left_types.known.first() {
            Some((event_type, _)) if !is_blocked => leftover_types::refusal(event_type),
            _ => Ended::new(Exit::Blocked, "some changes are blocked, see the lines with `!`; nothing was written"),
        }
        .into())
    }

    pub(super) fn done(&self, applied: &Applied, started: Instant) -> anyhow::Result<Exit> {
        let elapsed = started.elapsed();
        let besides = Besides::applied(applied);
        let text = Some(text(applied, elapsed).unwrap_or_default() + &besides.lines()).filter(|text| !text.is_empty());
        let told = match &text {
            _ if !self.output.is_text() => self.report(applied, &besides, true, Some(elapsed)),
            Some(text) => self.output.print(text),
            None => Ok(()),
        };
        told.map_err(|error| if text.is_some() { Ended::untold(error) } else { error.into() })?;
        if let Some(note) = stays(applied) {
            self.output.note(&note);
        }
        Ok(Exit::Done)
    }

    /// Prints what an apply that failed has to tell, and returns its error.
    pub(super) fn failed(&self, error: AdminError) -> io::Result<anyhow::Error> {
        match error {
            AdminError::Blocked(planned) => {
                if planned.plan.is_blocked(self.asked.migrate) {
                    self.output.note(self.render(&planned.plan, &Besides::default()).trim_end());
                }
                self.refused(*planned)
            }
            AdminError::Partly { why, left } => {
                if !self.output.is_text() {
                    self.output.json(&Answer::Unfinished(Unfinished { applied: false, left }))?;
                }
                Ok(Ended::new(Exit::Partly, why).into())
            }
            AdminError::Differs(plan) => {
                self.output.note(self.render(&plan, &Besides::default()).trim_end());
                let message = "written, but the broker still differs from the file, see above. Run it again";
                Ok(Ended::new(Exit::Partly, message).into())
            }
            error => Ok(told(error)),
        }
    }

    /// Prints the JSON document of this run; with `-o text`, prints nothing.
    fn report(
        &self,
        applied: &Applied,
        besides: &Besides,
        is_applied: bool,
        elapsed: Option<Duration>,
    ) -> io::Result<()> {
        if self.output.is_text() {
            return Ok(());
        }
        let Applied { plan, observed, moved, removed, left, left_types, .. } = applied;
        let not_removed = left.iter().flatten();
        let not_removed = not_removed.map(|(address, why)| NotRemoved { address: address.clone(), why: why.clone() });
        self.output.json(&Answer::Ended(Box::new(Report {
            plan: document(plan, observed, &self.source, left_types, besides, self.asked),
            applied: is_applied,
            moved: *moved,
            removed: *removed,
            not_removed: not_removed.collect(),
            elapsed_ms: elapsed.map(|elapsed| elapsed.as_millis().try_into().unwrap_or(u64::MAX)),
        })))
    }
}
