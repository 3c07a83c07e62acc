//! The verbs of the command line by a server: people with no rights on the broker see and do what others do.

use std::path::Path;

use hatchery::internals::names::look_lock;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    join,
};

use super::{client::Serving, letters::dead};
use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Ended, Place, Process},
    workers::Working,
};

const FILE: &str = "\
types: { mail: { keep-payload: 1KiB }, sms: {}, import: { coalesce: latest } }
schedules:
  nightly: { type: sms, cron: \"0 3 * * *\", timezone: Europe/Berlin }
  poll: { type: import, every: 1d }
";

/// Returns a command that knows the server alone: no broker, no Redis, no file.
fn by_server(place: &Place<'_>, serving: &Serving, arguments: &[&str]) -> tokio::process::Command {
    let mut command = place.command(arguments);
    command.env("AMQP_URL", "amqp://127.0.0.1:1").env("REDIS_URL", "redis://127.0.0.1:1").current_dir(Path::new("/"));
    command.env("TOPOLOGY_URL", format!("http://127.0.0.1:{}", serving.port));
    command
}

async fn asked(place: &Place<'_>, serving: &Serving, line: &str) -> Ended {
    place.run(&mut by_server(place, serving, &line.split(' ').collect::<Vec<_>>())).await
}

/// Runs a command with the broker, and by the server. Both must write the same. Returns what they have written.
async fn same(place: &Place<'_>, serving: &Serving, line: &str, code: i32) -> Ended {
    let (mut direct, mut served) = (by_broker(place, line).await, asked(place, serving, line).await);
    // A screen says `in 3h`, which may change between the two.
    if served.stdout != direct.stdout && (line.contains(" list") || line.contains(" show")) {
        (direct, served) = (by_broker(place, line).await, asked(place, serving, line).await);
    }
    assert_eq!((&served.stdout, &served.stderr), (&direct.stdout, &direct.stderr), "{line}");
    direct.expect(code);
    served.expect(code)
}

/// Waits until both write the same: the management API's counts are some seconds old.
async fn same_at_last(place: &Place<'_>, serving: &Serving, line: &str) {
    let both = async || {
        let (direct, served) = (by_broker(place, line).await.expect(0), asked(place, serving, line).await.expect(0));
        (direct.stdout == served.stdout && direct.stderr == served.stderr).then_some(())
    };
    eventually(&format!("`{line}` writes the same by a server"), both).await;
}

async fn by_broker(place: &Place<'_>, line: &str) -> Ended {
    let mut command = place.command(&line.split(' ').collect::<Vec<_>>());
    place.run(command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management())).await
}

async fn applied(text: &str) -> Declared {
    let declared = Declared::new(text).await;
    let place = Place::new(&declared);
    let mut apply = place.command(&["apply", "--auto-approve"]);
    place.run(apply.env("RABBITMQ_MANAGEMENT_URL", declared.host.management())).await.expect(0);
    declared
}

#[tokio::test]
async fn events_are_listed_and_changed_by_a_server_as_by_the_broker() {
    let declared = applied(FILE).await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    let due = "2099-06-01T09:00:00Z";
    for (event_type, id) in [("mail", "a"), ("mail", "b"), ("sms", "c")] {
        let event = json!({ "type": event_type, "id": id, "reference": format!("of-{id}"), "nbf": due });
        serving.publish(&event).await.expect(201);
    }
    let same = async |line: &str, code| same(&place, &serving, line, code).await;
    let list = same("events list", 0).await;
    assert!(list.stdout.contains("of-a") && list.stdout.contains("schedule nightly"), "{list:?}");
    let json: Value = serde_json::from_str(&same("-o json events list", 0).await.stdout).unwrap();
    assert_eq!((&json["total"], &json["more"]), (&json!(5), &json!(false)), "{json:#}");
    assert!(json["unlisted"].is_array(), "{json:#}");
    let cut = same("events list --type mail --type sms --limit 1 --due-after 2099-01-01T00:00:00Z", 0).await;
    assert!(cut.stderr.contains("The first 1 of 3 are shown"), "{cut:?}");
    same("-o ndjson events list --state waiting --state retry --id a", 0).await;
    same("events list --reference-prefix of- --attempts 1", 0).await;

    for line in ["events show a", "-o json events show --reference of-c", "-o ndjson events show --type mail --id b"] {
        same_at_last(&place, &serving, line).await;
    }
    same("events show never", 1).await;
    same("events show --type mial --id a", 1).await;

    let moved = same("events reschedule --type mail --reference of-a --to 2099-07-01T09:00:00Z", 0).await;
    assert_eq!(moved.stdout, "Rescheduled to 2099-07-01T09:00:00Z: 1 event.\n");
    let not_moved = same("events run-now --type sms --reference of-c", 1).await;
    assert!(not_moved.stdout.starts_with("Not moved: 1 event"), "{not_moved:?}");
    same("-o json events run-now --type sms --reference of-c", 1).await;
    same("-o ndjson events reschedule --type sms --id c --to 2099-01-01T00:00:00Z", 1).await;
    same("events run-now --type mail --id never", 1).await;
    same("-o json events reschedule --type mail --id never --delay 1h", 1).await;
    same("events cancel --type mial --id a", 1).await;

    let cancelled = asked(&place, &serving, "events cancel --type mail --reference of-b").await.expect(0);
    assert_eq!(cancelled.stdout, "Cancelled 1 event of of-b: b.\n");
    let json = asked(&place, &serving, "-o json events cancel --type mail --id a").await.expect(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["found"], &json["results"], &json["events"][0]["id"]),
        (&json!(1), &json!({"cancelled": 1}), &json!("a"))
    );
    same("events cancel --type mail --id a", 0).await;
    same("-o json events cancel --type mail --id never", 0).await;
    same("events cancel --type import --reference 7 --immediate", 0).await;
    same("-o json events cancel --type import --reference 7 --immediate", 0).await;
    same("events cancel --type mail --reference 7", 0).await;
}

