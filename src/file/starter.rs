//! The file that `topology init` writes.

use crate::domain::words::Word;

/// The name of the schema file in the first line of [`starter`]. An editor looks for it beside `topology.yaml`.
pub const SCHEMA_FILE: &str = "topology.schema.json";

const STARTER: &str = include_str!("starter.yaml");

/// Returns a small `topology.yaml` for a topology of this name, with a comment for each key.
#[must_use]
pub fn starter(name: &Word) -> String {
    // Quoted, because YAML reads `on` as a boolean and `123` as a number.
    let plain = name.as_str().starts_with(|c: char| c.is_ascii_alphabetic()) && super::yaml::is_text(name.as_str());
    let written = if plain { name.to_string() } else { format!("\"{name}\"") };
    STARTER.replace("name: billing", &format!("name: {written}")).replace("`billing.", &format!("`{name}."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn starts(name: &str) -> Result<String, crate::FileError> {
        let text = starter(&name.parse().expect("a word"));
        crate::file::read(&text, "topology.yaml").map(|topology| topology.name.to_string())
    }

    #[rstest]
    #[case("billing")]
    #[case("on")]
    #[case("123")]
    #[case("null")]
    #[case("1e3")]
    #[case("-")]
    #[case("y")]
    fn whatever_the_name_it_is_valid(#[case] name: &str) {
        assert_eq!(starts(name).as_deref(), Ok(name));
    }

    #[test]
    fn the_schema_is_where_its_first_line_says() {
        let text = starter(&"mine".parse().expect("a word"));
        assert_eq!(text.lines().next(), Some(&*format!("# yaml-language-server: $schema=./{SCHEMA_FILE}")));
        assert!(!text.contains("billing"), "{text}");
        assert!(text.contains("`mine.scheduler`, `mine.processor.mail`"), "{text}");
    }

    #[test]
    fn the_examples_in_comments_are_valid() {
        let text = starter(&"mine".parse().expect("a word"));
        // Prose begins with a capital letter.
        let is_example = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_uppercase());
        let examples = text.lines().skip_while(|line| *line != "# sources:" && *line != "# schedules:");
        let examples = examples.filter_map(|line| line.strip_prefix("# ").filter(|rest| is_example(rest)));
        let examples = examples.collect::<Vec<_>>().join("\n");
        let topology = crate::file::read(&format!("{text}\n{examples}\n"), "topology.yaml").expect("valid");
        assert_eq!((topology.sources.len(), topology.schedules.len()), (1, 2));
    }

    proptest! {
        #[test]
        fn any_word_is_a_name(name in "[A-Za-z0-9_-]{1,6}") {
            prop_assert_eq!(starts(&name).ok(), Some(name));
        }
    }
}
