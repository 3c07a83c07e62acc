//! An event type together with the Rust type of its payloads.

use serde::{Serialize, de::DeserializeOwned};

/// An event type of `topology.yaml`, and the Rust type of its payloads.
///
/// [`NewEvent::of`](crate::NewEvent::of) and [`Worker::on`](crate::Worker::on) take an `EventKind`, so a publisher and
/// a worker that share one cannot disagree about the name or the payload. Payloads are JSON.
///
/// ```no_run
/// use hatchery::{EventKind, Hatchery, NewEvent, Outcome, Run};
///
/// struct SendMail;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Mail { to: String }
///
/// impl EventKind for SendMail {
///     const TYPE: &'static str = "mail";
///     type Payload = Mail;
/// }
///
/// async fn send(mail: Mail, _: Run) -> Result<(), Outcome> {
///     println!("Dear {}", mail.to);
///     Ok(())
/// }
///
/// # async fn example(hatchery: Hatchery) -> Result<(), Box<dyn std::error::Error>> {
/// let mail = NewEvent::of(SendMail, &Mail { to: "ann".to_owned() })?;
/// hatchery.publisher().publish(mail).await?;
/// hatchery.worker().on(SendMail, send).run_until(hatchery::shutdown_signal()?).await?;
/// # Ok(())
/// # }
/// ```
pub trait EventKind {
    /// The name of the type in `topology.yaml`.
    const TYPE: &'static str;

    /// The Rust type of the payloads.
    type Payload: Serialize + DeserializeOwned + Send + 'static;
}
