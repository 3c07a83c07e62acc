//! The trait of a handler, and its argument.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{event::Event, settlement::Outcome},
    ports::Clock,
};

/// One run of a handler: the event, its fence and its loss signal.
///
/// An event may run again: after a failure, and after a crash of its worker. Events of one reference run one at a time
/// in types that coalesce or have `exclusive: on`. In other types they run side by side.
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::WorkError> {
/// use hatchery::{CancellationToken, Outcome, Run};
///
/// # async fn execute(_sql: &str, _parameters: (&str, &str, i64)) -> std::io::Result<()> { Ok(()) }
/// async fn import(run: Run) -> anyhow::Result<Outcome> {
///     let Some(reference) = &run.event.reference else {
///         return Ok(Outcome::DeadLetter { reason: "an import is about an employee".to_owned() });
///     };
///     let payload = std::str::from_utf8(&run.event.payload)?;
///     // A worker that lost its lease, and does not know yet, overwrites nothing that is newer.
///     let fence = run.fence.unwrap_or_default();
///     let sql = "UPDATE employee SET data = $2, fence = $3 WHERE number = $1 AND fence <= $3";
///     execute(sql, (reference.as_str(), payload, fence)).await?;
///     Ok(Outcome::Done)
/// }
///
/// hatchery.worker().handle("hr-import", import).run(CancellationToken::new()).await?;
/// # Ok(())
/// # }
/// ```
///
/// Code that blocks a thread checks [`lost`](Self::lost) from time to time:
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::WorkError> {
/// use hatchery::{CancellationToken, Outcome, Run};
///
/// fn render(page: u8) {}
///
/// async fn print(run: Run) -> anyhow::Result<Outcome> {
///     tokio::task::spawn_blocking(move || {
///         for page in run.event.payload.iter().take_while(|_| !run.lost.is_cancelled()) {
///             render(*page);
///         }
///     })
///     .await?;
///     Ok(Outcome::Done)
/// }
///
/// hatchery.worker().handle("print", print).run(CancellationToken::new()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The event. Clones share it.
    pub event: Arc<Event>,
    /// A number that grows with every run of a (type, reference), by steps of any size. A handler that writes state can store
    /// it and refuse a write with a smaller one. `None` if the type has `register: off`.
    pub fence: Option<i64>,
    /// Cancelled when the lease is lost or the run ends, also by its time limit. From then on another worker may run the same
    /// reference. Code that continues in a thread stops when this is cancelled. Also cancelled when somebody has cancelled the
    /// event ([`cancelled`](Self::cancelled)).
    pub lost: CancellationToken,
    /// Whether the event was cancelled; `None` without a lease.
    pub(crate) cancelled: Option<Arc<AtomicBool>>,
    /// The worker's clock; `None` without a worker.
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl Run {
    /// Returns a run of an event, for a test of a handler, with the fence 1.
    #[must_use]
    pub fn of(event: Event) -> Self {
        Self { event: Arc::new(event), fence: Some(1), lost: CancellationToken::new(), cancelled: None, clock: None }
    }

    /// Tells whether somebody has cancelled the event while it runs. It is set before [`lost`](Self::lost) is cancelled.
    ///
    /// The worker learns of a cancel when it renews the lease: a third to half of `lease` after the last time. The run then has five
    /// seconds to end, to undo or note what it has done, before its future is dropped. Nothing of its outcome is carried out, and
    /// the event is settled as done. `false` in a type with `register: off`, which has no cancel.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Acquire))
    }

    /// Waits until somebody cancels the event, which may never be.
    ///
    /// ```no_run
    /// # use hatchery::{Outcome, Run};
    /// # async fn transfer() -> std::io::Result<()> { Ok(()) }
    /// # async fn roll_back() {}
    /// async fn pay(run: Run) -> anyhow::Result<Outcome> {
    ///     tokio::select! {
    ///         paid = transfer() => paid?,
    ///         () = run.cancelled() => roll_back().await,
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub async fn cancelled(&self) {
        self.lost.cancelled().await;
        // The lease may be lost instead. Then the run goes on.
        if !self.is_cancelled() {
            pending::<()>().await;
        }
    }

    /// For the command line: returns the present time by the clock with which the worker decides when events are due.
    #[doc(hidden)]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.as_ref().map_or_else(Timestamp::now, |clock| clock.shared())
    }
}

/// Handles events of one type.
///
/// Most handlers are functions ([`Worker::handle`](crate::Worker::handle)). Implement this trait for a handler that is a type
/// of its own. Implementations use [`async_trait`](macro@crate::async_trait).
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::WorkError> {
/// use std::{path::PathBuf, sync::Arc};
/// use hatchery::{CancellationToken, Handler, Outcome, Run, async_trait};
///
/// struct Mailer { template: PathBuf }
///
/// #[async_trait]
/// impl Handler for Mailer {
///     async fn handle(&self, run: Run) -> Outcome {
///         // No fault of the event: the worker waits for the template, and no attempt is spent.
///         let template = match tokio::fs::read_to_string(&self.template).await {
///             Ok(template) => template,
///             Err(error) => return Outcome::unavailable(error),
///         };
///         // A fault of this event: the next attempt would read the same.
///         match run.event.json::<String>() {
///             Ok(to) => println!("{}", template.replace("{to}", &to)),
///             Err(error) => return Outcome::dead_letter(error),
///         }
///         Outcome::Done
///     }
/// }
///
/// let mailer = Arc::new(Mailer { template: "/etc/mailer/template.txt".into() });
/// hatchery.worker().handler("mail", mailer).run(CancellationToken::new()).await?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one event.
    ///
    /// The handler may run again for the same event: after an error, and after a crash. The future is dropped at the type's
    /// `handler-timeout`, at the end of a stopping worker's drain limit, and five seconds after
    /// [`Run::is_cancelled`] became true.
    async fn handle(&self, run: Run) -> Outcome;
}
