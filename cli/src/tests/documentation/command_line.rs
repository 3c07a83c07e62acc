//! The page about the command line, from the same definitions as `--help`. Only the book has it.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use clap::{Arg, ArgAction, Command, CommandFactory as _, builder::PossibleValue};

use super::markdown::{code, codes, prose, sentence, table, wrapped};
use crate::{commands::Cli, exit::Exit, help::fitted, verbs::man::with_verbs};

/// Variables that the command reads itself, because they may name a file that holds a URL.
const URLS: [(&str, &str); 3] =
    [("AMQP_URL", "--amqp-url"), ("REDIS_URL", "--redis-url"), ("RABBITMQ_MANAGEMENT_URL", "--management-url")];

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_help = |arg: &Arg| matches!(arg.get_id().as_str(), "help" | "version");
    command.get_arguments().filter(move |arg| !arg.is_hide_set() && !is_help(arg))
}

/// Returns the names of an option, or of an argument, with the value that it takes.
fn names(arg: &Arg) -> String {
    let value = match arg.get_action() {
        ArgAction::Set | ArgAction::Append => {
            let names = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
            names.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = [short, long].into_iter().flatten().collect();
    let Some(last) = names.last() else { return code(&value) };
    let last = if value.is_empty() { last.clone() } else { format!("{last} {value}") };
    let first = names.first().filter(|_| names.len() > 1);
    first.map(|first| code(first) + ", ").unwrap_or_default() + &code(&last)
}

/// Returns what an option means, its default, its variable and its values.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.split("\n\n").map(sentence).collect::<Vec<_>>().join(" ");
    let written = help.split_once(" [default: ").and_then(|(about, rest)| Some((about, rest.split_once(']')?)));
    let (help, default) = match written {
        Some((about, (default, rest))) => (format!("{about}{rest}"), Some(default.to_owned())),
        None => (help, None),
    };
    let given = arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    let takes_a_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let default = default.or(given.filter(|_| takes_a_value));
    let mut text = sentence(&prose(&help));
    if let Some(default) = default {
        let is_value = !default.contains(' ');
        let _ = write!(text, " Default: {}.", if is_value { code(&default) } else { prose(&default) });
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " Variable: `{}`.", variable.to_string_lossy());
    }
    let values = arg.get_possible_values();
    let values: Vec<&str> = values.iter().filter(|value| !value.is_hide_set()).map(PossibleValue::get_name).collect();
    if takes_a_value && !values.is_empty() {
        let _ = write!(text, " Values: {}.", codes(values));
    }
    text
}

fn options<'a>(text: &mut String, head: &str, args: impl Iterator<Item = &'a Arg>) {
    let rows: Vec<[String; 2]> = args.map(|arg| [names(arg), meaning(arg)]).collect();
    if !rows.is_empty() {
        table(text, [head, "meaning"], rows);
        text.push('\n');
    }
}

/// Returns the name of a command, such as `topology events list`.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// Writes what stands below the options in the help: the examples as a block that can be copied, the rest as it is.
fn below(text: &mut String, command: &Command) {
    let Some(below) = command.get_after_long_help().map(ToString::to_string) else { return };
    // The page has a table of the exit codes.
    let parts = below.split("\n\n").filter(|part| !part.starts_with("Exit codes:\n  0"));
    let (examples, rest): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.starts_with("Examples:\n"));
    for examples in examples {
        let _ = write!(text, "```sh\n{}\n```\n\n", commented(examples).join("\n"));
    }
    if !rest.is_empty() {
        let _ = write!(text, "```text\n{}\n```\n\n", rest.join("\n\n"));
    }
}

/// Returns the examples of a help as lines of a shell: what stands in a second column is a comment.
fn commented(examples: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in examples.lines().skip(1).map(|line| line.strip_prefix("  ").unwrap_or(line)) {
        match (line.split_once("  "), lines.last_mut()) {
            (_, Some(before)) if before.ends_with('\\') => lines.push(line.to_owned()),
            (Some(("", more)), Some(before)) => {
                before.push(' ');
                *before += more.trim_start();
            }
            (Some((command, comment)), _) => lines.push(format!("{command}  # {}", comment.trim_start())),
            (None, _) => lines.push(line.to_owned()),
        }
    }
    lines
}

