//! The steps that all verbs share that change a broker: they ask for approval, take the lock, check that AMQP and the
//! management API lead to the same broker, and stop on a signal.

use std::{
    io::{self, BufRead as _, Write as _},
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable as _};
use hatchery::{
    BrokerError,
    internals::{
        compile::Desired,
        names::{self, is_of_a_node},
        rabbitmq::connection::AmqpUrl,
    },
};
use hatchery_admin::{
    broker::declare::Declarer,
    management::{Management as _, ManagementApi},
    observed::Observed,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    connect,
    exit::{Ended, Exit},
    output::Output,
};

/// Pauses between looks for the lock's queue. The nodes of a cluster learn of a new queue one after the other.
const AGAIN: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(100)).with_max_times(6);

/// Takes the lock under every name that the topology has had, because somebody who still applies an old file writes to
/// the same objects. Waits for as long as `patience`.
pub(super) async fn lock(
    url: AmqpUrl,
    desired: &Desired,
    patience: Duration,
    output: Output,
) -> anyhow::Result<Declarer> {
    let queues: Vec<String> = desired.owners().map(names::lock).collect();
    let waiting = |queue: &str| output.note(&format!("Waiting for another apply or destroy, which holds {queue} …"));
    Declarer::lock(url, &connect::here("topology apply"), &queues, patience, waiting).await.map_err(|error| match error
    {
        BrokerError::Locked { object } => {
            let advice = "nothing was written. Run it again, or wait longer with --lock-timeout; if none is \
                          running, look up the connection that owns that queue";
            Ended::new(Exit::Locked, format!("another apply or destroy holds {object}; {advice}")).into()
        }
        error => error.into(),
    })
}

/// Fails if AMQP and the management API lead to two brokers: the plan would describe one of them and be carried out on
/// the other. Every node of a named cluster reports the cluster's name, so either URL may lead to a load balancer.
/// Every node of an unnamed cluster reports its own name, and two brokers may have the same one. `same_broker`
/// therefore checks again before a write.
pub(super) async fn one_broker(
    url: &AmqpUrl,
    management: &ManagementApi,
    observed: &Observed,
    verb: &str,
) -> Result<(), anyhow::Error> {
    let spoken = url.ask_identity(&connect::here(&format!("topology {verb}"))).await?.cluster_name;
    let shown = &observed.cluster_name;
    let is_one = match (&spoken, shown) {
        (Some(spoken), Some(shown)) if spoken != shown && is_of_a_node(spoken) && is_of_a_node(shown) => {
            management.nodes().await?.is_none_or(|nodes| nodes.contains(spoken))
        }
        // Every node of a named cluster reports the same name.
        (spoken, shown) => spoken == shown,
    };
    if is_one {
        return Ok(());
    }
    let name =
        |name: Option<String>| name.map_or_else(|| "a broker without a name".to_owned(), |name| format!("`{name}`"));
    let message = format!(
        "AMQP and the management API lead to two brokers: {url} is {}, and {} is {}; nothing was written. Set --management-url \
         (RABBITMQ_MANAGEMENT_URL) to the management API of the broker of --amqp-url (AMQP_URL)",
        name(spoken),
        management.shown(),
        name(observed.cluster_name.clone()),
    );
    Err(Ended::new(Exit::Unreachable, message).into())
}

/// Fails unless the management API shows the lock's queue, which was declared over AMQP. If a tunnel led to another
/// broker, queues would be deleted on one broker because they are empty on the other.
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
                "the management API does not show the queue {lock}, which was declared over AMQP a moment ago: the two \
                 URLs lead to two brokers, or to two virtual hosts; nothing was written. Check --amqp-url and \
                 --management-url"
            );
            Err(Ended::new(Exit::Unreachable, message).into())
        }
    }
}

/// Asks on the terminal for approval. Fails if the answer is no, or if there is no terminal.
pub(super) fn approve(question: &str, output: Output) -> anyhow::Result<()> {
    if !Output::is_interactive() {
        let message = "approval is needed, and there is no terminal to ask on; nothing was written. \
                       Run it with --auto-approve";
        return Err(Ended::new(Exit::Usage, message).into());
    }
    // Not through `output`: a prompt does not end with a newline.
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

/// Runs `work` to its end, or stops it at once on SIGTERM or SIGINT. Unlike a kill, this frees the locks and reports
/// the interruption.
pub(super) async fn unless_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        result = work => result,
        _ = terminate.recv() => Err(interrupted()),
        _ = interrupt.recv() => Err(interrupted()),
    }
}

fn interrupted() -> anyhow::Error {
    let message = "interrupted; the change may be partly done, and nothing is lost. Run it again with the same flags";
    Ended::new(Exit::Partly, message).into()
}
