//! Hostile files: none may panic the reader or keep it busy.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

const EXAMPLE: &str = include_str!("../../topology.yaml");

/// Each file is refused before it is expanded. Without the limits they take minutes or end the process.
#[rstest]
#[case::large(&"# nothing but comments\n".repeat(500_000), Refusal::Size)]
#[case::deep_flow(&"[".repeat(100_000), Refusal::Limit)]
#[case::deep_maps(&"{a: ".repeat(100_000), Refusal::Limit)]
#[case::deep_blocks(&many(1_000, |depth| " ".repeat(depth) + "a:\n"), Refusal::Limit)]
#[case::deep_lists(&"- ".repeat(100_000), Refusal::Limit)]
#[case::bomb(&bomb(9), Refusal::Limit)]
#[case::aliases(&format!("a: &a [1]\nb: [{}]", "*a, ".repeat(40_000)), Refusal::Limit)]
#[case::anchors(&many(50_000, |n| format!("- &a{n} 1\n")), Refusal::Limit)]
#[case::values(&format!("[{}]", "1,".repeat(300_000)), Refusal::Limit)]
#[case::long_key(&"k".repeat(1_000_000), Refusal::Content)]
#[case::long_value(&format!("version: 1\nname: {}", "n".repeat(1_000_000)), Refusal::Content)]
#[case::keys(&many(20_000, |n| format!("key{n}: 1\n")), Refusal::Content)]
#[case::one_line(&format!("{{{}}}", many(20_000, |n| format!("key{n}: 1,"))), Refusal::Content)]
fn a_hostile_file_is_refused(#[case] text: &str, #[case] refusal: Refusal) {
    let error = read(text, "topology.yaml").expect_err("refused");
    assert_eq!(error.refusal(), refusal, "{error}");
    assert!(error.to_string().len() < 100_000, "a short message");
}

#[test]
fn a_file_that_is_too_large_has_no_other_finding() {
    let error = read(&"#".repeat(2_000_000), "topology.yaml").expect_err("refused").to_string();
    assert!(error.contains("the file has more than 1048576 bytes"), "{error}");
}

#[test]
fn only_the_first_of_many_findings_are_shown() {
    let error = read(&many(1_000, |n| format!("key{n}: 1\n")), "topology.yaml").expect_err("refused");
    assert_eq!(error.findings().len(), 1_003);
    assert!(error.to_string().ends_with("… and 973 more"), "{error}");
}

fn many(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<String>>().concat()
}

/// Builds nested YAML aliases: each level refers to the one before it ten times.
fn bomb(levels: usize) -> String {
    let level = |n: usize| format!("a{}: &a{} [{}]\n", n + 1, n + 1, format!("*a{n}, ").repeat(10));
    "a0: &a0 [lol]\n".to_owned() + &many(levels, level)
}

/// Checks the properties that hold for every result.
fn check(text: &str) {
    let Err(error) = read(text, "topology.yaml") else { return };
    assert!(!error.findings().is_empty(), "a reason");
    let stripped = text.strip_prefix('\u{feff}').unwrap_or(text);
    for finding in error.findings() {
        assert!(stripped.get(finding.range.clone()).is_some(), "{finding:?} is in the text");
        let line = stripped.split('\n').nth(finding.line - 1).expect("a line");
        assert!(finding.column <= line.chars().count() + 1, "{finding:?} is in the line");
        assert!(!finding.message.contains(char::is_control) && !finding.help.contains(char::is_control), "{finding:?}");
    }
    assert!(!error.to_string().contains('\u{1b}'));
}

/// Generates fragments that have a meaning in YAML or in the file.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "\n",
        "\r",
        "\u{1b}[31m",
        "\u{202e}",
        "\r\n",
        "\t",
        "  ",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "'",
        "|\n",
        ">\n",
        "&a ",
        "*a",
        "<<: *a",
        "#",
        "---\n",
        "...\n",
        "? ",
        "!!str ",
        "!!binary ",
        "!x ",
        "~",
        "null",
        "off",
        "0",
        "-1",
        "1e999",
        ".nan",
        "0x10",
        "5",
        "5s",
        "250ms",
        "3650d",
        "types:",
        "mail:",
        "defaults:",
        "coalesce:",
        "retry:",
        "latest",
        "window:",
        "ä",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "\u{0}",
        "\\e",
        "%YAML 1.2\n",
        "99999999999999999999",
        "ladder:",
        "prefetch:",
        "1",
    ];
    prop::sample::select(pieces.to_vec()).prop_map(str::to_owned)
}

/// Generates the example with some parts replaced.
pub(super) fn mutated() -> impl Strategy<Value = String> {
    let cut = (any::<prop::sample::Index>(), 0_usize..30, prop::option::of(piece()));
    prop::collection::vec(cut, 1..6).prop_map(|cuts| {
        let mut chars: Vec<char> = EXAMPLE.chars().collect();
        for (at, length, piece) in cuts {
            let from = at.index(chars.len().max(1)).min(chars.len());
            let to = (from + length).min(chars.len());
            chars.splice(from..to, piece.unwrap_or_default().chars());
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in "(?s).{0,60}") {
        check(&text);
    }

    #[test]
    fn no_yaml_panics(pieces in prop::collection::vec(piece(), 0..40)) {
        check(&pieces.concat());
    }

    #[test]
    fn no_mutation_of_the_example_panics(text in mutated()) {
        check(&text);
    }

    #[test]
    fn no_ladder_is_refused_without_a_finding(resolution in duration(), horizon in duration()) {
        check(&format!("version: 1\nname: t\nladder: {{ resolution: {resolution}, horizon: {horizon} }}\ntypes: {{ a: {{}} }}"));
    }

    #[test]
    fn no_value_panics(key in prop::sample::select(every_key()), value in "[^\n]{0,20}", top in any::<bool>()) {
        let indentation = if top { "types: { mail: {} }\n" } else { "types:\n  mail:\n    " };
        check(&format!("version: 1\nname: billing\n{indentation}{key}: {value}\n"));
    }
}

/// Generates a duration from a millisecond to ten years, evenly over the orders of magnitude, often near the bounds.
fn duration() -> impl Strategy<Value = String> {
    (prop_oneof![0..39_u32, 36..39_u32], 500..1_000_u64)
        .prop_map(|(bits, part)| format!("{}ms", ((2 << bits) * part / 1_000).clamp(1, 315_360_000_000)))
}

fn every_key() -> Vec<&'static str> {
    levels::LEVELS.iter().flat_map(|level| level.keys).map(|key| key.name).collect()
}
