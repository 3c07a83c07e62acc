//! `topology destroy`: removes all objects that the topology owns.

use std::{
    io,
    time::{Duration, Instant},
};

use hatchery_admin::{
    AdminError, Asked, Doomed, PauseLine,
    plan::{Destruction, Plan},
    text::count,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::{Common, parse_patience},
    connect::{self, told},
    exit::{Ended, Exit},
    load,
    output::{GREEN, Output},
    plan_document::{ChangeView, FORMAT_VERSION, view},
    progress::{Screen, approve},
    render,
};

/// Remove all objects that the topology owns from the broker
#[derive(clap::Args)]
#[command(after_long_help = "\
Objects that the topology does not own are never touched. Nothing is removed if
a queue holds messages or has consumers, if the broker does not report both
counts, or if an object that is not owned leads to a queue; with --force they
are removed, and messages in them are lost. A queue that comes into use later
stops the command half-way (exit 5). After an interruption, run it again.

Signs:
  -  is removed
  !  is in use, or has an object that is not owned before it: nothing is removed

Examples:
  topology destroy                         show the objects, ask, remove
  topology destroy -v                      a line for each level of a ladder
  topology destroy --auto-approve          without a terminal
  topology destroy --force                 also queues in use; messages are lost
  topology destroy -o json --auto-approve | jq '.removed'")]
pub(crate) struct Args {
    /// Do not ask
    #[arg(long)]
    auto_approve: bool,

    /// Remove objects that are in use too: messages in their queues are lost
    #[arg(long)]
    force: bool,

    /// How long to wait for a running apply
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_patience)]
    lock_timeout: Duration,
}

/// The answer of `topology destroy`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer {
    Ended(Box<Report>),
    Unfinished(Unfinished),
}

/// A destroy that is done, or that was refused before anything was removed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// The version of this format.
    format_version: u32,
    /// The topology's file.
    file: String,
    /// The name of the topology.
    owner: String,
    /// The version of RabbitMQ; `null` if the broker does not tell it.
    broker: Option<String>,
    /// When the broker was read; `null` if the broker does not tell it.
    observed_at: Option<String>,
    /// Whether objects are in use, so that nothing is removed.
    blocked: bool,
    /// Whether the topology is gone.
    destroyed: bool,
    /// The number of objects that were removed.
    removed: usize,
    /// How long it took in milliseconds; `null` if nothing was removed.
    elapsed_ms: Option<u64>,
    /// The objects that the topology owns on the broker, and those that keep them.
    objects: Vec<ChangeView>,
    /// The pauses that are forgotten.
    pauses: Vec<PauseLine>,
}

/// A destroy that stopped half-way.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Unfinished {
    /// Always `false`.
    destroyed: bool,
    /// The number of objects that were removed.
    removed: usize,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let topology = load::topology(common, output)?;
    let admin = connect::admin(common, topology, "topology destroy")?;
    let destroy = Destroy { file: common.file.display().to_string(), output };
    let screen = Screen::new(output);

    let shown = admin.plan_destroy(args.force, &screen).await.map_err(told)?;
    if output.is_text() {
        output.print(&destroy.render(&shown))?;
    } else if !args.auto_approve && Output::is_interactive() {
        output.note(destroy.render(&shown).trim_end());
    }
    if shown.found.plan.is_blocked(true) {
        return Err(destroy.refused(&shown)?);
    }
    let (is_nothing, pauses) = (shown.found.plan.changes.is_empty(), lines(&shown));
    if !args.auto_approve && !is_nothing {
        approve("Remove all of this?", output)?;
    }

    let started = if is_nothing { started } else { Instant::now() };
    let result = admin.destroy(&shown, args.lock_timeout, !args.auto_approve, &screen).await;
    let (gone, removed) = match result {
        Ok(destroyed) => destroyed,
        Err(error) => return Err(destroy.failed(error)?),
    };
    let elapsed = started.elapsed();
    let told = match () {
        () if !output.is_text() => destroy.report(&gone, &pauses, removed, Some(elapsed)),
        () if is_nothing => Ok(()),
        () => output.print(&destroyed(removed, elapsed)),
    };
    told.map_err(|error| if removed > 0 { Ended::untold(error) } else { error.into() })?;
    Ok(Exit::Done)
}

struct Destroy {
    file: String,
    output: Output,
}

