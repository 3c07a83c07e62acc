//! `topology apply`: makes the broker as the file says.

use std::{
    io::{self, BufRead as _, Write as _},
    time::{Duration, Instant},
};

use backon::{ExponentialBuilder, Retryable as _};
use hatchery::{
    adapters::{
        management::ManagementApi,
        rabbitmq::{
            connection::AmqpUrl,
            declare::{DeclareError, Declarer},
        },
    },
    domain::{
        compile::{Desired, compile},
        names::Names,
        observed::Observed,
        plan::{Address, Plan, plan},
        ttl::parse_duration,
    },
    ports::{BrokerError, Management as _, ManagementError},
};
use serde_json::json;

use super::{
    args::Common,
    exit::{Ended, Exit},
    load,
    output::{GREEN, Output},
    plan::{head, view},
    render,
};

/// How often it is looked whether everything is there: the broker's own lists may lag behind in a cluster.
const LOOKS: usize = 6;

/// Make the broker as the file says
#[derive(clap::Args)]
#[command(after_help = "\
Applying again does no harm: what is there stays, what is missing is created.
One apply at a time: it holds the queue <name>.lock while it runs.

Examples:
  topology apply                           show the plan, ask, change
  topology apply --auto-approve            in a deployment
  topology apply --auto-approve --lock-timeout 5m")]
pub(crate) struct Args {
    /// Do not ask
    #[arg(long)]
    auto_approve: bool,

    /// How long to wait for another apply
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    lock_timeout: Duration,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let topology = load::topology(common, output)?;
    let url = common.amqp_url()?;
    let management = ManagementApi::new(common.management_url(&url)?, &url.vhost())?;
    let names = Names::new(topology.name.clone());
    let apply = Apply { desired: compile(&topology), file: common.file.display().to_string(), management, output };

    let (shown, observed) = apply.plan().await?;
    if output.is_text() {
        output.print(&apply.render(&shown))?;
    } else if !args.auto_approve && Output::is_interactive() {
        // Whoever is asked sees what about.
        output.note(apply.render(&shown).trim_end());
    }
    if shown.in_sync() {
        return apply.done(&shown, &observed, started);
    }
    apply.refuse_blocked(&shown, &observed)?;
    approve(args, output)?;

    let started = Instant::now();
    let lock = lock(url, &names.lock(), args.lock_timeout, output).await?;
    let result = apply.carry_out(&lock, &shown, args.auto_approve).await;
    lock.release().await;
    let (plan, observed) = result?;
    apply.done(&plan, &observed, started)
}

async fn lock(url: AmqpUrl, queue: &str, patience: Duration, output: Output) -> anyhow::Result<Declarer> {
    let waiting = || output.note(&format!("Waiting for another apply, which holds {queue} …"));
    Declarer::lock(url, "topology apply", queue, patience, waiting).await.map_err(|error| match error {
        BrokerError::Locked { .. } => Ended::new(
            Exit::Locked,
            format!(
                "another apply holds {queue}; nothing was written. Run it again, or wait longer with --lock-timeout"
            ),
        )
        .into(),
        error => error.into(),
    })
}

/// Asks, on a terminal.
fn approve(args: &Args, output: Output) -> anyhow::Result<()> {
    if args.auto_approve {
        return Ok(());
    }
    if !Output::is_interactive() {
        let message = "approval is needed, and there is no terminal to ask on; nothing was written. \
                       Run it with --auto-approve";
        return Err(Ended::new(Exit::Usage, message).into());
    }
    // Straight to standard error: a prompt has no newline.
    write!(io::stderr(), "Apply these changes? [y/N] ")?;
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
    file: String,
    management: ManagementApi,
    output: Output,
}

impl Apply {
    async fn plan(&self) -> Result<(Plan, Observed), ManagementError> {
        let observed = self.management.observe().await?;
        Ok((plan(&self.desired, &observed), observed))
    }

    fn render(&self, plan: &Plan) -> String {
        render::plan(plan, &self.file, self.output.verbose)
    }

