//! A link: the place of one event in the chain of its schedule.
//!
//! The event's message carries it in the header `schedule`, together with the rule. So any worker can arm the next event, also
//! one whose file has another definition of the schedule, or none.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::rule::{Mode, Rule, RuleError, RuleWords};
use crate::domain::words::Word;

/// The header of a message that carries the link of its event.
pub const HEADER: &str = "schedule";

/// The place of one event in the chain of its schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// The schedule's name.
    pub schedule: Word,
    /// The digest of the schedule's definition.
    pub digest: String,
    /// The event's position in the schedule, in ms since 1970: an instant, or a number.
    pub position: i64,
    /// The schedule's rule.
    pub rule: Rule,
    /// Whether a person has published the event, outside the chain: it runs whatever the state of the schedule is, and arms nothing.
    pub is_extra: bool,
}

/// A link as its header has it.
#[derive(Serialize, Deserialize)]
struct Words {
    name: String,
    /// The instant, with `mode: fixed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<Timestamp>,
    /// The number, with `mode: sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
    #[serde(flatten)]
    rule: RuleWords,
    digest: String,
    /// Whether a person has published the event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    extra: bool,
}

/// The event of a schedule that an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The event of an instant.
    Instant(Timestamp),
    /// The event with this number.
    Number(i64),
    /// An event that a person has published with `topology schedule run-now`.
    Extra,
    /// An event that a person has published with `topology schedule backfill`, for this instant.
    Backfill(Timestamp),
}

impl Named {
    /// Reads the id of an event of a schedule: the schedule's name, and which event it is. A publisher may have chosen an id that looks like
    /// one.
    #[must_use]
    pub fn read(id: &str) -> Option<(&str, Self)> {
        let at = id.find(['@', '#', '!'])?;
        let (name, which) = (&id[..at], &id[at + 1..]);
        let named = match &id[at..=at] {
            "@" => Self::Instant(which.parse().ok()?),
            "#" => Self::Number(which.parse().ok()?),
            _ if which.parse::<uuid::Uuid>().is_ok() => Self::Extra,
            _ => Self::Backfill(which.parse().ok()?),
        };
        Some((name, named))
    }
}

/// Why a header is not a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The text is not the JSON of a link.
    #[error("{0}")]
    Json(String),
    /// The name is not a word.
    #[error("the name is not one word")]
    Name,
    /// The link has no position.
    #[error("it has no `slot` with `mode: fixed`, or no `number` with `mode: sequential`")]
    NoPosition,
    /// The rule is not one.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl Link {
    /// Reads a header.
    ///
    /// # Errors
    /// When the text is not a link.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let words: Words = serde_json::from_str(text).map_err(|error| LinkError::Json(error.to_string()))?;
        let rule = Rule::try_from(words.rule)?;
        let position = match rule.mode {
            Mode::Fixed => words.slot.map(Timestamp::as_millisecond),
            Mode::Sequential => words.number,
        };
        Ok(Self {
            schedule: words.name.parse().map_err(|_| LinkError::Name)?,
            digest: words.digest,
            position: position.ok_or(LinkError::NoPosition)?,
            rule,
            is_extra: words.extra,
        })
    }

    /// Returns the text of the header.
    #[must_use]
    pub fn text(&self) -> String {
        let words = Words {
            name: self.schedule.to_string(),
            slot: self.slot(),
            number: (self.rule.mode == Mode::Sequential).then_some(self.position),
            rule: self.rule.words(),
            digest: self.digest.clone(),
            extra: self.is_extra,
        };
        serde_json::to_string(&words).unwrap_or_default()
    }

    /// Returns the instant for which the event runs. `None` with `mode: sequential`.
    #[must_use]
    pub fn slot(&self) -> Option<Timestamp> {
        (self.rule.mode == Mode::Fixed).then(|| Timestamp::from_millisecond(self.position).ok()).flatten()
    }

    /// Returns the event's id: `nightly@2026-06-01T03:00:00Z` or `poll#1780279200000`. All copies of the event have it, so the
    /// register runs one of them.
    #[must_use]
    pub fn id(&self) -> String {
        match self.slot() {
            Some(slot) => format!("{}@{slot}", self.schedule),
            None => format!("{}#{}", self.schedule, self.position),
        }
    }

    /// Returns the link of another event of the schedule.
    #[must_use]
    pub fn at(&self, position: i64) -> Self {
        Self { position, ..self.clone() }
    }
}
