//! Pauses and resumes types and sources.

use std::{collections::BTreeSet, time::Duration};

use hatchery::{
    Topology,
    internals::{
        compile::Desired,
        names::Names,
        switches::{Name, Pause, Paused, Switches},
        time,
        words::{Word, nearest},
    },
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::{change::FIRST, schedules::unfinished};
use crate::{admin::Admin, broker::look::look, error::AdminError, figures::Consumer, notation::Until, watch::Watch};

/// How long workers may take until they have cancelled their consumers.
const FOLLOW: Duration = Duration::from_secs(10);

/// How old the list of consumers may be. RabbitMQ renews its statistics each 5 s.
const LISTED: Duration = Duration::from_secs(6);

/// The delay between two looks at the queues.
const LOOK: Duration = Duration::from_millis(250);

impl Until {
    /// Returns the end of a pause that begins now.
    pub(crate) fn after(self, now: Timestamp) -> Result<Timestamp, AdminError> {
        let until = match self {
            Self::At(time) => time,
            Self::After(after) => time::later(now, after),
        };
        if until > now { Ok(until) } else { Err(AdminError::Past(until)) }
    }
}

/// The result of a pause or a resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switched {
    /// The pauses of these names before, those of the file included.
    pub before: Vec<Pause>,
    /// The pauses of these names now.
    pub after: Vec<Pause>,
    /// The resumed names that a pause of all still holds. Empty after a pause.
    pub held: Vec<(Paused, Pause)>,
    /// Queues whose consumers have not gone after a pause: their workers do not follow it. Empty after a resume.
    pub not_following: Vec<NotFollowing>,
    /// When the next event of each resumed schedule is due. Empty after a pause.
    pub next: Vec<(Word, Timestamp)>,
}

/// A queue that workers still consume although it is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotFollowing {
    /// The queue.
    pub queue: String,
    /// The number of its consumers.
    pub consumers: u64,
    /// The programs that consume it, as they call their connections. Empty if the management API does not tell.
    pub programs: Vec<String>,
}

impl Admin {
    /// Returns the pauses that last, those of the file included.
    ///
    /// # Errors
    /// As [`switches`](Self::switches).
    pub async fn pauses(&self) -> Result<Vec<Pause>, AdminError> {
        let (switches, now) = (self.switches().await?.unwrap_or_default(), self.time().await?);
        Ok(switches.pauses.into_iter().filter(|pause| pause.lasts(now)).collect())
    }

