//! Whether the broker has the topology at all: an empty list of one that was never applied would be no answer.

use hatchery::{
    Topology,
    adapters::rabbitmq::RabbitMq,
    domain::names,
    ports::{Broker as _, BrokerError},
};

use super::super::{args::Common, connect};

/// The exchange that every event comes by, and where to ask for it.
pub(super) struct Applied<'a> {
    common: &'a Common,
    scheduler: String,
}

impl<'a> Applied<'a> {
    pub(super) fn new(common: &'a Common, topology: &Topology) -> Self {
        Self { common, scheduler: names::scheduler(topology.name.as_str()) }
    }

    /// Fails if the broker says that the exchange does not exist. A broker that does not answer says nothing: looking for
    /// events needs none.
    pub(super) async fn require(&self) -> anyhow::Result<()> {
        let broker = RabbitMq::new(self.common.amqp_url()?, &connect::here("topology events"));
        let asking = async {
            broker.connect().await?;
            broker.require(std::slice::from_ref(&self.scheduler), &[]).await
        };
        let asked = tokio::time::timeout(super::BROKER_LIMIT, asking).await;
        broker.close().await;
        match asked {
            Ok(Err(error @ BrokerError::Missing { .. })) => Err(error.into()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "whether the topology was applied is unknown");
                Ok(())
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}
