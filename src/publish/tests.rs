//! How many events a publisher has under way, in which order it sends them, and when it says that they are due.

use std::{
    future::ready,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::join_all,
    stream::{self, FuturesUnordered},
};
use jiff::Timestamp;
use rstest::rstest;
use tokio::sync::Semaphore;

use super::{published::PublishError, publisher::Publisher};
use crate::{
    EventsError, NewEvent,
    adapters::{
        clock::SystemClock,
        memory::{MemoryBroker, MemoryRegister, script::Script},
    },
    domain::{
        compile::compile,
        register::{DedupSlot, Subject},
        spec::Topology,
        wire::Message,
    },
    ports::{BrokerError, Clock, Index as _, Register},
};

/// A broker with this topology that confirms a message when it is told to.
fn slow(file: &str) -> (Arc<Topology>, Arc<MemoryBroker>, Arc<Script>) {
    let topology = crate::file::read(file, "topology.yaml").expect("a valid file");
    let script = Arc::new(Script { confirms: Some(Semaphore::new(0)), ..Script::default() });
    let desired = compile(&topology).expect("a safe topology");
    let broker = MemoryBroker::scripted(&desired, Arc::new(SystemClock), script.clone());
    (Arc::new(topology), Arc::new(broker), script)
}

fn confirms(script: &Script) -> &Semaphore {
    script.confirms.as_ref().expect("it confirms when it is told to")
}

fn publisher() -> (Arc<Script>, Publisher) {
    let (topology, broker, script) = slow("version: 1\nname: t\ntypes: { mail: {} }");
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::from_secs(1)));
    (script, Publisher::new(topology, broker, &register, Arc::new(SystemClock)))
}

#[tokio::test]
async fn no_more_events_are_sent_than_may_be_in_flight() {
    let (script, publisher) = publisher();
    let publisher = publisher.in_flight(7);
    let other = publisher.clone();
    let publishes = (0..50).map(|n| [&publisher, &other][n % 2].publish(NewEvent::new("mail", "{}")));
    let confirming = async {
        for _ in 0..50 {
            confirms(&script).add_permits(1);
            tokio::task::yield_now().await;
        }
    };
    let (published, ()) = tokio::join!(join_all(publishes), confirming);
    assert!(published.iter().all(Result::is_ok));
    assert_eq!(script.most_unconfirmed.load(Ordering::SeqCst), 7);
}

#[tokio::test]
async fn no_event_is_asked_for_before_there_is_room() {
    let (script, publisher) = publisher();
    let publisher = publisher.in_flight(5);
    let asked = AtomicUsize::new(0);
    let events = stream::iter(0..100).map(|_| {
        asked.fetch_add(1, Ordering::SeqCst);
        NewEvent::new("mail", "{}")
    });
    let mut published = std::pin::pin!(publisher.publish_stream(events));
    assert!(published.next().now_or_never().is_none());
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    confirms(&script).add_permits(1);
    assert!(published.next().await.is_some_and(|published| published.is_ok()));
    assert!(published.next().now_or_never().is_none());
    assert_eq!(asked.load(Ordering::SeqCst), 6);
    confirms(&script).add_permits(99);
    assert_eq!(published.count().await, 99);
}

/// A publisher of a type whose events compete if they have a reference.
fn competing() -> (Arc<Script>, Publisher) {
    let (topology, broker, script) = slow("version: 1\nname: t\ntypes: { import: { coalesce: latest } }");
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::from_secs(1)));
    (script, Publisher::new(topology, broker, &register, Arc::new(SystemClock)))
}

/// Two of three events wait for a version.
fn numbered(number: usize) -> NewEvent {
    let event = NewEvent::new("import", number.to_string());
    if number.is_multiple_of(3) { event } else { event.reference(number.to_string()) }
}

/// Returns the numbers of the events in the order in which the broker has them.
fn arrived(script: &Script) -> Vec<usize> {
    let published = script.published.lock().expect("no panic");
    let number = |message: &Message| std::str::from_utf8(&message.body).expect("text").parse().expect("a number");
    published.iter().map(number).collect()
}

