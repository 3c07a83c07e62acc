//! Every command prints JSON, and its schema allows it.

use std::{collections::BTreeSet, fs};

use hatchery_cli::schema;

use crate::support::{
    cli::{Bench, Ran},
    redis,
};

/// Command lines, with the exit code of each. They run in this order, with `-o json` and with `-o ndjson`.
const LINES: &[(i32, &str)] = &[
    (0, "schema"),
    (0, "init -f new/topology.yaml --force"),
    (0, "man --out pages"),
    (0, "validate"),
    (1, "validate -f wrong.yaml"),
    (0, "graph"),
    (0, "export"),
    (0, "plan"),
    (0, "apply --auto-approve"),
    (0, "apply --auto-approve"),
    (0, "publish mail --delay 1h --reference ann"),
    (5, "publish --batch batch.ndjson"),
    (0, "events list"),
    (0, "events show --reference ann"),
    (0, "events reschedule --type mail --reference ann --to 2h"),
    (0, "events run-now --type mail --state waiting"),
    (0, "events cancel --type mail --state waiting"),
    (0, "events cancel --type mail --reference ann"),
    (0, "events cancel --type mail --id unknown"),
    (0, "trace --reference ann"),
    (0, "publish mail --id given-up"),
    (0, "publish mail --id given-up-too"),
    (0, "work --type mail --stop-when-empty"),
    (0, "dead-letter list"),
    (0, "dead-letter list --events"),
    (0, "dead-letter show given-up"),
    (0, "dead-letter replay"),
    (0, "dead-letter replay --id given-up --yes"),
    (0, "dead-letter discard"),
    (0, "dead-letter discard --save letters.ndjson --yes"),
    (0, "source test hr {}"),
    (1, "source test hr no-json"),
    (0, "breaker list"),
    (0, "breaker close careful"),
    (0, "schedule list"),
    (0, "schedule pause nightly"),
    (0, "schedule show nightly"),
    (0, "schedule resume nightly"),
    (0, "schedule run-now nightly"),
    (0, "schedule backfill nightly --from 2026-06-01T00:00:00Z --to 2026-06-03T00:00:00Z"),
    (0, "pause mail --source hr --reason closed"),
    (0, "status"),
    (0, "resume mail --source hr"),
    (4, "destroy --auto-approve"),
    (0, "destroy --auto-approve --force"),
];

const FILE: &str = "\
types:
  mail: { keep-payload: 4KiB, retry: { delays: [1s], max-attempts: 1 } }
  plain: { register: off }
  careful: { breaker: {} }
schedules: { nightly: { type: mail, cron: \"0 3 * * *\", timezone: Europe/Berlin } }
sources: { hr: { declare: on, events: [ { when: { /a: null }, type: plain } ] } }
";

const BATCH: &str = "\
{\"type\":\"plain\"}
{\"cancel\":{\"type\":\"mail\",\"id\":\"unknown\"}}
no event
";

#[test]
#[ignore = "runs every command in both formats; scripts/test --all runs it"]
fn the_json_of_every_command_is_as_its_schema_says() {
    for format in ["json", "ndjson"] {
        let prefix = redis::prefix();
        let bench = Bench::new(&format!("version: 1\nname: t\nredis: {{ prefix: {prefix} }}\n{FILE}"));
        fs::create_dir(bench.folder().join("new")).unwrap();
        fs::write(bench.folder().join("wrong.yaml"), "version: 2\n").unwrap();
        fs::write(bench.folder().join("batch.ndjson"), BATCH).unwrap();
        for (code, line) in LINES {
            let arguments = ["-o", format].into_iter().chain(line.split(' '));
            let handler = if line.starts_with("work ") { &["--exec", "false"][..] } else { &[] };
            let arguments: Vec<&str> = arguments.chain(handler.iter().copied()).collect();
            let ran = Ran::run(bench.command(&arguments).env("REDIS_URL", redis::url()).env("PATH", "/usr/bin:/bin"));
            assert!(!ran.expect(*code).stdout.is_empty(), "{line} prints nothing");
        }
    }
    let ran = |command: &&str| LINES.iter().any(|(_, line)| line.starts_with(command));
    let missing: BTreeSet<&str> = schema::commands().filter(|command| !ran(command)).collect();
    assert!(missing.is_empty(), "{missing:?} do not run here");
}
