//! `topology publish`, as far as it needs no broker.

use std::fs;

use rstest::rstest;
use tempfile::TempDir;

use super::printed::topology;

const FILE: &str = "version: 1\nname: billing\ntypes: { hr-import: { coalesce: latest }, mail: {} }\n";

#[rstest]
#[case::coalesces("hr-import", &[], true)]
#[case::has_a_reference("hr-import", &["--reference", "1234"], false)]
#[case::coalesces_nothing("mail", &[], false)]
fn an_event_that_cannot_coalesce_is_told(#[case] event_type: &str, #[case] reference: &[&str], #[case] told: bool) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("topology.yaml"), FILE).unwrap();
    let line = [&["publish", event_type, "--amqp-url", "amqp://127.0.0.1:1"], reference].concat();
    let ran = topology(folder.path(), &line).expect(6);
    let warning =
        "warning: `hr-import` coalesces by reference: without --reference this event competes with no other\n";
    assert_eq!(ran.stderr.starts_with(warning), told, "{ran:?}");
}
