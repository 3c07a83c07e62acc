//! Deliveries that hold no event, or one that is not due.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_too_early_waits_for_the_rest_of_its_time() {
    let world = World::default();
    let nbf = Value::text("2026-06-01T12:00:00.001Z");
    world.put(incoming("mail.now", &[("nbf", nbf)]));
    let diary = work(&world, Outcome::Done).await;
    assert_eq!(diary.len(), 2, "{diary:?}");
    assert!(diary[0].starts_with("publish t.scheduler mail.250ms-27.1.0.0"), "{}", diary[0]);
    assert!(diary[0].ends_with(".0.0"), "{}", diary[0]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_no_event_is_dead_lettered_as_it_came() {
    let world = World::default();
    let foreign = ("x-foreign", Value::Array(vec![Value::Bool(true)]));
    let headers = [("attempts", Value::text("many")), foreign.clone(), ("x-death", Value::Void)];
    world.put(incoming("mail.now", &headers));
    let diary = work(&world, Outcome::Done).await;
    assert_eq!(diary, ["publish t.dead-letter mail.dead-letter", "acknowledge"]);
    let buried = world.published();
    assert_eq!(buried.properties.headers.get(foreign.0), Some(&foreign.1));
    assert_eq!(buried.properties.headers.get("x-death"), None);
    assert_eq!(header(&buried, "attempts").as_deref(), Some("many"));
    let reason = header(&buried, "reason").expect("a reason");
    assert!(reason.starts_with("poison: the header `attempts`"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_headers_are_too_large_to_copy_is_rejected() {
    let world = World::default();
    world.put(incoming("mail.now", &[("x-large", Value::Text(vec![b'x'; 100_000]))]));
    assert_eq!(work(&world, Outcome::Done).await, ["reject"]);
}

#[tokio::test(start_paused = true)]
async fn the_queue_decides_the_type_of_a_message_that_was_moved_to_it_by_hand() {
    let world = World::default();
    world.broker.put("t.processor.mail", incoming("t.processor.mail", &[]));
    let worker = world.worker().stop_when_empty(true);
    let handler = |run: crate::handler::Run| async move { Err::<Outcome, _>(run.event.event_type.to_string()) };
    worker.handle("mail", handler).run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!(world.diary.entries()[1], "publish t.retry mail.1s");
    assert_eq!(world.published().properties.kind.as_deref(), Some("mail"));
}
