//! Names and references that people choose. Each is checked once, when the value is made.

use std::{
    borrow::{Borrow, Cow},
    fmt,
    str::FromStr,
    sync::Arc,
};

/// Why a text cannot be a name or a reference.
///
/// ```
/// use hatchery::{EventType, Reference, WordError};
///
/// assert_eq!("".parse::<Reference>(), Err(WordError::Length(0)));
/// let error = "hr.import".parse::<EventType>().expect_err("two words");
/// assert!(error.to_string().starts_with("`hr.import` is not one word of 1 to 64 letters"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// The text is not one word.
    #[error("`{0}` is not one word of 1 to 64 letters, digits, `_` or `-` (a dot would split the routing key)")]
    NotAWord(String),
    /// The reference is empty or above 255 bytes. The field is its length in bytes.
    #[error("a reference has 1 to 255 bytes, this one has {0}")]
    Length(usize),
    /// The reference has a control character. The field is its position in bytes.
    #[error("a reference has no control characters, this one has one at byte {0}")]
    Control(usize),
}

/// One word, `[A-Za-z0-9_-]{1,64}`: the name of a topology or a type.
///
/// ```
/// use hatchery::Word;
///
/// let name: Word = "hr-import".parse()?;
/// assert_eq!(name.as_str(), "hr-import");
/// assert!(Word::try_from("größe".to_owned()).is_err());
/// # Ok::<(), hatchery::WordError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Shared, because each call to the register and each copy of an event clones it.
pub struct Word(Arc<str>);

/// The type of an event: one word. It is the first word of the routing key and chooses the handler.
///
/// ```
/// use hatchery::{Outcome, Run};
///
/// // One handler for two types.
/// async fn send(run: Run) -> std::io::Result<Outcome> {
///     let greeting = match run.event.event_type.as_str() {
///         "newsletter" => "Dear reader",
///         _ => "Dear customer",
///     };
///     println!("{greeting}");
///     Ok(Outcome::Done)
/// }
/// ```
pub type EventType = Word;

/// The object that an event is about: 1 to 255 bytes of UTF-8 without control characters.
///
/// ```
/// use hatchery::Reference;
///
/// let employee: Reference = "acme/1234".parse()?;
/// assert_eq!(employee.as_str().split_once('/'), Some(("acme", "1234")));
/// # Ok::<(), hatchery::WordError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(Arc<str>);

impl FromStr for Word {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let word =
            (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if word { Ok(Self(text.into())) } else { Err(WordError::NotAWord(text.to_owned())) }
    }
}

impl FromStr for Reference {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        if !(1..=255).contains(&text.len()) {
            return Err(WordError::Length(text.len()));
        }
        match text.char_indices().find(|(_, c)| c.is_control()) {
            Some((at, _)) => Err(WordError::Control(at)),
            None => Ok(Self(text.into())),
        }
    }
}

/// Tells whether a character controls a terminal, reverses the direction of the text after it, or is invisible. Two references that
/// differ only in an invisible character would look the same.
#[must_use]
pub fn acts(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Escapes the characters of a foreign text that [`act`](acts), so that they cannot control a terminal, begin a line, or hide.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| if acts(c) { c.escape_default().to_string() } else { c.to_string() });
    Cow::Owned(shown.collect())
}

/// Tells whether a text may be a URL or may contain a password: it has `://`, or a `:` with an `@` somewhere after it.
/// Nothing more is required, because a mistyped URL may lack its scheme or have any character in its password.
#[must_use]
pub fn may_be_url(text: &str) -> bool {
    text.contains("://") || has_password(text)
}

/// Tells whether a text contains a URL with a password. A user name alone is no secret: `ssh://git@github.com/x` has no
/// password.
#[cfg(feature = "internals")]
#[must_use]
pub fn is_url_with_password(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| has_password(rest))
}

/// Returns the text if an error may repeat it, and a notice instead of it if it may be a URL. The text may be that of
/// another error.
#[cfg(feature = "internals")]
#[must_use]
pub fn unless_url(text: &str) -> &str {
    if may_be_url(text) { "the text is not repeated, because it may contain a password" } else { text }
}

fn has_password(text: &str) -> bool {
    text.split_once(':').is_some_and(|(_, rest)| rest.contains('@'))
}

macro_rules! text {
    ($name:ident) => {
        impl $name {
            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = WordError;

            fn try_from(text: String) -> Result<Self, WordError> {
                text.parse()
            }
        }
    };
}

text!(Word);
text!(Reference);

