//! What commands print without a broker: `topology schema`, `completions`, `man`, `graph`, the warnings of `publish`, and
//! `export`, whose import has the same result as `apply`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    support::{
        broker::import,
        cli::{Bench, Ran},
    },
    topology::TOPOLOGY,
};

/// Runs the binary in this folder, without the address of a broker.
#[track_caller]
pub(super) fn topology(folder: &Path, arguments: &[&str]) -> Ran {
    Ran::run(&mut assert_cmd::Command::from_std(command(folder, arguments)))
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topology"));
    command.current_dir(folder).env_clear().stdin(Stdio::null()).args(arguments);
    command
}

#[test]
fn the_schema_needs_no_file() {
    let folder = TempDir::new().unwrap();
    let schema = topology(folder.path(), &["schema"]).expect(0).json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(topology(folder.path(), &["schema", "-o", "ndjson"]).expect(0).stdout.lines().count(), 1);
}

#[test]
fn the_schema_of_a_command_describes_its_json() {
    let folder = TempDir::new().unwrap();
    let title = |arguments: &[&str]| topology(folder.path(), arguments).expect(0).json()["title"].clone();
    assert_eq!(title(&["schema", "plan"]), "topology plan -o json");
    assert_eq!(title(&["schema", "dead-letter", "list", "-o", "ndjson"]), "topology dead-letter list -o ndjson");
    assert_eq!(title(&["schema", "events list"]), "topology events list -o json");
    let ran = topology(folder.path(), &["schema", "completions"]).expect(2);
    assert!(ran.stderr.contains("no command `completions` prints JSON; these do: apply, breaker close"), "{ran:?}");
}

#[test]
fn every_shell_completes_every_verb() {
    let folder = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = topology(folder.path(), &["completions", shell]).expect(0).stdout;
        for word in ["validate", "export", "detailed-exitcode"] {
            assert!(script.contains(word), "no {word} for {shell}");
        }
    }
    let ran = topology(folder.path(), &["completions", "tcsh"]).expect(2);
    assert!(ran.stderr.contains("possible values: bash, elvish, fish, powershell, zsh"), "{ran:?}");
}

#[test]
fn the_bash_script_completes_a_verb() {
    let folder = TempDir::new().unwrap();
    let script = topology(folder.path(), &["completions", "bash"]).expect(0).stdout;
    fs::write(folder.path().join("script"), script).unwrap();
    let complete = "source ./script; COMP_WORDS=(topology gra); COMP_CWORD=1; _topology topology gra topology; \
                    echo \"${COMPREPLY[@]}\"";
    let answer = Command::new("bash").args(["-c", complete]).current_dir(folder.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "graph\n", "{answer:?}");
}

