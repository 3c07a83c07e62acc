//! `topology init`: writes a topology file to start from.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use hatchery::{
    file::{SCHEMA_FILE, schema, starter},
    internals::words::Word,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::Common,
    exit::{Ended, Exit},
    output::Output,
    text::sentence,
};

/// Write a topology.yaml to start from
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology init
  topology init --name billing
  topology init -f deploy/billing.yaml     also writes the schema into deploy

Writes topology.yaml (or the file of -f) with two types as an example and a
comment for each key. Beside it, writes topology.schema.json, from which editors
complete. Without --force an existing topology.yaml or a schema of another
version is left as it is; `topology schema` prints the schema of this version.")]
pub(crate) struct Args {
    /// The topology's name, the first word of every object on the broker [default: the folder's name]
    #[arg(long)]
    name: Option<Word>,

    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// The answer of `topology init`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The name of the topology.
    name: String,
    /// The file that was written.
    file: PathBuf,
    /// The file of its schema.
    schema: PathBuf,
}

/// The result of writing the schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Schema {
    Written,
    /// The file existed already, with this schema.
    Same,
    /// Another schema existed, and was left as it is.
    Kept,
}

pub(crate) fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let file = common.file.as_path();
    let name = args.name.clone().unwrap_or_else(|| folder_name(file));
    write_new(file, &starter(&name), args.force)?;
    let schema_file = file.with_file_name(SCHEMA_FILE);
    let schema = write_schema(&schema_file, args.force)
        .with_context(|| format!("{} is written, but its schema is not", file.display()))?;
    if !output.is_text() {
        output.json(&Answer { name: name.to_string(), file: file.to_owned(), schema: schema_file })?;
        return Ok(Exit::Done);
    }
    if schema == Schema::Kept {
        let path = schema_file.display();
        output.warn(&format!(
            "{path} is the schema of another version and was left as it is; `topology schema > {path}` renews it"
        ));
    }
    let new_schema = (schema == Schema::Written).then_some(schema_file.as_path());
    output.print(&screen(&name, file, new_schema, Output::columns()))?;
    Ok(Exit::Done)
}

/// Returns what was written, and the next steps for the user. Commands are not folded, so that they can be copied.
fn screen(name: &Word, file: &Path, new_schema: Option<&Path>, columns: usize) -> String {
    let written = match new_schema {
        Some(schema) => format!("{} and {}", file.display(), schema.display()),
        None => file.display().to_string(),
    };
    let written = sentence(&format!("Written: {written}."), columns);
    let named = format!("The topology's name is `{name}`. To use another name, change it before the first apply.");
    let named = sentence(&named, columns);
    let file = match file.to_str() {
        Some("topology.yaml") => String::new(),
        _ => format!(" -f {}", quoted(&file.to_string_lossy())),
    };
    format!(
        "\
{written}{named}
Next:
  topology validate{file}
  topology graph{file}
  topology plan{file}
  topology apply{file}
  topology publish mail --payload '{{}}' --delay 5s{file}
  topology work --type mail{file} --exec cat
"
    )
}

/// Quotes a word for the shell, if it needs quotes.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@:,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Returns the name of the file's folder as a word, or `billing` if the name has no characters that a word may have.
fn folder_name(file: &Path) -> Word {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let folder = fs::canonicalize(parent).unwrap_or_else(|_| PathBuf::from(parent));
    let folder = folder.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let mut word: String = folder.chars().map(plain).collect();
    word.truncate(64);
    word.trim_matches('-').parse().unwrap_or_else(|_| "billing".parse().expect("a word"))
}

/// Writes the file. Overwrites an existing file only with `force`.
fn write_new(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    if !force {
        options.create_new(true);
    }
    match options.open(path).and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{} is there already; --force overwrites it", path.display());
            Err(Ended::new(Exit::Error, message).into())
        }
        written => written.with_context(|| format!("cannot write {}", path.display())),
    }
}

fn write_schema(path: &Path, force: bool) -> anyhow::Result<Schema> {
    let text = serde_json::to_string_pretty(&schema())? + "\n";
    match fs::read_to_string(path) {
        Ok(found) if found == text => return Ok(Schema::Same),
        Ok(_) if !force => return Ok(Schema::Kept),
        _ => {}
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Schema::Written)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::golden::screens;

    /// The golden screens: `tests/screens/init.txt`. `UPDATE_GOLDEN=1` writes them anew.
    #[test]
    fn an_answer_is_as_it_was_drawn() {
        let name = "billing".parse().expect("a word");
        let (file, schema) = (Path::new("topology.yaml"), Path::new(SCHEMA_FILE));
        screens("init/new", |columns| screen(&name, file, Some(schema), columns));
        screens("init/old-schema", |columns| screen(&name, file, None, columns));
        let file = Path::new("my deploy/billing.yaml");
        let schema = file.with_file_name(SCHEMA_FILE);
        screens("init/elsewhere", |columns| screen(&name, file, Some(&schema), columns));
    }

    #[rstest]
    #[case("a/größe.yaml", "a/größe.yaml")]
    #[case("my app.yaml", "'my app.yaml'")]
    #[case("it's", r"'it'\''s'")]
    fn a_path_is_quoted_as_one_word(#[case] path: &str, #[case] word: &str) {
        assert_eq!(quoted(path), word);
    }

    #[rstest]
    #[case("billing", "billing")]
    #[case("my app.v2", "my-app-v2")]
    #[case("größe", "gr--e")]
    #[case("…", "billing")]
    fn a_folder_gives_its_name(#[case] folder: &str, #[case] name: &str) {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join(folder);
        fs::create_dir(&folder).expect("a folder");
        assert_eq!(folder_name(&folder.join("topology.yaml")).as_str(), name);
    }
}
