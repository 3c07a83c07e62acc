//! Two answers of the management API before letters are looked at: queues that the file no longer asks for, and policies that limit how
//! often a letter may be looked at.
//!
//! A quorum queue counts a letter that comes back to it as delivered, whoever looked at it. The quorum queues of letters have a delivery
//! limit of a thousand million. Where a policy has a lower one, the lower one counts, and RabbitMQ deletes a letter that was looked at
//! more often (measured on 3.10 and 4.3). A classic queue counts no deliveries, and RabbitMQ applies no policy with a `delivery-limit` to
//! it; [`shadowing`] leaves such a queue out.

use std::{collections::BTreeMap, time::Duration};

use hatchery::internals::compile::Queue;
use tokio::time::timeout;

use super::queues::LetterQueue;
use crate::{
    admin::Admin,
    plan::{Shadowing, shadowing},
    text::quoted,
};

const KEY: &str = "delivery-limit";

/// How long the management API may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The policies with a delivery limit, or why they are not known.
#[derive(Debug)]
pub struct DeliveryLimits {
    vhost: String,
    found: Result<Vec<Shadowing>, String>,
    /// Queues of letters that the file no longer asks for.
    pub leftovers: Vec<LetterQueue>,
}

/// A look might delete letters, so nothing was read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Limited(String);

impl Admin {
    /// Reads the queues and the policies of the virtual host. A management API that does not answer is told by
    /// [`DeliveryLimits::allow`].
    pub async fn delivery_limits(&self) -> DeliveryLimits {
        let mut desired = self.desired.clone();
        let objects = match timeout(LIMIT, self.management.objects(false)).await {
            Ok(objects) => objects.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
        };
        let mut leftovers = Vec::new();
        let found = objects.map(|objects| {
            leftovers = LetterQueue::leftovers(self.topology(), &desired, &objects);
            let looked_at =
                leftovers.iter().map(|queue| Queue { name: queue.name.clone(), arguments: BTreeMap::new() });
            desired.queues.extend(looked_at);
            let mut found = shadowing(&desired, &objects);
            found.retain(|shadowing| shadowing.keys.iter().any(|key| key == KEY));
            found
        });
        DeliveryLimits { vhost: self.broker.vhost(), found, leftovers }
    }
}

impl Default for DeliveryLimits {
    /// No policy limits deliveries, and no queue is left over.
    fn default() -> Self {
        Self { vhost: String::new(), found: Ok(Vec::new()), leftovers: Vec::new() }
    }
}

impl DeliveryLimits {
    /// Refuses to look at queues whose letters a look may delete. Returns a warning if it is not known whether it may.
    ///
    /// # Errors
    /// When a policy limits the deliveries of one of the queues.
    pub fn allow(&self, queues: &[LetterQueue]) -> Result<Option<String>, Limited> {
        let found = match &self.found {
            Ok(found) => found,
            Err(error) => {
                return Ok(Some(format!(
                    "whether a policy limits deliveries is not known: {error}. With such a limit RabbitMQ deletes letters that were \
                     looked at too often. Letters of types that have left the file are not looked for"
                )));
            }
        };
        let of = |shadowing: &Shadowing| {
            queues.iter().find(|queue| shadowing.queues.contains(&queue.name)).map(|queue| queue.name.clone())
        };
        let Some((policy, queue)) = found.iter().find_map(|shadowing| Some((shadowing, of(shadowing)?))) else {
            return Ok(None);
        };
        let (kind, clear) =
            if policy.operator { ("operator policy", "clear_operator_policy") } else { ("policy", "clear_policy") };
        let name = &policy.policy;
        let message = format!(
            "the {kind} `{name}` limits the deliveries of {queue}: RabbitMQ counts each look, and deletes a letter that was looked at too \
             often. Nothing was read. Change the policy's pattern, or remove it: rabbitmqctl {clear} -p {} {}",
            quoted(&self.vhost),
            quoted(name)
        );
        Err(Limited(message))
    }
}
