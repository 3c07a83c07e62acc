//! `status --watch` shows one screen after the other until a signal comes.

use std::fs;

use rustix::process::Signal;

use super::status;
use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
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
