//! `topology plan`: the file against the broker. It writes nothing.

use hatchery::{
    adapters::management::ManagementApi,
    domain::{
        compile::{Binding, Exchange, Policy, Queue, compile},
        observed::Observed,
        plan::{Change, Object, Plan, plan},
    },
    ports::Management as _,
};
use serde_json::{Value, json};

use super::{
    args::{Common, Format},
    exit::Exit,
    load,
    output::Output,
    render,
};

/// Show what would change on the broker, and change nothing
#[derive(clap::Args)]
#[command(
    visible_alias = "diff",
    after_help = "\
Signs:
  +  is created
  ~  has drifted, and is put back
  -  owned, and no longer in the file: it stays
  !  stands in the way, so that nothing would be written
  ?  not owned, never touched (shown with -v)

Examples:
  topology plan
  topology plan -v                         every binding, and what is not owned
  topology plan --detailed-exitcode        0 in sync, 3 pending, 4 blocked
  topology plan -o json | jq '.counts'"
)]
pub(crate) struct Args {
    /// Exit with 3 when changes are pending and with 4 when something stands in the way
    #[arg(long)]
    detailed_exitcode: bool,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let desired = compile(&load::topology(common, output)?)?;
    let broker = common.amqp_url()?;
    let management = ManagementApi::new(common.management_url(&broker)?, &broker.vhost())?;
    let observed = management.observe().await?;
    let plan = plan(&desired, &observed);
    show(&plan, &observed, common, output)?;
    Ok(match () {
        () if !args.detailed_exitcode || plan.in_sync() => Exit::Done,
        () if plan.is_blocked() => Exit::Blocked,
        () => Exit::Pending,
    })
}

/// Writes a plan in the format that was asked for.
fn show(plan: &Plan, observed: &Observed, common: &Common, output: Output) -> anyhow::Result<()> {
    let file = common.file.display().to_string();
    match output.format {
        Format::Text => output.print(&render::plan(plan, &file, output.verbose))?,
        Format::Json => {
            let mut document = head(plan, observed, &file);
            document["changes"] = plan.changes.iter().map(view).collect();
            output.json(&document)?;
        }
        Format::Ndjson => {
            for change in &plan.changes {
                output.json(&view(change))?;
            }
            output.json(&head(plan, observed, &file))?;
        }
    }
    Ok(())
}

/// What there is to say about a plan as a whole.
pub(crate) fn head(plan: &Plan, observed: &Observed, file: &str) -> Value {
    json!({
        "file": file,
        "owner": plan.owner,
        "broker": observed.version,
        "in_sync": plan.in_sync(),
        "blocked": plan.is_blocked(),
        "counts": plan.counts(),
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
