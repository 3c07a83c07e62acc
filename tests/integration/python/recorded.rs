//! A reader in Python of the stream of the life of events.

use hatchery::{LifeCycleRecord, NewEvent, Outcome};

use super::folder;
use crate::support::{
    declared::{Declared, publish},
    process::{Place, python},
    records::Records,
    workers::Working,
};

#[tokio::test]
async fn a_plain_client_reads_what_has_happened() {
    let declared = Declared::new("life-cycle: all\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    for (id, reference) in [("a", "1"), ("b", "2")] {
        publish(&hatchery, NewEvent::new("mail", "{}").id(id).reference(reference)).await;
    }
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let mut told = Records::open(&declared.amqp().await, "t.life-cycle").await;
    told.reach(6, |_| true).await;
    worker.stop().await;
    let place = Place::new(&declared);
    let mut command = place.program(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(folder().join("life_cycle.py"));
    let ended = place.run(command.args(["--topology", "t", "--reference", "2", "--since-hours", "1"])).await.expect(0);
    let records = ended.stdout.lines().map(|line| LifeCycleRecord::parse(line.as_bytes()).unwrap());
    let told: Vec<_> = records.map(|record| (record.id.unwrap(), record.transition.to_string())).collect();
    let expected = ["published", "started", "done"].map(|transition| ("b".to_owned(), transition.to_owned()));
    assert_eq!(told, expected);
}