    /// Pauses types and sources, until a time or until they are resumed: workers start no event of them. What runs is finished, and
    /// publishing goes on. Returns once nothing new is started, or names the workers that still consume after ten seconds.
    ///
    /// # Errors
    /// When a name is unknown, the time has passed, somebody else changes the switches for as long as `patience`, or the broker is
    /// unreachable or refuses.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use hatchery_admin::{Admin, Name, Paused};
    ///
    /// async fn pause(admin: &Admin) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mail = Paused::Type(Name("mail".parse()?));
    ///     let patience = Duration::from_secs(30);
    ///     let paused = admin.pause(&[mail.clone()], "the provider migrates", None, patience, &()).await?;
    ///     for queue in &paused.not_following {
    ///         println!("{} still has {} consumers", queue.queue, queue.consumers);
    ///     }
    ///     admin.resume(&[mail], patience, &()).await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn pause(
        &self,
        what: &[Paused],
        reason: &str,
        until: Option<Until>,
        patience: Duration,
        watch: &dyn Watch,
    ) -> Result<Switched, AdminError> {
        what.iter().try_for_each(|of| known_name(self.topology(), of))?;
        let since = self.time().await?;
        let until = until.map(|until| until.after(since)).transpose()?;
        // Workers with an older file know a type by its former name.
        let names: Vec<Paused> = what.iter().flat_map(|of| with_former(self.topology(), of)).collect();
        let next = |known: Option<&Switches>| {
            let known = known.cloned().ok_or(AdminError::NoSwitches)?;
            Ok(Some(with_pauses(known, &names, reason, since, until)))
        };
        let (before, after) = self.change(FIRST, patience, watch, next).await?;
        let after = of_these(after, what, since);
        self.hold_schedules(&after).await.map_err(|error| unfinished(&error))?;
        Ok(Switched {
            not_following: self.wait_for_workers(what, watch).await.map_err(|error| unknown(&error))?,
            before: of_these(before, what, since),
            after,
            held: Vec::new(),
            next: Vec::new(),
        })
    }

    /// Ends the pauses of types and sources, also those of the file.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, what: &[Paused], patience: Duration, watch: &dyn Watch) -> Result<Switched, AdminError> {
        what.iter().try_for_each(|of| known_name(self.topology(), of))?;
        let now = self.time().await?;
        // A pause of a former name would come back with the next apply.
        let names: Vec<Paused> = what.iter().flat_map(|of| with_former(self.topology(), of)).collect();
        let next = |known: Option<&Switches>| {
            let known = known.cloned().ok_or(AdminError::NoSwitches)?;
            Ok(without_pauses(known, &names, now))
        };
        let (before, after) = self.change(FIRST, patience, watch, next).await?;
        Ok(Switched {
            before: of_these(before, what, now),
            held: held(after.as_ref(), what, now),
            next: self.resume_schedules(what).await.map_err(|error| unfinished(&error))?,
            after: of_these(after, what, now),
            not_following: Vec::new(),
        })
    }

    /// Waits until no worker consumes the queues of what is paused. Returns those that still have consumers after ten seconds.
    ///
    /// A quorum queue counts a consumer that is cancelled until its last delivery is answered, and a worker keeps what it has not started
    /// (measured), and none of one without a leader. The list of the management API has the consumers of both right, but is some seconds
    /// old. So either none is counted and none listed, or none was listed for longer than that.
    async fn wait_for_workers(&self, what: &[Paused], watch: &dyn Watch) -> Result<Vec<NotFollowing>, AdminError> {
        let names = Names::new(self.topology().name.clone());
        let queues: Vec<String> = consumed(self, &names, what).into_iter().collect();
        let until = Instant::now() + FOLLOW;
        let (mut is_told, mut unlisted) = (false, None);
        loop {
            let counted = self.counted_consumers(&queues).await?;
            let (left, is_over) = consuming(&queues, counted, self.all_consumers().await.as_deref());
            if is_over {
                return Ok(left);
            }
            if !left.is_empty() {
                unlisted = None;
                if Instant::now() >= until {
                    return Ok(left);
                }
            } else if unlisted.get_or_insert_with(Instant::now).elapsed() >= LISTED {
                return Ok(left);
            }
            if !std::mem::replace(&mut is_told, true) {
                watch.note("Waiting until the workers start nothing new …");
            }
            sleep(LOOK).await;
        }
    }

    /// Returns the consumers of all users, if this user sees them. RabbitMQ leaves out those of others without saying so.
    async fn all_consumers(&self) -> Option<Vec<Consumer>> {
        let sight = self.management.sight().await.ok()?;
        if !(sight.statistics && sight.everybody) {
            return None;
        }
        self.management.consumers().await.ok()
    }

    /// Returns those of these queues of which AMQP counts consumers.
    async fn counted_consumers(&self, queues: &[String]) -> Result<Vec<NotFollowing>, AdminError> {
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        let looked = look(&self.broker, self.builder.connection_name(), &[], queues).await?;
        if let Some(queue) =
            queues.iter().find(|queue| !looked.queues.contains_key(*queue) && !looked.missing.contains(*queue))
        {
            return Err(AdminError::Uncounted(queue.clone()));
        }
        let counted = looked.queues.into_iter().map(|(queue, counts)| {
            let consumers = counts.consumers.unwrap_or_default();
            NotFollowing { queue, consumers, programs: Vec::new() }
        });
        Ok(counted.filter(|counted| counted.consumers > 0).collect())
    }
}

/// Refuses a name that the file does not have.
pub(crate) fn known_name(topology: &Topology, of: &Paused) -> Result<(), AdminError> {
    let known: Vec<&str> = match of {
        Paused::All => Vec::new(),
        Paused::Type(_) => topology.types.keys().map(Word::as_str).collect(),
        Paused::Source(_) => topology.sources.keys().map(Word::as_str).collect(),
        Paused::Schedule(_) => topology.schedules.keys().map(Word::as_str).collect(),
    };
    match of.parts() {
        (kind, Some(name)) if !known.contains(&name.as_str()) => {
            let nearest = nearest(name.as_str(), known).map(str::to_owned);
            Err(AdminError::UnknownName { kind, name: name.to_string(), nearest })
        }
        _ => Ok(()),
    }
}

/// Returns what is paused, under its former names too.
pub(crate) fn with_former(topology: &Topology, of: &Paused) -> Vec<Paused> {
    let former = match of {
        Paused::Type(name) => topology.types.get(&name.0).map(|spec| spec.renamed_from.clone()),
        Paused::All | Paused::Source(_) | Paused::Schedule(_) => None,
    };
    let former = former.unwrap_or_default().into_iter().map(|was| Paused::Type(Name(was)));
    former.chain([of.clone()]).collect()
}

/// Adds pauses of a person.
pub(crate) fn with_pauses(
    known: Switches,
    names: &[Paused],
    reason: &str,
    since: Timestamp,
    until: Option<Timestamp>,
) -> Switches {
    let pause = |of: &Paused| Pause::of_person(of.clone(), reason, since, until);
    names.iter().fold(known, |switches, of| switches.with(pause(of), since))
}