#[tokio::test]
async fn schedules_are_shown_paused_and_run_by_a_server_as_by_the_broker() {
    let declared = applied(FILE).await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    let same = async |line: &str, code| same(&place, &serving, line, code).await;
    same("schedule list", 0).await;
    same("-o json schedule list", 0).await;
    same("-o ndjson schedule list", 0).await;
    same("schedule show nightly", 0).await;
    same("-o json schedule show poll", 0).await;
    same("schedule show nithly", 1).await;
    for verb in ["pause", "resume", "run-now"] {
        same(&format!("schedule {verb} nithly"), 2).await;
    }
    let backfill = "schedule backfill nightly --from 2026-06-01T00:00:00Z --to 2026-06-03T00:00:00Z";
    let (json, yes) = (format!("-o json {backfill}"), format!("{backfill} --yes"));
    for (line, code) in [(backfill, 0), (&json, 0), (&yes, 0)] {
        same(line, code).await;
    }
    same("schedule backfill nightly --from 2026-06-01T00:00:00Z --to 2026-06-03T00:00:00Z --limit 1", 0).await;
    same("schedule backfill poll --from 2026-06-01T00:00:00Z", 1).await;
    same("schedule backfill nightly --from 2026-06-01T00:00:00Z --to 2098-06-03T00:00:00Z", 2).await;

    let asked = async |line: &str| asked(&place, &serving, line).await.expect(0).stdout;
    assert_eq!(asked("schedule pause nightly --reason moved").await, "nightly is paused.\n");
    assert_eq!(same("schedule pause nightly --reason closed", 0).await.stdout, "nightly was paused before.\n");
    same("schedule show nightly", 0).await;
    let resumed = asked("schedule resume nightly").await;
    assert!(resumed.starts_with("nightly is resumed; its next event is due at "), "{resumed}");
    assert_eq!(same("schedule resume nightly", 0).await.stdout, "nightly was not paused.\n");
    let id = asked("schedule run-now nightly").await;
    assert!(id.starts_with("nightly!"), "{id}");
    for id in [id.trim(), "nightly!2026-06-01T01:00:00Z", "nightly!2026-06-02T01:00:00Z"] {
        serving.get(&format!("/v1/events/sms?id={}", id.replace('!', "%21"))).await.expect(200);
    }
}

