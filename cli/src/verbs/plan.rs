//! `topology plan`: compares the file with the broker, and writes nothing to the broker.

use std::path::PathBuf;

use hatchery::internals::{names, versions};
use hatchery_admin::{Asked, LeftoverTypes, Planned, live::Observed, plan::Plan};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::{Common, Flags},
    besides::Besides,
    connect::{self, told},
    exit::Exit,
    leftover_types, load,
    output::{Format, Output},
    plan_document::{ChangeView, Head, Source, document, head, with_line},
    plan_file::PlanFile,
    progress::Screen,
    render,
};

/// Show what would change on the broker, and change nothing
#[derive(clap::Args)]
#[command(
    visible_alias = "diff",
    after_long_help = "\
Signs:
  +  is created
  ~  has drifted, and is changed back
  -  owned, and no longer in the file: stays, or is removed with --prune
  !  blocks the apply, so that nothing would be written
  *  a warning that blocks nothing
  ?  not owned, never touched (shown with -v)

Examples:
  topology plan
  topology plan -v                         also bindings and objects not owned
  topology plan --detailed-exitcode        0 in sync, 3 pending, 4 blocked
  topology plan --migrate --out plan.json  save the plan for a review
  topology apply plan.json                 carry it out, or refuse it as stale
  topology plan -o json | jq '.counts'"
)]
pub(crate) struct Args {
    /// Exit with 3 if changes are pending, and with 4 if they are blocked
    #[arg(long)]
    detailed_exitcode: bool,

    #[command(flatten)]
    asked: Flags,

    /// Write the plan to a file as well, for `topology apply FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let (topology, text) = load::with_text(common, output)?;
    let (asked, stream) = (args.asked.into(), names::control(topology.name.as_str()));
    let admin = connect::admin(common, topology, "topology plan")?;
    let planned = admin.plan().await.map_err(told)?;
    let besides = Besides::planned(&planned);
    let Planned { mut plan, observed, left_types: left, schedules, pauses } = planned;
    let source = Source::new(common.file.display().to_string(), &text);
    if let Some(fault) = observed.version.as_deref().and_then(versions::fault) {
        output.warn(&fault);
    }
    for node in admin.nodes_without_switches(&observed).await {
        output.warn(&format!(
            "{node} has no replica of the stream {stream}: clients that know this node alone start nothing and pause nothing \
             (rabbitmq-streams add_replica {stream} {node})"
        ));
    }
    if let Some(path) = &args.out {
        let file = PlanFile::new(&plan, &observed, &source, &text, &left, &besides, asked)?;
        file.write(path)?;
    }
    // A plan file holds only changes of the broker, so the register's user is not in it. `apply` reads it again, and
    // may be given `--moved-from`.
    let looked = admin.look_at_register(&observed, &[], &Screen::new(output)).await.map_err(told)?;
    if let Some(refusal) = looked.and_then(|looked| looked.refusal) {
        plan.block(&refusal);
    }
    show(&plan, &observed, &source, &left, &besides, asked, output)?;
    leftover_types::warn(&left, output);
    if let Err(why) = schedules {
        output.warn(&format!("cannot plan the schedules: {why}"));
    }
    if let Err(why) = pauses {
        output.warn(&format!("cannot plan the pauses: {why}"));
    }
    Ok(match asked.nothing_to_do(&plan) && !besides.is_change() {
        _ if !args.detailed_exitcode => Exit::Done,
        true if !besides.is_known() => Exit::Unreachable,
        true => Exit::Done,
        _ if plan.is_blocked(asked.migrate) || left.is_blocked(asked.prune) => Exit::Blocked,
        _ => Exit::Pending,
    })
}

/// A line with `-o ndjson`: each change, and at last the plan as a whole.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Line {
    Change(ChangeView),
    Plan(Head),
}

/// Prints a plan in the output format.
fn show(
    plan: &Plan,
    observed: &Observed,
    source: &Source,
    left: &LeftoverTypes,
    besides: &Besides,
    asked: Asked,
    output: Output,
) -> anyhow::Result<()> {
    match output.format {
        Format::Text => {
            let columns = Output::drawing_columns();
            output.print(&render::plan(plan, besides, &source.file, output.verbose, asked, columns))?;
        }
        Format::Json => output.json(&document(plan, observed, source, left, besides, asked))?,
        Format::Ndjson => {
            for change in &plan.changes {
                output.json(&Line::Change(with_line(change, plan, source)))?;
            }
            output.json(&Line::Plan(head(plan, observed, &source.file, left, besides, asked)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
