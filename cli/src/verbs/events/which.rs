//! The flags that say which events.

use std::str::FromStr as _;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use hatchery::{
    Cancelled, EventSelector, Filter, State, TimeError, Topology, internals::register::DedupSlot, parse_time,
};
use jiff::{Span, SpanRelativeTo, Timestamp};

use crate::args::UsageError;

/// A filter. Each flag takes events away.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which events")]
pub(super) struct Filters {
    /// Of this type; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) types: Vec<String>,

    /// About this object
    #[arg(long)]
    pub(super) reference: Option<String>,

    /// About an object whose name begins so
    #[arg(long, value_name = "PREFIX", conflicts_with = "reference")]
    reference_prefix: Option<String>,

    /// With this id
    #[arg(long)]
    pub(super) id: Option<String>,

    /// In this state; may be given more than once
    #[arg(long, value_name = "STATE", value_parser = state())]
    state: Vec<State>,

    /// Due before this time, or this long from now: 1h, 1h ago, now
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    due_before: Option<Timestamp>,

    /// Due at this time or later
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    due_after: Option<Timestamp>,

    /// Failed so often, or more often
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,

    /// With this text in their reason, in capitals or not
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// The flags of a verb that acts.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Chosen {
    #[command(flatten)]
    pub(super) filters: Filters,

    /// Of the reference only what is due at this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "reference")]
    #[arg(help_heading = "Which events")]
    at: Option<Timestamp>,

    /// Of the reference only what has no date
    #[arg(long, requires = "reference", conflicts_with = "at", help_heading = "Which events")]
    immediate: bool,

    /// Do it, where a filter chooses; without it what would be done is shown
    #[arg(long)]
    pub(super) yes: bool,
}

/// What a verb acts on.
pub(super) enum Choice {
    /// Named: done at once.
    Named(EventSelector),
    /// Found: done with `--yes`.
    Found(Filter),
}

impl Filters {
    /// Nothing but names.
    pub(super) fn naming(event_type: Option<String>, reference: Option<String>, id: Option<String>) -> Self {
        Self { types: event_type.into_iter().collect(), reference, id, ..Self::default() }
    }

    pub(super) fn filter(&self) -> Filter {
        let mut filter = Filter::default();
        for name in &self.types {
            filter = filter.event_type(name);
        }
        for state in &self.state {
            filter = filter.state(*state);
        }
        if let Some(reference) = &self.reference {
            filter = filter.reference(reference);
        }
        if let Some(prefix) = &self.reference_prefix {
            filter = filter.reference_prefix(prefix);
        }
        if let Some(id) = &self.id {
            filter = filter.id(id);
        }
        if let Some(time) = self.due_before {
            filter = filter.due_before(time);
        }
        if let Some(time) = self.due_after {
            filter = filter.due_from(time);
        }
        if let Some(text) = &self.reason {
            filter = filter.reason(text);
        }
        filter.attempts(self.attempts.unwrap_or(0))
    }

    /// What is named, by nothing but its reference or its id.
    pub(super) fn named(&self, topology: &Topology) -> Result<Option<EventSelector>, UsageError> {
        let finds = self.reference_prefix.is_some() || !self.state.is_empty() || self.due_before.is_some();
        let finds = finds || self.due_after.is_some() || self.attempts.is_some() || self.reason.is_some();
        if finds || (self.reference.is_none() && self.id.is_none()) || self.types.len() > 1 {
            return Ok(None);
        }
        let event_type = self.event_type(topology)?;
        Ok(match (&self.reference, &self.id) {
            (Some(reference), None) => Some(EventSelector::reference(event_type, reference)),
            (Some(reference), Some(id)) => Some(EventSelector::id(event_type, id).of(reference)),
            (None, Some(id)) => Some(EventSelector::id(event_type, id)),
            (None, None) => None,
        })
    }

    /// The one type that is meant.
    pub(super) fn event_type(&self, topology: &Topology) -> Result<String, UsageError> {
        match &self.types[..] {
            [event_type] => Ok(event_type.clone()),
            _ => only_type(topology),
        }
    }

    /// What was named, for people.
    pub(super) fn name(&self) -> String {
        match (&self.id, &self.reference) {
            (Some(id), _) => format!("the event {id}"),
            (None, Some(reference)) => reference.clone(),
            (None, None) => "it".to_owned(),
        }
    }
}

impl Chosen {
    pub(super) fn choice(&self, topology: &Topology) -> Result<Choice, UsageError> {
        let one_slot = self.at.is_some() || self.immediate;
        match self.filters.named(topology)? {
            Some(_) if one_slot && self.filters.id.is_some() => {
                Err(UsageError("--id names one event already; --at and --immediate go without it".to_owned()))
            }
            Some(which) => Ok(Choice::Named(match (self.at, self.immediate) {
                (Some(time), _) => which.at(time),
                (None, true) => which.immediate(),
                (None, false) => which,
            })),
            None if one_slot => {
                Err(UsageError("--at and --immediate go with one --type and --reference, and no filter".to_owned()))
            }
            None if self.filters.types.is_empty() => {
                Err(UsageError("say of which type the events are, with --type".to_owned()))
            }
            None => Ok(Choice::Found(self.filters.filter())),
        }
    }

