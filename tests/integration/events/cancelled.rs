//! A cancelled event does not run.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use hatchery::{Cancelled, EventSelector, Filter, NewEvent, Outcome};
use serde_json::{Value, json};

use super::{HOUR, declared, from_now, put};
use crate::support::{
    broker::VirtualHost,
    declared::{Declared, publish},
    process::Place,
    redis,
    workers::Working,
};

/// Long enough to run a command, short enough to wait for.
const SOON: Duration = Duration::from_secs(3);

#[tokio::test]
async fn events_cancelled_by_reference_date_or_id_do_not_run_and_the_others_do() {
    let declared = declared("{ import: { coalesce: latest }, mail: {} }").await;
    let hatchery = declared.connect().await;
    let june = from_now(SOON);
    let at = june.to_string();
    publish(&hatchery, NewEvent::new("import", "\"june\"").id("june").reference("1234").at(june)).await;
    put(&hatchery, "import", "1234", "now", Duration::ZERO).await;
    put(&hatchery, "import", "1234", "other date", SOON * 2).await;
    for (reference, id) in [("ann", "a"), ("ann", "b"), ("bob", "c"), ("", "d"), ("", "last")] {
        put(&hatchery, "mail", reference, id, SOON).await;
    }
    let place = Place::new(&declared);
    let import = ["cancel", "--type", "import", "--reference", "1234"];
    let ended = place.events(0, &[&import[..], &["--at", &at]].concat()).await;
    assert_eq!(ended.stdout, "Cancelled 1 event of 1234: june.\n");
    let json = place.events_json(0, &[&import[..], &["--immediate"]].concat()).await;
    assert_eq!((&json["results"], &json["events"][0]["slot"]), (&json!({ "cancelled": 1 }), &"i".into()));
    let ended = place.events(0, &["cancel", "--type", "mail", "--reference", "ann"]).await;
    assert_eq!(ended.stdout, "Cancelled 2 events of ann: a, b.\n");
    let ended = place.events(0, &["cancel", "--type", "mail", "--id", "d"]).await;
    assert_eq!(ended.stdout, "Cancelled the event d.\n");
    // By the id that the cancel has told, and not by the reference, Redis tells what became of it.
    let shown = place.events(0, &["show", "--type", "mail", "a"]).await;
    assert!(shown.stdout.contains("state      cancelled"), "{shown:?}");
    let unknown = place.events(1, &["show", "--type", "mail", "--reference", "ann", "--all"]).await;
    assert!(unknown.stderr.contains("nothing of ann waits or runs"), "{unknown:?}");
    let again = place.events(0, &["cancel", "--type", "mail", "--reference", "ann"]).await;
    let expected = "Nothing of ann is known to wait. An event that was published while Redis was away is reached only by its id.\n";
    assert_eq!(again.stdout, expected);

    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let mailer = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(1).await;
    mailer.runs.reach(2).await;
    let (summary, mailed) = (worker.runs.clone(), mailer.runs.payloads());
    let (imports, mails) = (worker.stop().await, mailer.stop().await);
    assert_eq!(summary.payloads(), ["\"other date\""]);
    let mut mailed = mailed;
    mailed.sort();
    assert_eq!(mailed, ["\"c\"", "\"last\""]);
    assert_eq!((imports.stale, mails.stale), (2, 3));
}