#[tokio::test]
async fn the_events_of_a_stream_reach_the_broker_in_its_order() {
    let (script, publisher) = competing();
    confirms(&script).add_permits(200);
    let events = stream::iter((0..200).map(numbered));
    assert!(publisher.in_flight(10).publish_stream(events).all(|published| ready(published.is_ok())).await);
    assert_eq!(arrived(&script), (0..200).collect::<Vec<_>>());
}

#[tokio::test]
async fn calls_of_one_task_reach_the_broker_in_their_order_also_beyond_the_limit_of_unconfirmed_ones() {
    let (script, publisher) = competing();
    let publisher = publisher.in_flight(10);
    let mut calls: FuturesUnordered<_> = (0..100).map(|number| publisher.publish(numbered(number))).collect();
    for number in 100..200 {
        confirms(&script).add_permits(1);
        assert!(calls.next().await.is_some_and(|published| published.is_ok()));
        calls.push(publisher.publish(numbered(number)));
    }
    confirms(&script).add_permits(100);
    assert!(calls.all(|published| ready(published.is_ok())).await);
    assert_eq!(arrived(&script), (0..200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_call_that_is_not_polled_again_or_dropped_holds_up_no_other() {
    let (script, publisher) = competing();
    confirms(&script).add_permits(9);
    let never_polled = publisher.publish(numbered(1));
    let mut aside = Box::pin(publisher.publish(numbered(2)));
    assert!(aside.as_mut().now_or_never().is_none());
    assert!(publisher.publish(numbered(4)).now_or_never().is_none(), "dropped");
    publisher.publish(numbered(5)).await.expect("published");
    publisher.publish(numbered(6)).await.expect("published");
    assert_eq!(arrived(&script), [2, 5, 6]);
    aside.await.expect("published");
    never_polled.await.expect("published");
    assert_eq!(arrived(&script), [2, 5, 6, 1]);
}

/// Half-way between two milliseconds.
struct Between;

impl Clock for Between {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(1_000_000_000_500).expect("a time")
    }
}

#[tokio::test]
async fn an_event_is_shown_to_be_due_at_the_date_that_it_competes_for() {
    let (topology, broker, script) = slow("version: 1\nname: t\ntypes: { import: { coalesce: latest } }");
    confirms(&script).add_permits(1);
    let register = Arc::new(MemoryRegister::new(Arc::new(Between), Duration::from_secs(1)));
    let asked: Arc<dyn Register> = register.clone();
    let publisher = Publisher::new(topology, broker, &asked, Arc::new(Between));
    let event = NewEvent::new("import", "{}").reference("1234").delay(Duration::from_hours(1));
    publisher.publish(event).await.expect("published");

    let (event_type, reference) = ("import".parse().expect("a word"), "1234".parse().ok());
    let shown = register.look(&[Subject { event_type, reference, id: String::new() }]).await.expect("it answers");
    let (slot, entry) = (&shown[0][0].slot, shown[0][0].entry.as_ref().expect("it waits"));
    assert_eq!(*slot, DedupSlot::DatedAt(entry.due.as_millisecond()));
}

/// A clock that is set by hand.
struct Set(Mutex<Timestamp>);

impl Clock for Set {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("no panic")
    }
}

#[tokio::test]
async fn a_publisher_that_stood_still_with_a_version_does_not_send_it_when_the_register_may_have_forgotten_newer_ones()
{
    let file = "version: 1\nname: t\nredis: { dedup-retention: 1h }\ntypes: { import: { coalesce: latest } }";
    let (topology, broker, script) = slow(file);
    confirms(&script).add_permits(2);
    let clock = Arc::new(Set(Mutex::new(Timestamp::UNIX_EPOCH)));
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(clock.clone(), Duration::from_hours(24)));
    let publisher = Publisher::new(topology, broker, &register, clock.clone());
    let change = || NewEvent::new("import", "{}").reference("1234");
    // The version is asked for at the call.
    let (in_time, late) = (publisher.publish(change()), publisher.publish(change()));
    *clock.0.lock().expect("no panic") += Duration::from_mins(29);
    in_time.await.expect("published");
    *clock.0.lock().expect("no panic") += Duration::from_mins(2);
    let told = late.await;
    assert!(matches!(told, Err(PublishError::Timeout)), "{told:?}");
    assert_eq!(confirms(&script).available_permits(), 1, "nothing is sent");
}

