//! Draws the mistakes of a file as the Rust compiler draws errors, with the lines of the file.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, renderer::DEFAULT_TERM_WIDTH};
use hatchery::{FileError, Finding, internals::words::may_be_url};

use crate::text::{LEAST, folded};

/// How many findings are shown; the rest are only counted.
const SHOWN: usize = 30;

/// The longest line, in bytes, that is shown whole.
const LONGEST_LINE: usize = 2_000;

/// Draws each finding with its line of the file, in colour for a terminal or plain. Messages are folded, and lines of the
/// file are cut, to fit into `columns`.
pub(crate) fn draw(error: &FileError, color: bool, columns: usize) -> String {
    let columns = columns.max(LEAST);
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(columns.min(DEFAULT_TERM_WIDTH));
    let findings = error.findings();
    let mut shown: Vec<String> =
        findings.iter().take(SHOWN).map(|finding| renderer.render(&[group(error, finding, columns)])).collect();
    if let Some(more @ 1..) = findings.len().checked_sub(SHOWN) {
        shown.push(format!("… and {more} more"));
    }
    shown.join("\n\n")
}

fn group<'a>(error: &'a FileError, finding: &'a Finding, columns: usize) -> Group<'a> {
    let start = error.text()[..finding.range.start].rfind('\n').map_or(0, |at| at + 1);
    let line = error.text()[start..].lines().next().unwrap_or_default();
    let (from, to) = (finding.range.start - start, finding.range.end - start);
    // Of a very long line, which a program wrote, only the part around the mistake is shown.
    let cut =
        if line.len() > LONGEST_LINE { line.floor_char_boundary(from.saturating_sub(LONGEST_LINE / 2)) } else { 0 };
    let line = &line[cut.min(line.len())..];
    let line = &line[..line.floor_char_boundary(LONGEST_LINE)];
    let from = (from - cut).min(line.len());
    let to = (to - cut).clamp(from, line.len());
    // The renderer cuts a line before and behind its mark, and never within. It takes up to 16 columns to show the cuts.
    let number = finding.line.to_string().len();
    let room = columns.saturating_sub(number + " | ".len() + 16);
    let to = to.min(line.floor_char_boundary(from.saturating_add(room)));
    let snippet =
        Snippet::source(line.to_owned()).line_start(finding.line).annotation(AnnotationKind::Primary.span(from..to));
    let beside = |before: usize, text: &str| folded(text, columns - before).join("\n");
    let title = Level::ERROR.primary_title(beside("error: ".len(), &finding.message));
    let place = || Origin::path(error.path()).line(finding.line).char_column(finding.column);
    // A topology holds no URL. A line with one may come from another file, and may hold a password, so it is not shown.
    let group = if may_be_url(line) {
        title.element(place())
    } else if cut == 0 {
        title.element(snippet.path(error.path()))
    } else {
        title.element(place()).element(snippet)
    };
    group.element(Level::HELP.message(beside(number + "  = help: ".len(), &finding.help)))
}

#[cfg(test)]
#[path = "../../tests/support/invalid.rs"]
mod invalid;

/// The golden messages: `tests/invalid`. `UPDATE_GOLDEN=1` writes them anew.
#[cfg(test)]
mod tests {
    use std::fs;

    use hatchery::file::read;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn message(text: &str, name: &str) -> String {
        match read(text, name) {
            Ok(topology) => panic!("{name} is accepted: {topology:#?}"),
            Err(error) => draw(&error, false, usize::MAX) + "\n",
        }
    }

    #[test]
    fn every_mistake_is_explained() {
        let (update, mut wrong) = (std::env::var_os("UPDATE_GOLDEN").is_some(), Vec::new());
        for mut page in invalid::pages() {
            for case in &mut page.cases {
                let said = message(&case.yaml, &format!("{}.yaml", case.name));
                if case.message != said && !update {
                    wrong.push(format!("{} says\n{said}", case.name));
                }
                case.message = said;
            }
            if update {
                fs::write(&page.path, page.text()).expect("written");
            }
        }
        assert!(wrong.is_empty(), "not what tests/invalid says:\n{}", wrong.join("\n"));
    }

    /// These cases are here because no reader of a page would see their characters, and an editor could lose them.
    #[rstest]
    #[case::byte_order_mark(
        "\u{feff}version: 2\n",
        "\
error: this hatchery reads version 1 of the file, and this is version `2`
 --> topology.yaml:1:10
  |
1 | version: 2
  |          ^
  |
  = help: use a hatchery that knows it, or write `version: 1`
"
    )]
    #[case::crlf(
        "version: 1\r\nname: billing\r\nladder: { resolutoin: 1s }\r\ntypes:\r\n  mail: {}\r\n",
        "\
error: `ladder` has no key `resolutoin`
 --> topology.yaml:3:11
  |
3 | ladder: { resolutoin: 1s }
  |           ^^^^^^^^^^
  |
  = help: write `resolution`
"
    )]
    #[case::tab(
        "version: 1\nname: billing\ntypes:\n\tmail: {}\n",
        "\
error: this is not YAML: tabs disallowed within this context (block indentation)
 --> topology.yaml:4:2
  |
4 |     mail: {}
  |     ^
  |
  = help: write spaces instead of tabs before a key
"
    )]
    fn a_mistake_beside_unseen_characters_is_explained(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(message(text, "topology.yaml"), expected);
    }

    #[test]
    fn only_the_drawing_for_terminals_has_colours() {
        let error = read("version: 2", "topology.yaml").expect_err("invalid");
        assert!(draw(&error, true, usize::MAX).contains('\u{1b}'));
        assert!(!draw(&error, false, usize::MAX).contains('\u{1b}'));
    }

    #[test]
    fn a_long_line_is_shown_around_the_mistake() {
        let types = |prefix: &str| (0..1_000).map(|n| format!("{prefix}{n}: {{}}")).collect::<Vec<_>>().join(", ");
        let (before, after) = (types("a"), types("b"));
        let text = format!("{{ version: 1, name: billing, types: {{ {before},  mail: {{ prefech: 1 }}, {after} }} }}");
        let shown = draw(&read(&text, "topology.yaml").expect_err("refused"), false, usize::MAX);
        let column = text.find("prefech").expect("it is there") + 1;
        assert!(shown.contains(&format!(" --> topology.yaml:1:{column}\n")), "{shown}");
        assert!(shown.contains("a999: {},  mail: { prefech: 1 }, b0: {}"), "{shown}");
        assert!(shown.lines().all(|line| line.len() < 160), "{shown}");
    }

    proptest! {
        /// Lines of any characters, with an unknown key in one of them.
        #[test]
        fn any_file_can_be_drawn(before in ".{0,40}", after in ".{0,3000}", key in "\\PC{1,8}") {
            for text in [format!("{before}\n{key}: {after}"), format!("{key}: {after}\n{before}")] {
                if let Err(error) = read(&text, "topology.yaml") {
                    prop_assert!(!draw(&error, true, usize::MAX).is_empty());
                    let plain = draw(&error, false, usize::MAX);
                    prop_assert!(!plain.contains('\x1b'));
                }
            }
        }
    }
}
