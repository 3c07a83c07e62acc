//! `topology destroy`: removes all objects that the topology owns.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use hatchery::internals::compile::{Desired, compile};
use hatchery_admin::{
    broker::{
        declare::{DeclareCause, Declarer},
        destroy::first_in_use,
    },
    management::{Management as _, ManagementApi, ManagementError},
    observed::Observed,
    plan::{Address, Destruction, Plan, Step, destruction},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::{Common, parse_patience},
    asked::Asked,
    change::{approve, lock, one_broker, same_broker, unless_interrupted},
    exit::{Ended, Exit},
    load,
    output::{GREEN, Output},
    plan_document::{ChangeView, FORMAT_VERSION, view},
    register::{self, Looked},
    render, schedules,
};

/// The pause between two readings while the broker does not report all counts yet.
const PAUSE: Duration = Duration::from_millis(500);

/// How long to wait for missing counts: a few intervals of the broker's statistics.
const PATIENCE: Duration = Duration::from_secs(21);

/// After this time a note explains the wait.
const TELL: Duration = Duration::from_secs(2);

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
    let url = common.amqp_url()?;
    let management = ManagementApi::new(common.management_url(&url)?, &url.vhost())?;
    let desired = compile(&topology)?;
    let destroy = Destroy { desired, file: common.file.display().to_string(), management, output, force: args.force };

    let (shown, observed) = destroy.look().await?;
    one_broker(&url, &destroy.management, &observed, "destroy").await?;
    if output.is_text() {
        output.print(&destroy.render(&shown))?;
    } else if !args.auto_approve && Output::is_interactive() {
        output.note(destroy.render(&shown).trim_end());
    }
    let looked = async || register::look(common, &topology, &destroy.management, &observed, &[], output).await;
    if shown.plan.changes.is_empty() {
        // An interrupted destroy may have removed everything, and left its name in Redis. The lock rules out that an
        // `apply` is under way.
        let lock = lock(url, &destroy.desired, args.lock_timeout, output).await?;
        if destroy.look().await?.0.plan.changes.is_empty() {
            leave(looked().await?, output).await;
            schedules::remove(common, &topology, output).await?;
        }
        lock.release().await;
        destroy.report(&shown, &observed, 0, Some(started.elapsed()))?;
        return Ok(Exit::Done);
    }
    destroy.refuse(&shown, &observed)?;
    if !args.auto_approve {
        approve("Remove all of this?", output)?;
    }

    let started = Instant::now();
    let lock = lock(url, &destroy.desired, args.lock_timeout, output).await?;
    let result = unless_interrupted(async {
        let looked = looked().await?;
        let gone = destroy.carry_out(&lock, &shown, args.auto_approve).await?;
        leave(looked, output).await;
        schedules::remove(common, &topology, output).await?;
        Ok(gone)
    })
    .await;
    lock.release().await;
    let (gone, observed, removed) = result?;
    let elapsed = started.elapsed();
    let told = if output.is_text() {
        output.print(&destroyed(removed, elapsed)).map_err(Into::into)
    } else {
        destroy.report(&gone, &observed, removed, Some(elapsed))
    };
    told.map_err(|error| if removed > 0 { Ended::untold(error) } else { error })?;
    Ok(Exit::Done)
}

/// Removes the record of the register's user, unless another topology or broker uses the register.
async fn leave(looked: Option<Looked>, output: Output) {
    if let Some(Ok(free)) = looked.map(Looked::free) {
        free.leave(output).await;
    }
}

struct Destroy {
    desired: Desired,
    file: String,
    management: ManagementApi,
    output: Output,
    force: bool,
}

