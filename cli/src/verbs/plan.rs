//! `topology plan`: the file against the broker. It writes nothing.

use std::path::PathBuf;

use hatchery::{
    file::Lines,
    internals::{
        compile::{Binding, Exchange, Policy, Queue, compile},
        versions,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    args::{Common, Format},
    change::one_broker,
    exit::Exit,
    left_types::{self, LeftTypes},
    load,
    management::{Management as _, ManagementApi},
    observed::Observed,
    output::Output,
    plan::{Action, Change, Object, Plan, plan},
    plan_file::{FORMAT_VERSION, PlanFile, digest},
    register, render,
};

/// Show what would change on the broker, and change nothing
#[derive(clap::Args)]
#[command(
    visible_alias = "diff",
    after_help = "\
Signs:
  +  is created
  ~  has drifted, and is put back
  -  owned, and no longer in the file: it stays, or goes with --prune
  !  stands in the way, so that nothing would be written
  *  a stranger's policy that wins on owned queues, and does no harm
  ?  not owned, never touched (shown with -v)

Examples:
  topology plan
  topology plan -v                         every binding, and what is not owned
  topology plan --detailed-exitcode        0 in sync, 3 pending, 4 blocked
  topology plan --migrate --out plan.json  to be looked at, and then
  topology apply plan.json                 carried out, or refused as stale
  topology plan -o json | jq '.counts'"
)]
pub(crate) struct Args {
    /// Exit with 3 when changes are pending and with 4 when something stands in the way
    #[arg(long)]
    detailed_exitcode: bool,

    #[command(flatten)]
    asked: Asked,

    /// Write the plan to a file as well, for `topology apply FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What has to be asked for.
#[derive(clap::Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Replace what cannot be changed in place; its events are moved, none is lost
    #[arg(long)]
    pub(crate) migrate: bool,

    /// Remove what is owned and no longer in the file, once it is provably empty
    #[arg(long)]
    pub(crate) prune: bool,
}

impl Asked {
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { migrate: self.migrate || other.migrate, prune: self.prune || other.prune }
    }

    pub(crate) fn nothing_to_do(self, plan: &Plan) -> bool {
        plan.in_sync() && !(self.prune && plan.counts().leftover > 0)
    }
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
    if let Some(path) = &args.out {
        PlanFile::new(&plan, &observed, &source, &text, args.asked).write(path)?;
    }
    // Not in the file, which is of the broker alone: the `apply` of it looks again, and may be told that the topology has moved.
    let looked = register::look(common, &topology, &management, &observed, &[], output).await?;
    if let Some(refusal) = looked.and_then(|looked| looked.refusal) {
        plan.block(&refusal);
    }
    show(&plan, &observed, &source, &left, args.asked, output)?;
    left.warn(output);
    Ok(match () {
        () if !args.detailed_exitcode || args.asked.nothing_to_do(&plan) => Exit::Done,
        () if plan.is_blocked(args.asked.migrate) || left.is_blocked(args.asked.prune) => Exit::Blocked,
        () => Exit::Pending,
    })
}

/// Writes a plan in the format that was asked for.
fn show(
    plan: &Plan,
    observed: &Observed,
    source: &Source,
    left: &LeftTypes,
    asked: Asked,
    output: Output,
) -> anyhow::Result<()> {
    match output.format {
        Format::Text => output.print(&render::plan(plan, &source.file, output.verbose, asked))?,
        Format::Json => {
            let mut document = document(plan, observed, source, asked);
            left.add_to(&mut document, asked.prune);
            output.json(&document)?;
        }
        Format::Ndjson => {
            for change in &plan.changes {
                output.json(&with_line(change, plan, source))?;
            }
            let mut head = head(plan, observed, &source.file, asked);
            left.add_to(&mut head, asked.prune);
            output.json(&head)?;
        }
    }
    Ok(())
}

/// A plan as one document.
pub(crate) fn document(plan: &Plan, observed: &Observed, source: &Source, asked: Asked) -> Value {
    let mut document = head(plan, observed, &source.file, asked);
    document["changes"] = plan.changes.iter().map(|change| with_line(change, plan, source)).collect();
    document
}

/// Where a topology comes from.
pub(crate) struct Source {
    /// The file's name.
    pub(crate) file: String,
    pub(crate) lines: Lines,
}

impl Source {
    pub(crate) fn new(file: String, text: &str) -> Self {
        Self { file, lines: Lines::of(text) }
    }

    /// The line that asks for an object.
    fn line(&self, owner: &str, change: &Change) -> Option<usize> {
        if matches!(change.action, Action::Leftover | Action::Shadowing | Action::Ignored) {
            return None;
        }
        let name = match &change.object {
            Some(Object::Binding(binding)) => binding.target.name(),
            _ => &change.address.name,
        };
        let words: Vec<&str> = name.strip_prefix(owner)?.trim_start_matches('.').split('.').collect();
        let paths: Vec<Vec<&str>> = match words.as_slice() {
            ["retry", of, _] => vec![vec!["types", of, "retry"], vec!["defaults", "retry"], vec!["types", of]],
            ["processor" | "dead-letter", of] => vec![vec!["types", of]],
            ["hatchery", _] => vec![vec!["hatcheries"]],
            ["ladder", ..] => vec![vec!["ladder"]],
            _ => Vec::new(),
        };
        paths.iter().find_map(|path| self.lines.line(path)).or_else(|| self.lines.line(&["name"]))
    }
}

fn with_line(change: &Change, plan: &Plan, source: &Source) -> Value {
    let mut view = view(change);
    if let Some(line) = source.line(&plan.owner, change) {
        view["line"] = line.into();
    }
    view
}

/// What there is to say about a plan as a whole.
fn head(plan: &Plan, observed: &Observed, file: &str, asked: Asked) -> Value {
    json!({
        "format_version": FORMAT_VERSION,
        "file": file,
        "owner": plan.owner,
        "broker": observed.version,
        "observed_at": observed.at.map(|at| at.to_string()),
        "in_sync": asked.nothing_to_do(plan),
        "blocked": plan.is_blocked(asked.migrate),
        "counts": plan.counts(),
        "digest": digest(plan),
    })
}

/// One change.
pub(crate) fn view(change: &Change) -> Value {
    let mut view = json!({
        "action": change.action,
        "kind": change.address.kind,
        "name": change.address.name,
    });
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            view[key] = value;
        }
    };
    add("part_of", change.part_of.as_ref().map(|whole| json!(whole)));
    add("differences", (!change.differences.is_empty()).then(|| json!(change.differences)));
    add("reason", change.reason.as_ref().map(|reason| json!(reason)));
    add("needs", change.needs.map(|needs| json!(needs)));
    add("held", change.held.map(|held| json!(held)));
    add("object", change.object.as_ref().map(object));
    view
}

fn object(object: &Object) -> Value {
    match object {
        Object::Exchange(Exchange { arguments, .. }) | Object::Queue(Queue { arguments, .. }) => {
            json!({ "arguments": arguments })
        }
        Object::Binding(Binding { source, target, key }) => {
            json!({ "source": source, "target": target.name(), "key": key })
        }
        Object::Policy(Policy { pattern, definition, .. }) => json!({ "pattern": pattern, "definition": definition }),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
