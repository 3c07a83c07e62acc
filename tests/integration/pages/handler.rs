//! The test that `docs/how-to/test-a-handler.md` shows.

use std::time::Duration;

use hatchery::{NewEvent, Outcome, Run, testing::TestHatchery};

/// The handler. Its first attempt finds the mail server busy.
async fn send(run: Run) -> Result<Outcome, String> {
    if run.event.attempts == 0 { Err("421 try later".to_owned()) } else { Ok(Outcome::Done) }
}

#[tokio::test(start_paused = true)]
async fn a_busy_mail_server_is_tried_again() -> Result<(), Box<dyn std::error::Error>> {
    // Or `hatchery::read_file("topology.yaml")`.
    let file = "{ version: 1, name: shop, types: { mail: { retry: { delays: [10s] } } } }";
    let hatchery = TestHatchery::new(hatchery::file::read(file, "topology.yaml")?);
    hatchery.start(hatchery.worker().handle("mail", send));

    hatchery.publisher().publish(NewEvent::new("mail", "Dear Ada")).await?;
    hatchery.advance(Duration::from_secs(1)).await?;
    assert_eq!(hatchery.runs("mail").len(), 1);
    assert_eq!(hatchery.waiting("mail").len(), 1); // in the retry queue

    hatchery.advance(Duration::from_secs(10)).await?;
    assert_eq!(hatchery.runs("mail")[1].outcome, Some(Outcome::Done));
    assert!(hatchery.dead_letters("mail").is_empty());
    Ok(())
}

#[test]
fn the_page_shows_this_test() {
    let page = crate::support::page::read("docs/how-to/test-a-handler.md");
    let (_, block) = page.split_once("```rust\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    assert!(include_str!("handler.rs").contains(block), "{block}");
}