impl Destroy {
    /// Returns the objects to remove. The broker reports no counts of a new queue at first, so they are read again for
    /// a while.
    async fn look(&self) -> Result<(Destruction, Observed), ManagementError> {
        let began = Instant::now();
        let mut is_told = false;
        loop {
            let counts = self.management.counts().await?;
            let observed = self.management.observe().await?.with_counts(&counts);
            let found = destruction(&self.desired, &observed, self.force);
            let owned: BTreeSet<&str> = found.queues().collect();
            let mut live = observed.queues.iter().filter(|live| owned.contains(live.name.as_str()));
            let is_known = live.all(|live| live.messages.is_some() && live.consumers.is_some());
            if is_known || self.force || began.elapsed() >= PATIENCE {
                return Ok((found, observed));
            }
            if !is_told && began.elapsed() >= TELL {
                self.output.note("Waiting for the broker to report the counts of its queues …");
                is_told = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads the objects again under the lock, when no apply runs, and removes them. With `any` they may differ from
    /// those that were shown.
    async fn carry_out(
        &self,
        lock: &Declarer,
        shown: &Destruction,
        any: bool,
    ) -> anyhow::Result<(Destruction, Observed, usize)> {
        same_broker(&self.management, &self.desired).await?;
        let (found, observed) = self.look().await?;
        if found.plan.is_blocked(true) {
            self.output.note(self.render(&found).trim_end());
        }
        self.refuse(&found, &observed)?;
        if !any && addresses(&found) != addresses(shown) {
            let message = "the broker has changed since the objects were shown; nothing was removed. Run it again";
            return Err(Ended::new(Exit::Locked, message).into());
        }
        let mut removed = 0;
        self.delete(lock, &found.entries, &mut removed).await?;
        if !self.force {
            // The topology's own exchanges and bindings bring in nothing any more, so the queues can be checked for
            // good.
            let queues: BTreeSet<String> = found.queues().map(str::to_owned).collect();
            let used = first_in_use(&queues, &self.management).await.map_err(|error| self.partly(&error, removed))?;
            if let Some(queue) = used {
                return Err(self.came(&format!("queue {queue}"), removed));
            }
        }
        self.delete(lock, &found.rest, &mut removed).await?;
        Ok((found, observed, removed))
    }

    async fn delete(&self, lock: &Declarer, steps: &[Step], removed: &mut usize) -> anyhow::Result<()> {
        let bar = self.output.steps(steps.len());
        let deleted = lock.delete(steps, self.force, &self.management, |address| {
            *removed += 1;
            bar.set_message(address.to_string());
            bar.inc(1);
        });
        let deleted = deleted.await;
        bar.finish_and_clear();
        match deleted {
            Ok(None) => Ok(()),
            Ok(Some(address)) => Err(self.came(&address.to_string(), *removed)),
            Err(DeclareCause::Broker(error)) if *removed == 0 => Err(error.into()),
            Err(cause) => Err(self.partly(&cause, *removed)),
        }
    }

    /// Returns the error for an object that came into use during the removal, because events were still on their way.
    fn came(&self, what: &str, removed: usize) -> anyhow::Error {
        self.partly(&format!("the {what} is in use after all: it was used after the check"), removed)
    }

    fn partly(&self, why: &dyn std::fmt::Display, removed: usize) -> anyhow::Error {
        let advice = "`topology destroy` removes the rest, `topology apply` creates everything again";
        if !self.output.is_text()
            && let Err(error) = self.output.json(&Answer::Unfinished(Unfinished { destroyed: false, removed }))
        {
            return error.into();
        }
        Ended::new(Exit::Partly, format!("{why}; {} removed. {advice}", objects(removed))).into()
    }

    fn refuse(&self, found: &Destruction, observed: &Observed) -> anyhow::Result<()> {
        if !found.plan.is_blocked(true) {
            return Ok(());
        }
        self.report(found, observed, 0, None)?;
        let message = "some objects are in use, see the lines with `!`; nothing was removed. --force removes them too, \
                       and their messages are lost";
        Err(Ended::new(Exit::Blocked, message).into())
    }

    fn render(&self, found: &Destruction) -> String {
        screen(&found.plan, self.output.verbose, Output::drawing_columns())
    }

    /// Prints the JSON document of this run. `elapsed` is `None` if nothing was destroyed.
    fn report(
        &self,
        found: &Destruction,
        observed: &Observed,
        removed: usize,
        elapsed: Option<Duration>,
    ) -> anyhow::Result<()> {
        if self.output.is_text() {
            return Ok(());
        }
        self.output.json(&Answer::Ended(Box::new(Report {
            format_version: FORMAT_VERSION,
            file: self.file.clone(),
            owner: self.desired.owner.clone(),
            broker: observed.version.clone(),
            observed_at: observed.at.map(|at| at.to_string()),
            blocked: found.plan.is_blocked(true),
            destroyed: elapsed.is_some(),
            removed,
            elapsed_ms: elapsed.map(|elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
            objects: found.plan.changes.iter().map(view).collect(),
        })))?;
        Ok(())
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
    format!("{lines}Destroy: {} of {owner}{blocked}.\n", objects(counts.leftover + counts.blocked))
}

fn destroyed(removed: usize, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    format!("{GREEN}Destroyed{GREEN:#}: {} removed, in {seconds:.1} s.\n", objects(removed))
}

fn addresses(found: &Destruction) -> BTreeSet<&Address> {
    found.plan.changes.iter().map(|change| &change.address).collect()
}

fn objects(n: usize) -> String {
    format!("{n} object{}", if n == 1 { "" } else { "s" })
}

/// The golden screens: `tests/destroy/*.txt`. `UPDATE_GOLDEN=1` writes them anew.
#[cfg(test)]
mod tests {
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
