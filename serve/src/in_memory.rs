//! A topology without servers, for `topology dev`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hatchery::{BrokerError, ConnectError, Topology};
use hatchery_admin::{
    AdminError, InMemoryAdmin, Pause, Paused, Switched, Until,
    dead_letters::DeliveryLimits,
    live::Counts,
    status::Status,
    trace::{Trace, Traced},
};

use crate::backend::Backend;

#[async_trait]
impl Backend for InMemoryAdmin {
    fn topology(&self) -> &Topology {
        &self.0.topology
    }

    async fn require_publishing(&self) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn status(&self) -> Result<Status, AdminError> {
        Ok(self.status().await.map_err(ConnectError::from)?)
    }

    async fn pauses(&self) -> Result<Vec<Pause>, AdminError> {
        Ok(self.pauses())
    }

    async fn pause(&self, what: Paused, reason: String, until: Option<Until>) -> Result<Switched, AdminError> {
        self.pause(&[what], &reason, until).await
    }

    async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError> {
        Ok(self.counts())
    }

    async fn trace(&self, of: Trace) -> Result<Traced, BrokerError> {
        self.trace(&of).await
    }

    async fn delivery_limits(&self) -> Result<DeliveryLimits, AdminError> {
        Ok(DeliveryLimits::default())
    }

    async fn resume(&self, what: Paused) -> Result<Switched, AdminError> {
        self.resume(&[what]).await
    }
}
