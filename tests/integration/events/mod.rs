//! `topology events`, and the same operations as library calls.

mod backlog;
mod cancelled;
mod cancelled_runs;
mod listed;
mod moved;
mod placed;
mod traced;

use std::time::Duration;

use hatchery::{Hatchery, NewEvent};
use jiff::Timestamp;
use serde_json::Value;

use crate::support::{
    declared::{Declared, publish},
    process::{Ended, Place},
};

/// Longer than any test, so that no event with this delay comes due during one.
const HOUR: Duration = Duration::from_hours(1);

impl Place<'_> {
    /// Runs `topology events …` and expects this exit code.
    async fn events(&self, code: i32, arguments: &[&str]) -> Ended {
        let arguments: Vec<&str> = ["events"].into_iter().chain(arguments.iter().copied()).collect();
        self.run(&mut self.command(&arguments)).await.expect(code)
    }

    /// Runs `topology events … -o json`, expects this exit code, and returns the JSON.
    async fn events_json(&self, code: i32, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
        let ended = self.events(code, &arguments).await;
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    /// Runs `topology events list …` and returns the ids that it shows.
    async fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<&str> = ["list"].into_iter().chain(arguments.iter().copied()).collect();
        let list = self.events_json(0, &arguments).await;
        let ids = list["events"].as_array().unwrap().iter();
        ids.map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// Declares types with a ladder of two hours, so that events may wait for [`HOUR`].
async fn declared(types: &str) -> Declared {
    Declared::new(&format!("ladder: {{ resolution: 50ms, horizon: 2h }}\ntypes: {types}\n")).await
}

async fn put(hatchery: &Hatchery, event_type: &str, reference: &str, id: &str, delay: Duration) {
    let mut event = NewEvent::new(event_type, format!("\"{id}\"")).id(id);
    if !reference.is_empty() {
        event = event.reference(reference);
    }
    if !delay.is_zero() {
        event = event.delay(delay);
    }
    publish(hatchery, event).await;
}

fn from_now(delay: Duration) -> Timestamp {
    // Rounded to milliseconds, the precision of the `nbf` header.
    Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap() + delay
}
