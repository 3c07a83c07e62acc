//! Checks the project's Markdown: its links, its examples of YAML and JSON, and its command lines. Writes the pages of the
//! reference. They are golden files, except that of the command line, which only the book has.

mod command_line;
mod followed;
mod headers;
mod log;
mod markdown;
mod metrics;
mod topology_yaml;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use schemars::generate::SchemaSettings;

use crate::{commands::Cli, golden::golden};

/// A page: what it links to, its headings as anchors, and its blocks of code with their languages.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
    blocks: Vec<Block>,
}

#[derive(Default)]
struct Block {
    language: String,
    text: String,
    /// The paragraph before it names the file that it is, and ends with a colon.
    is_file: bool,
}

impl Block {
    fn is_of_a_shell(&self) -> bool {
        ["console", "sh", "bash"].contains(&self.language.as_str())
    }
}

impl Page {
    fn parse(text: &str) -> Self {
        let (mut page, mut heading, mut block) = (Self::default(), None::<String>, None::<Block>);
        let (mut paragraph, mut file) = (String::new(), None::<String>);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().expect("a heading"));
                    let before = seen.entry(anchor.clone()).or_default();
                    page.anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
                    *before += 1;
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    let is_file = paragraph.ends_with(':') && file.as_ref().is_some_and(|name| name.contains('.'));
                    block = Some(Block { language: language.into_string(), is_file, ..Block::default() });
                    (paragraph, file) = (String::new(), None);
                }
                Event::Start(Tag::Paragraph) => (paragraph, file) = (String::new(), None),
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Code(text) => {
                    paragraph += &text;
                    if let Some(heading) = &mut heading {
                        *heading += &text;
                    }
                    file.get_or_insert_with(|| text.into_string());
                }
                Event::Text(text) => {
                    paragraph += &text;
                    if let Some(heading) = &mut heading {
                        *heading += &text;
                    }
                    if let Some(block) = &mut block {
                        block.text += &text;
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// Returns the commands of the page: `topology` and its arguments, as a shell would split them.
    fn commands(&self) -> Vec<Vec<String>> {
        let shells = self.blocks.iter().filter(|block| block.is_of_a_shell());
        let text: String = shells.map(|block| block.text.replace("\\\n", " ") + "\n").collect();
        text.lines().filter_map(command).collect()
    }
}

/// Returns the anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns `topology` and its arguments if a line of a shell begins with that command.
fn command(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line.trim_start_matches("$ "))?;
    let is_variable = |word: &&String| word.split_once('=').is_some_and(|(name, _)| name == name.to_uppercase());
    let ends = |word: &&String| !["|", "||", "&&", "&", ">", ">>", "<", "2>", "&>"].contains(&word.as_str());
    let words: Vec<String> = words
        .iter()
        .skip_while(is_variable)
        .take_while(ends)
        .map(|word| word.trim_end_matches(';').to_owned())
        .collect();
    (words.first().is_some_and(|program| program == "topology")).then_some(words)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project").to_owned()
}

