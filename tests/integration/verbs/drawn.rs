//! `topology graph`.

use std::fs;

use tempfile::TempDir;

use super::printed::topology;
use crate::topology::TOPOLOGY;

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