/// The lines before a change are confirmed and recorded, and those after it have not begun.
#[tokio::test]
async fn a_line_of_a_batch_cancels_or_reschedules_what_was_published_before_it_and_nothing_later() {
    const TIMES: usize = 20;
    let declared = declared("{ import: { coalesce: latest }, mail: { keep-payload: 4KiB } }").await;
    let place = Place::new(&declared);
    let mut lines = String::new();
    for (n, event_type) in (0..TIMES).zip(["mail", "import"].into_iter().cycle()) {
        for line in [
            json!({ "type": event_type, "reference": n.to_string(), "id": format!("before-{n}"), "delay": "1h" }),
            json!({ "cancel": { "type": event_type, "reference": n.to_string() } }),
            json!({ "type": event_type, "reference": n.to_string(), "id": format!("after-{n}"), "delay": "1h" }),
            json!({ "reschedule": { "type": event_type, "reference": n.to_string(), "delay": "2h" } }),
        ] {
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
    }
    lines += "{\"cancel\":{\"type\":\"mail\",\"id\":\"unknown\"}}\n{\"reschedule\":{\"type\":\"mail\",\"id\":\"unknown\",\"delay\":\"1h\"}}\n";
    place.write("batch.ndjson", &lines);
    let mut command = place.command(&["publish", "--batch", "batch.ndjson", "--rejects", "rejects", "-o", "ndjson"]);
    let ended = place.run(&mut command).await.expect(5);
    let answers: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [
        json!({ "line": 1, "id": "before-0" }),
        json!({ "line": 2, "results": { "cancelled": 1 }, "ids": ["before-0"] }),
        json!({ "line": 3, "id": "after-0" }),
        json!({ "line": 4, "results": { "done": 1 }, "ids": ["after-0"] }),
    ];
    assert_eq!(answers[..4], expected);
    let last = [
        json!({ "line": 4 * TIMES + 1, "results": { "remembered": 1 }, "ids": [] }),
        json!({ "line": 4 * TIMES + 2, "error": "no such event waits" }),
    ];
    assert_eq!(answers[4 * TIMES..], last, "{ended:?}");
    assert_eq!(place.lines("rejects").len(), 1);
    let listed = place.run(&mut place.command(&["events", "list", "-o", "ndjson"])).await.expect(0).stdout;
    let listed: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(listed.iter().all(|event| event["id"].as_str().unwrap().starts_with("after-")), "{listed:?}");
    assert_eq!(listed.len(), TIMES);
}

#[tokio::test]
async fn a_run_that_ends_before_it_is_told_of_its_cancel_is_not_tried_again() {
    let declared = declared("{ import: { coalesce: latest, lease: 1m, retry: { delays: [100ms] } } }").await;
    let hatchery = declared.connect().await;
    let failure = Outcome::Retry { reason: "no luck".into(), after: None };
    let (worker, gate) = Working::gated_with(hatchery.worker(), "import", failure);
    put(&hatchery, "import", "1234", "a", Duration::ZERO).await;
    worker.runs.reach(1).await;
    let place = Place::new(&declared);
    let ended = place.events(0, &["cancel", "--reference", "1234"]).await;
    assert_eq!(
        ended.stdout,
        "Nothing of 1234 is known to wait. One is running; its worker ends it at the next renewal of the lease.\n"
    );
    let again = place.events(0, &["cancel", "--reference", "1234"]).await;
    assert_eq!(again.stdout, ended.stdout);
    let shown = place.events(0, &["show", "--reference", "1234"]).await;
    assert!(shown.stdout.contains("cancelled, and its run has not ended"), "{shown:?}");
    gate.let_through(1);
    // The retry of `a` is delivered and is stale. `b`, which comes after it, runs.
    put(&hatchery, "import", "5678", "b", Duration::from_millis(500)).await;
    worker.runs.reach(2).await;
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let runs = worker.runs.clone();
    // `b` fails, too. The worker that stops does not try it again.
    let (summary, ()) = tokio::join!(worker.stop(), async { gate.let_through(1) });
    assert_eq!((runs.payloads().as_slice(), summary.stale), (&["\"a\"".to_owned(), "\"b\"".to_owned()][..], 1));
}

#[tokio::test]
async fn a_cancel_of_an_unknown_id_is_remembered() {
    let declared = declared("{ mail: {} }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let ended = place.events(0, &["cancel", "--id", "x"]).await;
    let expected = "Nothing of the event x is known to wait. Its id is remembered: the event does not run if it competes with \
                    no other event, or was published while Redis was away.\n";
    assert_eq!(ended.stdout, expected);
    put(&hatchery, "mail", "ann", "known", HOUR).await;
    let ended = place.events(1, &["cancel", "--id", "known", "--reference", "bob"]).await;
    assert!(ended.stderr.contains("the event known of ann"), "{ended:?}");
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    put(&hatchery, "mail", "", "x", Duration::ZERO).await;
    put(&hatchery, "mail", "", "y", Duration::ZERO).await;
    worker.runs.reach(1).await;
    assert_eq!(worker.runs.payloads(), ["\"y\""]);
    assert_eq!(worker.stop().await.stale, 1);
}

#[tokio::test]
async fn a_cancel_by_id_reaches_an_event_that_was_published_without_redis_in_any_shard() {
    let types =
        "types: { each: { coalesce: { delayed: each-time } }, mail: {} }\nladder: { resolution: 50ms, horizon: 2h }\n";
    let declared = Declared::with_shards(VirtualHost::new(), types, redis::url(), 8).await;
    let without = hatchery::Hatchery::builder(declared.topology.clone())
        .amqp_url(declared.host.amqp())
        .redis_url("redis://127.0.0.1:1")
        .connect()
        .await
        .unwrap();
    let events = declared.connect().await.events();
    let hatchery = declared.connect().await;
    for event_type in ["each", "mail"] {
        let references: Vec<String> = (0..8).map(|n| n.to_string()).collect();
        for reference in &references {
            put(&without, event_type, reference, &format!("{event_type}-{reference}"), SOON).await;
        }
        for reference in &references {
            events.cancel(&EventSelector::id(event_type, format!("{event_type}-{reference}"))).await.unwrap();
        }
        put(&hatchery, event_type, "last", "last", SOON * 2).await;
    }
    for event_type in ["each", "mail"] {
        let worker = Working::start(&hatchery, event_type, |_| Outcome::Done);
        worker.runs.reach(1).await;
        assert_eq!(worker.runs.payloads(), ["\"last\""]);
        assert_eq!(worker.stop().await.stale, 8);
    }
}

#[tokio::test]
async fn an_event_that_passes_the_ladder_twice_stays_cancelled() {
    // The register remembers the cancel of an event whose date it does not know for 3.55 s.
    let types = "redis: { dedup-retention: 1s, backlog-retention: 2s }\nladder: { resolution: 50ms, horizon: 1500ms }\n\
                 types: { mail: {} }\n";
    let declared = Declared::new(types).await;
    let hatchery = declared.connect().await;
    let events = hatchery.events();
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    for id in ["by id", "by reference", "found", "last"] {
        put(&hatchery, "mail", id, id, Duration::from_secs(6)).await;
    }
    let cancelled = events.cancel(&EventSelector::id("mail", "by id")).await.unwrap();
    assert!(matches!(&cancelled[..], [Cancelled { waiting: true, .. }]), "{cancelled:?}");
    events.cancel(&EventSelector::reference("mail", "by reference")).await.unwrap();
    let found: Vec<_> = events.cancel_all(&Filter::default().reference_prefix("fo")).try_collect().await.unwrap();
    assert_eq!(found.len(), 1);
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let runs = worker.runs.clone();
    let summary = worker.stop().await;
    assert_eq!((runs.payloads(), summary.stale), (vec!["\"last\"".to_owned()], 3), "{summary:?}");
}

#[tokio::test]
async fn a_cancel_by_filter_is_a_dry_run_without_yes() {
    let declared = declared("{ import: { coalesce: latest }, mail: {} }").await;
    let hatchery = declared.connect().await;
    for n in 0..30 {
        put(&hatchery, "import", &format!("{n:02}"), &n.to_string(), HOUR).await;
    }
    let place = Place::new(&declared);
    let cancel = ["cancel", "--type", "import", "--reference-prefix", "1"];
    let shown = place.events(0, &cancel).await;
    assert!(shown.stdout.ends_with("\nDry run: would cancel 10 events. --yes does it.\n"), "{}", shown.stdout);
    let shown = place.events(0, &["cancel", "--type", "import"]).await;
    assert!(shown.stdout.contains("\n… and 10 more\n"), "{}", shown.stdout);
    let json = place.events_json(0, &["cancel", "--type", "import"]).await;
    assert_eq!((&json["dry_run"], &json["found"], &json["more"]), (&true.into(), &30.into(), &true.into()));
    assert_eq!(place.ids(&[]).await.len(), 30);

    let done = place.events(0, &[&cancel[..], &["--yes"]].concat()).await;
    assert_eq!(done.stdout, "Cancelled 10 events.\n");
    assert_eq!(place.ids(&[]).await.len(), 20);
    let done = place.events(0, &[&cancel[..], &["--yes"]].concat()).await;
    assert_eq!(done.stdout, "Cancelled 0 events.\n");
    let rest = place.events(0, &["cancel", "--type", "import", "--yes", "-o", "ndjson"]).await;
    assert!(rest.stdout.lines().count() == 20 && rest.stdout.contains("\"result\":\"cancelled\""), "{rest:?}");

    for (wrong, why) in [
        (&["cancel", "--yes"][..], "--type"),
        (&["cancel", "--type", "mail", "--reference", "x", "--immediate"], "by its id"),
        (&["cancel", "--type", "mail", "--reference", "x", "--reference-prefix", "y"], "cannot be used with"),
        (&["cancel", "--type", "import", "--reference", "x", "--immediate", "--attempts", "1"], "no filter"),
        (&["cancel", "--type", "import", "--state", "handled"], "possible values"),
        (&["cancel", "--type", "import", "--due-before", "soon"], "not a time"),
    ] {
        let ended = place.events(2, wrong).await;
        assert!(ended.stderr.contains(why), "{wrong:?}: {ended:?}");
    }
}

/// Returns the sorted keys of a JSON object.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn cancel_reschedule_and_run_now_answer_with_json_of_one_shape() {
    let declared = declared("{ mail: { keep-payload: 4KiB } }").await;
    let hatchery = declared.connect().await;
    for id in ["a", "b", "c", "d", "e", "f"] {
        put(&hatchery, "mail", id, id, HOUR).await;
    }
    let place = Place::new(&declared);
    let june = "2200-06-01T09:00:00Z";
    let all = ["--type", "mail", "--due-after", "10m"];
    let shape = place.events_json(0, &[&["cancel"], &all[..]].concat()).await;
    assert_eq!(
        (&shape["verb"], &shape["dry_run"], &shape["found"], &shape["results"], &shape["more"]),
        (&"cancel".into(), &true.into(), &6.into(), &json!({}), &false.into())
    );
    assert_eq!(shape["events"].as_array().unwrap().len(), 6);
    let mut lines: Vec<Value> = Vec::new();
    for (arguments, verb, result) in [
        (&["cancel", "--id", "a"][..], "cancel", "cancelled"),
        (&["cancel", "--id", "a"], "cancel", "remembered"),
        (&["cancel", "--type", "mail", "--reference-prefix", "b", "--yes"], "cancel", "cancelled"),
        (&["reschedule", "--id", "c", "--to", june], "reschedule", "done"),
        (&["reschedule", "--type", "mail", "--reference-prefix", "d", "--to", june, "--yes"], "reschedule", "done"),
        (&["run-now", "--id", "e"], "run-now", "done"),
        (&["run-now", "--type", "mail", "--reference-prefix", "f", "--yes"], "run-now", "done"),
    ] {
        let json = place.events_json(0, arguments).await;
        assert_eq!((keys(&json), &json["verb"]), (keys(&shape), &verb.into()), "{arguments:?}");
        let found = u8::from(result != "remembered");
        assert_eq!((&json["dry_run"], &json["found"]), (&false.into(), &found.into()), "{json}");
        let event = &json["events"][0];
        assert_eq!(keys(event), keys(&shape["events"][0]), "{arguments:?}");
        assert_eq!((&event["result"], &json["results"][result]), (&result.into(), &1.into()), "{json}");
        assert_eq!(event["type"], "mail", "{json}");
        assert!(event["id"].is_string(), "{json}");
        if verb == "reschedule" {
            // `due` is the new time, `was_due` the former one.
            assert_eq!(event["due"], "2200-06-01T09:00:00.000Z", "{json}");
            assert!(event["was_due"].as_str().unwrap() < june, "{json}");
        }
        lines.push(event.clone());
    }
    put(&hatchery, "mail", "g", "g", HOUR).await;
    for arguments in [&["cancel", "--id", "g"][..], &["cancel", "--type", "mail", "--state", "waiting"]] {
        let ended = place.events(0, &[arguments, &["-o", "ndjson"]].concat()).await;
        let line: Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(keys(&line), keys(&lines[0]), "{ended:?}");
    }
}

#[tokio::test]
async fn json_shows_times_with_milliseconds() {
    let declared = declared("{ mail: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "").id("a").at("2200-06-01T09:00:00Z".parse().unwrap())).await;
    let list = Place::new(&declared).events_json(0, &["list"]).await;
    assert_eq!(list["events"][0]["due"], "2200-06-01T09:00:00.000Z");
}