impl Destroy {
    /// Prints what a destroy that failed has to tell, and returns its error.
    fn failed(&self, error: AdminError) -> io::Result<anyhow::Error> {
        match error {
            AdminError::ObjectsInUse(doomed) => {
                self.output.note(self.render(&doomed).trim_end());
                self.refused(&doomed)
            }
            AdminError::PartlyRemoved { why, removed } => {
                if !self.output.is_text() {
                    self.output.json(&Answer::Unfinished(Unfinished { destroyed: false, removed }))?;
                }
                Ok(Ended::new(Exit::Partly, why).into())
            }
            AdminError::Stale => {
                let message = "the broker has changed since the objects were shown; nothing was removed. Run it again";
                Ok(Ended::new(Exit::Locked, message).into())
            }
            error => Ok(told(error)),
        }
    }

    /// Prints the JSON document of objects that are in use, and returns the error.
    fn refused(&self, doomed: &Doomed) -> io::Result<anyhow::Error> {
        self.report(doomed, &lines(doomed), 0, None)?;
        let message = "some objects are in use, see the lines with `!`; nothing was removed. --force removes them too, \
                       and their messages are lost";
        Ok(Ended::new(Exit::Blocked, message).into())
    }

    fn render(&self, doomed: &Doomed) -> String {
        let forgotten = lines(doomed).into_iter().map(|pause| forgotten(&pause));
        screen(&doomed.found.plan, self.output.verbose, Output::drawing_columns()) + &forgotten.collect::<String>()
    }

    /// Prints the JSON document of this run. `elapsed` is `None` if nothing was destroyed.
    fn report(
        &self,
        doomed: &Doomed,
        pauses: &[PauseLine],
        removed: usize,
        elapsed: Option<Duration>,
    ) -> io::Result<()> {
        let Doomed { found: Destruction { plan, .. }, observed, .. } = doomed;
        if self.output.is_text() {
            return Ok(());
        }
        self.output.json(&Answer::Ended(Box::new(Report {
            format_version: FORMAT_VERSION,
            file: self.file.clone(),
            owner: plan.owner.clone(),
            broker: observed.version.clone(),
            observed_at: observed.at.map(|at| at.to_string()),
            blocked: plan.is_blocked(true),
            destroyed: elapsed.is_some(),
            removed,
            elapsed_ms: elapsed.map(|elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
            objects: plan.changes.iter().map(view).collect(),
            pauses: pauses.to_vec(),
        })))
    }
}

/// Returns the objects to remove.
fn screen(plan: &Plan, verbose: bool, columns: usize) -> String {
    let (counts, owner) = (plan.counts(), &plan.owner);
    if plan.changes.is_empty() {
        return format!("Nothing to remove. The broker has nothing that {owner} owns.\n");
    }
    let lines = render::lines(plan, verbose, Asked { migrate: false, prune: true }, columns);
    let blocked = if counts.blocked > 0 { format!(", {} in use", counts.blocked) } else { String::new() };
    format!("{lines}Destroy: {} of {owner}{blocked}.\n", count(counts.leftover + counts.blocked, "object"))
}

fn lines(doomed: &Doomed) -> Vec<PauseLine> {
    doomed.pauses.iter().map(PauseLine::from).collect()
}

/// Returns a line about a pause that goes with the topology.
fn forgotten(pause: &PauseLine) -> String {
    format!("Forgets that {} is paused, {}\n", pause.what(), pause.about())
}

fn destroyed(removed: usize, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    format!("{GREEN}Destroyed{GREEN:#}: {} removed, in {seconds:.1} s.\n", count(removed, "object"))
}

/// The golden screens: `tests/screens/destroy.txt`. `UPDATE_GOLDEN=1` writes them anew.
#[cfg(test)]
mod tests {
    use hatchery_admin::{live::Observed, plan::destruction};

    use super::*;
    use crate::{
        golden::screens,
        verbs::plan::tests::{FILE, applied, queue, read},
    };

    #[test]
    fn a_destroy_is_as_it_was_drawn() {
        let desired = read(FILE);
        let mut observed = applied(&desired);
        for queue in &mut observed.queues {
            (queue.messages, queue.consumers) = (Some(0), Some(0));
        }
        let drawn = |observed: &Observed, columns| screen(&destruction(&desired, observed, false).plan, false, columns);
        screens("destroy/idle", |columns| drawn(&observed, columns));
        let mails = queue(&mut observed, "billing.processor.mail");
        (mails.messages, mails.messages_ready, mails.messages_unacknowledged) = (Some(1_304), Some(1_204), Some(100));
        mails.consumers = Some(4);
        queue(&mut observed, "billing.retry.hr-import.10m").consumers = None;
        screens("destroy/in-use", |columns| drawn(&observed, columns));
        screens("destroy/nothing", |columns| drawn(&Observed::default(), columns));
        screens("destroy/destroyed", |_| destroyed(61, Duration::from_millis(2_340)));
    }
}