/// Ends pauses. `None` if there are none.
pub(crate) fn without_pauses(known: Switches, names: &[Paused], now: Timestamp) -> Option<Switches> {
    let is_paused = known.pauses.iter().any(|pause| names.contains(&pause.of));
    is_paused.then(|| names.iter().fold(known, |switches, of| switches.without(of, now)))
}

/// Returns the pauses that hold these names all the same.
pub(crate) fn held(after: Option<&Switches>, what: &[Paused], now: Timestamp) -> Vec<(Paused, Pause)> {
    let held = |of: &Paused| Some((of.clone(), after?.paused(of, now)?.clone()));
    what.iter().filter_map(held).collect()
}

/// Returns those of these queues that workers consume, and whether it is certain that there are none.
fn consuming(queues: &[String], counted: Vec<NotFollowing>, all: Option<&[Consumer]>) -> (Vec<NotFollowing>, bool) {
    let is_none_counted = counted.is_empty();
    // Without the list a worker that holds events counts too.
    let left = all.map_or(counted, |all| listed_consumers(queues, all));
    let is_over = is_none_counted && left.is_empty();
    (left, is_over)
}

/// Returns those of these queues that the list of all consumers has.
fn listed_consumers(queues: &[String], all: &[Consumer]) -> Vec<NotFollowing> {
    let listed = queues.iter().map(|queue| {
        let consumers: Vec<&Consumer> = all.iter().filter(|consumer| consumer.queue == *queue).collect();
        let programs: BTreeSet<String> = consumers.iter().filter_map(|consumer| program(consumer)).collect();
        let (consumers, programs) = (consumers.len() as u64, programs.into_iter().collect());
        NotFollowing { queue: queue.clone(), consumers, programs }
    });
    listed.filter(|listed| listed.consumers > 0).collect()
}

/// The switches are written, and the broker does not tell whether workers follow.
fn unknown(error: &AdminError) -> AdminError {
    AdminError::Partly { why: format!("paused; whether all workers follow is not known: {error}"), left: None }
}

/// Returns the name of the program that consumes, or that of its connection.
fn program(consumer: &Consumer) -> Option<String> {
    let named = consumer.client.as_ref().and_then(|client| client.program.clone());
    named.or_else(|| consumer.connection.clone())
}

/// Returns the queues that workers consume for these types and sources, under their former names too.
fn consumed(admin: &Admin, names: &Names, what: &[Paused]) -> BTreeSet<String> {
    let (topology, desired): (_, &Desired) = (admin.topology(), &admin.desired);
    let is_paused = |of: Paused| what.iter().any(|paused| *paused == Paused::All || *paused == of);
    let types = topology.types.iter().filter(|(name, _)| is_paused(Paused::Type(Name((*name).clone()))));
    let types = types.map(|(name, _)| names.processing(name));
    let sources = topology.sources.iter().filter(|(name, _)| is_paused(Paused::Source(Name((*name).clone()))));
    let mut queues: BTreeSet<String> = types.chain(sources.map(|(name, spec)| spec.queue(names, name))).collect();
    let former = desired.renames.iter().filter(|rename| queues.contains(&rename.to)).map(|rename| rename.from.clone());
    queues.extend(former.collect::<Vec<_>>());
    queues
}

/// Returns the pauses of these that are not over.
pub(crate) fn of_these(switches: Option<Switches>, what: &[Paused], now: Timestamp) -> Vec<Pause> {
    let pauses = switches.unwrap_or_default().pauses.into_iter();
    pauses.filter(|pause| what.contains(&pause.of) && pause.lasts(now)).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::it_consumes(1, Some(1), (1, false))]
    #[case::the_leader_of_the_queue_is_away(0, Some(1), (1, false))]
    #[case::it_holds_what_has_not_started(1, Some(0), (0, false))]
    #[case::it_has_left(0, Some(0), (0, true))]
    #[case::it_holds_and_nobody_lists_it(1, None, (1, false))]
    #[case::it_has_left_and_nobody_lists_it(0, None, (0, true))]
    fn a_worker_has_left_a_queue_once_no_consumer_is_counted_and_none_is_listed(
        #[case] counted: usize,
        #[case] listed: Option<usize>,
        #[case] expected: (usize, bool),
    ) {
        let queue = || "t.processor.mail".to_owned();
        let counted = vec![NotFollowing { queue: queue(), consumers: 1, programs: Vec::new() }; counted];
        let listed = listed.map(|listed| vec![Consumer { queue: queue(), ..Consumer::default() }; listed]);
        let (left, is_over) = consuming(&[queue()], counted, listed.as_deref());
        assert_eq!((left.len(), is_over), expected);
    }
}
