//! Reads what the API knows beyond the objects: figures of queues, channels with their history, alarms.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use super::{
    ManagementApi, ManagementError,
    client::{Name, Named},
};
use crate::{
    figures::{Alarm, Channel, Client, Consumer, Figures, QueueFigures, Sample, object},
    live::Counts,
    names,
};

/// The parts of the statistics that this broker keeps and this user may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Whether the broker keeps statistics at all (`management_agent.disable_metrics_collector`).
    pub statistics: bool,
    /// Whether the broker keeps rates (`management.rates_mode`).
    pub rates: bool,
    /// Whether this user sees the channels of all users.
    pub everybody: bool,
}

#[derive(Deserialize)]
struct Overview {
    rates_mode: Option<String>,
    disable_stats: Option<bool>,
}

#[derive(Deserialize)]
struct WhoAmI {
    /// A list, and before RabbitMQ 3.9 a text with commas.
    tags: Value,
}

#[derive(Deserialize)]
struct LiveChannel {
    name: String,
    #[serde(default, deserialize_with = "object")]
    connection_details: Option<Details>,
    messages_unacknowledged: Option<u64>,
    #[serde(default, deserialize_with = "object")]
    message_stats: Option<History>,
}

/// A connection that an object belongs to. It has no name any more while it is being closed.
#[derive(Deserialize)]
struct Details {
    name: Option<String>,
}

#[derive(Deserialize)]
struct ChannelDetails {
    name: Option<String>,
    connection_name: Option<String>,
}

#[derive(Default, Deserialize)]
struct History {
    #[serde(default, rename = "ack_details", deserialize_with = "object")]
    acknowledged: Option<Samples>,
    #[serde(default, rename = "deliver_get_details", deserialize_with = "object")]
    delivered: Option<Samples>,
    #[serde(default, rename = "redeliver_details", deserialize_with = "object")]
    redelivered: Option<Samples>,
}

#[derive(Deserialize)]
struct LiveQueue {
    #[serde(default, deserialize_with = "object")]
    message_stats: Option<History>,
}

#[derive(Deserialize)]
struct Samples {
    #[serde(default)]
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct LiveConsumer {
    #[serde(default, deserialize_with = "object")]
    channel_details: Option<ChannelDetails>,
    queue: Name,
    #[serde(default, deserialize_with = "object")]
    arguments: Option<Arguments>,
    activity_status: Option<String>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(rename = "x-hatchery-unavailable")]
    unavailable: Option<String>,
    #[serde(rename = "x-hatchery-owner")]
    owner: Option<String>,
}

#[derive(Deserialize)]
struct Connection {
    user_provided_name: Option<String>,
    #[serde(default, deserialize_with = "object")]
    client_properties: Option<ClientProperties>,
}

#[derive(Deserialize)]
struct ClientProperties {
    product: Option<String>,
}

#[derive(Deserialize)]
struct Alarms {
    #[serde(default)]
    alarms: Vec<Alarm>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    running: bool,
    uptime: Option<u64>,
}

#[derive(Deserialize)]
struct Lengths {
    #[serde(default, deserialize_with = "object")]
    messages_details: Option<Samples>,
}

impl ManagementApi {
    /// Returns what the API shows of this broker and to this user.
    ///
    /// # Errors
    /// When the API is unreachable, or refuses this user.
    pub async fn sight(&self) -> Result<Sight, ManagementError> {
        let overview = self.client.get_with::<Overview>(&["overview"], &[("columns", "rates_mode,disable_stats")]);
        let (overview, WhoAmI { tags }) = tokio::try_join!(overview, self.client.get(&["whoami"]))?;
        let tags = match &tags {
            Value::Array(tags) => tags.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>(),
            tags => tags.as_str().unwrap_or_default().split(',').map(str::to_owned).collect(),
        };
        Ok(Sight {
            statistics: overview.disable_stats != Some(true),
            rates: overview.rates_mode.as_deref() != Some("none") && overview.disable_stats != Some(true),
            everybody: tags.iter().any(|tag| tag == "monitoring" || tag == "administrator"),
        })
    }

