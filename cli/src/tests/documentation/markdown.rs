//! Writes Markdown.

use std::fmt::Write as _;

use crate::golden::golden;

/// Fails unless `docs/reference/<name>.md` has this text below the remark that a test writes it.
#[track_caller]
pub(super) fn page(name: &str, text: &str) {
    let remark = "<!-- Written by `UPDATE_GOLDEN=1 scripts/check documentation`. Change the code, not this page. -->";
    golden(&format!("docs/reference/{name}.md"), &format!("{remark}\n\n{text}"));
}

/// Returns a text as code. A text with a backtick gets two around it.
pub(super) fn code(text: &str) -> String {
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// Returns texts as code, separated by commas.
pub(super) fn codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

/// Returns a sentence: the text with a full stop.
pub(super) fn sentence(text: &str) -> String {
    let ends = text.ends_with(['.', ':']) || text.is_empty();
    if ends { text.to_owned() } else { format!("{text}.") }
}

/// Returns a text of the command line with its options, variables and files as code, as plain text has them without marks.
pub(super) fn prose(text: &str) -> String {
    let mut parts: Vec<String> = text.split('`').map(str::to_owned).collect();
    for part in parts.iter_mut().step_by(2) {
        let words: Vec<String> = part.split(' ').map(marked).collect();
        *part = words.join(" ");
    }
    parts.join("`")
}

fn marked(word: &str) -> String {
    let bare = word.trim_end_matches([',', ';', ':', '.', ')', ']']).trim_start_matches(['(', '[']);
    let is_variable = bare.contains('_') && bare.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let is_code = bare.starts_with(['-', '/', '@', ':']) || bare.contains("://") || bare.contains('=') || is_variable;
    if is_code && bare.len() > 1 || bare == "-" { word.replacen(bare, &code(bare), 1) } else { word.to_owned() }
}

/// Appends a table.
pub(super) fn table<const N: usize>(page: &mut String, head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let _ = writeln!(page, "| {} |\n|{}", head.join(" | "), " --- |".repeat(N));
    for row in rows {
        let _ = writeln!(page, "| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
}

/// Returns the text in lines of at most 140 characters. A line does not begin in the middle of code.
pub(super) fn wrapped(text: &str) -> String {
    let (mut lines, mut line, mut is_code) = (Vec::new(), String::new(), false);
    let mut words = text.split(' ').peekable();
    while let Some(first) = words.next() {
        let mut word = first.to_owned();
        is_code ^= word.matches('`').count() % 2 == 1;
        while is_code && let Some(next) = words.next() {
            word = format!("{word} {next}");
            is_code ^= next.matches('`').count() % 2 == 1;
        }
        if !line.is_empty() && line.chars().count() + word.chars().count() >= 140 {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += &word;
    }
    lines.push(line);
    lines.join("\n")
}

#[test]
fn options_and_variables_become_code() {
    assert_eq!(
        prose("without --yes, as @FILE (AMQP_URL) or - of `a --b`"),
        "without `--yes`, as `@FILE` (`AMQP_URL`) or `-` of `a --b`"
    );
    assert_eq!(prose("a well-known text"), "a well-known text");
}
