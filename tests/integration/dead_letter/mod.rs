//! `topology dead-letter`.

mod discarded;
mod killed;
mod leaderless;
mod looking;
mod replayed;
mod side_by_side;
mod slow;

use serde_json::Value;

use crate::support::{
    amqp::Amqp,
    declared::Declared,
    process::{Ended, Place},
};

const TYPES: &str = "types: { mail: { keep-payload: 4KiB }, import: { coalesce: latest }, plain: { register: off } }\n";

impl Place<'_> {
    /// Runs `topology dead-letter …` and expects this exit code.
    async fn letters(&self, code: i32, arguments: &[&str]) -> Ended {
        let arguments: Vec<&str> = ["dead-letter"].into_iter().chain(arguments.iter().copied()).collect();
        self.run(&mut self.command(&arguments)).await.expect(code)
    }

    /// Runs `topology dead-letter … -o json`, expects success, and returns the JSON.
    async fn letters_json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
        let ended = self.letters(0, &arguments).await;
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    /// Returns the ids of the letters, in the order of their queue.
    async fn letter_ids(&self, arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<&str> =
            ["list", "--events", "-o", "ndjson"].into_iter().chain(arguments.iter().copied()).collect();
        ids(self.letters(0, &arguments).await.stdout.lines())
    }
}

/// Returns the ids in a list of letters.
fn ids(lines: impl Iterator<Item = impl AsRef<str>>) -> Vec<String> {
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    lines.map(|line| id(line.as_ref())).collect()
}

fn numbered(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("n{n:05}"))
}

/// Puts letters into the dead-letter queue of a type, with the ids of [`numbered`].
async fn put(declared: &Declared, event_type: &str, count: usize) -> Amqp {
    let amqp = declared.amqp().await;
    amqp.publish_in_order("t.dead-letter", &format!("{event_type}.dead-letter"), numbered(count)).await;
    amqp
}

/// Takes all messages out of a queue, and returns their ids.
async fn drained(amqp: &Amqp, queue: &str) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(message) = amqp.get(queue).await {
        ids.push(message.properties.message_id().as_ref().unwrap().to_string());
    }
    ids
}