#[tokio::test(start_paused = true)]
async fn a_publish_with_a_version_waits_no_longer_for_the_broker_than_the_register_remembers_newer_ones() {
    let file = "version: 1\nname: t\nredis: { dedup-retention: 20s }\ntypes: { import: { coalesce: latest, retry: { delays: [5s] } }, mail: {} }";
    let (topology, broker, _) = slow(file);
    let clock = Arc::new(Set(Mutex::new(Timestamp::UNIX_EPOCH)));
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(clock.clone(), Duration::from_hours(24)));
    let publisher = Publisher::new(topology, broker, &register, clock);
    for (event, limit) in [(NewEvent::new("import", "{}").reference("1234"), 10), (NewEvent::new("mail", "{}"), 30)] {
        let began = tokio::time::Instant::now();
        let told = publisher.publish(event).await;
        assert!(matches!(told, Err(PublishError::Timeout)), "{told:?}");
        // The paused clock goes on by whole milliseconds.
        assert_eq!(began.elapsed().as_secs(), limit);
    }
}

/// The clock of a machine that is ten minutes ahead of Redis's.
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(600).expect("a time")
    }

    fn ahead(&self) -> Option<jiff::SignedDuration> {
        Some(jiff::SignedDuration::from_secs(600))
    }
}

#[tokio::test]
async fn a_delay_from_a_machine_whose_clock_is_wrong_ends_by_the_clock_of_redis() {
    let (topology, broker, script) = slow("version: 1\nname: t\ntypes: { mail: {} }");
    confirms(&script).add_permits(2);
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(Ahead), Duration::from_secs(1)));
    let publisher = Publisher::new(topology, broker, &register, Arc::new(Ahead));
    let nbf = |n: usize| {
        let published = script.published.lock().expect("no panic");
        published[n].properties.headers["nbf"].as_str().map(str::to_owned)
    };
    publisher.publish(NewEvent::new("mail", "{}").delay(Duration::from_secs(2))).await.expect("published");
    assert_eq!(nbf(0).as_deref(), Some("1970-01-01T00:00:02.000Z"));
    // A date is the caller's.
    let date = Timestamp::from_second(900).expect("a time");
    publisher.publish(NewEvent::new("mail", "{}").at(date)).await.expect("published");
    assert_eq!(nbf(1).as_deref(), Some("1970-01-01T00:15:00.000Z"));
}

/// The clock of a machine that is a few seconds ahead of Redis's, where it is noon.
struct Off(i64);

impl Clock for Off {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(43_200 + self.0).expect("a time")
    }

    fn ahead(&self) -> Option<jiff::SignedDuration> {
        Some(jiff::SignedDuration::from_secs(self.0))
    }
}

#[rstest]
#[case::right(0, "1970-01-01T12:00:02.000Z")]
#[case::a_day_ahead(86_400, "1970-01-01T12:00:02.000Z")]
#[case::a_day_behind(-86_400, "1970-01-01T12:00:02.000Z")]
#[case::a_little_behind(-4, "1970-01-01T12:00:02.000Z")]
// It counts as right, and the date of a delayed event would be as late.
#[case::a_little_ahead(4, "1970-01-01T12:00:06.000Z")]
#[tokio::test]
async fn an_event_expires_by_the_clock_of_redis_and_never_early(#[case] ahead: i64, #[case] expected: &str) {
    let (topology, broker, script) = slow("version: 1\nname: t\ntypes: { mail: {} }");
    confirms(&script).add_permits(2);
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::from_secs(1)));
    let publisher = Publisher::new(topology, broker, &register, Arc::new(Off(ahead)));
    let event = NewEvent::new("mail", "{}").expires(Duration::from_secs(2));
    publisher.publish(event).await.expect("published");
    // A time is the caller's.
    let time = Timestamp::from_second(200_000).expect("a time");
    publisher.publish(NewEvent::new("mail", "{}").expires_at(time)).await.expect("published");
    let published = script.published.lock().expect("no panic");
    let expires: Vec<_> = published.iter().map(|sent| sent.properties.headers["expires"].as_str()).collect();
    assert_eq!(expires, [Some(expected), Some("1970-01-03T07:33:20.000Z")]);
}

