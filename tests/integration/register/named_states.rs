//! Named states, in Redis as in memory.

use std::time::Duration;

use hatchery::internals::{
    memory::MemoryRegister,
    ports::{NamedStates, StateChange, StateKind},
};
use proptest::prelude::*;

use super::bench::{BACKLOG, register};
use crate::support::{clock::TestClock, redis};

const NAMES: [&str; 3] = ["mail", "a:b {c}", "größe"];
const TEXTS: [Option<&str>; 4] = [None, Some("one"), Some("two"), Some("{\"of\":[\"three\",1]}")];
const KINDS: [StateKind; 2] = [StateKind::Schedule, StateKind::Breaker];

/// A call: the kind, and for each change its name, the state that is expected, and the new one.
type Call = (usize, Vec<(usize, usize, usize)>);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let change = (0..NAMES.len(), 0..TEXTS.len(), 0..TEXTS.len());
    prop::collection::vec((0..KINDS.len(), prop::collection::vec(change, 0..5)), 1..20)
}

async fn all(states: &dyn NamedStates) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for kind in KINDS {
        all.extend(states.states(kind).await.unwrap());
        for name in NAMES {
            all.extend(states.state(kind, name).await.unwrap().map(|text| (name.to_owned(), text)));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn redis_replaces_states_as_memory_does(calls in calls()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = std::sync::Arc::new(TestClock::default());
            let memory = MemoryRegister::new(clock.clone(), BACKLOG);
            let redis = register(redis::url(), &redis::prefix(), 1).with_clock(clock);
            for (kind, changes) in calls {
                let change = |(name, before, after): &(usize, usize, usize)| {
                    StateChange { name: NAMES[*name], before: TEXTS[*before], after: TEXTS[*after] }
                };
                let changes: Vec<_> = changes.iter().map(change).collect();
                let expected = memory.replace_states(KINDS[kind], &changes).await.unwrap();
                assert_eq!(redis.replace_states(KINDS[kind], &changes).await.unwrap(), expected, "{changes:?}");
                assert_eq!(all(&redis).await, all(&memory).await, "{changes:?}");
            }
            let turn = Duration::from_mins(1);
            for expected in [true, false] {
                assert_eq!(redis.take_turn(turn).await.unwrap(), expected);
                assert_eq!(memory.take_turn(turn).await.unwrap(), expected);
            }
        });
    }
}
