//! The tests that `docs/how-to/test-a-handler.md` shows.

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

#[tokio::test(start_paused = true)]
async fn a_hired_employee_is_imported() -> Result<(), Box<dyn std::error::Error>> {
    let file = "
version: 1
name: shop
types: { hr-import: {} }
sources:
  hr: { queue: hr-changes, id: /id, events: [ { when: { /kind: hired }, type: hr-import, reference: /number } ] }
";
    let hatchery = TestHatchery::new(hatchery::file::read(file, "topology.yaml")?);
    let worker = hatchery.worker().source("hr");
    hatchery.start(worker.handle("hr-import", |_: Run| async { Ok::<_, String>(Outcome::Done) }));

    hatchery.send("hr", None, r#"{"id": 1, "kind": "hired", "number": 1234}"#);
    hatchery.send("hr", None, r#"{"id": 2, "kind": "moved", "number": 1234}"#);
    hatchery.advance(Duration::from_secs(1)).await?;
    assert_eq!(hatchery.runs("hr-import").len(), 1);
    assert_eq!(hatchery.unmappable("hr"), ["unmappable: no rule matches"]);
    Ok(())
}

#[test]
fn the_page_shows_these_tests() {
    let page = crate::support::page::read("docs/how-to/test-a-handler.md");
    let blocks: Vec<&str> = page.split("```rust\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert!(include_str!("handler.rs").contains(block), "{block}");
    }
}
