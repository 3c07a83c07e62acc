//! `topology apply`: makes the broker as the file says.

mod carry_out;

use std::{
    io::{self, BufRead as _, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use backon::{ExponentialBuilder, Retryable as _};
use hatchery::{
    adapters::{
        management::ManagementApi,
        rabbitmq::{connection::AmqpUrl, declare::Declarer},
    },
    domain::{
        compile::{Desired, compile},
        names,
        observed::Observed,
        plan::{Plan, plan},
    },
    ports::{BrokerError, Management as _, ManagementError},
};

use self::carry_out::Carried;
use super::{
    args::{Common, parse_patience},
    exit::{Ended, Exit},
    load,
    output::{GREEN, Output},
    plan::{Asked, Source, document},
    plan_file::{self, PlanFile},
    render,
};

/// How often the lock is looked for: the nodes of a cluster learn of it one after the other.
const AGAIN: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(100)).with_max_times(6);

/// Make the broker as the file says
#[derive(clap::Args)]
#[command(after_help = "\
Applying again does no harm: what is there stays, what is missing is created.
Whatever interrupts it, and whenever: run it again, and it goes on from there.
One apply at a time: it holds the queue <name>.lock while it runs.

Examples:
  topology apply                           show the plan, ask, change
  topology apply --auto-approve            in a deployment
  topology apply --migrate                 replace what cannot be changed in
                                           place, and lose no event
  topology apply --prune                   remove what has left the file, once
                                           it is empty
  topology plan --out plan.json && topology apply plan.json")]
pub(crate) struct Args {
    /// What `topology plan --out` has written: carried out as it is, or refused as stale
    #[arg(value_name = "PLAN")]
    plan: Option<PathBuf>,

    /// Do not ask
    #[arg(long)]
    auto_approve: bool,

    #[command(flatten)]
    asked: Asked,

    /// How long to wait for another apply
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_patience)]
    lock_timeout: Duration,

    /// How long to wait for queues to drain, with --migrate and --prune
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_patience)]
    drain_timeout: Duration,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let (topology, source, planned) = if let Some(path) = &args.plan {
        let planned = PlanFile::read(path)?;
        (planned.read_topology()?, Source::new(planned.file.clone(), &planned.topology), Some(planned))
    } else {
        let (topology, text) = load::with_text(common, output)?;
        (topology, Source::new(common.file.display().to_string(), &text), None)
    };
    let url = common.amqp_url()?;
    let management = ManagementApi::new(common.management_url(&url)?, &url.vhost())?;
    let asked = planned.as_ref().map_or(args.asked, |planned| planned.asked.and(args.asked));
    let desired = compile(&topology)?;
    let apply = Apply { desired, source, management, output, asked, patience: args.drain_timeout };

    let (shown, observed) = apply.plan().await?;
    if output.is_text() {
        output.print(&apply.render(&shown))?;
    } else if !args.auto_approve && planned.is_none() && Output::is_interactive() {
        // Whoever is asked sees what about.
        output.note(apply.render(&shown).trim_end());
    }
    if let Some(planned) = &planned
        && planned.digests.changes != plan_file::digest(&shown)
    {
        let message = "the broker is not as it was when this plan was made; nothing was written. Plan again";
        return Err(Ended::new(Exit::Locked, message).into());
    }
    if asked.nothing_to_do(&shown) {
        return apply.done(&Carried::nothing(shown, observed), started);
    }
    apply.refuse_blocked(&shown, &observed)?;
    // Whoever gives a plan has approved it.
    if !args.auto_approve && planned.is_none() {
        approve("Apply these changes?", output)?;
    }

    let started = Instant::now();
    let lock = lock(url, &apply.desired, args.lock_timeout, output).await?;
    let result = apply.carry_out(&lock, &shown, args.auto_approve && planned.is_none()).await;
    lock.release().await;
    apply.done(&result?, started)
}