/// A type that the file does not have.
///
/// ```
/// use hatchery::{EventsError, Hatchery, EventSelector};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let events = Hatchery::builder(hatchery::read_file("topology.yaml")?).events()?;
/// let refused = events.cancel(&EventSelector::reference("hr-imprt", "1234")).await;
/// let Err(EventsError::UnknownType(error)) = refused else { panic!("a slip of the pen") };
/// assert_eq!(error.nearest.as_deref(), Some("hr-import"));
/// assert_eq!(error.to_string(), "there is no type `hr-imprt` in the file; is it `hr-import`?");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no type `{event_type}` in the file; {}", meant(.nearest.as_deref(), .known))]
#[non_exhaustive]
pub struct UnknownType {
    /// The name that is not in the file.
    pub event_type: String,
    /// The most similar type of the file, if one is similar enough.
    pub nearest: Option<String>,
    /// The types of the file, in the order of their names.
    pub known: Vec<String>,
}

impl UnknownType {
    /// Returns the error for a name that is none of these.
    pub fn among(name: &str, types: impl IntoIterator<Item: ToString>) -> Self {
        let known: Vec<String> = types.into_iter().map(|known| known.to_string()).collect();
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        Self { event_type: name.to_owned(), nearest, known }
    }
}

/// The most types that a message names. More would hide the message.
const NAMED: usize = 8;

/// Says which type may be meant: the most similar one, or else those that there are.
fn meant(nearest: Option<&str>, known: &[String]) -> String {
    if let Some(name) = nearest {
        return format!("is it `{name}`?");
    }
    let named: Vec<String> = known.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    let more = match known.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("it has {}{more}", named.join(", "))
}

/// Returns the most similar of these names, if one is similar enough to be the one that was meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn control_characters_of_a_foreign_text_are_escaped() {
        assert_eq!(plain("a\u{1b}[31mred\n\tb\u{9b}"), "a\\u{1b}[31mred\\n\\tb\\u{9b}");
        assert_eq!(plain("ab\u{202e}dc\u{2066}\u{200b}\u{feff}"), "ab\\u{202e}dc\\u{2066}\\u{200b}\\u{feff}");
        assert!(matches!(plain("0196f3a2 é 従業員"), Cow::Borrowed("0196f3a2 é 従業員")));
    }

    #[rstest]
    #[case("amqp://u:pw@h", true, true)]
    #[case("amqp://u:p/w@h", true, true)]
    #[case("amqp://:pw@h", true, true)]
    #[case("x,amqp://u:pw@h", true, true)]
    #[case("amqp://host", true, false)]
    #[case("ssh://git@github.com/x", true, false)]
    #[case("https://ada@example.org:8443/x", true, false)]
    #[case("amqp:/u:pw@h", true, false)]
    #[case("u:pw@h", true, false)]
    #[case("mailto:ada@example.org", true, false)]
    #[case("ada@example.org", false, false)]
    #[case("rabbit@host:5672", false, false)]
    #[case("2026-06-01T09:00:00Z", false, false)]
    fn a_password_stands_between_a_colon_and_an_at(#[case] text: &str, #[case] perhaps: bool, #[case] in_url: bool) {
        assert_eq!((may_be_url(text), is_url_with_password(text)), (perhaps, in_url));
    }

    #[rstest]
    #[case("hr-import", true)]
    #[case("A_1", true)]
    #[case("", false)]
    #[case("hr.import", false)]
    #[case("hr import", false)]
    #[case("größe", false)]
    #[case(&"a".repeat(64), true)]
    #[case(&"a".repeat(65), false)]
    fn a_type_is_one_word(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(text.parse::<EventType>().is_ok(), valid);
    }

    #[rstest]
    #[case("mial", 1, "is it `mail`?")]
    #[case("x", 1, "it has `mail`")]
    #[case("x", 9, "it has `mail`, `q1`, `q2`, `q3`, `q4`, `q5`, `q6`, `q7` and 1 more")]
    fn an_unknown_type_names_those_that_may_be_meant(#[case] name: &str, #[case] count: usize, #[case] told: &str) {
        let types: Vec<EventType> = std::iter::once("mail".to_owned())
            .chain((1..count).map(|number| format!("q{number}")))
            .map(|name| name.parse().expect("a type"))
            .collect();
        let error = UnknownType::among(name, &types).to_string();
        assert_eq!(error, format!("there is no type `{name}` in the file; {told}"));
    }

    #[rstest]
    #[case("1234", Ok(()))]
    #[case("Größe 5 {x}:*", Ok(()))]
    #[case("", Err(WordError::Length(0)))]
    #[case(&"x".repeat(256), Err(WordError::Length(256)))]
    #[case("ab\ncd", Err(WordError::Control(2)))]
    #[case("ab\u{85}", Err(WordError::Control(2)))]
    fn a_reference_is_short_and_printable(#[case] text: &str, #[case] expected: Result<(), WordError>) {
        assert_eq!(text.parse::<Reference>().map(|_| ()), expected);
    }
}