    fn refuse_blocked(&self, plan: &Plan, observed: &Observed) -> anyhow::Result<()> {
        if !plan.is_blocked() {
            return Ok(());
        }
        self.report(plan, observed, false, None)?;
        Err(Ended::new(Exit::Blocked, "something stands in the way, see the lines with `!`; nothing was written")
            .into())
    }

    /// Looks again, now that nobody else writes, and writes. What was carried out.
    async fn carry_out(&self, lock: &Declarer, shown: &Plan, any: bool) -> anyhow::Result<(Plan, Observed)> {
        let (plan, observed) = self.plan().await?;
        if plan.is_blocked() {
            self.output.note(self.render(&plan).trim_end());
        }
        self.refuse_blocked(&plan, &observed)?;
        if plan.in_sync() {
            self.output.note("Nothing is left to do: another apply has done it meanwhile.");
            return Ok((plan, observed));
        }
        let same = plan.to_write().eq(shown.to_write());
        if !same && !any {
            let message = "the broker has changed since the plan was shown; nothing was written. Run it again";
            return Err(Ended::new(Exit::Locked, message).into());
        }
        let bar = self.output.steps(plan.to_write().count());
        let written = lock.carry_out(&plan, &self.management, |address| {
            bar.set_message(address.to_string());
            bar.inc(1);
        });
        let written = written.await;
        bar.finish_and_clear();
        written.map_err(|error| self.interrupted(error))?;
        self.verify().await?;
        Ok((plan, observed))
    }

    /// Every object really is there, and as the file says.
    async fn verify(&self) -> anyhow::Result<()> {
        let look = || async {
            match self.plan().await {
                Ok((plan, _)) if plan.in_sync() => Ok(()),
                Ok((plan, _)) => Err(Ok(plan)),
                Err(error) => Err(Err(error)),
            }
        };
        let seen = look.retry(ExponentialBuilder::default().with_max_times(LOOKS)).when(Result::is_ok).await;
        match seen {
            Ok(()) => Ok(()),
            Err(Err(error)) => Err(error.into()),
            Err(Ok(plan)) => {
                self.output.note(self.render(&plan).trim_end());
                let message = "written, and the broker still is not as the file says, see above. Run it again";
                Err(Ended::new(Exit::Partly, message).into())
            }
        }
    }

    fn interrupted(&self, error: DeclareError) -> anyhow::Error {
        if error.done == 0 {
            return error.into();
        }
        if !self.output.is_text()
            && let Err(error) = self.output.json(&json!({ "applied": false, "left": error.left }))
        {
            return error.into();
        }
        let left = left(&error.left);
        let message = format!("{error}; {} written, left: {left}. Run it again", error.done);
        Ended::new(Exit::Partly, message).into()
    }

    fn done(&self, plan: &Plan, observed: &Observed, started: Instant) -> anyhow::Result<Exit> {
        let elapsed = started.elapsed();
        if !self.output.is_text() {
            self.report(plan, observed, true, Some(elapsed))?;
        } else if !plan.in_sync() {
            let counts = plan.counts();
            self.output.print(&format!(
                "{GREEN}Applied{GREEN:#}: {} added, {} changed, in {:.1} s.\n",
                counts.add,
                counts.change,
                elapsed.as_secs_f64()
            ))?;
        }
        Ok(Exit::Done)
    }

    /// The one JSON document of a run.
    fn report(&self, plan: &Plan, observed: &Observed, applied: bool, elapsed: Option<Duration>) -> io::Result<()> {
        if self.output.is_text() {
            return Ok(());
        }
        let mut document = head(plan, observed, &self.file);
        document["changes"] = plan.changes.iter().map(view).collect();
        document["applied"] = applied.into();
        document["elapsed_ms"] = elapsed.map(|elapsed| elapsed.as_millis().try_into().unwrap_or(u64::MAX)).into();
        self.output.json(&document)
    }
}

/// The first few of what is left.
fn left(addresses: &[Address]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = addresses.iter().take(SHOWN).map(ToString::to_string).collect();
    match addresses.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
