//! A consumer that is there before its events are due: hatchery's worker, or bare lapin's consumer.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use hatchery::Hatchery;
use lapin::{options::QueueDeclareOptions, types::FieldTable};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    bare::Bare,
    handled::Handled,
    load::{Load, Side},
    ours,
    surroundings::Surroundings,
    topology::Type,
};

/// How long a consumer may take to connect.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the broker is asked whether the consumer is there.
const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Consumer {
    client: Client,
    task: JoinHandle<anyhow::Result<()>>,
}

enum Client {
    Ours(Hatchery),
    Bare(Arc<Bare>),
}

impl Consumer {
    /// Starts the consumer of a side, and waits until the broker knows it.
    pub(crate) async fn start(
        around: &Surroundings,
        event_type: Type,
        load: &Load,
        side: Side,
        handled: &Arc<Handled>,
    ) -> anyhow::Result<Self> {
        match side {
            Side::Ours => Self::ours(around, event_type, load, handled).await,
            Side::Bare => Self::bare(around, &event_type.queue(), load, handled).await,
        }
    }

    async fn ours(
        around: &Surroundings,
        event_type: Type,
        load: &Load,
        handled: &Arc<Handled>,
    ) -> anyhow::Result<Self> {
        let hatchery = around.hatchery().await?;
        let working = ours::work(&hatchery, event_type, load, Arc::clone(handled));
        let task = tokio::spawn(async { working.await.map(drop) });
        Self { client: Client::Ours(hatchery), task }.consuming(around, &event_type.queue()).await
    }

    /// Starts a bare consumer of a queue, and waits until the broker knows it.
    async fn bare(around: &Surroundings, queue: &str, load: &Load, handled: &Arc<Handled>) -> anyhow::Result<Self> {
        let bare = Arc::new(around.bare().await?);
        let task = tokio::spawn({
            let (bare, queue, load, handled) = (Arc::clone(&bare), queue.to_owned(), load.clone(), Arc::clone(handled));
            async move { bare.consume(&queue, &load, &handled).await }
        });
        Self { client: Client::Bare(bare), task }.consuming(around, queue).await
    }

    async fn consuming(mut self, around: &Surroundings, queue: &str) -> anyhow::Result<Self> {
        let bare = around.bare().await?;
        let asking = async {
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            while bare.channel.queue_declare(queue.into(), options, FieldTable::default()).await?.consumer_count() == 0
            {
                tokio::time::sleep(TICK).await;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            asked = timeout(PATIENCE, asking) => asked.with_context(|| format!("{queue} got no consumer"))??,
            ended = &mut self.task => { ended??; bail!("the consumer of {queue} has ended early") }
        }
        bare.close().await?;
        Ok(self)
    }

    /// Waits until all awaited events are handled and acknowledged.
    pub(crate) async fn done(&mut self) -> anyhow::Result<()> {
        (&mut self.task).await?
    }

    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self.client {
            Client::Ours(hatchery) => hatchery.close().await,
            Client::Bare(bare) => bare.close().await?,
        }
        Ok(())
    }
}
