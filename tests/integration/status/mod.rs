//! `topology status` finds what is wrong on a real broker, and says how many events are where.

mod afternoon;
mod blind;
mod findings;
mod night;
mod register;
mod watched;

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::process::Command;

use crate::support::process::{Ended, Place};

/// Returns `topology status` with these arguments.
fn status(place: &Place<'_>, arguments: &[&str]) -> Command {
    let mut command = place.command(&["status"]);
    command.args(arguments).env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management());
    command
}

/// Runs `topology status -o json`. Returns its exit code and its answer.
pub(crate) async fn seen(place: &Place<'_>) -> (Option<i32>, Value) {
    answer(&place.run(&mut status(place, &["--detailed-exitcode", "-o", "json"])).await)
}

fn answer(ended: &Ended) -> (Option<i32>, Value) {
    let answer = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code(), answer)
}

/// Returns the kinds of the findings.
pub(crate) fn kinds(answer: &Value) -> BTreeSet<&str> {
    answer["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap()).collect()
}

/// Returns the finding of this kind.
fn finding<'a>(answer: &'a Value, kind: &str) -> &'a Value {
    let mut findings = answer["findings"].as_array().unwrap().iter();
    findings.find(|finding| finding["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {answer:#}"))
}

/// Returns the figures of a type.
fn line<'a>(answer: &'a Value, event_type: &str) -> &'a Value {
    answer["types"].as_array().unwrap().iter().find(|line| line["type"] == event_type).unwrap()
}
