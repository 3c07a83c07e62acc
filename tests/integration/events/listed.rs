//! Listing and showing events: what the filters find, and how the output looks.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use hatchery::{EventSelector, Filter, NewEvent, Outcome};
use serde_json::{Value, json};

use super::{HOUR, declared, from_now, put};
use crate::support::{
    broker::{VirtualHost, block_on},
    cli::{Bench, Ran},
    declared::{Declared, publish, publish_all},
    deployments::shared,
    process::Place,
    redis,
    workers::Working,
};

#[tokio::test]
async fn a_list_that_is_not_written_to_a_terminal_is_not_cut() {
    let declared = declared("{ mail: {} }").await;
    let hatchery = declared.connect().await;
    let reason = format!("because {}", "of this ".repeat(30));
    publish(&hatchery, NewEvent::new("mail", "").delay(HOUR).reason(reason.clone())).await;
    let place = Place::new(&declared);
    let list = place.events(0, &["list"]).await;
    assert!(list.stdout.contains(reason.trim_end()), "{list:?}");
}

#[tokio::test]
#[ignore = "runs many commands on the same events; scripts/test --all runs it"]
async fn events_are_listed_by_due_time_and_filtered() {
    let declared = declared(
        "{ import: { coalesce: latest, retry: { delays: [30m] } }, mail: { retry: { delays: [45m], max-attempts: 2 } }, \
         plain: { register: off } }",
    )
    .await;
    let hatchery = declared.connect().await;
    put(&hatchery, "import", "1234", "june", HOUR).await;
    put(&hatchery, "import", "1239", "july", HOUR * 19 / 10).await;
    put(&hatchery, "mail", "", "letter", HOUR + HOUR / 2).await;
    put(&hatchery, "import", "1234", "failing", Duration::ZERO).await;
    put(&hatchery, "mail", "ann", "hopeless", Duration::ZERO).await;
    let workers = [
        Working::start(&hatchery, "import", |_| Outcome::Retry { reason: "Connection refused".into(), after: None }),
        Working::start(&hatchery, "mail", |_| Outcome::DeadLetter { reason: "no such address".into() }),
    ];
    for worker in workers {
        worker.runs.reach(1).await;
        worker.stop().await;
    }

    let place = Place::new(&declared);
    assert_eq!(place.ids(&[]).await, ["hopeless", "failing", "june", "letter", "july"]);
    for (filter, expected) in [
        (&["--type", "import"][..], &["failing", "june", "july"][..]),
        (&["--reference", "1234"], &["failing", "june"]),
        (&["--reference-prefix", "123", "--state", "waiting"], &["june", "july"]),
        (&["--state", "retry", "--state", "dead-letter"], &["hopeless", "failing"]),
        (&["--due-after", "40m", "--due-before", "100m"], &["june", "letter"]),
        (&["--attempts", "1"], &["failing"]),
        (&["--reason", "connection REFUSED"], &["failing"]),
        (&["--id", "letter"], &["letter"]),
        (&["--id", "june", "--type", "import", "--type", "mail"], &["june"]),
        (&["--due-before", "1h ago"], &[]),
    ] {
        assert_eq!(place.ids(filter).await, expected, "{filter:?}");
    }

    let list = place.events_json(0, &["list", "--state", "retry"]).await;
    let event = &list["events"][0];
    assert!(event["version"].as_i64().unwrap() > 0 && event["due"].is_string(), "{event}");
    let reason = event["reason"].as_str().unwrap();
    assert_eq!(event["error"], "Connection refused");
    assert!(reason.starts_with("retry: attempt=1 ") && reason.ends_with("\"Connection refused\""), "{reason}");
    let mut stable = event.clone();
    for varies in ["version", "due", "reason"] {
        stable[varies] = Value::Null;
    }
    let expected = json!({
        "type": "import", "reference": "1234", "id": "failing", "slot": "i", "state": "retry", "running": false,
        "due": null, "attempts": 1, "reason": null, "error": "Connection refused", "version": null, "generation": 1,
        "schedule": null,
    });
    assert_eq!(stable, expected);

    let mut narrow = place.command(&["events", "list", "--limit", "2"]);
    let text = place.run(narrow.env("COLUMNS", "80")).await.expect(0);
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= 80), "{}", text.stdout);
    assert!(lines[0].starts_with("TYPE    REFERENCE  STATE        DUE"), "{}", text.stdout);
    assert!(lines[1].starts_with("mail    ann        dead-letter  "), "{}", text.stdout);
    assert!(text.stderr.contains("The first 2 of 5 are shown."), "{text:?}");
    let refused = place.events(0, &["list", "--state", "retry"]).await;
    assert!(refused.stdout.trim_end().ends_with("1      Connection refused"), "the reason is the error: {refused:?}");
    assert!(refused.stderr.contains("1 event."), "{refused:?}");
    assert_eq!((&list["more"], &list["total"]), (&false.into(), &1.into()));
    assert_eq!(place.events(0, &["list", "--type", "mail", "--attempts", "9"]).await.stdout, "Nothing is found.\n");
    assert_eq!(place.events(0, &["list", "-o", "ndjson"]).await.stdout.lines().count(), 5);
}

