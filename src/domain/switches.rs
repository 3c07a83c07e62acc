//! The switches of a topology: what people have paused.
//!
//! They are on the stream `<name>.control` of the broker. Each message there is a snapshot of all switches, so a reader needs the last
//! one alone. `docs/pause-protocol.md` says who writes it, and what a worker does that cannot read it.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{time, words::Word};

/// How long a pause stays in the snapshots after its end: longer than clocks differ.
#[cfg(any(test, feature = "internals", feature = "testing"))]
const LEFT: Duration = Duration::from_hours(24);

/// All switches of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switches {
    /// Each snapshot has a higher number than those before it, also after the stream was deleted and declared again.
    pub number: i64,
    /// The pauses that last, and those that have ended of late.
    pub pauses: Vec<Pause>,
}

/// One pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The name that is paused.
    pub of: Paused,
    /// Who paused it.
    pub by: PausedBy,
    /// The reason, for people.
    pub reason: String,
    /// When the pause began.
    pub since: Timestamp,
    /// When the pause ends by itself, by Redis's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The name that a pause is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paused {
    /// All types and sources of the topology.
    All,
    /// The events of a type.
    Type(Name),
    /// The messages of a source.
    Source(Name),
    /// The events of a schedule.
    Schedule(Name),
}

/// The name of a type, a source or a schedule, as text in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Word);

/// Who paused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PausedBy {
    /// A person, with `topology pause`.
    Person,
    /// The key `paused` in the file that was applied last.
    File,
}

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the last message of the stream is no snapshot of the switches: {0}")]
pub struct NotSwitches(#[from] serde_json::Error);

impl Switches {
    /// Reads a snapshot. One that a newer version has written, with what this version does not know, is an error: a worker must not run
    /// what it does not know to be paused.
    ///
    /// # Errors
    /// When the text is no snapshot.
    pub fn read(text: &[u8]) -> Result<Self, NotSwitches> {
        Ok(serde_json::from_slice(text)?)
    }

    /// Returns the text of the snapshot.
    #[cfg(any(test, feature = "internals", feature = "testing"))]
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the pause that holds a type, a source or a schedule at this time: a person's before that of the file.
    #[must_use]
    pub fn paused(&self, what: &Paused, now: Timestamp) -> Option<&Pause> {
        let held = |pause: &&Pause| pause.holds(what) && pause.lasts(now);
        self.pauses.iter().filter(held).min_by_key(|pause| pause.by == PausedBy::File)
    }

    /// Returns when the next pause ends by itself.
    #[must_use]
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.pauses.iter().filter_map(|pause| pause.until).filter(|until| *until > now).min()
    }

    /// Returns the next snapshot, with this pause in place of the one by the same hand.
    #[cfg(any(test, feature = "internals", feature = "testing"))]
    #[must_use]
    pub fn with(self, pause: Pause, now: Timestamp) -> Self {
        let mut next = self.next(now);
        next.pauses.retain(|other| other.of != pause.of || other.by != pause.by);
        next.pauses.push(pause);
        next
    }

    /// Returns the next snapshot, without the pauses of `what`, also those that the file has set.
    #[cfg(any(test, feature = "internals", feature = "testing"))]
    #[must_use]
    pub fn without(self, what: &Paused, now: Timestamp) -> Self {
        let mut next = self.next(now);
        next.pauses.retain(|pause| pause.of != *what);
        next
    }

    /// Returns the next snapshot, with these pauses of the file in place of those of the file before. A pause that was there keeps its
    /// time.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn with_file(self, file: impl IntoIterator<Item = (Paused, String)>, now: Timestamp) -> Self {
        let mut next = self.next(now);
        let of_file = |pause: &mut Pause| pause.by == PausedBy::File;
        let before: Vec<Pause> = next.pauses.extract_if(.., of_file).collect();
        next.pauses.extend(file.into_iter().map(|(of, reason)| {
            let since = before.iter().find(|pause| pause.of == of).map_or(now, |pause| pause.since);
            Pause { of, by: PausedBy::File, reason, since, until: None }
        }));
        next
    }

    /// Returns the snapshot with a number higher than this one.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn after(self, number: i64) -> Self {
        Self { number: self.number.max(number.saturating_add(1)), ..self }
    }

    /// Returns the next snapshot. It lacks the pauses that were over long ago.
    #[cfg(any(test, feature = "internals", feature = "testing"))]
    fn next(mut self, now: Timestamp) -> Self {
        // Higher than any snapshot of a stream that was deleted meanwhile.
        self.number = self.number.saturating_add(1).max(now.as_second());
        // A pause that is over holds nobody back. The clock of the caller may be hours ahead, and would end a pause that lasts.
        let long_ago = time::earlier(now, LEFT);
        self.pauses.retain(|pause| pause.lasts(long_ago));
        self
    }
}

impl Pause {
    /// Returns the pause of a person that begins now.
    #[must_use]
    pub fn of_person(of: Paused, reason: &str, now: Timestamp, until: Option<Timestamp>) -> Self {
        Self { of, by: PausedBy::Person, reason: reason.to_owned(), since: now, until }
    }

    /// Tells whether the pause holds this type, source or schedule.
    #[must_use]
    pub fn holds(&self, what: &Paused) -> bool {
        self.of == *what || (self.of == Paused::All && matches!(what, Paused::Type(_) | Paused::Source(_)))
    }

