//! A pause as `status` and the answers of `pause` and `resume` show it.

use std::borrow::Cow;

use hatchery::internals::{
    switches::{Pause, PausedBy},
    words::plain,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct PauseLine {
    /// The kind of the paused name: `all`, a `type`, a `source` or a `schedule`.
    pub kind: Cow<'static, str>,
    /// The name of the type, the source or the schedule; `null` for all.
    pub name: Option<String>,
    /// The hand that has paused it: a `person`, or the `file`.
    pub by: Cow<'static, str>,
    /// The reason. Empty if the file gives none.
    pub reason: String,
    /// When it began.
    #[schemars(with = "String")]
    pub since: Timestamp,
    /// When it ends by itself; `null` if somebody has to end it.
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
}

impl From<&Pause> for PauseLine {
    fn from(pause: &Pause) -> Self {
        let (kind, name) = pause.of.parts();
        Self {
            kind: kind.into(),
            name: name.map(ToString::to_string),
            by: if pause.by == PausedBy::File { "file" } else { "person" }.into(),
            reason: pause.reason.clone(),
            since: pause.since,
            until: pause.until,
        }
    }
}

impl PauseLine {
    /// Names what is paused, like `type mail`, or `everything`.
    #[must_use]
    pub fn what(&self) -> String {
        self.name.as_ref().map_or_else(|| "everything".to_owned(), |name| format!("{} {name}", self.kind))
    }

    /// Whether it is the pause of this type, or of everything.
    #[must_use]
    pub fn is_of_type(&self, event_type: Option<&str>) -> bool {
        self.kind == event_type.map_or("all", |_| "type") && self.name.as_deref() == event_type
    }

    /// Says since when it is paused, until when and why: `since …, until …: "the provider migrates"`.
    #[must_use]
    pub fn about(&self) -> String {
        let until = self.until.map(|until| format!(", until {until:.0}")).unwrap_or_default();
        let reason = if self.reason.is_empty() { String::new() } else { format!(": \"{}\"", plain(&self.reason)) };
        format!("since {:.0}{until}{reason}", self.since)
    }
}

#[cfg(test)]
mod tests {
    use hatchery::internals::switches::Paused;

    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown_and_does_not_act() {
        let since = Timestamp::constant(1_780_000_000, 0);
        let about = PauseLine::from(&Pause::of_person(Paused::All, "\u{1b}[2J\u{202e}moved", since, None)).about();
        assert!(about.ends_with(r#": "\u{1b}[2J\u{202e}moved""#), "{about}");
    }
}
