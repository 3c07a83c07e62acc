//! The library's front door: a topology, a broker and a Redis make publishers and workers.

mod builder;
mod hatchery;

pub use self::{
    builder::Builder,
    hatchery::{ConnectError, Hatchery},
};
use crate::domain::spec::Topology;

/// Connects to the broker. Redis is not waited for, because publishing needs RabbitMQ alone.
///
/// The name is what the management UI shows for the connections. Must be called within a tokio runtime.
/// [`Hatchery::builder`] has more to choose, and says what the URLs may be.
///
/// The objects of the topology need not be there yet: a publish says that the scheduler is missing, and a worker does
/// not start. `topology apply` declares them.
///
/// # Errors
/// When a URL is none ([`ConnectError::Url`], [`ConnectError::Register`]), or the broker is away or refuses
/// ([`ConnectError::Broker`]). It is tried once; who starts beside the broker tries again.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hatchery::NewEvent;
///
/// let topology = hatchery::read_file("topology.yaml")?;
/// let amqp = "amqp://guest:guest@localhost:5672/";
/// let hatchery = hatchery::connect(topology, amqp, "redis://localhost:6379", "payroll").await?;
/// let event = NewEvent::new("hr-import", "{}").reference("1234");
/// println!("{}", hatchery.publisher().publish(event).await?.id);
/// hatchery.close().await;
/// # Ok(())
/// # }
/// ```
pub async fn connect(
    topology: Topology,
    amqp_url: &str,
    redis_url: &str,
    name: &str,
) -> Result<Hatchery, ConnectError> {
    Hatchery::builder(topology).amqp_url(amqp_url).redis_url(redis_url).name(name).connect().await
}
