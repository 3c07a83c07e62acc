//! Looks at a broker and a register in memory.

use std::collections::BTreeMap;

use hatchery::{
    EventType, RegisterError,
    internals::{
        in_memory::InMemory,
        names,
        ports::{Index as _, NamedStates as _, StateKind},
        schedule::state::ScheduleState,
        switches::Switches,
    },
};

use super::{
    late,
    observation::{Observation, ObservedRegister, Reading, Redis},
    summary::Status,
};
use crate::{breakers, live::Counts};

/// Returns the status of a topology in memory. It has no rates.
pub(crate) async fn status(hatchery: &InMemory) -> Result<Status, RegisterError> {
    let InMemory { topology, desired, declared, register, clock, .. } = hatchery;
    let at = clock.now();
    let queues = counts(hatchery).into_iter().map(|(name, counts)| (name, counts.into())).collect();
    let mut seen = Observation {
        at,
        vhost: "/".to_owned(),
        readings: vec![Reading { at, queues }],
        objects: Some(declared.into()),
        channels: Some(Vec::new()),
        alarms: Some(Vec::new()),
        switches: Some(switches(hatchery)),
        reported: register.reported(),
        ..Observation::default()
    };
    let types: Vec<EventType> =
        topology.types.iter().filter(|(_, spec)| spec.register).map(|(name, _)| name.clone()).collect();
    if types.is_empty() {
        return Ok(Status::of(topology, desired, &seen));
    }
    let counts = register.count(&types).await?;
    let counts = types.into_iter().zip(counts).collect();
    let there = ObservedRegister { counts, has_owner: true, ..ObservedRegister::default() };
    seen.redis = Redis::There(there.clone());
    let schedules = register.states(StateKind::Schedule).await?.into_iter();
    seen.schedules = Some(schedules.filter_map(|(name, text)| Some((name, ScheduleState::parse(&text)?))).collect());
    seen.take_breakers(breakers::read(topology, &**register).await?);
    late::look(&**register, &there, topology, &mut seen).await;
    late::look_at_letters(&**register, topology, &mut seen).await;
    Ok(Status::of(topology, desired, &seen))
}

/// Returns the last snapshot of the switches.
pub(crate) fn switches(hatchery: &InMemory) -> Switches {
    let last = hatchery.broker.last_of(&names::control(&hatchery.desired.owner));
    last.and_then(|text| Switches::read(&text).ok()).unwrap_or_default()
}

/// Returns the counts of the queues.
pub(crate) fn counts(hatchery: &InMemory) -> BTreeMap<String, Counts> {
    let counts = |name: &String| {
        let [ready, delivered, consumers] = hatchery.broker.counts(name)?.map(|number| Some(count(number)));
        let messages = ready.zip(delivered).map(|(ready, delivered)| ready + delivered);
        let (messages_ready, messages_unacknowledged) = (ready, delivered);
        let counts = Counts { messages, messages_ready, messages_unacknowledged, consumers, ..Counts::default() };
        Some((name.clone(), counts))
    };
    hatchery.declared.queues.iter().filter_map(|queue| counts(&queue.name)).collect()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use hatchery::{
        CancellationToken, NewEvent, Run, Topology,
        internals::ports::{Broker as _, Clock, Order},
    };
    use jiff::Timestamp;
    use tokio::time::{Instant, advance, sleep, timeout};

    use super::*;

    /// A clock that goes with that of tokio, which tests advance.
    struct Passing(Timestamp, Instant);

    impl Clock for Passing {
        fn now(&self) -> Timestamp {
            self.0 + self.1.elapsed()
        }
    }

    fn hatchery(types: &str) -> InMemory {
        let topology: Topology = hatchery::file::read(&format!("{{ version: 1, name: t, types: {types} }}"), "t.yaml")
            .expect("a valid file");
        InMemory::new(topology, Arc::new(Passing(Timestamp::now(), Instant::now()))).expect("a safe topology")
    }

    async fn publish(hatchery: &InMemory, reference: &str) {
        let event = NewEvent::new("mail", "{}").reference(reference);
        hatchery.publisher().publish(event).await.expect("it is published");
    }

    async fn findings(hatchery: &InMemory) -> Vec<String> {
        let status = status(hatchery).await.expect("it has a register");
        status.findings.into_iter().map(|found| found.message).collect()
    }

    async fn fail(_: Run) -> Result<(), String> {
        Err("no mail server".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn runs_that_fail_are_found_once_the_worker_has_told_of_them() {
        let hatchery = hatchery("{ mail: { retry: { max-attempts: 1 } } }");
        for reference in ["ann", "bob", "carl"] {
            publish(&hatchery, reference).await;
        }
        let stop = CancellationToken::new();
        let working = tokio::spawn(hatchery.worker().handle("mail", fail).run(stop.clone()));
        let failing = "nearly all runs fail: mail (3 of the last 3: no mail server)";
        let found = async {
            while !findings(&hatchery).await.iter().any(|message| message == failing) {
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(Duration::from_mins(1), found).await.expect("the worker tells of its runs within a minute");
        stop.cancel();
        working.await.expect("no panic").expect("the worker ends well");
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_should_have_run_long_ago_are_found() {
        let hatchery = hatchery("{ mail: { handler-timeout: 10s } }");
        // A consumer that settles nothing.
        let _consumer = hatchery.broker.consume("t.processor.mail", 1, Order::Any, None, None).await.expect("a queue");
        publish(&hatchery, "ann").await;
        advance(Duration::from_mins(1)).await;
        assert_eq!(findings(&hatchery).await, [] as [&str; 0]);
        // The due time is rounded up.
        advance(Duration::from_secs(301)).await;
        assert_eq!(findings(&hatchery).await, ["an event of mail (ann) was due 6m ago and has not run"]);
    }
}
