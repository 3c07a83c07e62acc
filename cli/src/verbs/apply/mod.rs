//! `topology apply`: changes the broker so that it matches the file.

mod context;
mod summary;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use hatchery::internals::ttl;
use hatchery_admin::{Asked, Options, broker::steps::APART};

pub(crate) use self::context::Answer;
use self::context::Apply;
use crate::{
    args::{Common, Flags, UsageError, parse_patience},
    besides::Besides,
    connect::{self, told},
    exit::{Ended, Exit},
    leftover_types, load,
    output::Output,
    plan_document::{self, Source},
    plan_file::PlanFile,
    progress::{Screen, approve},
};

/// Change the broker so that it matches the file
#[derive(clap::Args)]
#[command(after_long_help = "\
An apply may be repeated: existing objects stay, missing objects are created.
An apply that was interrupted at any point continues when it is run again.
Only one apply runs at a time: it holds the queue <name>.lock while it runs.

Examples:
  topology apply                           show the plan, ask, change
  topology apply --auto-approve            in a deployment
  topology apply --migrate                 replace what cannot be changed in
                                           place, and lose no event
  topology apply --prune                   remove objects that are no longer in
                                           the file, once they are empty
  topology plan --out plan.json && topology apply plan.json")]
pub(crate) struct Args {
    /// A plan that `topology plan --out` has written: carried out as it is, or refused as stale
    #[arg(value_name = "PLAN")]
    plan: Option<PathBuf>,

    /// Do not ask
    #[arg(long)]
    auto_approve: bool,

    #[command(flatten)]
    asked: Flags,

    /// How long to wait for another apply
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_patience)]
    lock_timeout: Duration,

    /// How long to wait for queues to drain, with --migrate (at least 30s) and --prune (at least 15s)
    ///
    /// A queue counts as empty once every reading of the broker's statistics for 12s says so. A migration waits for that
    /// twice. The default is enough for the levels of a whole ladder, which empty one after the other.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_patience)]
    drain_timeout: Duration,

    /// Take the register over from the broker (by its cluster name) or the topology that uses it; may be given more
    /// than once
    #[arg(long, value_name = "NAME")]
    moved_from: Vec<String>,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let (topology, source, saved) = if let Some(path) = &args.plan {
        let saved = PlanFile::read(path)?;
        (saved.read_topology()?, Source::new(saved.file.clone(), &saved.topology), Some(saved))
    } else {
        let (topology, text) = load::with_text(common, output)?;
        (topology, Source::new(common.file.display().to_string(), &text), None)
    };
    let asked = saved.as_ref().map_or(args.asked.into(), |saved| saved.asked.and(args.asked.into()));
    require_time_to_drain(args.drain_timeout, asked)?;
    let admin = connect::admin(common, topology, "topology apply")?;
    let apply = Apply { source, output, asked };

    let planned = admin.plan().await.map_err(told)?;
    let besides = Besides::planned(&planned);
    let drawn = || apply.render(&planned.plan, &besides);
    if output.is_text() {
        output.print(&drawn())?;
    } else if !args.auto_approve && saved.is_none() && Output::is_interactive() {
        // A person who is asked to approve must see the plan, also with `-o json`.
        output.note(drawn().trim_end());
    }
    if let Some(saved) = &saved
        && saved.digests.changes != plan_document::digest(&planned.plan)
    {
        let message = "the broker is not as it was when this plan was made; nothing was written. Plan again";
        return Err(Ended::new(Exit::Locked, message).into());
    }
    leftover_types::warn(&planned.left_types, output);
    if planned.is_blocked(asked) {
        return Err(apply.refused(planned)?);
    }
    // A plan in a file counts as approved.
    let is_approved = args.auto_approve || saved.is_some() || asked.nothing_to_do(&planned.plan);
    if !is_approved {
        approve("Apply these changes?", output)?;
    }

    let started = if asked.nothing_to_do(&planned.plan) { started } else { Instant::now() };
    let options = Options {
        asked,
        lock_timeout: args.lock_timeout,
        drain_timeout: args.drain_timeout,
        moved_from: args.moved_from.clone(),
        as_planned: !args.auto_approve || saved.is_some(),
    };
    match admin.apply(&planned, &options, &Screen::new(output)).await {
        Ok(applied) => apply.done(&applied, started),
        Err(error) => Err(apply.failed(error)?),
    }
}

/// Refuses a time in which no queue can be proved empty, and so none be removed or replaced.
fn require_time_to_drain(drain_timeout: Duration, asked: Asked) -> Result<(), UsageError> {
    const SLACK: Duration = Duration::from_secs(3);
    let proof = APART + SLACK;
    let (flag, least) = match asked {
        Asked { migrate: true, .. } => ("--migrate", proof * 2),
        Asked { prune: true, .. } => ("--prune", proof),
        Asked { migrate: false, prune: false } => return Ok(()),
    };
    if drain_timeout >= least {
        return Ok(());
    }
    let (given, least) = (ttl::say(drain_timeout), ttl::say(least));
    Err(UsageError(format!(
        "--drain-timeout {given} is too short for {flag}, which has to see a queue empty for 12s first; give at least {least}"
    )))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::prune(false, true, 14, Some("--drain-timeout 14s is too short for --prune"))]
    #[case::prune_in_time(false, true, 15, None)]
    #[case::migrate(true, false, 29, Some("give at least 30s"))]
    #[case::migrate_in_time(true, true, 30, None)]
    #[case::no_wait(false, true, 0, Some("--drain-timeout 0s"))]
    #[case::nothing_to_drain(false, false, 0, None)]
    fn a_time_in_which_nothing_can_drain_is_refused(
        #[case] migrate: bool,
        #[case] prune: bool,
        #[case] seconds: u64,
        #[case] why: Option<&str>,
    ) {
        let refused = require_time_to_drain(Duration::from_secs(seconds), Asked { migrate, prune }).err();
        assert_eq!(refused.is_some(), why.is_some());
        assert!(refused.map_or_else(String::new, |error| error.0).contains(why.unwrap_or_default()));
    }
}