#[rstest]
#[case::at_once(NewEvent::new("mail", "{}").expires(Duration::ZERO), false)]
#[case::with_its_delay(NewEvent::new("mail", "{}").delay(Duration::from_secs(5)).expires(Duration::from_secs(5)), false)]
#[case::after_its_delay(NewEvent::new("mail", "{}").delay(Duration::from_secs(5)).expires(Duration::from_millis(5_001)), true)]
#[case::past(NewEvent::new("mail", "{}").expires_at(Off(-1).now()), false)]
#[case::before_its_date(NewEvent::new("mail", "{}").at(Off(60).now()).expires_at(Off(60).now()), false)]
#[case::after_its_date(NewEvent::new("mail", "{}").at(Off(60).now()).expires_at(Off(61).now()), true)]
#[case::after_a_past_date(NewEvent::new("mail", "{}").at(Off(-60).now()).expires(Duration::from_secs(1)), true)]
#[case::in_the_year_9999(NewEvent::new("mail", "{}").expires(Duration::MAX), false)]
#[tokio::test]
async fn an_event_that_would_expire_before_it_is_due_is_refused(#[case] event: NewEvent, #[case] is_published: bool) {
    let (topology, broker, script) = slow("version: 1\nname: t\ntypes: { mail: {} }");
    confirms(&script).add_permits(1);
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::from_secs(1)));
    let publisher = Publisher::new(topology, broker, &register, Arc::new(Off(0)));
    match publisher.publish(event).await {
        Ok(_) => assert!(is_published),
        Err(PublishError::ExpiresBeforeDue { expires, due }) => assert!(!is_published && expires <= due),
        Err(error) => assert!(matches!(error, PublishError::TooLate) && !is_published, "{error}"),
    }
    assert_eq!(confirms(&script).available_permits(), usize::from(!is_published), "nothing is sent");
}

#[rstest]
#[case::at_once(NewEvent::new("import", "{}").reference("1"), false)]
#[case::dated(NewEvent::new("import", "{}").reference("1").delay(Duration::from_secs(1)), true)]
#[case::without_a_reference(NewEvent::new("import", "{}"), true)]
#[case::by_date(NewEvent::new("review", "{}").reference("1").delay(Duration::from_secs(1)), false)]
#[case::of_the_other_kind(NewEvent::new("review", "{}").reference("1"), true)]
#[tokio::test]
async fn an_event_that_coalesces_cannot_expire(#[case] event: NewEvent, #[case] is_published: bool) {
    let file = "version: 1\nname: t\ntypes: { import: { coalesce: { immediate: first } }, review: { coalesce: { delayed: each-time } } }";
    let (topology, broker, script) = slow(file);
    confirms(&script).add_permits(1);
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::from_secs(1)));
    let publisher = Publisher::new(topology, broker, &register, Arc::new(SystemClock));
    let told = publisher.publish(event.expires(Duration::from_mins(1))).await;
    assert_eq!(told.is_ok(), is_published, "{told:?}");
    if let Err(error) = told {
        assert!(matches!(error, PublishError::ExpiresAndCoalesces(_)), "{error}");
    }
}

#[tokio::test]
async fn an_id_of_a_schedule_is_refused() {
    let file = "version: 1\nname: t\ntypes: { mail: {}, post: {} }\nschedules: { poll: { type: mail, every: 5m } }";
    let (topology, broker, script) = slow(file);
    confirms(&script).add_permits(1);
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::from_secs(1)));
    let publisher = Publisher::new(topology, broker, &register, Arc::new(SystemClock));
    let told = publisher.publish(NewEvent::new("mail", "{}").id("poll#17")).await;
    assert!(matches!(told, Err(PublishError::IdOfSchedule(ref schedule)) if schedule == "poll"), "{told:?}");
    // The ids of each type are its own.
    publisher.publish(NewEvent::new("post", "{}").id("poll#17")).await.expect("published");
}

#[test]
fn whoever_shows_the_whole_chain_of_an_error_shows_nothing_twice() {
    let away = BrokerError::Unreachable { url: "amqp://rabbit".to_owned(), reason: "cut".to_owned() };
    let error = anyhow::Error::from(EventsError::from(PublishError::from(away)));
    let chain = format!("{error:#}");
    assert_eq!(chain.matches("amqp://rabbit").count(), 1, "{chain}");
    assert_eq!(chain, error.to_string());
}
