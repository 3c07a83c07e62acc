//! `GET /v1/dead-letters` and `GET /v1/dead-letters/{type}/{id}`: why events were given up, and all of a letter.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    http::{StatusCode, Uri},
    response::Response,
};
use hatchery_admin::dead_letters::{FoundLetters, Groups, ShownLetters, whole};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use super::chosen::{Chosen, ChosenLetters, refuse};
use crate::{answer::answer, api::Api, problem::Problem, query::read, tokens::Caller};

/// How many letters a list has if the request does not say.
const USUAL: u32 = 100;
/// How many letters a list has at most.
const MOST: u32 = 1_000;
/// How many bytes of a payload a list has at most.
const PAYLOAD: usize = 1_024;
/// How many bytes of payloads and headers a list has at most. The letters behind are counted alone.
const BYTES: usize = 8 * 1024 * 1024;
/// How many reasons are told apart.
const REASONS: usize = 1_000;
/// How many letters of one id are shown.
const OF_ID: usize = 20;
/// How many bytes of a payload are shown if the request does not say.
const SHOWN: u32 = 4_096;
/// How many bytes of a payload are shown at most.
const LARGEST: u32 = 1024 * 1024;

/// Returns the schema of the query of a list. It has no fields that say what to do with letters, and the limit of a list.
pub(crate) fn query(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = ChosenLetters::json_schema(generator);
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !["dry_run", "digests", "at", "delay", "rate"].contains(&name.as_str()));
        if let Some(limit) = fields.get_mut("limit").and_then(Value::as_object_mut) {
            limit.insert("maximum".to_owned(), MOST.into());
        }
    }
    schema
}

pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let asked: ChosenLetters = read(&uri)?;
    refuse(&[
        ("dry_run", asked.dry_run.is_some()),
        ("digests", asked.digests.is_some()),
        ("at", asked.at.is_some()),
        ("delay", asked.delay.is_some()),
        ("rate", asked.rate.is_some()),
    ])?;
    let limit = usize::try_from(asked.limit(USUAL, MOST)?).unwrap_or_default();
    let chosen = Chosen::new(&api, &caller, &asked).await?;
    let (mut groups, mut letters, mut found, mut obsolete, mut room) =
        (Groups::default(), Vec::new(), 0_u64, 0_u64, BYTES);
    let (looked, mut warnings) = chosen
        .read(|queue, letter, standing| {
            found += 1;
            obsolete += u64::from(standing.is_obsolete());
            groups.add_one_of(&letter, &standing, REASONS);
            if letters.len() < limit && room > 0 {
                let shown = whole(&letter, &standing, queue, PAYLOAD);
                room = room.saturating_sub(PAYLOAD + shown.headers.iter().map(size).sum::<usize>());
                letters.push(shown);
            }
        })
        .await?;
    let (queues, is_known) = (looked.queues(), looked.unknown.is_none());
    warnings.extend(looked.unknown.map(|error| format!("{error}. Which letters are obsolete is not known")));
    let more = found > u64::try_from(letters.len()).unwrap_or(u64::MAX);
    let groups = groups.largest_first();
    let obsolete = is_known.then_some(obsolete);
    Ok(answer(StatusCode::OK, &FoundLetters { queues, found, obsolete, groups, letters, more, warnings }))
}

fn size((name, value): (&String, &serde_json::Value)) -> usize {
    name.len() + value.to_string().len()
}

/// How to show a letter.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShownLetter {
    /// `true`: a message that no queue has taken.
    #[serde(default)]
    unrouted: bool,
    /// The most bytes of the payload; 4,096 if it is not given, at most 1 MiB.
    #[schemars(range(max = u32::MAX))]
    payload_limit: Option<u32>,
}

pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(String, String)>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Path((event_type, id)) = path.map_err(|rejection| Problem::bad(rejection.body_text()))?;
    let ShownLetter { unrouted, payload_limit } = read(&uri)?;
    let limit = usize::try_from(payload_limit.unwrap_or(SHOWN).min(LARGEST)).unwrap_or_default();
    let asked = ChosenLetters { r#type: Some(event_type), id: Some(id), unrouted, ..ChosenLetters::default() };
    let chosen = Chosen::new(&api, &caller, &asked).await?;
    let (mut found, mut letters) = (0, Vec::new());
    let (looked, mut warnings) = chosen
        .read(|queue, letter, standing| {
            found += 1;
            if letters.len() < OF_ID {
                letters.push(whole(&letter, &standing, queue, limit));
            }
        })
        .await?;
    warnings.extend(looked.unknown.map(|error| format!("{error}. Whether the letter is obsolete is not known")));
    if letters.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "there is no such letter"));
    }
    Ok(answer(StatusCode::OK, &ShownLetters { found, letters, warnings }))
}
