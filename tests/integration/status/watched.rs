//! `status --watch` shows one screen after the other until a signal comes.

use std::fs;

use rustix::process::Signal;

use super::status;
use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
    relay::Relay,
};

#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_a_screen_each_time_and_ends_cleanly_on_sigint() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    declared.own_register().await;
    let place = Place::new(&declared);
    let mut command = status(&place, &["--watch", "--interval", "1s", "--detailed-exitcode"]);
    command.stdout(fs::File::create(place.path("screens")).unwrap());
    let watching = Process::spawn(command);
    let screens = || place.lines("screens").iter().filter(|line| line.contains("nothing is wrong")).count();
    eventually("there are three screens", async || (screens() >= 3).then_some(())).await;
    watching.signal(Signal::INT);
    let ended = watching.ended().await.expect(0);
    assert_eq!(ended.stderr, "");
    assert!(!fs::read_to_string(place.path("screens")).unwrap().contains('\u{1b}'), "a file has no colours");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_says_of_when_its_last_screen_is_while_the_broker_is_away() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    declared.own_register().await;
    let (amqp, management) = (Relay::to(&declared.host.amqp()).await, Relay::to(&declared.host.management()).await);
    let place = Place::new(&declared);
    let mut command = status(&place, &["--watch", "--interval", "1s"]);
    command.env("AMQP_URL", &amqp.url).env("RABBITMQ_MANAGEMENT_URL", &management.url);
    command.stdout(fs::File::create(place.path("screens")).unwrap());
    command.stderr(fs::File::create(place.path("warnings")).unwrap());
    let watching = Process::spawn(command);
    let says = |file: &str, text: &str| place.lines(file).iter().any(|line| line.contains(text));
    eventually("there is a screen", async || says("screens", "nothing is wrong").then_some(())).await;
    amqp.close();
    management.close();
    eventually("the screen is dated", async || says("warnings", "; what is shown is of 20").then_some(())).await;
    watching.signal(Signal::INT);
    watching.ended().await.expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_ends_when_nobody_reads_its_screens() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    declared.own_register().await;
    let place = Place::new(&declared);
    let mut command = status(&place, &["--watch", "--interval", "1s"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    Process::spawn(command).ended().await.expect(0);
}