    /// Returns the figures of all queues.
    ///
    /// # Errors
    /// When the API is unreachable, or refuses this user.
    pub async fn figures(&self) -> Result<QueueFigures, ManagementError> {
        let columns = "name,messages,messages_ready,messages_unacknowledged,messages_dlx,messages_delayed,consumers,\
                       messages_details.rate,message_stats.publish,message_stats.ack_details.rate";
        // The whole list in one answer: RabbitMQ makes the whole list for each page.
        let query = [("columns", columns)];
        let list: Vec<Named<Figures>> = self.client.get_with(&["queues", &self.vhost], &query).await?;
        Ok(list.into_iter().map(|Named { name, rest }| (name, rest)).collect())
    }

    /// Returns all consumers, each with its program if this user sees the connection.
    ///
    /// # Errors
    /// When the API is unreachable, or refuses this user.
    pub async fn consumers(&self) -> Result<Vec<Consumer>, ManagementError> {
        let columns =
            [("columns", "channel_details.name,channel_details.connection_name,queue.name,arguments,activity_status")];
        let list: Vec<LiveConsumer> = self.client.get_with(&["consumers", &self.vhost], &columns).await?;
        let mut consumers: Vec<Consumer> = list.into_iter().map(Consumer::from).collect();
        if consumers.is_empty() {
            return Ok(consumers);
        }
        let columns = [("columns", "name,user_provided_name,client_properties.product")];
        let list: Vec<Named<Connection>> =
            self.client.get_with(&["vhosts", &self.vhost, "connections"], &columns).await?;
        let clients: BTreeMap<String, Client> =
            list.into_iter().map(|Named { name, rest }| (name, Client::from(rest))).collect();
        for consumer in &mut consumers {
            consumer.client = consumer.connection.as_ref().and_then(|name| clients.get(name).cloned());
        }
        Ok(consumers)
    }

    /// Returns the channels that hold deliveries, with a history of this length.
    ///
    /// # Errors
    /// When the API is unreachable, or refuses this user.
    pub async fn holders(&self, history: Duration, consumers: &[Consumer]) -> Result<Vec<Channel>, ManagementError> {
        const SAMPLES: u64 = 60;
        let age = history.as_secs().max(SAMPLES).to_string();
        // The broker keeps a sample for each 5 s, and of more than ten minutes ago one for each minute.
        let step = (history.as_secs() / SAMPLES).max(5).to_string();
        let columns = "name,connection_details.name,messages_unacknowledged,message_stats.ack_details.samples,\
                       message_stats.deliver_get_details.samples";
        let query = [("columns", columns), ("msg_rates_age", age.as_str()), ("msg_rates_incr", step.as_str())];
        let list: Vec<LiveChannel> = self.client.get_with(&["vhosts", &self.vhost, "channels"], &query).await?;
        let mut holders: BTreeMap<String, Channel> = list.into_iter().filter_map(holder).collect();
        for consumer in consumers {
            if let Some(channel) = consumer.channel.as_ref().and_then(|name| holders.get_mut(name)) {
                channel.queues.push(consumer.queue.clone());
            }
        }
        Ok(holders.into_values().collect())
    }

    /// Sets the name that the program gave its connection, and whether it is one of hatchery's. It has none if it has gone.
    pub async fn name(&self, channel: &mut Channel) {
        let columns = [("columns", "user_provided_name,client_properties.product")];
        let found = self.client.get_with::<Connection>(&["connections", &channel.connection], &columns).await;
        let Ok(Client { product, program }) = found.map(Client::from) else { return };
        channel.program = program;
        channel.is_worker = product.as_deref() == Some(names::PRODUCT);
    }

