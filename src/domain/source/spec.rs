//! The settings of a source, as the file has them.

use jiff::tz::TimeZone;
use serde_json::{Number, Value};

use super::pointer::Pointer;
use crate::domain::{
    names::Names,
    words::{EventType, Reference, Word},
};

/// The settings of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// The queue that the messages come from.
    pub intake: Intake,
    /// Whether the events of a message are published before those of the next message, in the order of the queue.
    pub ordered: bool,
    /// The reason why the file pauses the source; empty if it gives none. Workers follow the stream with the switches, not this.
    pub paused: Option<String>,
    /// The most messages that a worker holds.
    pub prefetch: u16,
    /// The zone of dates without an offset.
    pub timezone: TimeZone,
    /// Where a message has its id. `None`: in its `message_id` property.
    pub id: Option<Pointer>,
    /// The rule for a message that no rule matches.
    pub unmatched: Unmatched,
    /// The rules, at least one. Each that matches a message makes one event.
    pub rules: Vec<Rule>,
}

/// The queue of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intake {
    /// A queue of somebody else, by name. Nothing here declares or changes it.
    Queue(String),
    /// A queue of this topology, which `apply` declares: `billing.source.<name>`.
    Declared,
}

/// The rule for a message that no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// The message goes to the dead-letter queue of the source.
    DeadLetter,
    /// The message is acknowledged, and makes no event.
    Drop,
}

/// One rule: when it applies, and the event that it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The conditions, all of which must hold. Empty: the rule matches every message.
    pub when: Vec<Condition>,
    /// The type of the event.
    pub event_type: EventType,
    /// The reference of the event.
    pub reference: Option<ReferenceFrom>,
    /// Where the message has the date of the event.
    pub nbf: Option<Pointer>,
    /// The part of the message that becomes the payload.
    pub payload: Pointer,
}

/// A condition: the value at a place equals one of these constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The place.
    pub at: Pointer,
    /// The constants, at least one.
    pub any_of: Vec<Constant>,
}

/// A constant of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// `null`, or nothing at all at this place.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
}

/// Where an event's reference comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceFrom {
    /// A place in the message.
    Message(Pointer),
    /// One reference for every message.
    Constant(Reference),
}

impl SourceSpec {
    /// Returns the name of the queue that the messages come from.
    #[must_use]
    pub fn queue(&self, names: &Names, source: &Word) -> String {
        match &self.intake {
            Intake::Queue(queue) => queue.clone(),
            Intake::Declared => names.source(source),
        }
    }

    /// Tells whether the topology declares the queue of this source.
    #[must_use]
    pub fn is_declared(&self) -> bool {
        self.intake == Intake::Declared
    }

    /// Tells whether the events are published one message after the other. A declared queue has a single active consumer,
    /// so that the order of arrival is kept in it as well.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.ordered || self.is_declared()
    }
}

impl Condition {
    /// Tells whether the condition holds for a message.
    #[must_use]
    pub fn holds(&self, message: &Value) -> bool {
        let found = self.at.of(message).unwrap_or(&Value::Null);
        self.any_of.iter().any(|constant| constant.equals(found))
    }

    /// Tells whether no message meets both conditions, because a constant at the place of the other one has no parts.
    #[must_use]
    pub fn excludes(&self, other: &Self) -> bool {
        self.at.is_within(&other.at) && !self.any_of.contains(&Constant::Null)
    }
}

impl Constant {
    fn equals(&self, found: &Value) -> bool {
        match (self, found) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(one), Value::Bool(other)) => one == other,
            // 5 and 5.0 are the same number in JSON.
            (Self::Number(one), Value::Number(other)) => {
                one == other || (one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64()
            }
            (Self::Text(one), Value::String(other)) => one == other,
            _ => false,
        }
    }
}
