//! Compares the page about the log with the source: each message of a warning or an error has a line there, which says whether it is
//! an error, and each line of the page is a message of the source.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The messages and texts of the source, with placeholders as `…`.
#[derive(Default)]
struct Source {
    /// The messages of warnings and errors, with their levels. Some are nothing but a placeholder, and left out.
    said: BTreeMap<String, BTreeSet<String>>,
    /// Every text.
    texts: BTreeSet<String>,
}

impl Source {
    fn read() -> Self {
        let mut source = Self::default();
        let root = super::root();
        let mut folders = vec![root.join("src"), root.join("admin/src"), root.join("cli/src"), root.join("serve/src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.extend((!is_test(&path)).then_some(path));
                } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
                    let code = fs::read_to_string(&path).expect("a file");
                    source.tokens(code.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display())));
                }
            }
        }
        source
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Literal(_) => self.texts.extend(text(token)),
                TokenTree::Group(group) => {
                    let level = at.checked_sub(2).and_then(|at| tokens.get(at)).map(ToString::to_string);
                    if group.delimiter() == Delimiter::Parenthesis
                        && let Some(level) = level.filter(|level| level == "warn" || level == "error")
                        && tokens[at - 1].to_string() == "!"
                        && let Some(message) = message(group.stream())
                    {
                        self.said.entry(message).or_default().insert(level);
                    }
                    self.tokens(group.stream());
                }
                _ => {}
            }
        }
    }
}

fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name == "tests" || name.ends_with("_tests") || name == "documentation" || name == "testing"
}

/// Returns the message of a log macro: its text that is not the name of a field.
fn message(arguments: TokenStream) -> Option<String> {
    let tokens: Vec<TokenTree> = arguments.into_iter().collect();
    let is_name = |at: usize| tokens.get(at + 1).is_some_and(|next| next.to_string() == "=");
    let message = tokens.iter().enumerate().find_map(|(at, token)| text(token).filter(|_| !is_name(at)))?;
    message.contains(char::is_alphabetic).then_some(message)
}

/// Returns a text of the source, with placeholders as `…`.
fn text(token: &TokenTree) -> Option<String> {
    let literal: syn::LitStr = syn::parse2(TokenStream::from(token.clone())).ok()?;
    let (value, mut text, mut depth) = (literal.value().replace("{{", "(").replace("}}", ")"), String::new(), 0_u32);
    for letter in value.chars() {
        match letter {
            '{' => {
                depth += 1;
                text.push('…');
            }
            '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    Some(text)
}

/// Returns the lines of the page with their levels: what is code in the first cells of its tables. An error is marked behind it.
fn lines() -> Vec<(String, &'static str)> {
    let page = fs::read_to_string(super::root().join("docs/reference/log.md")).expect("the page");
    let (mut lines, mut is_first_cell) = (Vec::new(), false);
    for event in Parser::new_ext(&page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::TableRow) => is_first_cell = true,
            Event::End(TagEnd::TableCell) => is_first_cell = false,
            Event::Code(line) if is_first_cell => lines.push((line.into_string(), "warn")),
            Event::Text(text) if is_first_cell && text.starts_with(" (error)") => {
                lines.last_mut().expect("a line before it").1 = "error";
            }
            _ => {}
        }
    }
    lines
}

/// Whether a line of the page is this text, or with ` …` at its end the beginning of it.
fn begins(line: &str, text: &str) -> bool {
    line == text || line.strip_suffix(" …").is_some_and(|start| text.starts_with(start))
}

#[test]
fn the_page_of_the_log_has_every_warning_and_every_error() {
    let (source, lines) = (Source::read(), lines());
    assert!(source.said.len() > 40, "only {} messages were found", source.said.len());
    let missing: Vec<_> = source
        .said
        .iter()
        .filter(|(message, levels)| !lines.iter().any(|(line, level)| begins(line, message) && levels.contains(*level)))
        .collect();
    assert!(missing.is_empty(), "docs/reference/log.md lacks, or has with another level: {missing:#?}");
    let is_gone = |line: &str| !source.texts.iter().any(|text| begins(line, text));
    let gone: Vec<_> = lines.iter().filter(|(line, _)| is_gone(line)).collect();
    assert!(gone.is_empty(), "no longer in the source: {gone:#?}");
}