fn verb(text: &mut String, command: &mut Command) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "## {}\n\n{}\n\n", name(command), wrapped(&sentence(&prose(&about))));
    if command.has_subcommands() {
        let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help").map(name);
        let links = verbs.map(|name| format!("[{name}](#{})", super::anchor(&name))).collect::<Vec<_>>().join(", ");
        let _ = write!(text, "{}\n\n", wrapped(&format!("Its commands: {links}.")));
    } else {
        let usage = command.render_usage().to_string();
        let lines = usage.strip_prefix("Usage: ").unwrap_or(&usage).lines().map(str::trim_start);
        let _ = write!(text, "```text\n{}\n```\n\n", lines.collect::<Vec<_>>().join("\n"));
        options(text, "argument", shown(command).filter(|arg| arg.is_positional()));
        options(text, "option", shown(command).filter(|arg| !arg.is_positional() && !arg.is_global_set()));
        let servers = ["file", "amqp_url", "redis_url", "management_url"];
        let common = shown(command).filter(|arg| servers.contains(&arg.get_id().as_str()));
        let common: Vec<String> =
            common.filter_map(|arg| arg.get_long()).map(|long| code(&format!("--{long}"))).collect();
        let and = if common.is_empty() { "all but those of files and servers".to_owned() } else { common.join(", ") };
        let servers = if common.is_empty() { "" } else { " and those of the output" };
        let _ = write!(text, "[Common options](#common-options): {and}{servers}.\n\n");
    }
    below(text, command);
}

fn variables(text: &mut String, commands: &[Command]) {
    let mut rows: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (variable, option) in URLS {
        rows.insert(variable.to_owned(), (code(option), "every command with this option".to_owned()));
        let of_file =
            (code(option), format!("the same: the path of a file that holds the URL, instead of `{variable}`"));
        rows.insert(format!("{variable}_FILE"), of_file);
    }
    for command in commands {
        for arg in shown(command) {
            let (Some(variable), Some(long)) = (arg.get_env(), arg.get_long()) else { continue };
            let whose =
                if arg.is_global_set() { "every command with this option".to_owned() } else { code(&name(command)) };
            rows.insert(variable.to_string_lossy().into_owned(), (code(&format!("--{long}")), whose));
        }
    }
    rows.insert("NO_COLOR".to_owned(), ("`--no-color`".to_owned(), "every command".to_owned()));
    rows.insert(
        "RUST_LOG".to_owned(),
        ("`--verbose`".to_owned(), "every command; it takes precedence over the option".to_owned()),
    );
    let rows = rows.into_iter().map(|(variable, (option, whose))| [code(&variable), option, whose]);
    table(text, ["variable", "option", "command"], rows);
}

/// Returns `topology` and all its commands.
fn commands() -> Vec<Command> {
    with_verbs(fitted(Cli::command().disable_help_subcommand(true)))
}

/// Returns the page.
pub(super) fn page() -> String {
    let commands = commands();
    let (topology, verbs) = commands.split_first().expect("the command");
    let mut text = format!(
        "# The command line\n\n{}\n\n",
        wrapped(
            "What `topology --help` and `topology <command> --help` print, on one page. `-h` is the short form. `topology man` writes \
             the same as manual pages, and `topology completions` completes commands and options in a shell."
        )
    );
    let rows = verbs.iter().filter(|verb| !verb.has_subcommands()).map(|verb| {
        let name = name(verb);
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        [format!("[`{name}`](#{})", super::anchor(&name)), prose(&about)]
    });
    table(&mut text, ["command", "does"], rows);
    text += "\n## Common options\n\nEvery command takes them, before or after its name.\n\n";
    options(&mut text, "option", shown(topology).filter(|arg| arg.is_global_set()));
    text += "## Environment variables\n\n";
    text += &wrapped(
        "An option wins over its variable. An empty variable counts as not set. A URL in two variables is refused. \
         [Connections](../operations/connections.md#connections) has the forms of the URLs.",
    );
    text += "\n\n";
    variables(&mut text, &commands);
    text += "\n## Exit codes\n\n";
    let help = topology.get_after_long_help().expect("a help").to_string();
    let about = |exit: Exit| {
        let start = format!("  {}  ", exit as u8);
        help.lines().find_map(|line| line.strip_prefix(&start)).expect("the help has the code").to_owned()
    };
    table(&mut text, ["code", "means"], Exit::ALL.map(|exit| [(exit as u8).to_string(), prose(&about(exit))]));
    text += "\n";
    text += &wrapped(
        "What they mean for `plan`, `apply` and `destroy`, and the next step: [Pipelines and exit \
         codes](../operations/pipelines.md#pipelines). For the commands of `events`: [Output for \
         scripts](../operations/events.md#output-for-scripts). A program of `topology work --exec` has exit codes of its own: \
         [Answers](../operations/handlers.md#answers).",
    );
    text += "\n\n";
    for command in verbs {
        verb(&mut text, &mut command.clone());
    }
    text.trim_end().to_owned() + "\n"
}

/// `scripts/book` sets the variable to the page's place in the book.
#[test]
fn the_page_of_the_book_has_every_command() {
    let page = page();
    for command in commands().iter().skip(1) {
        assert!(page.contains(&format!("\n## {}\n", name(command))), "no {}", name(command));
    }
    if let Some(file) = std::env::var_os("COMMAND_LINE_PAGE") {
        fs::write(file, page).expect("written");
    }
}