    /// Tells whether the pause is not over at this time.
    #[must_use]
    pub fn lasts(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

impl Paused {
    /// Returns the kind, and the name; no name for all.
    #[must_use]
    pub const fn parts(&self) -> (&'static str, Option<&Word>) {
        match self {
            Self::All => ("all", None),
            Self::Type(Name(name)) => ("type", Some(name)),
            Self::Source(Name(name)) => ("source", Some(name)),
            Self::Schedule(Name(name)) => ("schedule", Some(name)),
        }
    }
}

/// `type mail`, or `everything`.
impl fmt::Display for Paused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (_, None) => to.write_str("everything"),
            (kind, Some(name)) => write!(to, "{kind} {name}"),
        }
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Paused::*, *};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_780_000_000 + second).expect("a time")
    }

    fn name(text: &str) -> Name {
        Name(text.parse().expect("a word"))
    }

    fn person(of: Paused, until: Option<i64>) -> Pause {
        Pause::of_person(of, "R", at(0), until.map(at))
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let switches = Switches::default()
            .with(person(Type(name("mail")), Some(60)), at(0))
            .with(person(Schedule(name("nightly")), None), at(0))
            .with_file([(All, "moving".to_owned())], at(0));
        let text = r#"{"number":1780000002,"pauses":[{"of":{"type":"mail"},"by":"person","reason":"R","since":"2026-05-28T20:26:40Z","until":"2026-05-28T20:27:40Z"},{"of":{"schedule":"nightly"},"by":"person","reason":"R","since":"2026-05-28T20:26:40Z"},{"of":"all","by":"file","reason":"moving","since":"2026-05-28T20:26:40Z"}]}"#;
        assert_eq!(switches.text(), text);
        assert_eq!(Switches::read(text.as_bytes()).expect("a snapshot"), switches);
    }

    #[rstest]
    #[case::nothing("")]
    #[case::another_text("{}")]
    #[case::what_a_newer_version_knows(
        r#"{"number":1,"pauses":[{"of":{"tenant":"a"},"by":"person","reason":"","since":"2026-05-28T20:26:40Z"}]}"#
    )]
    #[case::a_field_of_a_newer_version(r#"{"number":1,"pauses":[],"limits":[]}"#)]
    #[case::a_pause_of_a_newer_version(
        r#"{"number":1,"pauses":[{"of":"all","by":"person","reason":"","since":"2026-05-28T20:26:40Z","only":"a"}]}"#
    )]
    #[case::no_name(
        r#"{"number":1,"pauses":[{"of":{"type":"a.b"},"by":"person","reason":"","since":"2026-05-28T20:26:40Z"}]}"#
    )]
    fn what_is_no_snapshot_is_an_error(#[case] text: &str) {
        Switches::read(text.as_bytes()).expect_err("no snapshot");
    }

    #[rstest]
    #[case::a_type(Type(name("mail")), Type(name("mail")), true)]
    #[case::another_type(Type(name("mail")), Type(name("pay")), false)]
    #[case::a_source_of_that_name(Type(name("mail")), Source(name("mail")), false)]
    #[case::all_types(All, Type(name("mail")), true)]
    #[case::all_sources(All, Source(name("hr")), true)]
    #[case::schedules_wait_with_their_types(All, Schedule(name("nightly")), false)]
    fn a_pause_holds_what_it_names(#[case] of: Paused, #[case] what: Paused, #[case] is_held: bool) {
        let switches = Switches::default().with(person(of, None), at(0));
        assert_eq!(switches.paused(&what, at(1)).is_some(), is_held);
    }

    #[test]
    fn a_pause_ends_at_its_time() {
        let mail = Type(name("mail"));
        let switches = Switches::default().with(person(mail.clone(), Some(60)), at(0));
        assert_eq!(switches.next_end(at(59)), Some(at(60)));
        assert!(switches.paused(&mail, at(59)).is_some());
        assert!(switches.paused(&mail, at(60)).is_none());
        assert_eq!(switches.next_end(at(60)), None);
        let a_day_later = at(60 + 86_400);
        assert_eq!(switches.with(person(All, None), a_day_later).pauses, [person(All, None)]);
    }

    #[test]
    fn a_writer_whose_clock_is_ahead_ends_no_pause() {
        let mail = Type(name("mail"));
        let switches = Switches::default().with(person(mail.clone(), Some(7_200)), at(0));
        let of_another = switches.with(person(Type(name("pay")), None), at(3 * 3_600));
        assert!(of_another.paused(&mail, at(60)).is_some());
    }

    #[test]
    fn a_resume_ends_the_pauses_of_one_name() {
        let mail = Type(name("mail"));
        let file = [(mail.clone(), "file".to_owned())];
        let switches = Switches::default().with(person(mail.clone(), None), at(0)).with_file(file, at(1));
        assert_eq!(switches.paused(&mail, at(2)).map(|pause| pause.by), Some(PausedBy::Person));
        let resumed = switches.with(person(All, None), at(3)).without(&mail, at(4));
        assert_eq!(resumed.pauses, [person(All, None)], "the pause of all is another one");
    }

    #[test]
    fn a_file_ends_its_own_pauses_and_no_others() {
        let [mail, pay] = ["mail", "pay"].map(|of| Type(name(of)));
        let file = |of: &Paused| [(of.clone(), "file".to_owned())];
        let first = Switches::default().with(person(mail.clone(), None), at(0)).with_file(file(&mail), at(1));
        let again = first.clone().with_file(file(&mail), at(2));
        assert_eq!(again.pauses, first.pauses, "the pause began when the file first had it");
        let other = again.with_file(file(&pay), at(3));
        assert!(other.paused(&pay, at(4)).is_some());
        assert_eq!(other.without(&pay, at(5)).pauses, [person(mail, None)]);
    }

    #[test]
    fn each_snapshot_has_a_higher_number_also_on_a_new_stream() {
        let first = Switches::default().with(person(All, None), at(0));
        let second = first.clone().without(&All, at(0));
        assert!(second.number > first.number);
        let anew = Switches::default().with(person(All, None), at(10));
        assert!(anew.number > second.number);
    }
}
