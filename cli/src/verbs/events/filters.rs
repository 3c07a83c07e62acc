//! The flags that select events.

use std::str::FromStr as _;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use hatchery::{Cancelled, EventSelector, Filter, State, Topology, internals::register::DedupSlot};
use hatchery_admin::notation::parse_moment;
use jiff::Timestamp;

use crate::args::UsageError;

/// The flags of a filter. An event must match all of them.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which events")]
pub(crate) struct Filters {
    /// Events of this type; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) types: Vec<String>,

    /// Events about this object
    #[arg(long)]
    pub(super) reference: Option<String>,

    /// Events about objects whose name begins with this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with = "reference")]
    reference_prefix: Option<String>,

    /// The event with this id
    #[arg(long)]
    pub(super) id: Option<String>,

    /// Events in this state; may be given more than once
    #[arg(long, value_name = "STATE", value_parser = state())]
    state: Vec<State>,

    /// Due before this time, or this long from now: 1h, 1h ago, now
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    due_before: Option<Timestamp>,

    /// Due at this time or later
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    due_after: Option<Timestamp>,

    /// Events that failed at least this often
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,

    /// Events with this text in their reason, in any case
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// The flags of a verb that acts.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Chosen {
    #[command(flatten)]
    pub(super) filters: Filters,

    /// Of the reference only the event that is due at this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "reference")]
    #[arg(help_heading = "Which events")]
    at: Option<Timestamp>,

    /// Of the reference only events without a date
    #[arg(long, requires = "reference", conflicts_with = "at", help_heading = "Which events")]
    immediate: bool,

    /// Change the events that a filter finds; without --yes they are only shown
    #[arg(long)]
    pub(super) yes: bool,
}

/// The events that a verb acts on.
pub(super) enum Choice {
    /// Events named by reference or id: the verb acts at once.
    Named(EventSelector),
    /// Events that a filter finds: the verb acts only with `--yes`.
    Found(Filter),
}

impl Filters {
    /// Returns flags that only name events.
    pub(crate) fn naming(event_type: Option<String>, reference: Option<String>, id: Option<String>) -> Self {
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

    /// Returns the named events, or `None` if the flags are a filter: they have more than a type, a reference and an
    /// id.
    pub(crate) fn named(&self, topology: &Topology) -> Result<Option<EventSelector>, UsageError> {
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

    /// Returns the type that the flags name, or the only type of the file that uses the register.
    pub(super) fn event_type(&self, topology: &Topology) -> Result<String, UsageError> {
        match &self.types[..] {
            [event_type] => Ok(event_type.clone()),
            _ => only_type(topology),
        }
    }

    /// Returns the name of the selected event or reference, for messages.
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
                Err(UsageError("--id names one event already; leave out --at and --immediate".to_owned()))
            }
            Some(which) => Ok(Choice::Named(match (self.at, self.immediate) {
                (Some(time), _) => which.at(time),
                (None, true) => which.immediate(),
                (None, false) => which,
            })),
            None if one_slot => {
                Err(UsageError("--at and --immediate need one --type and --reference, and no filter".to_owned()))
            }
            None if self.filters.types.is_empty() => {
                Err(UsageError("give the type of the events with --type".to_owned()))
            }
            None => Ok(Choice::Found(self.filters.filter())),
        }
    }

    /// Returns a note if Redis remembers this cancel although it knows no such event.
    pub(super) fn remembered(&self, slots: &[Cancelled]) -> Option<&'static str> {
        let one_slot = self.at.is_some() || self.immediate;
        if self.filters.id.is_some() {
            return Some(
                "Its id is remembered: the event does not run if it competes with no other event, or was published while \
                 Redis was away.",
            );
        }
        // With `delayed: each-time` a date is a slot of its own; otherwise all dates share a slot, which is not
        // remembered.
        let is_slot =
            |found: &Cancelled| matches!(found.slot, DedupSlot::DatedAt(_) | DedupSlot::Immediate | DedupSlot::First);
        (one_slot && slots.iter().any(is_slot)).then_some(
            "The slot is remembered: an event of it that Redis has forgotten does not run. An event that was published \
             while Redis was away is reached only by its id.",
        )
    }
}

/// Returns the only type of the file that uses the register. Fails if there are more, or none.
fn only_type(topology: &Topology) -> Result<String, UsageError> {
    let mut registered = topology.types.iter().filter(|(_, spec)| spec.register);
    match (registered.next(), registered.next()) {
        (Some((event_type, _)), None) => Ok(event_type.to_string()),
        _ => Err(UsageError("give the type of the event with --type".to_owned())),
    }
}

fn state() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::OPEN.map(State::as_str)).try_map(|text| State::from_str(&text))
}

#[cfg(test)]
mod tests {
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
    fn named_events_are_distinguished_from_filters(#[case] filters: Filters, #[case] expected: Option<EventSelector>) {
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
    fn an_ambiguous_choice_is_refused(#[case] chosen: Chosen, #[case] why: &str) {
        let Err(error) = chosen.choice(&topology(FILE)) else { panic!("refused") };
        assert!(error.0.contains(why), "{error}");
    }
}
