//! `status` says that the broker blocks publishers.

use super::{finding, kinds, seen};
use crate::support::{broker::eventually, declared::Declared, private, process::Place, redis};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "blocks a broker of its own; scripts/test --all runs it"]
async fn status_names_an_alarm_of_the_broker_for_as_long_as_it_lasts() {
    let mut broker = private::broker().await;
    let declared = Declared::on(broker.host(), "types: { mail: {} }\n", redis::url()).await;
    declared.own_register().await;
    let place = Place::new(&declared);
    broker.block().await;
    let answer = eventually("the alarm is named", async || {
        let (code, answer) = seen(&place).await;
        kinds(&answer).contains("broker-alarm").then_some((code, answer))
    });
    let (code, answer) = answer.await;
    assert_eq!((code, &finding(&answer, "broker-alarm")["alarms"][0]["resource"]), (Some(4), &"memory".into()));
    broker.unblock().await;
    let is_over = async || (!kinds(&seen(&place).await.1).contains("broker-alarm")).then_some(());
    eventually("the alarm is over", is_over).await;
}