    /// What a cancel of these slots is remembered for, even where nothing is known of them.
    pub(super) fn remembered(&self, slots: &[Cancelled]) -> Option<&'static str> {
        let one_slot = self.at.is_some() || self.immediate;
        if self.filters.id.is_some() {
            return Some(
                "Its id is remembered: the event does not run if it competes with nothing, or was published while Redis was \
                 away.",
            );
        }
        // A date is a slot where each counts by itself, and nothing to remember elsewhere.
        let is_slot =
            |found: &Cancelled| matches!(found.slot, DedupSlot::DatedAt(_) | DedupSlot::Immediate | DedupSlot::First);
        (one_slot && slots.iter().any(is_slot)).then_some(
            "The slot is remembered: what Redis has forgotten of it does not run. What Redis has not heard of, because it was \
             away, is reached by its id alone.",
        )
    }
}

/// The one type that can be meant where none is named.
fn only_type(topology: &Topology) -> Result<String, UsageError> {
    let mut registered = topology.types.iter().filter(|(_, spec)| spec.register);
    match (registered.next(), registered.next()) {
        (Some((event_type, _)), None) => Ok(event_type.to_string()),
        _ => Err(UsageError("say of which type it is, with --type".to_owned())),
    }
}

fn state() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::OPEN.map(State::as_str)).try_map(|text| State::from_str(&text))
}

/// A text that is neither a time nor a duration.
#[derive(Debug, thiserror::Error)]
pub(super) enum MomentError {
    #[error("not a time; write it like 2026-06-01T09:00:00Z, or as a duration from now: 90s, 2h, 1d 12h, 2h ago, now")]
    NotATime,
    #[error(transparent)]
    Time(TimeError),
    #[error("no event can have that time; the last one is 9999-12-30T22:00:00Z")]
    Beyond,
}

/// A time, or a duration from now.
pub(super) fn parse_moment(text: &str) -> Result<Timestamp, MomentError> {
    let now = Timestamp::now();
    if text.trim() == "now" {
        return Ok(now);
    }
    let from_now = |span: Span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok();
    match (parse_time(text), text.trim().parse::<Span>().ok().and_then(from_now)) {
        (Ok(time), _) => Ok(time),
        (Err(_), Some(duration)) => now.checked_add(duration).map_err(|_| MomentError::Beyond),
        (Err(error @ TimeError::TooLate(_)), None) => Err(MomentError::Time(error)),
        (Err(_), None) => Err(MomentError::NotATime),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;

    const FILE: &str =
        "version: 1\nname: t\ntypes: { import: { coalesce: latest }, mail: {}, plain: { register: off } }";

    fn topology(text: &str) -> Topology {
        hatchery::file::read(text, "topology.yaml").expect("a valid file")
    }

    fn filters(event_type: &str, reference: &str, id: &str) -> Filters {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Filters::naming(given(event_type), given(reference), given(id))
    }

    #[rstest]
    #[case(filters("mail", "1", ""), Some(EventSelector::reference("mail", "1")))]
    #[case(filters("mail", "1", "a"), Some(EventSelector::id("mail", "a").of("1")))]
    #[case(filters("mail", "", "a"), Some(EventSelector::id("mail", "a")))]
    #[case(filters("mail", "", ""), None)]
    #[case(Filters { attempts: Some(1), ..filters("mail", "1", "") }, None)]
    #[case(Filters { state: vec![State::Retry], ..filters("mail", "1", "") }, None)]
    fn what_is_named_is_told_from_what_is_found(#[case] filters: Filters, #[case] expected: Option<EventSelector>) {
        assert_eq!(filters.named(&topology(FILE)).expect("one type"), expected);
    }

    #[test]
    fn the_type_may_be_left_out_where_there_is_one() {
        let one = topology("version: 1\nname: t\ntypes: { mail: {}, plain: { register: off } }");
        assert_eq!(filters("", "1", "").named(&one).expect("one"), Some(EventSelector::reference("mail", "1")));
        filters("", "1", "").named(&topology(FILE)).expect_err("there are two");
    }

    #[rstest]
    #[case(Chosen { at: Some(Timestamp::UNIX_EPOCH), filters: filters("mail", "1", "a"), ..Chosen::default() }, "--id")]
    #[case(
        Chosen {
            immediate: true,
            filters: Filters { attempts: Some(1), ..filters("mail", "1", "") },
            ..Chosen::default()
        },
        "no filter"
    )]
    #[case(Chosen { yes: true, ..Chosen::default() }, "--type")]
    fn a_choice_that_could_mean_two_things_is_refused(#[case] chosen: Chosen, #[case] why: &str) {
        let Err(error) = chosen.choice(&topology(FILE)) else { panic!("refused") };
        assert!(error.0.contains(why), "{error}");
    }

    #[rstest]
    #[case("2026-06-01T09:00:00Z", None)]
    #[case("now", Some(0))]
    #[case("2h", Some(7_200))]
    #[case("1d 12h", Some(129_600))]
    #[case("2h ago", Some(-7_200))]
    #[case("-90s", Some(-90))]
    fn a_moment_is_a_time_or_a_way_from_now(#[case] text: &str, #[case] seconds: Option<i64>) {
        let (before, moment) = (Timestamp::now(), parse_moment(text).expect("a moment"));
        match seconds {
            Some(seconds) => {
                let off = moment.duration_since(before) - SignedDuration::from_secs(seconds);
                assert!(off.abs() < SignedDuration::from_secs(5), "{moment}");
            }
            None => assert_eq!(moment.to_string(), text),
        }
    }

    #[rstest]
    #[case("tomorrow")]
    #[case("5")]
    #[case("")]
    #[case("9999-12-31T23:59:59Z")]
    #[case("3000000d")]
    fn anything_else_is_no_moment(#[case] text: &str) {
        assert!(parse_moment(text).is_err());
    }
}
