//! Pages of the documentation, followed as a reader would.
//!
//! The unit tests of the command line (`documentation::commands`) read here which pages are followed.

mod handler;
mod state;
mod tutorial;

use rstest::rstest;

use crate::support::page::{follow, read};

#[tokio::test]
async fn the_start_of_the_readme_works() {
    follow(&read("README.md")).await;
}

#[rstest]
#[case::retry("docs/how-to/retry.md")]
#[case::debounce("docs/how-to/debounce.md")]
#[case::pause("docs/how-to/pause.md")]
#[case::breaker("docs/how-to/breaker.md")]
#[case::python_and_node("docs/how-to/worker-in-python-and-node.md")]
#[case::test_a_handler("docs/how-to/test-a-handler.md")]
#[case::schedules("docs/schedules.md")]
#[case::api("docs/how-to/api.md")]
#[case::dev("docs/how-to/dev.md")]
#[tokio::test]
#[ignore = "follows nine pages; scripts/test --all runs it"]
async fn a_page_works(#[case] page: &str) {
    follow(&read(page)).await;
}

#[tokio::test]
#[ignore = "migrates and prunes queues, whose count of 0 has to last 12 s; scripts/test --all runs it"]
async fn the_changes_of_a_topology_in_production_work() {
    follow(&read("docs/how-to/change-in-production.md")).await;
}
