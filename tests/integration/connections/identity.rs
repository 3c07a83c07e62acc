//! The identity of the broker that a connection leads to.

use hatchery::{
    Tls,
    internals::{
        ports::{Broker as _, BrokerIdentity},
        rabbitmq::{RabbitMq, connection::AmqpUrl},
    },
};
use serde_json::Value;

use crate::support::{broker::VirtualHost, private};

fn shown(overview: &Value) -> BrokerIdentity {
    let text = |name: &str| overview[name].as_str().map(str::to_owned);
    BrokerIdentity { cluster_name: text("cluster_name"), version: text("rabbitmq_version") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_tells_its_cluster_name_and_version() {
    let host = VirtualHost::new();
    let broker = RabbitMq::new(AmqpUrl::new(&host.amqp()).unwrap(), "test");
    let identity = broker.identity().await.unwrap();
    assert_eq!(identity, shown(&host.overview()));
    assert!(identity.cluster_name.is_some() && identity.version.is_some());
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a RabbitMQ with TLS; scripts/test --all runs it"]
async fn a_broker_tells_its_cluster_name_and_version_over_tls() {
    let broker = private::broker().await;
    let host = broker.host();
    let tls = Tls::default().trust_file(broker.authority.file()).unwrap();
    let tls = tls.identify_files(&broker.client.chain, &broker.client.key).unwrap();
    let connected = RabbitMq::new(AmqpUrl::new(&broker.amqps(&host)).unwrap().with_tls(tls), "test");
    assert_eq!(connected.identity().await.unwrap(), shown(&host.overview()));
    connected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_identity_of_an_unreachable_broker_is_an_error() {
    let url = AmqpUrl::new("amqp://127.0.0.1:1").unwrap();
    assert!(RabbitMq::new(url, "test").identity().await.is_err());
}