    /// Returns whether a message of a queue was delivered again in the last minute. `false` if the broker does not say.
    pub async fn is_redelivered(&self, queue: &str) -> bool {
        let columns = "message_stats.redeliver_details.samples";
        let query = [("columns", columns), ("msg_rates_age", "60"), ("msg_rates_incr", "5")];
        let Ok(LiveQueue { message_stats: Some(History { redelivered: Some(Samples { samples }), .. }) }) =
            self.client.get_with(&["queues", &self.vhost, queue], &query).await
        else {
            return false;
        };
        samples.first().zip(samples.last()).is_some_and(|(newest, oldest)| newest.sample > oldest.sample)
    }

    /// Returns the alarms that are in effect in the cluster.
    ///
    /// # Errors
    /// When the API is unreachable, or refuses this user.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, ManagementError> {
        Ok(self.client.check::<Alarms>(&["health", "checks", "alarms"]).await?.alarms)
    }

    /// Returns for how long all running nodes have run. `None` if the API does not show it to this user.
    pub async fn up_for(&self) -> Option<Duration> {
        let columns = [("columns", "running,uptime")];
        let nodes: Vec<Node> = self.client.get_with(&["nodes"], &columns).await.ok()?;
        nodes.into_iter().filter(|node| node.running).map(|node| node.uptime).min()?.map(Duration::from_millis)
    }

    /// Returns how many messages a queue has, at times of the last ten minutes, the newest first. `None` if the broker
    /// does not say.
    pub async fn lengths(&self, queue: &str) -> Option<Vec<Sample>> {
        let query = [("columns", "messages_details.samples"), ("lengths_age", "600"), ("lengths_incr", "60")];
        let lengths: Lengths = self.client.get_with(&["queues", &self.vhost, queue], &query).await.ok()?;
        lengths.messages_details.map(|details| details.samples)
    }
}

/// Returns the channel by its name, if it holds deliveries.
fn holder(live: LiveChannel) -> Option<(String, Channel)> {
    let held = live.messages_unacknowledged.filter(|held| *held > 0)?;
    let connection = live.connection_details?.name?;
    let samples = |samples: Option<Samples>| samples.map(|Samples { samples }| samples);
    let History { acknowledged, delivered, .. } = live.message_stats.unwrap_or_default();
    let (acknowledged, delivered) = (samples(acknowledged), samples(delivered));
    Some((live.name, Channel { connection, held, acknowledged, delivered, ..Channel::default() }))
}

impl From<Connection> for Client {
    fn from(live: Connection) -> Self {
        let product = live.client_properties.and_then(|properties| properties.product);
        Self { product, program: live.user_provided_name }
    }
}

impl From<LiveConsumer> for Consumer {
    fn from(live: LiveConsumer) -> Self {
        let (channel, connection) =
            live.channel_details.map(|channel| (channel.name, channel.connection_name)).unwrap_or_default();
        let (unavailable, owner) =
            live.arguments.map(|arguments| (arguments.unavailable, arguments.owner)).unwrap_or_default();
        Self {
            queue: live.queue.name,
            channel,
            connection,
            client: None,
            unavailable,
            owner,
            waits: live.activity_status.is_some_and(|status| status == "waiting"),
        }
    }
}

impl From<Counts> for Figures {
    fn from(counts: Counts) -> Self {
        Self { counts, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_whose_channel_is_being_closed_has_no_channel() {
        let consumer =
            r#"{"queue": {"name": "billing.processor.mail"}, "channel_details": {"peer_host": "undefined"}}"#;
        let consumer = Consumer::from(serde_json::from_str::<LiveConsumer>(consumer).expect("a consumer"));
        assert_eq!((consumer.queue.as_str(), consumer.channel), ("billing.processor.mail", None));
        let channel =
            r#"{"name": "c (1)", "messages_unacknowledged": 1, "connection_details": {"peer_port": "undefined"}}"#;
        assert_eq!(holder(serde_json::from_str(channel).expect("a channel")), None);
    }
}