#[tokio::test]
async fn a_list_of_more_than_a_thousand_events_is_complete_and_in_order() {
    let declared = declared("{ import: { coalesce: latest } }").await;
    let hatchery = declared.connect().await;
    let events = (0..1_203_u64).map(|n| {
        let event = NewEvent::new("import", "{}").reference(format!("{n:04}")).id(n.to_string());
        event.delay(HOUR + Duration::from_millis(n % 7))
    });
    publish_all(&hatchery, events.collect()).await;
    let all: Vec<_> = hatchery.events().search(&Filter::default()).try_collect().await.unwrap();
    assert!(all.is_sorted_by_key(|event| event.due));
    let mut numbers: Vec<u64> = all.iter().map(|event| event.id.as_ref().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1_203).collect::<Vec<_>>());
    let some = Filter::default().reference_prefix("00");
    assert_eq!(hatchery.events().search(&some).try_collect::<Vec<_>>().await.unwrap().len(), 100);
}

#[tokio::test]
#[ignore = "runs show for an event in each state; scripts/test --all runs it"]
async fn show_prints_all_that_the_register_knows_of_an_event() {
    let declared = declared("{ import: { coalesce: latest }, mail: {}, plain: { register: off } }").await;
    let hatchery = declared.connect().await;
    put(&hatchery, "import", "1234", "first", Duration::ZERO).await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(1).await;
    worker.stop().await;
    let june = from_now(HOUR);
    publish(&hatchery, NewEvent::new("import", "{}").reference("1234").id("june").at(june)).await;
    put(&hatchery, "mail", "", "letter", HOUR).await;

    let place = Place::new(&declared);
    let shown = place.events_json(0, &["show", "--type", "import", "--reference", "1234"]).await;
    let states: Vec<(&str, &str)> = shown["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["slot"].as_str().unwrap(), event["state"].as_str().unwrap()))
        .collect();
    let dated = format!("d:{}", june.as_millisecond());
    assert_eq!(states, [(dated.as_str(), "waiting"), ("i", "handled")]);
    let open = place.events(0, &["show", "--type", "import", "--reference", "1234"]).await;
    assert!(!open.stdout.contains("handled") && open.stderr.contains("1 more handled or cancelled"), "{open:?}");
    let all = place.events(0, &["show", "--type", "import", "--reference", "1234", "--all"]).await.stdout;
    assert!(all.find("waiting").unwrap() < all.find("handled").unwrap(), "{all}");
    let text = place.events(0, &["show", "--type", "mail", "--id", "letter"]).await.stdout;
    for line in [
        "type       mail\n",
        "id         letter\n",
        "slot       e: competes with no other event\n",
        "state      waiting\n",
    ] {
        assert!(text.contains(line), "{text}");
    }

    let unknown = place.events(1, &["show", "--type", "mail", "--id", "other"]).await;
    assert!(unknown.stderr.contains("nothing is known of the event other"), "{unknown:?}");
    let off = place.events(1, &["show", "--type", "plain", "--id", "x"]).await;
    assert!(off.stderr.contains("plain has `register: off`"), "{off:?}");
    let misspelt = place.events(1, &["show", "--type", "imprt", "--id", "x"]).await;
    assert!(misspelt.stderr.contains("is it `import`?"), "{misspelt:?}");
    let of_all_types = place.events(0, &["show", "letter"]).await;
    let without_due = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("due ")).map(str::to_owned).collect()
    };
    assert_eq!(without_due(&of_all_types.stdout), without_due(&text), "{of_all_types:?}");
    let nowhere = place.events(1, &["show", "x"]).await;
    assert!(nowhere.stderr.contains("nothing is known of the event x"), "{nowhere:?}");
    place.events(2, &["show", "x", "--id", "x"]).await;
    assert_eq!(hatchery.events().show(&EventSelector::id("mail", "letter")).await.unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "runs show for an event in each queue; scripts/test --all runs it"]