/// Under every name that the topology has had: whoever still applies an old file writes to the same objects.
pub(super) async fn lock(
    url: AmqpUrl,
    desired: &Desired,
    patience: Duration,
    output: Output,
) -> anyhow::Result<Declarer> {
    let queues: Vec<String> = desired.owners().map(names::lock).collect();
    let waiting = |queue: &str| output.note(&format!("Waiting for another apply, which holds {queue} …"));
    Declarer::lock(url, "topology apply", &queues, patience, waiting).await.map_err(|error| match error {
        BrokerError::Locked { object } => {
            let advice = "nothing was written. Run it again, or wait longer with --lock-timeout; if nobody runs it, see \
                          who has declared that queue";
            Ended::new(Exit::Locked, format!("another apply holds {object}; {advice}")).into()
        }
        error => error.into(),
    })
}

/// Whether the lock, which was taken over AMQP, is seen by the management API. Where a tunnel leads to another broker than
/// the other one, queues would be deleted on the one because they are empty on the other.
pub(super) async fn same_broker(management: &ManagementApi, desired: &Desired) -> anyhow::Result<()> {
    let lock = names::lock(&desired.owner);
    let look = async || match management.observe().await {
        Ok(observed) if observed.queues.iter().any(|live| live.name == lock) => Ok(()),
        Ok(_) => Err(None),
        Err(error) => Err(Some(error)),
    };
    match look.retry(AGAIN).when(Option::is_none).await {
        Ok(()) => Ok(()),
        Err(Some(error)) => Err(error.into()),
        Err(None) => {
            let message = format!(
                "the management API does not show the queue {lock}, which was declared over AMQP a moment ago: they are \
                 two brokers, or two virtual hosts; nothing was written. Check --amqp-url and --management-url"
            );
            Err(Ended::new(Exit::Unreachable, message).into())
        }
    }
}

/// Asks, on a terminal.
pub(super) fn approve(question: &str, output: Output) -> anyhow::Result<()> {
    if !Output::is_interactive() {
        let message = "approval is needed, and there is no terminal to ask on; nothing was written. \
                       Run it with --auto-approve";
        return Err(Ended::new(Exit::Usage, message).into());
    }
    // Straight to standard error: a prompt has no newline.
    write!(io::stderr(), "{question} [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    if !answer.ends_with('\n') {
        output.note("");
    }
    Err(Ended::new(Exit::Error, "not approved; nothing was written").into())
}

struct Apply {
    desired: Desired,
    source: Source,
    management: ManagementApi,
    output: Output,
    asked: Asked,
    patience: Duration,
}

impl Apply {
    async fn plan(&self) -> Result<(Plan, Observed), ManagementError> {
        let observed = self.management.observe().await?;
        Ok((plan(&self.desired, &observed), observed))
    }

    fn render(&self, plan: &Plan) -> String {
        render::plan(plan, &self.source.file, self.output.verbose, self.asked)
    }

    fn refuse_blocked(&self, plan: &Plan, observed: &Observed) -> anyhow::Result<()> {
        if !plan.is_blocked(self.asked.migrate) {
            return Ok(());
        }
        self.report(&Carried::nothing(plan.clone(), observed.clone()), false, None)?;
        Err(Ended::new(Exit::Blocked, "something stands in the way, see the lines with `!`; nothing was written")
            .into())
    }

    fn done(&self, carried: &Carried, started: Instant) -> anyhow::Result<Exit> {
        let elapsed = started.elapsed();
        if !self.output.is_text() {
            self.report(carried, true, Some(elapsed))?;
        } else if let Some(what) = carried.summary() {
            let seconds = elapsed.as_secs_f64();
            self.output.print(&format!("{GREEN}Applied{GREEN:#}: {what}, in {seconds:.1} s.\n"))?;
        }
        if let Some(note) = carried.stays() {
            self.output.note(&note);
        }
        Ok(Exit::Done)
    }

    /// The one JSON document of a run.
    fn report(&self, carried: &Carried, applied: bool, elapsed: Option<Duration>) -> io::Result<()> {
        if self.output.is_text() {
            return Ok(());
        }
        let mut document = document(&carried.plan, &carried.observed, &self.source, self.asked);
        document["applied"] = applied.into();
        document["moved"] = carried.moved.into();
        document["removed"] = carried.removed.into();
        document["not_removed"] = carried.left.as_deref().unwrap_or_default().into();
        document["elapsed_ms"] = elapsed.map(|elapsed| elapsed.as_millis().try_into().unwrap_or(u64::MAX)).into();
        self.output.json(&document)
    }
}
