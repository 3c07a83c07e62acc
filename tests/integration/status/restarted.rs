//! The broker forgets its statistics when it restarts, and not its messages.

use hatchery::{NewEvent, Outcome, internals::rabbitmq::connection::AmqpUrl};
use hatchery_admin::management::{ManagementApi, ManagementUrl};

use super::{answer, finding, kinds, status};
use crate::support::{
    broker::{Rights, eventually},
    declared::{Declared, publish_all},
    held::Held,
    process::Place,
    redis,
    workers::Working,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "restarts a broker of its own; scripts/test --all runs it"]
async fn letters_of_before_a_restart_are_not_new() {
    let mut node = Held::start(None);
    let declared = Declared::on(node.host(), "types: { mail: {} }\n", redis::url()).await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    let worker = Working::start(&hatchery, "mail", |_| Outcome::dead_letter("550"));
    publish_all(&hatchery, (0..2).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    let queue = declared.dead_letters("mail");
    declared.amqp().await.expect_untouched(&queue, 2).await;
    worker.stop().await;
    node.restart().await;

    let url = ManagementUrl::new(&declared.host.management(), &AmqpUrl::new(&declared.host.amqp()).unwrap()).unwrap();
    let management = ManagementApi::new(url, &declared.host.name).unwrap();
    // Only one of these users may see for how long the broker runs.
    let all = || ".*".to_owned();
    let rights = Rights { tag: "monitoring".to_owned(), configure: all(), write: all(), read: all() };
    let monitoring = declared.host.user("monitoring", &rights);
    let letters = async |url: &str| {
        let mut command = status(&place, &["--detailed-exitcode", "-o", "json"]);
        let (_, answer) = answer(&place.run(command.env("RABBITMQ_MANAGEMENT_URL", url)).await);
        kinds(&answer).contains("dead-letters").then(|| finding(&answer, "dead-letters")["queues"][0].clone())
    };
    let mut looks = 0;
    eventually("the statistics have both letters now, and none before", async || {
        let samples = management.lengths(&queue).await?;
        let is_misleading = samples.first()?.sample == 2 && samples.last()?.sample == 0;
        for url in [declared.host.management(), monitoring.management()] {
            let Some(found) = letters(&url).await else { continue };
            // The growth is not known at first, and 0 once the statistics are old enough.
            assert_eq!(found["more"].as_u64().unwrap_or_default(), 0, "{found:#}");
            looks += u32::from(is_misleading && found["messages"] == 2);
        }
        (looks >= 6).then_some(())
    })
    .await;
}