#[test]
fn the_manual_has_a_page_for_each_verb() {
    let folder = TempDir::new().unwrap();
    let page = topology(folder.path(), &["man"]).expect(0).stdout;
    assert!(page.contains(".SH EXAMPLES\n.nf\n  topology init"), "{page}");
    assert!(page.contains(".SH EXIT CODES\n.nf\n  0  done") && !page.contains("topology\\-help"), "{page}");

    topology(folder.path(), &["man", "--out", "share/man1"]).expect(0);
    let mut pages: Vec<String> = fs::read_dir(folder.path().join("share/man1"))
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    assert!(pages.contains(&"topology.1".to_owned()) && pages.contains(&"topology-plan.1".to_owned()), "{pages:?}");
    assert!(!pages.contains(&"topology-help.1".to_owned()), "{pages:?}");
    let plan = fs::read_to_string(folder.path().join("share/man1/topology-plan.1")).unwrap();
    assert!(plan.contains("amqp\\-url") && plan.contains(".SH SIGNS\n"), "{plan}");
    // A reader that closes the pipe early is no error.
    let mut child = command(folder.path(), &["man"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

fn folder(text: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("topology.yaml"), text).unwrap();
    folder
}

#[test]
fn every_graph_format_shows_the_same_types() {
    let folder = folder(TOPOLOGY);
    for (format, start) in
        [("text", "billing: 2 types"), ("mermaid", "%% billing"), ("dot", "digraph"), ("svg", "<svg")]
    {
        let drawn = topology(folder.path(), &["graph", "--format", format]).expect(0).stdout;
        assert!(drawn.starts_with(start), "{drawn}");
        assert!(drawn.contains("processor.mail") && drawn.contains("dead-letter.hr-import"), "{drawn}");
        let chosen = topology(folder.path(), &["graph", "--format", format, "--type", "mail"]).expect(0).stdout;
        assert!(chosen.contains("processor.mail") && !chosen.contains("processor.hr-import"), "{chosen}");
    }
}

#[test]
fn a_graph_as_json_has_nodes_and_edges() {
    let folder = folder(TOPOLOGY);
    let drawing = topology(folder.path(), &["graph", "-o", "json"]).expect(0).json();
    let ids: Vec<&str> = drawing["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    for edge in drawing["edges"].as_array().unwrap() {
        assert!(ids.contains(&edge["from"].as_str().unwrap()) && ids.contains(&edge["to"].as_str().unwrap()), "{edge}");
    }
    let ran = topology(folder.path(), &["graph", "-o", "json", "--format", "svg"]).expect(2);
    assert!(ran.stderr.contains("--format goes with -o text"), "{ran:?}");
}

#[test]
fn an_unknown_type_is_an_error_that_suggests_the_nearest_one() {
    let folder = folder(TOPOLOGY);
    let ran = topology(folder.path(), &["graph", "--type", "mial"]).expect(1);
    assert!(ran.stderr.contains("there is no type `mial` in the file; is it `mail`?"), "{ran:?}");
}

/// An import writes no message, so `apply` still has to write the first snapshot of the pauses.
const OBJECTS_IN_SYNC: &str = "- pause    all  ends\nPlan: 0 add, 0 change, 1 pause.\n";

#[test]
fn an_import_into_an_empty_virtual_host_equals_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    // The exported virtual host is the one of `AMQP_URL`.
    let definitions = bench.expect(0, &["export"]).json();
    assert_eq!(import(&definitions), 204);
    assert_eq!(bench.expect(3, &["plan", "--detailed-exitcode"]).stdout, OBJECTS_IN_SYNC);
}

#[test]
fn an_export_without_a_virtual_host_is_imported_into_any() {
    let bench = Bench::new(TOPOLOGY);
    let definitions = bench.expect(0, &["export", "--no-vhost", "-o", "ndjson"]).json();
    assert_eq!(bench.host.import(&definitions), 204);
    assert_eq!(bench.expect(3, &["plan", "--detailed-exitcode"]).stdout, OBJECTS_IN_SYNC);
}

#[test]
fn an_export_may_name_another_virtual_host() {
    let bench = Bench::new(TOPOLOGY);
    let definitions = bench.expect(0, &["export", "--vhost", "prod"]).json();
    let lists = definitions.as_object().expect("a map").values();
    let objects: Vec<&Value> = lists.flat_map(|list| list.as_array().expect("a list")).collect();
    assert!(objects.len() > 31, "{objects:?}");
    assert!(objects.iter().all(|object| object["vhost"] == "prod"), "{objects:?}");
    let ran = bench.expect(2, &["export", "--vhost", "prod", "--no-vhost"]);
    assert!(ran.stderr.contains("cannot be used with"), "{ran:?}");
}

/// The reason why changes need `apply`.
#[test]
fn an_import_changes_no_existing_queue() {
    let bench = Bench::new(TOPOLOGY);
    let name = "billing.hatchery.1h";
    bench.host.put("queues", name, &serde_json::json!({ "durable": true, "arguments": { "x-queue-type": "quorum" } }));
    let definitions = bench.expect(0, &["export"]).json();
    assert_eq!(import(&definitions), 204);
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains(&format!("! queue    {name}")), "{planned}");
}

const FILE: &str = "version: 1\nname: billing\ntypes: { hr-import: { coalesce: latest }, dated: { coalesce: { delayed: \
                    latest } }, mail: {} }\n";

#[rstest]
#[case::coalesces("hr-import", &[], true)]
#[case::has_a_reference("hr-import", &["--reference", "1234"], false)]
#[case::coalesces_nothing("mail", &[], false)]
#[case::coalesces_dates_alone("dated", &[], false)]
#[case::has_a_date("dated", &["--delay", "1h"], true)]
fn publish_warns_of_an_event_that_cannot_coalesce(
    #[case] event_type: &str,
    #[case] flags: &[&str],
    #[case] told: bool,
) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("topology.yaml"), FILE).unwrap();
    let line = [&["publish", event_type, "--amqp-url", "amqp://127.0.0.1:1"], flags].concat();
    let ran = topology(folder.path(), &line).expect(6);
    let warning = format!(
        "warning: `{event_type}` coalesces by reference: without --reference this event competes with no other\n"
    );
    assert_eq!(ran.stderr.starts_with(&warning), told, "{ran:?}");
}
