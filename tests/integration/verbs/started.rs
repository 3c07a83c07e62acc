//! `topology init`.

use std::fs;

use tempfile::TempDir;

use super::printed::topology;

#[test]
fn init_writes_a_valid_file_and_its_schema() {
    let folder = TempDir::new().unwrap();
    let ran = topology(folder.path(), &["init", "--name", "orders"]).expect(0);
    assert!(ran.stdout.starts_with("Written: topology.yaml and topology.schema.json.\n"), "{ran:?}");
    assert!(ran.stdout.contains("\n  topology apply\n"), "{ran:?}");

    let validated = topology(folder.path(), &["validate", "-o", "json"]).expect(0).json();
    assert_eq!((&validated["name"], &validated["types"][1]), (&"orders".into(), &"mail".into()));
    let text = fs::read_to_string(folder.path().join("topology.yaml")).unwrap();
    assert!(text.starts_with("# yaml-language-server: $schema=./topology.schema.json\n"), "{text}");
    let schema = fs::read_to_string(folder.path().join("topology.schema.json")).unwrap();
    assert_eq!(schema, topology(folder.path(), &["schema"]).expect(0).stdout);
}

#[test]
fn a_missing_file_is_an_error_that_names_init() {
    let folder = TempDir::new().unwrap();
    let ran = topology(folder.path(), &["validate"]).expect(1);
    assert!(ran.stderr.contains("or create a file with `topology init`"), "{ran:?}");
}

#[test]
fn init_overwrites_existing_files_only_with_force() {
    let folder = TempDir::new().unwrap();
    let (file, schema) = (folder.path().join("topology.yaml"), folder.path().join("topology.schema.json"));
    fs::write(&file, "mine").unwrap();
    let ran = topology(folder.path(), &["init"]).expect(1);
    assert_eq!(ran.stderr, "error: topology.yaml is there already; --force overwrites it\n");
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), schema.exists()), ("mine", false));

    fs::remove_file(&file).unwrap();
    fs::write(&schema, "of another version").unwrap();
    let ran = topology(folder.path(), &["init"]).expect(0);
    assert!(ran.stderr.contains("`topology schema > topology.schema.json` renews it"), "{ran:?}");
    assert_eq!(fs::read_to_string(&schema).unwrap(), "of another version");

    topology(folder.path(), &["init", "--force"]).expect(0);
    assert!(fs::read_to_string(&schema).unwrap().starts_with('{'));
    topology(folder.path(), &["validate"]).expect(0);
}

#[test]
fn init_writes_to_the_path_of_f() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("my-app")).unwrap();
    let ran = topology(folder.path(), &["init", "-f", "my-app/events.yaml"]).expect(0);
    assert!(ran.stdout.contains("Written: my-app/events.yaml and my-app/topology.schema.json.\n"), "{ran:?}");
    assert!(ran.stdout.contains("  topology validate -f my-app/events.yaml\n"), "{ran:?}");
    let validated = topology(folder.path(), &["validate", "-f", "my-app/events.yaml"]).expect(0);
    assert!(validated.stdout.contains("valid: my-app,"), "the topology is not named after its folder: {validated:?}");

    let ran = topology(folder.path(), &["init", "-f", "nowhere/events.yaml"]).expect(1);
    assert!(ran.stderr.starts_with("error: cannot write nowhere/events.yaml: No such file"), "{ran:?}");
    let ran = topology(folder.path(), &["init", "--name", "a.b", "-f", "x.yaml"]).expect(2);
    assert!(ran.stderr.contains("a dot would split the routing key"), "{ran:?}");
}