async fn show_tells_in_which_queue_an_event_is_and_what_happened_to_it() {
    let types = "{ mail: { retry: { delays: [30m], max-attempts: 2 } }, import: { coalesce: latest } }";
    let declared = declared(types).await;
    let hatchery = declared.connect().await;
    put(&hatchery, "mail", "", "due", Duration::ZERO).await;
    put(&hatchery, "mail", "", "later", HOUR).await;
    let place = Place::new(&declared);
    let topology = &declared.topology.name;
    let shows = async |id: &str, lines: &[String]| {
        let text = place.events(0, &["show", id]).await.stdout;
        for line in lines {
            assert!(text.contains(line), "{line}: {text}");
        }
        place.events_json(0, &["show", id]).await["events"][0]["queues"].clone()
    };
    let due = format!("where      it is due, and should be in {topology}.processor.mail (1 ready");
    assert_eq!(shows("due", &[due]).await, json!([format!("{topology}.processor.mail")]));
    let moves = format!("; RabbitMQ moves it to {topology}.processor.mail when it is due\n");
    let queues = json!([format!("{topology}.hatchery.*"), format!("{topology}.ladder.*")]);
    assert_eq!(shows("later", std::slice::from_ref(&moves)).await, queues);

    let worker = Working::start(&hatchery, "mail", |_| Outcome::Retry { reason: "no luck".into(), after: None });
    worker.runs.reach(1).await;
    worker.stop().await;
    let failed = "attempts   1 of 2 failed, the last one ".to_owned();
    let retrying = format!("{topology}.retry.mail.30m");
    let lines = [failed, format!("where      {retrying}"), moves, "error=\"no luck\"\n".to_owned()];
    assert_eq!(shows("due", &lines).await, json!([retrying]));

    put(&hatchery, "mail", "", "hopeless", Duration::ZERO).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::DeadLetter { reason: "no such address".into() });
    worker.runs.reach(1).await;
    worker.stop().await;
    let letters = format!("{topology}.dead-letter.mail");
    let place = format!("where      it should be in {letters} (1 ready");
    assert_eq!(shows("hopeless", &[place]).await, json!([letters]));
}

#[tokio::test]
async fn a_list_names_the_redis_that_does_not_answer_and_needs_no_broker() {
    let declared = declared("{ mail: {} }").await;
    let place = Place::new(&declared);
    let ended = place.events(6, &["list", "--redis-url", "redis://127.0.0.1:1"]).await;
    assert!(ended.stderr.contains("Redis at redis://127.0.0.1:1/0 is away"), "{ended:?}");
    // List and cancel work without the broker.
    place.events(0, &["list", "--amqp-url", "amqp://127.0.0.1:1"]).await;
    place.events(0, &["cancel", "--type", "mail", "--id", "x", "--amqp-url", "amqp://127.0.0.1:1"]).await;
}

