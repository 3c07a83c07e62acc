//! `topology schema`, `topology completions` and `topology man`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::support::cli::Ran;

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
