//! The messages are golden: `tests/invalid/*.yaml` beside what each must say. `UPDATE_GOLDEN=1` writes them anew.

use std::{fs, path::Path};

use super::*;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid")
}

#[test]
fn every_mistake_is_explained() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(folder()).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(&path).expect("a text");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let said = match read(&text, &name) {
            Ok(topology) => format!("accepted: {topology:#?}"),
            Err(error) => error.render(false),
        } + "\n";
        let golden = path.with_extension("txt");
        if update {
            fs::write(&golden, &said).expect("written");
        } else if fs::read_to_string(&golden).ok().as_ref() != Some(&said) {
            wrong.push(format!("{name} says\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "not what the golden message says:\n{}", wrong.join("\n"));
    assert!(seen >= 45, "only {seen} files");
}

#[test]
fn the_shipped_example_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology.yaml");
    let topology = read(&fs::read_to_string(path).expect("a text"), "topology.yaml").expect("valid");
    assert_eq!(topology.types.len(), 2);
}
