//! The state that all steps of an apply share, and the reports about it.

use std::{
    io,
    time::{Duration, Instant},
};

use hatchery::{Topology, internals::compile::Desired};
use hatchery_admin::{
    management::{Management as _, ManagementApi, ManagementError},
    observed::Observed,
    plan::{Plan, plan},
};

use super::{
    answer::{Answer, NotRemoved, Report},
    carried::Carried,
};
use crate::{
    args::Common,
    asked::Asked,
    exit::{Ended, Exit},
    left_types::{self, LeftTypes},
    output::Output,
    plan_document::{Source, document},
    register::{self, Free, Looked},
    render,
    schedules::{self, Armed},
};

pub(super) struct Apply {
    pub(super) desired: Desired,
    pub(super) source: Source,
    pub(super) management: ManagementApi,
    pub(super) register: left_types::Register,
    pub(super) output: Output,
    pub(super) asked: Asked,
    pub(super) patience: Duration,
}

impl Apply {
    pub(super) async fn plan(&self) -> Result<(Plan, Observed), ManagementError> {
        let observed = self.management.observe().await?;
        Ok((plan(&self.desired, &observed), observed))
    }

    /// Returns the register, or fails if another topology or broker uses it. `None` if there is none to check.
    pub(super) async fn free(
        &self,
        common: &Common,
        topology: &Topology,
        observed: &Observed,
        moved_from: &[String],
    ) -> anyhow::Result<Option<Free>> {
        let looked = register::look(common, topology, &self.management, observed, moved_from, self.output).await?;
        Ok(looked.map(Looked::free).transpose()?)
    }

    pub(super) fn render(&self, plan: &Plan, schedules: &[Armed]) -> String {
        render::plan(plan, schedules, &self.source.file, self.output.verbose, self.asked, Output::drawing_columns())
    }

    pub(super) fn refuse_blocked(
        &self,
        plan: &Plan,
        observed: &Observed,
        left: &LeftTypes,
        schedules: Option<&[Armed]>,
    ) -> anyhow::Result<()> {
        let (is_blocked, leaves_events) = (plan.is_blocked(self.asked.migrate), left.is_blocked(self.asked.prune));
        if !is_blocked && !leaves_events {
            return Ok(());
        }
        let carried = Carried::nothing(plan.clone(), observed.clone(), left.clone());
        self.report(&carried, schedules, false, None)?;
        if !is_blocked {
            left.allow_pruning()?;
        }
        Err(Ended::new(Exit::Blocked, "some changes are blocked, see the lines with `!`; nothing was written").into())
    }

    pub(super) fn done(&self, carried: &Carried, armed: &[Armed], started: Instant) -> anyhow::Result<Exit> {
        let elapsed = started.elapsed();
        let text =
            Some(carried.text(elapsed).unwrap_or_default() + &schedules::lines(armed)).filter(|text| !text.is_empty());
        let told = match &text {
            _ if !self.output.is_text() => self.report(carried, Some(armed), true, Some(elapsed)),
            Some(text) => self.output.print(text),
            None => Ok(()),
        };
        told.map_err(|error| if text.is_some() { Ended::untold(error) } else { error.into() })?;
        if let Some(note) = carried.stays() {
            self.output.note(&note);
        }
        Ok(Exit::Done)
    }

    /// Prints the JSON document of this run; with `-o text`, prints nothing.
    pub(super) fn report(
        &self,
        carried: &Carried,
        schedules: Option<&[Armed]>,
        applied: bool,
        elapsed: Option<Duration>,
    ) -> io::Result<()> {
        if self.output.is_text() {
            return Ok(());
        }
        let Carried { plan, observed, moved, removed, left, left_types } = carried;
        let not_removed = left.iter().flatten();
        let not_removed = not_removed.map(|(address, why)| NotRemoved { address: address.clone(), why: why.clone() });
        self.output.json(&Answer::Ended(Box::new(Report {
            plan: document(plan, observed, &self.source, left_types, schedules, self.asked),
            applied,
            moved: *moved,
            removed: *removed,
            not_removed: not_removed.collect(),
            elapsed_ms: elapsed.map(|elapsed| elapsed.as_millis().try_into().unwrap_or(u64::MAX)),
        })))
    }
}
