//! The handler of `topology dev --echo`.

use hatchery::{Outcome, Run, async_trait, internals::words::plain};

use crate::output::Output;

/// Prints each event, and is done with it.
pub(super) struct Echo;

#[async_trait]
impl hatchery::Handler for Echo {
    async fn handle(&self, run: Run) -> Outcome {
        let event = &run.event;
        let reference = event.reference.as_ref().map(|reference| format!(" {reference}")).unwrap_or_default();
        let payload = match str::from_utf8(&event.payload) {
            Ok(text) => plain(text).to_string(),
            Err(_) => format!("{} bytes", event.payload.len()),
        };
        let line = format!("{}{reference} {payload}\n", event.event_type);
        // A closed output is no failure of the event.
        match Output::raw(line.as_bytes()) {
            Ok(()) | Err(_) => Outcome::Done,
        }
    }
}
