//! The flags that select events.

use std::str::FromStr as _;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use hatchery::{EventSelector, Events, Filter, State, Topology};
use hatchery_admin::{
    batch::{Change, ChangeError, ChangedEvents, Named},
    notation::parse_moment,
};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    args::UsageError,
    server::{Declined, Server, segment},
};

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
    Named(Named),
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
    ///
    /// `registered` are the types of the file that use the register.
    pub(crate) fn named(&self, registered: &[String]) -> Result<Option<EventSelector>, UsageError> {
        let finds = self.reference_prefix.is_some() || !self.state.is_empty() || self.due_before.is_some();
        let finds = finds || self.due_after.is_some() || self.attempts.is_some() || self.reason.is_some();
        if finds || (self.reference.is_none() && self.id.is_none()) || self.types.len() > 1 {
            return Ok(None);
        }
        let event_type = self.event_type(registered)?;
        Ok(match (&self.reference, &self.id) {
            (Some(reference), None) => Some(EventSelector::reference(event_type, reference)),
            (Some(reference), Some(id)) => Some(EventSelector::id(event_type, id).of(reference)),
            (None, Some(id)) => Some(EventSelector::id(event_type, id)),
            (None, None) => None,
        })
    }

    /// Returns the type that the flags name, or the only type of the file that uses the register.
    fn event_type(&self, registered: &[String]) -> Result<String, UsageError> {
        match (&self.types[..], registered) {
            ([event_type], _) | (_, [event_type]) => Ok(event_type.clone()),
            _ => Err(UsageError("give the type of the event with --type".to_owned())),
        }
    }

    /// Returns the filter as the query of a server.
    pub(super) fn query(&self) -> Vec<(&'static str, Option<String>)> {
        let list = |words: Vec<&str>| Some(words.join(",")).filter(|list| !list.is_empty());
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        vec![
            ("type", list(self.types.iter().map(String::as_str).collect())),
            ("reference", self.reference.clone()),
            ("reference_prefix", self.reference_prefix.clone()),
            ("id", self.id.clone()),
            ("state", list(self.state.iter().map(|state| state.as_str()).collect())),
            ("due_before", time(self.due_before)),
            ("due_after", time(self.due_after)),
            ("attempts", self.attempts.map(|attempts| attempts.to_string())),
            ("reason", self.reason.clone()),
        ]
    }

    /// Refuses the flags that find events instead of naming them, for a change by a server.
    fn refuse_search(&self) -> Result<(), UsageError> {
        Server::refuse(&[
            ("more than one --type", self.types.len() > 1),
            ("--reference-prefix", self.reference_prefix.is_some()),
            ("--state", !self.state.is_empty()),
            ("--due-before", self.due_before.is_some()),
            ("--due-after", self.due_after.is_some()),
            ("--attempts", self.attempts.is_some()),
            ("--reason", self.reason.is_some()),
        ])
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
    pub(super) fn choice(&self, registered: &[String]) -> Result<Choice, UsageError> {
        let is_slot = self.at.is_some() || self.immediate;
        let Filters { reference, id, .. } = &self.filters;
        match self.filters.named(registered)? {
            Some(_) if is_slot && id.is_some() => {
                Err(UsageError("--id names one event already; leave out --at and --immediate".to_owned()))
            }
            Some(which) => {
                let which = match (self.at, self.immediate) {
                    (Some(time), _) => which.at(time),
                    (None, true) => which.immediate(),
                    (None, false) => which,
                };
                let event_type = self.filters.event_type(registered)?;
                let (reference, id) = (reference.clone(), id.clone());
                Ok(Choice::Named(Named { which, event_type, reference, id, is_slot }))
            }
            None if is_slot => {
                Err(UsageError("--at and --immediate need one --type and --reference, and no filter".to_owned()))
            }
            None if self.filters.types.is_empty() => {
                Err(UsageError("give the type of the events with --type".to_owned()))
            }
            None => Ok(Choice::Found(self.filters.filter())),
        }
    }

    /// Changes the named events by a server, which knows the file.
    pub(super) async fn by_server(
        &self,
        server: &Server,
        verb: &str,
        to: Option<Timestamp>,
    ) -> anyhow::Result<ChangedEvents> {
        let filters = &self.filters;
        filters.refuse_search()?;
        let types = if filters.types.is_empty() { server.registered().await? } else { Vec::new() };
        let Choice::Named(named) = self.choice(&types)? else {
            let why =
                "a server changes the events of one --reference or --id; leave --server (TOPOLOGY_URL) out for others";
            return Err(UsageError(why.to_owned()).into());
        };
        let path = format!("/v1/events/{}/{verb}", segment(&named.event_type));
        let mut body = json!({ "reference": named.reference, "id": named.id, "immediate": self.immediate });
        for (field, time) in [("at", self.at), ("to", to)] {
            if let Some(time) = time {
                body[field] = time.to_string().into();
            }
        }
        let changed = server.post(&path, &body).await;
        changed.or_else(|error: anyhow::Error| {
            let mut declined = error.downcast::<Declined>()?;
            declined.changed().ok_or_else(|| declined.into())
        })
    }

    /// Returns the note that Redis remembers this cancel although it knows no such event.
    pub(super) const fn remembered(&self) -> &'static str {
        if self.filters.id.is_some() {
            return "Its id is remembered: the event does not run if it competes with no other event, or was published while \
                    Redis was away.";
        }
        "The slot is remembered: an event of it that Redis has forgotten does not run. An event that was published while \
         Redis was away is reached only by its id."
    }
}

/// Makes a change of named events.
pub(super) async fn carried_out(change: Change, events: &Events) -> anyhow::Result<ChangedEvents> {
    match change.carry_out(events).await {
        // The answer says why an event stays as it was.
        Ok((changed, _)) => Ok(changed),
        Err(ChangeError::Events(error)) => Err(error.into()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the types of the file that use the register.
pub(crate) fn registered(topology: &Topology) -> Vec<String> {
    topology.types.iter().filter(|(_, spec)| spec.register).map(|(name, _)| name.to_string()).collect()
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
        assert_eq!(filters.named(&registered(&topology(FILE))).expect("one type"), expected);
    }

    #[test]
    fn the_type_may_be_left_out_where_there_is_one() {
        let one = topology("version: 1\nname: t\ntypes: { mail: {}, plain: { register: off } }");
        assert_eq!(
            filters("", "1", "").named(&registered(&one)).expect("one"),
            Some(EventSelector::reference("mail", "1"))
        );
        filters("", "1", "").named(&registered(&topology(FILE))).expect_err("there are two");
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
        let Err(error) = chosen.choice(&registered(&topology(FILE))) else { panic!("refused") };
        assert!(error.0.contains(why), "{error}");
    }
}
