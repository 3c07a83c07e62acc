//! Pages of the documentation, followed as a reader would.

use rstest::rstest;

use crate::support::page::follow;

#[tokio::test]
async fn the_start_of_the_readme_works() {
    follow(include_str!("../../../README.md")).await;
}

#[tokio::test]
async fn the_nightly_import_of_the_docs_works() {
    follow(include_str!("../../../docs/nightly-import.md")).await;
}

#[tokio::test]
async fn the_tutorial_works() {
    follow(include_str!("../../../docs/tutorial.md")).await;
}

#[rstest]
#[case::retry(include_str!("../../../docs/how-to/retry.md"))]
#[case::debounce(include_str!("../../../docs/how-to/debounce.md"))]
#[case::not_running(include_str!("../../../docs/how-to/not-running.md"))]
#[tokio::test]
async fn a_how_to_works(#[case] page: &str) {
    follow(page).await;
}
