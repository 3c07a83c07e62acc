//! The names of connections, and the virtual host that a URL leads to.

use hatchery::Hatchery;

use crate::support::{
    broker::eventually,
    declared::Declared,
    private,
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

#[tokio::test]
#[ignore = "starts a RabbitMQ of its own; scripts/test --all runs it"]
async fn a_url_without_a_path_leads_to_the_default_virtual_host() {
    let broker = private::broker().await;
    let topology = hatchery::file::read("version: 1\nname: t\ntypes: { mail: {} }\n", "topology.yaml").unwrap();
    let url = broker.administrator();
    for path in ["", "/", "/%2f"] {
        let url = format!("{}{path}", url.trim_end_matches("/%2f"));
        let connected = Hatchery::builder(topology.clone()).amqp_url(&url).connect().await;
        connected.unwrap_or_else(|error| panic!("{path}: {error}")).close().await;
    }
}
