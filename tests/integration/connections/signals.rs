//! SIGTERM and SIGINT in awkward moments: before a connection exists, under load, while the broker is away.

use std::{collections::BTreeSet, fs, io::Write as _};

use hatchery::NewEvent;
use rustix::process::Signal;
use tokio::net::TcpListener;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    process::{Place, Process},
    relay::Relay,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_still_connecting_ends_at_once() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    for (variable, url) in [
        ("AMQP_URL", format!("amqp://127.0.0.1:{port}")),
        ("AMQP_URL", format!("amqps://127.0.0.1:{port}")),
        ("REDIS_URL", format!("redis://127.0.0.1:{port}")),
    ] {
        for signal in [Signal::TERM, Signal::INT] {
            let mut command = place.worker("mail", &place.write("handler.sh", "true"));
            command.env(variable, &url);
            let worker = Process::spawn(command);
            let _asked = silent.accept().await.unwrap();
            worker.signal(signal);
            // One that waits for an answer fails once it has waited too long.
            assert_eq!(worker.ended().await.expect(0).summary()["delivered"], 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_a_broker_stops_within_its_limit_and_loses_nothing() {
    let declared = Declared::new("types: { mail: { drain-timeout: 10m, lease: 1s, retry: { delays: [50ms] } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let relay = Relay::to(&declared.host.amqp()).await;
    let script = place.write("handler.sh", "cat >> runs; echo >> runs; [ -e done ]");
    let mut command = place.worker("mail", &script);
    command.env("AMQP_URL", &relay.url).args(["--drain-timeout", "1s"]);
    let worker = Process::spawn(command);
    eventually("the worker consumes", async || {
        place.lines("log").iter().any(|line| line.contains("consuming t.processor.mail")).then_some(())
    })
    .await;
    relay.close();
    publish(&hatchery, NewEvent::new("mail", "1")).await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
    relay.open();
    place.write("done", "");
    let worker = Process::spawn(place.worker("mail", &script));
    eventually("the event has run", async || (!place.lines("runs").is_empty()).then_some(())).await;
    assert_eq!(worker.stop().await["done"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "works through a long queue with processes that are killed; scripts/test --all runs it"]
async fn a_second_signal_under_load_loses_nothing() {
    const EVENTS: usize = 300;
    let declared = Declared::new("types: { mail: { concurrency: 8, prefetch: 50, lease: 1s } }").await;
    let hatchery = declared.connect().await;
    let events = (0..EVENTS).map(|n| NewEvent::new("mail", n.to_string())).collect();
    assert!(hatchery.publisher().publish_batch(events).await.iter().all(Result::is_ok));
    let place = Place::new(&declared);
    // The first run of every fourth event takes longer than the test waits, so that a handler runs whenever the second
    // signal comes.
    let script = place.write(
        "handler.sh",
        "n=$(cat); if [ $((n % 4)) = 0 ] && ! [ -e long-$n ] && ! [ -e quick ]; then touch long-$n; sleep 60; fi
         echo $n >> runs",
    );
    let long = || (0..EVENTS).filter(|n| place.path(&format!("long-{n}")).exists()).count();
    let mut stopped = 0;
    while place.lines("runs").len() < EVENTS / 3 {
        let (ran, began) = (place.lines("runs").len(), long());
        let worker = Process::spawn(place.worker("mail", &script));
        eventually("the worker runs events", async || {
            (place.lines("runs").len() >= ran + 5 && long() > began).then_some(())
        })
        .await;
        let ended = worker.ended_by(if stopped % 2 == 0 { Signal::TERM } else { Signal::INT }).await;
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        stopped += 1;
    }
    place.write("quick", "");
    let worker = Process::spawn(place.worker("mail", &script));
    let ran = || place.lines("runs").into_iter().collect::<BTreeSet<_>>();
    eventually("all events have run", async || (ran().len() == EVENTS).then_some(())).await;
    declared.amqp().await.expect_empty(&declared.passages()).await;
    worker.stop().await;
    // An event that was done but not yet acknowledged when its worker ended runs again: at most as many as ran at a
    // time.
    let again = place.lines("runs").len() - EVENTS;
    assert!(again <= stopped * 8, "{again} events ran twice in {stopped} stops");
    assert!(stopped >= 2, "the worker was stopped too seldom to get both signals");
}

/// The worker can give back nothing to a broker that is away, and does not wait for what runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_without_a_broker_ends_a_worker_at_once_and_loses_nothing() {
    const EVENTS: usize = 8;
    let declared = Declared::new("types: { mail: { concurrency: 4, prefetch: 6, lease: 1s } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let relay = Relay::to(&declared.host.amqp()).await;
    for n in 0..EVENTS {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    let script = place.write("handler.sh", "n=$(cat); echo $$ >> begun; [ -e quick ] || sleep 600; echo $n >> runs");
    let mut command = place.worker("mail", &script);
    // A worker that waits for its programs does so for longer than the test waits.
    command.env("AMQP_URL", &relay.url).args(["--drain-timeout", "10m"]);
    let worker = Process::spawn(command);
    eventually("four programs run", async || (place.lines("begun").len() == 4).then_some(())).await;
    relay.close();
    let says = |what: &str| place.lines("log").iter().any(|line| line.contains(what));
    eventually("the worker notices that the broker is away", async || {
        says("consuming t.processor.mail again in").then_some(())
    })
    .await;
    worker.signal(Signal::TERM);
    eventually("the worker begins to stop", async || says("stopping").then_some(())).await;
    worker.ended_by(Signal::TERM).await.expect(1);
    let programs = place.lines("begun");
    let runs = |program: &String| {
        fs::read_to_string(format!("/proc/{program}/cmdline")).is_ok_and(|line| line.contains("handler.sh"))
    };
    eventually("its programs end", async || (!programs.iter().any(runs)).then_some(())).await;
    assert_eq!(place.lines("runs"), Vec::<String>::new());
    relay.open();
    place.write("quick", "");
    let worker = Process::spawn(place.worker("mail", &script));
    eventually("all events have run", async || (place.lines("runs").len() >= EVENTS).then_some(())).await;
    declared.amqp().await.expect_empty(&declared.passages()).await;
    assert_eq!(worker.stop().await["done"], EVENTS);
    let ran: BTreeSet<String> = place.lines("runs").into_iter().collect();
    assert_eq!((ran.len(), place.lines("runs").len()), (EVENTS, EVENTS), "not every event ran exactly once: {ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_batch_answers_the_lines_that_it_read_and_says_where_it_stopped() {
    for (format, account) in [("text", "3 published, 1 refused"), ("json", r#""stopped_before_line": 6"#)] {
        let declared = Declared::new("types: { mail: {} }").await;
        let place = Place::new(&declared);
        let mut command = place.command(&["-o", format, "publish", "--batch", "-"]);
        let (read, mut write) = std::io::pipe().unwrap();
        command.stdin(read);
        let publisher = Process::spawn(command);
        // The second line is blank, and the last one has no line end.
        let lines = ["{\"type\":\"mail\"}", "", "{broken", "{\"type\":\"mail\"}", "{\"type\":\"mail\"}", "{\"type\":"];
        write.write_all(lines.join("\n").as_bytes()).unwrap();
        let amqp = declared.amqp().await;
        let queue = declared.processing("mail");
        eventually("the three valid lines are published", async || (amqp.ready(&queue).await == 3).then_some(())).await;
        // The pipe stays open, so that only the signal can end the process.
        let ended = publisher.ended_by(Signal::INT).await.expect(5);
        assert!(ended.stdout.contains(account), "{ended:?}");
        assert!(
            ended.stderr.contains("stopped before line 6: this line and those after it are not published"),
            "{ended:?}"
        );
        drop(write);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_its_confirms_until_a_second_signal() {
    let declared = Declared::new("types: { mail: { register: off } }").await;
    let place = Place::new(&declared);
    let relay = Relay::to(&declared.host.amqp()).await;
    let mut command = place.command(&["-o", "ndjson", "publish", "--batch", "-"]);
    let (read, mut write) = std::io::pipe().unwrap();
    let answers = fs::File::create(place.path("answers")).unwrap();
    command.env("AMQP_URL", &relay.url).stdin(read).stdout(answers);
    let publisher = Process::spawn(command);
    let answered = async |line: &str| {
        eventually(line, async || place.lines("answers").iter().any(|answer| answer.contains(line)).then_some(()))
            .await;
    };
    write.write_all(b"{\"type\":\"mail\"}\n").unwrap();
    answered("\"line\":1").await;
    relay.silence();
    write.write_all(b"{\"type\":\"mail\"}\n{\"type\":\"mail\"}\n{broken\n").unwrap();
    answered("\"line\":4").await;
    let ended = publisher.ended_by(Signal::TERM).await.expect(5);
    assert!(ended.stderr.contains("2 lines were not answered: they may be published or not"), "{ended:?}");
    assert!(ended.stderr.contains("stopped before line 5"), "{ended:?}");
    assert_eq!(place.lines("answers").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_many_types_says_once_that_the_broker_is_away_and_once_that_it_is_back() {
    const TYPES: usize = 4;
    let types: Vec<String> = (0..TYPES).map(|n| format!("type-{n}: {{}}")).collect();
    let declared = Declared::new(&format!("types: {{ {} }}", types.join(", "))).await;
    let place = Place::new(&declared);
    let relay = Relay::to(&declared.host.amqp()).await;
    let mut command = place.command(&["-o", "json", "work"]);
    for n in 0..TYPES {
        command.args(["--type", &format!("type-{n}")]);
    }
    command.env("AMQP_URL", &relay.url).args(["--exec", "true"]);
    command.stderr(fs::File::create(place.path("log")).unwrap());
    let worker = Process::spawn(command);
    let count = |what: &str| place.lines("log").iter().filter(|line| line.contains(what)).count();
    eventually("all types are consumed", async || (count("consuming t.processor.") == TYPES).then_some(())).await;
    let before = relay.accepted();
    relay.close();
    eventually("the worker notices", async || (count("the broker is away") > 0).then_some(())).await;
    relay.open();
    eventually("all types are consumed again", async || (count("consuming t.processor.") == 2 * TYPES).then_some(()))
        .await;
    worker.stop().await;
    assert!(relay.accepted() > before);
    let warned: Vec<_> =
        place.lines("log").into_iter().filter(|line| line.contains("WARN") && line.contains("the broker")).collect();
    let said = ["a connection to the broker is lost", "the broker is away", "the broker is back; it was away for"];
    assert_eq!(said.map(count), [1, 1, 1], "{warned:?}");
    assert_eq!(warned.len(), 2, "{warned:?}");
}
