//! The names of connections, and the broker that they lead to.

use hatchery::internals::{
    ports::{Broker as _, BrokerIdentity},
    rabbitmq::{RabbitMq, connection::AmqpUrl},
};
use serde_json::Value;

use crate::support::{
    broker::{VirtualHost, eventually},
    declared::Declared,
    process::{Place, Process},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workers_connections_carry_its_name() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let worker = Process::spawn(place.worker("mail", &place.write("handler.sh", "true")));
    let name = format!("topology work mail @ {}", rustix::system::uname().nodename().to_string_lossy());
    eventually("the worker has three connections with its name", async || {
        let mut names = declared.host.connections();
        names.sort();
        (names == [name.clone(), format!("{name} (control)"), format!("{name} (publishing)")]).then_some(())
    })
    .await;
    worker.stop().await;
}

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
async fn the_identity_of_an_unreachable_broker_is_an_error() {
    let url = AmqpUrl::new("amqp://127.0.0.1:1").unwrap();
    assert!(RabbitMq::new(url, "test").identity().await.is_err());
}