/// Returns the project's pages by their paths in it, and the page that only the book has.
fn pages() -> BTreeMap<PathBuf, Page> {
    let (root, mut pages) = (root(), BTreeMap::new());
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                let is_ours = ["docs", "examples", "deploy", ".github"].iter().any(|ours| path.starts_with(ours));
                folders.extend(is_ours.then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(root.join(&path)).expect("a page");
                pages.insert(path, Page::parse(&text));
            }
        }
    }
    assert!(pages.len() > 15, "{:?}", pages.keys());
    pages.insert("docs/reference/command-line.md".into(), Page::parse(&command_line::page()));
    pages
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_of_it() {
    let (pages, mut wrong) = (pages(), Vec::new());
    for (path, page) in &pages {
        for link in page.links.iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { resolved(path, file) };
            // Of the pages in the repository, only the contents of the book may name the page that only the book has.
            let is_of_the_book = file.is_empty() || path.ends_with("SUMMARY.md");
            let exists = root().join(&target).exists() || is_of_the_book && pages.contains_key(&target);
            let has_anchor = anchor.is_empty() || pages.get(&target).is_some_and(|page| page.anchors.contains(anchor));
            if !exists || !has_anchor {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the path of a link's target in the project.
fn resolved(from: &Path, link: &str) -> PathBuf {
    let mut target = from.parent().expect("a folder").to_owned();
    for part in Path::new(link) {
        if part == ".." { _ = target.pop() } else { target.push(part) }
    }
    target
}

/// The book has no other pages, so that such a link would lead nowhere.
#[test]
fn the_pages_of_the_book_link_to_nothing_outside_it() {
    let pages = pages();
    let book = pages.iter().filter(|(path, _)| path.starts_with("docs"));
    let outside: Vec<String> = book
        .flat_map(|(path, page)| page.links.iter().map(move |link| (path, link)))
        .filter(|(path, link)| !link.contains("://") && !resolved(path, link).starts_with("docs"))
        .map(|(path, link)| format!("{}: {link}", path.display()))
        .collect();
    assert!(outside.is_empty(), "{outside:#?}");
}

#[test]
fn the_servers_of_docker_compose_are_of_versions_that_are_tested() {
    let text = |path: &str| fs::read_to_string(root().join(path)).expect("a file");
    let (compose, page) = (text("docker-compose.yml"), text("docs/operations.md"));
    let tested = page.lines().find(|line| line.starts_with("The tests run on ")).expect("the tested versions");
    let (rabbitmq, redis) = tested.split_once("Redis").expect("both servers");
    for (tested, image) in [(rabbitmq, "rabbitmq"), (redis, "redis")] {
        let (_, tag) = compose.split_once(&format!(":-{image}:")).expect("an image");
        let version = tag.split(['-', '}']).next().expect("a version");
        let versions: Vec<&str> = tested.split([' ', ',']).map(|word| word.trim_end_matches('.')).collect();
        assert!(versions.contains(&version), "{image} {version}, but {versions:?}");
    }
}

#[test]
fn every_command_of_a_page_is_one_that_topology_accepts() {
    let mut wrong = Vec::new();
    let mut commands = 0;
    for (path, page) in pages() {
        for words in page.commands() {
            commands += 1;
            let parsed = Cli::command().try_get_matches_from(crate::verbs::work::ours_first(
                words.iter().map(Into::into).collect(),
                &Cli::command(),
            ));
            if let Err(error) = parsed
                && error.use_stderr()
            {
                wrong.push(format!("{}: {}: {error}", path.display(), words.join(" ")));
            }
        }
    }
    assert!(commands > 80, "only {commands} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without an id the copies of a message are two events, and both run.
#[test]
fn every_message_that_python_publishes_in_a_page_has_an_id() {
    let pages = pages();
    let blocks = pages.iter().flat_map(|(path, page)| page.blocks.iter().map(move |block| (path, block)));
    let sent: Vec<_> = blocks.filter(|(_, block)| block.text.contains("BasicProperties(")).collect();
    let without: Vec<_> =
        sent.iter().filter(|(_, block)| !block.text.contains("message_id=")).map(|(path, _)| path).collect();
    assert!(sent.len() >= 2 && without.is_empty(), "{without:?} of {}", sent.len());
}

#[test]
fn every_topology_of_a_page_is_valid_and_every_block_of_json_is_json() {
    let mut wrong = Vec::new();
    for (path, page) in pages() {
        for Block { language, text: block, .. } in &page.blocks {
            let read = match language.as_str() {
                "yaml" if block.starts_with("version: 1\n") => {
                    hatchery::file::read(block, "topology.yaml").map(drop).map_err(|error| error.to_string())
                }
                // One or more values.
                "json" => serde_json::Deserializer::from_str(block)
                    .into_iter::<serde_json::Value>()
                    .collect::<Result<Vec<_>, _>>()
                    .map(drop)
                    .map_err(|error| error.to_string()),
                _ => Ok(()),
            };
            if let Err(error) = read {
                wrong.push(format!("{}: {error}\n{block}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the JSON Schema of the records on the stream of the life of events.
#[test]
fn the_schema_of_a_record_is_in_the_reference() {
    let settings = SchemaSettings::default().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<hatchery::LifeCycleRecord>().to_value();
    let text = serde_json::to_string_pretty(&schema).expect("JSON");
    golden("docs/reference/life-cycle.schema.json", &format!("{text}\n"));
}
