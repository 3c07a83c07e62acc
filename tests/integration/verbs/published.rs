//! `topology publish`, as far as it needs no broker.

use std::fs;

use rstest::rstest;
use tempfile::TempDir;

use super::printed::topology;

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