#[tokio::test]
async fn an_event_is_found_by_its_id_in_any_shard() {
    let cluster = shared().await;
    let file = "ladder: { resolution: 50ms, horizon: 2h }\ntypes: { import: { coalesce: latest }, mail: {} }\n";
    let declared = Declared::with_shards(VirtualHost::new(), file, &cluster.url(), 7).await;
    let hatchery = declared.connect().await;
    let events = hatchery.events();
    // An event with a reference is in the shard of the reference; one without is in the shard of its id.
    let all: Vec<_> = (0..12).map(|n| (["import", "mail"][n % 2], format!("id-{n}"), n % 3 > 0)).collect();
    for (n, (event_type, id, refers)) in all.iter().enumerate() {
        let reference = if *refers { n.to_string() } else { String::new() };
        put(&hatchery, event_type, &reference, id, HOUR).await;
    }
    for (event_type, id, _) in &all {
        let which = EventSelector::id(*event_type, id);
        let shown = events.show(&which).await.unwrap();
        let ids: Vec<_> = shown.iter().map(|event| event.id.as_deref()).collect();
        assert_eq!(ids, [Some(id.as_str())], "{event_type} {id}");
    }
    assert_eq!(events.show(&EventSelector::id("mail", "id-0")).await.unwrap().len(), 0, "id-0 is of the type import");
    for (event_type, id, _) in &all {
        let cancelled = events.cancel(&EventSelector::id(*event_type, id)).await.unwrap();
        assert!(matches!(&cancelled[..], [one] if one.waiting), "{event_type} {id}: {cancelled:?}");
    }
    let left: Vec<_> = events.search(&Filter::default()).try_collect().await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[ignore = "runs each verb of events; scripts/test --all runs it"]
fn events_of_a_topology_that_was_never_applied_are_an_error_and_not_an_empty_list() {
    let prefix = redis::prefix();
    let bench = Bench::new(&format!("version: 1\nname: t\nredis: {{ prefix: {prefix} }}\ntypes: {{ mail: {{}} }}\n"));
    let events = |code: i32, arguments: &[&str]| {
        let mut command = bench.command(&[&["events"], arguments].concat());
        Ran::run(command.env("REDIS_URL", redis::url())).expect(code)
    };
    let cancel = ["cancel", "--type", "mail", "--state", "retry"];
    let retries = ["--type", "mail", "--state", "retry", "--yes"];
    for arguments in [
        &["list"][..],
        &["list", "-o", "json"],
        &["list", "-o", "ndjson"],
        &cancel,
        &["cancel", "--type", "mail", "--reference", "1"],
        &["cancel", "--type", "mail", "--id", "y", "-o", "json"],
        &[&["cancel"], &retries[..]].concat(),
        &[&["cancel", "-o", "json"], &retries[..]].concat(),
        &[&["run-now"], &retries[..]].concat(),
        &[&["reschedule", "--to", "1h"], &retries[..]].concat(),
        &["run-now", "--type", "mail", "--id", "y"],
        &["reschedule", "--to", "1h", "--type", "mail", "--reference", "1"],
    ] {
        let ran = events(1, arguments);
        assert!(ran.stderr.contains("t.scheduler does not exist on the broker; run `topology apply`"), "{ran:?}");
        assert_eq!(ran.stdout, "");
    }
    // The refused cancel was not remembered, so that a later event with this id runs.
    let key = format!("{prefix}:{{{}:t:0}}:mail:i:y", bench.host.name);
    assert!(!block_on(async { redis::keys(redis::url()).await }).contains(&key));
    let ran = events(1, &["show", "--id", "x"]);
    assert!(ran.stderr.contains("run `topology apply`"), "{ran:?}");
    bench.apply();
    assert_eq!(events(0, &["list"]).stdout, "Nothing is found.\n");
    assert_eq!(events(0, &[&["cancel"], &retries[..]].concat()).stdout, "Cancelled 0 events.\n");
    events(0, &["cancel", "--type", "mail", "--reference", "1"]);
    events(0, &["cancel", "--type", "mail", "--id", "y"]);
    assert!(
        block_on(async { redis::keys(redis::url()).await }).contains(&key),
        "the cancel was not remembered although the topology is applied"
    );
    // Without the broker, the list shows what Redis holds.
    let mut command = bench.command(&["events", "list"]);
    command.env("REDIS_URL", redis::url()).env("AMQP_URL", "amqp://127.0.0.1:1");
    let ran = Ran::run(&mut command).expect(0);
    assert_eq!(ran.stdout, "Nothing is found.\n");
}
