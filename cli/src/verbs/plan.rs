//! `topology plan`: compares the file with the broker, and writes nothing to the broker.

use std::path::PathBuf;

use hatchery::internals::{compile::compile, versions};
use hatchery_admin::{
    management::{Management as _, ManagementApi},
    observed::Observed,
    plan::{Plan, plan},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::Common,
    asked::Asked,
    change::one_broker,
    exit::Exit,
    left_types::{self, LeftTypes},
    load,
    output::{Format, Output},
    plan_document::{ChangeView, Head, Source, document, head, with_line},
    plan_file::PlanFile,
    register, render,
    schedules::{self, Planned},
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
    asked: Asked,

    /// Write the plan to a file as well, for `topology apply FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let (topology, text) = load::with_text(common, output)?;
    let desired = compile(&topology)?;
    let broker = common.amqp_url()?;
    let management = ManagementApi::new(common.management_url(&broker)?, &broker.vhost())?;
    let observed = management.observe().await?;
    one_broker(&broker, &management, &observed, "plan").await?;
    let mut plan = plan(&desired, &observed);
    let source = Source::new(common.file.display().to_string(), &text);
    if let Some(fault) = observed.version.as_deref().and_then(versions::fault) {
        output.warn(&fault);
    }
    let left = left_types::Register::new(common, &topology).ask(&plan).await;
    let schedules = schedules::plan(common, &topology).await?;
    if let Some(path) = &args.out {
        let file = PlanFile::new(&plan, &observed, &source, &text, &left, schedules.changes(), args.asked)?;
        file.write(path)?;
    }
    // A plan file holds only changes of the broker, so the register's user is not in it. `apply` reads it again, and
    // may be given `--moved-from`.
    let looked = register::look(common, &topology, &management, &observed, &[], output).await?;
    if let Some(refusal) = looked.and_then(|looked| looked.refusal) {
        plan.block(&refusal);
    }
    show(&plan, &observed, &source, &left, &schedules, args.asked, output)?;
    left.warn(output);
    schedules.warn(output);
    Ok(match () {
        () if !args.detailed_exitcode => Exit::Done,
        () if args.asked.nothing_to_do(&plan) && !schedules.is_known() => Exit::Unreachable,
        () if args.asked.nothing_to_do(&plan) && !schedules.is_pending() => Exit::Done,
        () if plan.is_blocked(args.asked.migrate) || left.is_blocked(args.asked.prune) => Exit::Blocked,
        () => Exit::Pending,
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
    left: &LeftTypes,
    schedules: &Planned,
    asked: Asked,
    output: Output,
) -> anyhow::Result<()> {
    match output.format {
        Format::Text => {
            let columns = Output::drawing_columns();
            let schedules = schedules.changes().unwrap_or_default();
            output.print(&render::plan(plan, schedules, &source.file, output.verbose, asked, columns))?;
        }
        Format::Json => output.json(&document(plan, observed, source, left, schedules.changes(), asked))?,
        Format::Ndjson => {
            for change in &plan.changes {
                output.json(&Line::Change(with_line(change, plan, source)))?;
            }
            output.json(&Line::Plan(head(plan, observed, &source.file, left, schedules.changes(), asked)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
