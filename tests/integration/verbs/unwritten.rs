//! Commands that change something while standard output is full, so that their answer cannot be written there.

use std::{
    fs::File,
    io::Write as _,
    process::{Output, Stdio},
};

use crate::support::{
    cli::{Bench, Ran},
    redis,
};

fn bench() -> Bench {
    let prefix = redis::prefix();
    let ladder = "ladder: { resolution: 10ms, horizon: 2h }";
    let bench =
        Bench::new(&format!("version: 1\nname: t\nredis: {{ prefix: {prefix} }}\n{ladder}\ntypes: {{ mail: {{}} }}\n"));
    bench.apply();
    bench
}

/// Runs a command with a full standard output, and expects exit code 5.
#[track_caller]
fn unwritten(bench: &Bench, arguments: &[&str], input: &str) -> Ran {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut process = bench.process(arguments);
    process.env("REDIS_URL", redis::url()).stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped());
    let mut child = process.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let ran = Ran::of(Output { status, stdout: Vec::new(), stderr }).expect(5);
    assert!(ran.stderr.contains("cannot write the answer to standard output"), "{ran:?}");
    ran
}

fn listed(bench: &Bench) -> Vec<String> {
    let mut command = bench.command(&["events", "list", "-o", "json"]);
    let list = Ran::run(command.env("REDIS_URL", redis::url())).expect(0).json();
    list["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_publish_writes_its_id_to_standard_error_if_standard_output_is_full() {
    let bench = bench();
    for format in ["text", "json", "ndjson"] {
        let ran = unwritten(&bench, &["publish", "mail", "--delay", "1h", "-o", format], "");
        assert!(listed(&bench).iter().any(|id| ran.stderr.contains(id)), "{ran:?}");
    }
    let lines = "{\"type\":\"mail\",\"delay\":\"1h\"}\n".repeat(3);
    let before = listed(&bench).len();
    let ran = unwritten(&bench, &["publish", "--batch", "-", "-o", "ndjson"], &lines);
    let ids = listed(&bench);
    assert!(ids.len() > before, "{ran:?}");
    assert_eq!(ids.iter().filter(|id| ran.stderr.contains(*id)).count(), ids.len() - before, "{ran:?}");
}

#[test]
fn events_commands_write_their_answer_to_standard_error_if_standard_output_is_full() {
    let bench = bench();
    let publish = ["publish", "--batch", "-"];
    let line = |n: u8| format!("{{\"type\":\"mail\",\"delay\":\"1h\",\"id\":\"{n}\",\"reference\":\"r\"}}\n");
    let lines = [0, 1, 2].map(line).concat();
    let ran = unwritten(&bench, &publish, &lines);
    assert!(ran.stderr.contains("3 published, 0 refused"), "{ran:?}");
    let ran = unwritten(&bench, &["events", "reschedule", "--id", "0", "--to", "90m"], "");
    assert!(ran.stderr.contains("Rescheduled to "), "{ran:?}");
    let ran = unwritten(&bench, &["events", "cancel", "--id", "0"], "");
    assert!(ran.stderr.contains("Cancelled the event 0."), "{ran:?}");
    // All events are cancelled, although every write of an answer fails.
    let ran = unwritten(&bench, &["events", "cancel", "--type", "mail", "--yes", "-o", "ndjson"], "");
    assert!(["\"id\":\"1\"", "\"id\":\"2\""].iter().all(|id| ran.stderr.contains(id)), "{ran:?}");
    assert!(listed(&bench).is_empty());
}

#[test]
fn a_batch_whose_rejects_cannot_be_written_is_published_and_ends_with_an_error() {
    let bench = bench();
    let line = |n: u8| format!("{{\"type\":\"mail\",\"delay\":\"1h\",\"id\":\"{n}\"}}\n");
    let batch = bench.folder().join("batch.ndjson");
    for (lines, code) in [(format!("{}{}no event\n", line(0), line(1)), 5), ("no event\n".to_owned(), 1)] {
        std::fs::write(&batch, lines).unwrap();
        let mut process = bench.process(&["publish", "--batch", batch.to_str().unwrap(), "--rejects", "/dev/full"]);
        let Output { status, stdout, stderr } = process.env("REDIS_URL", redis::url()).output().unwrap();
        let ran = Ran::of(Output { status, stdout, stderr }).expect(code);
        assert!(ran.stderr.contains("cannot write the rejects"), "{ran:?}");
    }
    assert_eq!(listed(&bench), ["0", "1"]);
}