#[tokio::test]
async fn what_no_server_does_is_refused_by_its_flag() {
    let declared = Declared::new(FILE).await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    for (line, flag) in [
        ("events cancel --type mail --reason slow --yes", "--reason"),
        ("events cancel --type mail --type sms --reference 1", "more than one --type"),
        ("events run-now --type mail --reference-prefix 1", "--reference-prefix"),
        ("events cancel --type mail --yes", "--reference or --id"),
        ("events cancel --type mail --id a --wait", "--wait"),
        ("events cancel --id a", "--type"),
        ("events list --limit 1001", "--limit"),
        ("schedule backfill nightly --from 2026-06-01T00:00:00Z --limit 1001", "--limit"),
        ("trace a --follow", "--follow"),
        ("breaker list", "--server (TOPOLOGY_URL) is for `publish`"),
    ] {
        let refused = asked(&place, &serving, line).await.expect(2);
        assert!(refused.stderr.contains(flag), "{line}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_are_looked_at_replayed_and_discarded_by_a_server_as_by_the_broker() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    let same = async |line: &str, code| same(&place, &serving, line, code).await;
    same("dead-letter list", 0).await;
    dead(&declared, &serving, &["a"], "HTTP 503").await;
    dead(&declared, &serving, &["b"], "no such address").await;
    dead(&declared, &serving, &["c"], "HTTP 503").await;
    for line in [
        "dead-letter list",
        "-o json dead-letter list",
        "-o ndjson dead-letter list",
        "dead-letter list --events --limit 2",
        "-o json dead-letter list --events --type mail",
        "-o ndjson dead-letter list --events --reason address",
        "dead-letter list --unrouted",
        "dead-letter replay",
        "-o json dead-letter replay --limit 1",
        "-o json dead-letter discard --reason address",
        "dead-letter discard --obsolete",
    ] {
        same(line, 0).await;
    }
    for line in ["trace a", "-o json trace --reference r-b", "-o ndjson trace --type mail", "trace --type mail"] {
        same_at_last(&place, &serving, line).await;
    }
    // Each look counts as a delivery.
    for line in
        ["dead-letter show a", "-o json dead-letter show --reference r-b", "dead-letter show a --payload-limit 3"]
    {
        let shown = [by_broker(&place, line).await.expect(0), asked(&place, &serving, line).await.expect(0)];
        let lines = |ended: &Ended| -> Vec<String> {
            ended.stdout.lines().filter(|line| !line.contains("x-delivery-count")).map(str::to_owned).collect()
        };
        assert_eq!(lines(&shown[0]), lines(&shown[1]));
        assert!(shown[1].stdout.contains("HTTP 503") || line.contains("r-b"), "{shown:?}");
    }
    same("trace never", 1).await;
    same("dead-letter show never", 1).await;
    same("dead-letter replay --id never", 1).await;
    same("dead-letter list --type mial", 1).await;
    for flag in ["--wait 1s", "--type mail --type sms"] {
        let refused = asked(&place, &serving, &format!("dead-letter list {flag}")).await.expect(2);
        assert!(refused.stderr.contains(&flag[..6]), "{refused:?}");
    }

    let saved = place.path("saved").display().to_string();
    let discard = format!("-o json dead-letter discard --reason address --save {saved} --yes");
    let discarded: Value = serde_json::from_str(&asked(&place, &serving, &discard).await.expect(0).stdout).unwrap();
    assert_eq!((&discarded["dry_run"], &discarded["letters"]["done"]), (&json!(false), &json!(1)), "{discarded:#}");
    let line: Value = serde_json::from_str(&place.lines("saved")[0]).unwrap();
    assert_eq!((&line["discarded"]["id"], place.lines("saved").len()), (&json!("b"), 1), "{line:#}");
    let replayed = asked(&place, &serving, "dead-letter replay --rate 50/s --yes").await.expect(0);
    assert_eq!(replayed.stdout, "Replayed: 2 letters.\n");
    assert_eq!(declared.amqp().await.ready(&declared.dead_letters("mail")).await, 0);
    let batch = ["publish", "--batch", &saved];
    assert_eq!(place.run(&mut by_server(&place, &serving, &batch)).await.expect(0).stdout, "1 published, 0 refused\n");
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| hatchery::Outcome::Done);
    let mut ids: Vec<String> = worker.runs.reach(3).await.into_iter().map(|seen| seen.event.id).collect();
    ids.sort();
    assert_eq!(ids.len(), 3, "{ids:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_somebody_else_holds_end_a_verb_with_7_by_a_server_too() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    dead(&declared, &serving, &["a"], "HTTP 503").await;
    let (queue, other) = (declared.dead_letters("mail"), declared.amqp().await);
    other.lock(&look_lock(&queue)).await;
    let (direct, listed, replayed) = join!(
        by_broker(&place, "dead-letter list --wait 1ms"),
        asked(&place, &serving, "dead-letter list"),
        asked(&place, &serving, "dead-letter replay --yes"),
    );
    for ended in [direct, listed, replayed] {
        assert!(ended.stderr.contains(&format!("holds letters of {queue}")), "{ended:?}");
        ended.expect(7);
    }
}

#[tokio::test]
async fn the_status_is_watched_by_a_server() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    let mut command = by_server(&place, &serving, &["-o", "ndjson", "status", "--watch", "--interval", "1s"]);
    command.stdout(std::fs::File::create(place.path("out")).unwrap());
    let process = Process::spawn(command);
    eventually("it is looked at twice", async || (place.lines("out").len() >= 2).then_some(())).await;
    process.signal(Signal::INT);
    process.ended().await.expect(0);
    let looked: Value = serde_json::from_str(&place.lines("out")[1]).unwrap();
    assert_eq!(looked["types"][0]["type"], "mail", "{looked:#}");
}

const BATCH: &str = "\
{\"type\":\"mail\",\"id\":\"a\",\"nbf\":\"2099-06-01T09:00:00Z\"}
{\"cancel\":{\"type\":\"mail\",\"id\":\"a\"}}

no event
{\"type\":\"mial\",\"id\":\"b\"}
{\"cancel\":{\"type\":\"mail\",\"id\":\"c\"}}
{\"type\":\"mail\",\"id\":\"d\"}
";

#[tokio::test]
async fn a_batch_by_a_server_has_the_account_of_a_direct_one() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    let batch = place.write("batch", BATCH).display().to_string();
    let account = same(&place, &serving, &format!("publish --batch {batch}"), 5).await;
    assert_eq!(account.stdout, "2 published, 2 cancelled or rescheduled, 2 refused\n");
    assert!(account.stderr.contains("line 5: there is no type `mial` in the file"), "{account:?}");
    same(&place, &serving, &format!("-o json publish --batch {batch}"), 5).await;
    let lines = async |mut command: tokio::process::Command| {
        let mut lines: Vec<String> =
            place.run(&mut command).await.expect(5).stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let arguments = ["-o", "ndjson", "publish", "--batch", &batch];
    // A server also says what Redis knew of an id before.
    let [one, other] = [",\"state\":\"cancelled\"", ",\"state\":\"waiting\""];
    let served = lines(by_server(&place, &serving, &arguments)).await.join("\n");
    assert!(served.contains(one) && served.contains(other), "{served}");
    let direct = lines(place.command(&arguments)).await.join("\n");
    assert_eq!(served.replacen(one, "", 1).replacen(other, "", 1), direct);

    // What is refused goes to the rejects, and the changes behind it with it.
    let rejects = place.path("rejects").display().to_string();
    asked(&place, &serving, &format!("publish --batch {batch} --rejects {rejects}")).await.expect(5);
    assert_eq!(
        place.lines("rejects").join("\n"),
        BATCH.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>()[2..5].join("\n")
    );
}

#[tokio::test]
async fn a_line_that_comes_alone_is_answered_at_once() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    let mut command = by_server(&place, &serving, &["-o", "ndjson", "publish", "--batch", "-"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let (mut input, mut answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    for n in 1..=3 {
        input.write_all(format!("{{\"type\":\"mail\",\"id\":\"{n}\"}}\n").as_bytes()).await.unwrap();
        let answer = eventually("an answer", async || answers.next_line().await.unwrap()).await;
        assert_eq!(answer, format!("{{\"line\":{n},\"id\":\"{n}\"}}"));
    }
    drop(input);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_outlives_a_server_that_is_killed_and_loses_no_line() {
    const LINES: usize = 12_000;
    let declared = Declared::new("types: { mail: {} }").await;
    let (place, serving) = (Place::new(&declared), Serving::start(&declared).await);
    let batch: Vec<String> = (0..LINES).map(|n| format!("{{\"type\":\"mail\",\"id\":\"{n}\"}}\n")).collect();
    let batch = place.write("batch", &batch.concat()).display().to_string();
    let rejects = place.path("rejects").display().to_string();
    let arguments = ["-o", "json", "publish", "--batch", &batch, "--rejects", &rejects];
    let mut publish = by_server(&place, &serving, &arguments);
    // The refused lines are more than a pipe holds, and nobody reads it meanwhile.
    publish.stderr(std::process::Stdio::null());
    let publishing = Process::spawn(publish);
    let (amqp, processing) = (declared.amqp().await, declared.processing("mail"));
    eventually("lines are published", async || (amqp.ready(&processing).await >= 1_200).then_some(())).await;
    serving.process.signal(Signal::KILL);
    let listen = format!("127.0.0.1:{}", serving.port);
    assert!(serving.process.ended().await.killed());
    let mut again = place.command(&["serve", "--listen", &listen]);
    let _again = Process::spawn({
        again.stderr(std::process::Stdio::null());
        again
    });
    let account = publishing.ended().await.expect(5).summary();
    let (published, refused) = (account["published"].as_u64().unwrap(), account["refused"].as_u64().unwrap());
    assert_eq!(published + refused, LINES as u64, "{account}");
    assert_eq!(place.lines("rejects").len() as u64, refused);
    assert!(refused <= 1_000, "only the request that was under way: {account}");
    let mut rest = place.command(&["publish", "--batch", &rejects]);
    rest.env("TOPOLOGY_URL", format!("http://{listen}"));
    place.run(&mut rest).await.expect(0);

    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| hatchery::Outcome::Done);
    let mut ids: Vec<usize> =
        worker.runs.reach(LINES).await.into_iter().map(|seen| seen.event.id.parse().unwrap()).collect();
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(0..LINES), "each line has run once");
    worker.stop().await;
}
