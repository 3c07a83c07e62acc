//! Reads `tests/invalid`: topologies that are refused, each with the message about it, in pages by subject.
//!
//! A page has a heading for each case, and below it a block with the YAML and one with the message.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file of `tests/invalid`.
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    title: String,
    pub(crate) cases: Vec<Case>,
}

/// A topology that is refused.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) yaml: String,
    /// Empty in a new case, for which `UPDATE_GOLDEN=1` writes it.
    pub(crate) message: String,
}

pub(crate) fn pages() -> Vec<Page> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests/invalid"));
    let folder = folders.find_map(|folder| fs::read_dir(folder).ok()).expect("the folder is there");
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(Page::read).collect()
}

impl Page {
    /// Fails unless the page is as it would be written: no line of it is passed over.
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).expect("a text");
        let mut sections = text.split("\n## ");
        let title = sections.next().expect("a title").to_owned();
        let page = Self { path, title, cases: sections.map(Case::read).collect() };
        assert!(page.text() == text, "{} would be written as\n{}", page.path.display(), page.text());
        page
    }

    pub(crate) fn text(&self) -> String {
        self.title.clone() + &self.cases.iter().map(Case::text).collect::<String>()
    }
}

impl Case {
    fn read(section: &str) -> Self {
        let (name, blocks) = section.split_once("\n\n```yaml\n").expect("a block of YAML below a heading");
        let (yaml, rest) = blocks.split_once("```\n").expect("the end of the block");
        let message = rest.strip_prefix("\n```text\n").and_then(|rest| rest.strip_suffix("```\n")).unwrap_or_default();
        Self { name: name.to_owned(), yaml: yaml.to_owned(), message: message.to_owned() }
    }

    fn text(&self) -> String {
        let Self { name, yaml, message } = self;
        let block = if message.is_empty() { String::new() } else { format!("\n```text\n{message}```\n") };
        format!("\n## {name}\n\n```yaml\n{yaml}```\n{block}")
    }
}
