//! Refuses wrong arguments without showing a password. clap repeats a wrong argument in its message, and other messages
//! repeat a type, a name or a file, but a URL in the wrong place may have a password.

use std::{
    any::TypeId,
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    process,
};

use clap::{
    Arg, ArgMatches, Command,
    builder::Resettable,
    error::{ContextKind, Error, ErrorKind},
};
use hatchery::internals::{
    secret_url::UrlText,
    words::{is_url_with_password, may_be_url},
};

use crate::exit::Exit;

/// The parts of the arguments that clap repeats in its messages.
const REPEATED: [ContextKind; 3] = [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];

/// Returns the command so that an empty environment variable counts as not set.
pub(super) fn without_empty_variables(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(name) if is_empty(name) => argument.env(Resettable::Reset),
        _ => argument,
    });
    command.mut_subcommands(without_empty_variables)
}

/// Refuses a value that may be a URL in an argument that does not take URLs. Also checks the values of environment
/// variables.
pub(super) fn without_misplaced(mut command: Command, matches: ArgMatches) -> Result<ArgMatches, Error> {
    let Some(argument) = misplaced(&command, &matches) else { return Ok(matches) };
    let name = match (argument.get_long(), argument.get_value_names()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => format!("<{name}>"),
        (None, _) => argument.get_id().to_string(),
    };
    let message = format!(
        "`{name}` was given a URL, or a text that may have a password, and takes none\n\nThe value is not repeated. URLs \
         go to --amqp-url, --redis-url, --management-url or --http."
    );
    Err(command.error(ErrorKind::InvalidValue, message))
}

/// Returns the first argument that has such a value and should not.
fn misplaced<'a>(command: &'a Command, matches: &ArgMatches) -> Option<&'a Arg> {
    let here = command.get_arguments().find(|argument| {
        let id = argument.get_id().as_str();
        let mut values = matches.get_raw(id).into_iter().flatten().map(OsStr::to_string_lossy);
        match id {
            _ if is_for_urls(argument) => false,
            "payload" | "body" => values.any(|value| value.strip_prefix('@').is_some_and(may_be_url)),
            // Only the program: its arguments may be URLs.
            "exec" => values.next().is_some_and(|program| may_be_url(&program)),
            _ if is_data(id) => values.any(|value| is_url_with_password(&value)),
            _ => values.any(|value| may_be_url(&value)),
        }
    });
    here.or_else(|| {
        let (verb, matches) = matches.subcommand()?;
        misplaced(command.find_subcommand(verb)?, matches)
    })
}

/// Returns whether the argument takes URLs. Its type keeps the value from being printed.
fn is_for_urls(argument: &Arg) -> bool {
    argument.get_value_parser().type_id() == TypeId::of::<UrlText>()
}

/// Returns whether the argument is data of an event, in which a `:` and an `@` are no sign of a password:
/// `mailto:ada@example.org` is a reference.
fn is_data(id: &str) -> bool {
    matches!(id, "reference" | "reference_prefix" | "id" | "message_id" | "correlation_id" | "reason")
}

/// Ends the process as clap does, but repeats no argument if clap's message would repeat a URL.
pub(super) fn exit(error: &Error, command: &Command, arguments: &[OsString]) -> ! {
    let verbs = std::iter::once(command).chain(command.get_subcommands());
    let variables = verbs.flat_map(Command::get_arguments).filter_map(Arg::get_env).filter_map(std::env::var_os);
    let values = arguments.iter().skip(1).cloned().chain(variables);
    let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
    match without_values(error, &values) {
        None => error.exit(),
        Some(text) => {
            // A closed standard error changes nothing about the exit code.
            let _ = io::stderr().write_all(text.as_bytes());
            process::exit(Exit::Usage as i32)
        }
    }
}

/// Returns the message to print instead of clap's, if clap's would repeat a URL, or a part of a URL that the shell
/// split at a space.
fn without_values(error: &Error, values: &[String]) -> Option<String> {
    // The shell splits a URL whose password has a space, so a part may have only the `@`.
    let may_be_part = |value: &&String| may_be_url(value) || value.rfind('@').is_some_and(|at| at > 0);
    if !error.use_stderr() || !values.iter().any(|value| may_be_part(&value)) {
        return None;
    }
    let is_value = |text: &str| {
        // In `--listen <HOST:PORT>` the user wrote only the name, not the placeholder.
        let name = text.split_once(" <").map_or(text, |(name, _)| name);
        let is_option = name.starts_with('-') && !name.contains(['=', '@', ':']);
        !is_option && values.iter().any(|value| value.contains(text) || text.contains(value.as_str()))
    };
    let repeated = REPEATED.iter().filter_map(|kind| error.get(*kind)).map(ToString::to_string);
    let (values_of_it, options): (Vec<_>, Vec<_>) = repeated.partition(|text| is_value(text));
    let said = error.to_string();
    let says_url = values.iter().filter(may_be_part).any(|value| said.contains(value.as_str()));
    if values_of_it.is_empty() && !says_url {
        return None;
    }
    let of = options.first().map(|option| format!(" for `{option}`")).unwrap_or_default();
    let what = error.kind();
    Some(format!(
        "error: {what}{of}\n\nThe value is not repeated: there is a URL among the arguments, and it may have a \
         password.\nFor more information, try '--help'.\n"
    ))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use rstest::rstest;

    use super::*;
    use crate::{commands::Cli, verbs::work};

    #[rstest]
    #[case("plan amqp://u:s3cret@h", "unexpected argument found")]
    #[case("amqp://u:s3cret@h", "unrecognized subcommand")]
    #[case("plan --ampq-url=amqp://u:s3cret@h --file x", "--ampq-url")]
    #[case("plan -o amqp://u:s3cret@h", "`--output <FORMAT>`")]
    #[case("plan -oamqp://u:s3cret@h", "`--output <FORMAT>`")]
    #[case("publish mail --delay redis://:s3cret@h", "invalid value")]
    #[case("work --type mail --listen http://u:s3cret@h", "`--listen <HOST:PORT>`")]
    #[case("plan --amqp-url amqp://u:my s3cret word@h", "unexpected argument found")]
    #[case("plan --amqp-url amqp://u:my and s3cret@h", "unexpected argument found")]
    fn a_url_in_the_wrong_place_is_not_repeated(#[case] line: &str, #[case] says: &str) {
        let values: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Err(error) = Cli::try_parse_from([&["topology".to_owned()][..], &values].concat()) else {
            panic!("parsed")
        };
        let said = without_values(&error, &values).unwrap_or_else(|| error.to_string());
        assert!(!said.contains("s3cret") && said.contains(says), "{said}");
    }

    fn checked(line: &str) -> Result<ArgMatches, Error> {
        let words = ["topology"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
        let words = work::ours_first(words, &Cli::command());
        without_misplaced(Cli::command(), Cli::command().try_get_matches_from(words).expect("clap takes it"))
    }

    #[rstest]
    #[case("plan -f amqp://u:s3cret@h", "`--file`")]
    #[case("-f amqp://u:s3cret@h plan", "`--file`")]
    #[case("plan -famqp://u:s3cret@h", "`--file`")]
    #[case("plan --ca-file=amqp://u:s3cret@h", "`--ca-file`")]
    #[case("plan --out=amqp://u:s3cret@h", "`--out`")]
    #[case("apply amqp://u:s3cret@h", "`<PLAN>`")]
    #[case("apply amqp://u:12/s3cret@h", "`<PLAN>`")]
    #[case("publish amqp://s3cret@h", "`<TYPE>`")]
    #[case("publish mail --payload @amqp://u:s3cret@h", "`--payload`")]
    #[case("publish mail --reference amqp://u:s3cret@h/v", "`--reference`")]
    #[case("events show --id amqp://u:s3cret@h/v", "`--id`")]
    #[case("work --type mail --type amqp://u:s3cret@h --exec ls", "`--type`")]
    #[case("work --type mail --exec amqp://u:s3cret@h", "`--exec`")]
    #[case("work --type mail --exec -- amqp://u:s3cret@h", "`--exec`")]
    #[case("work --exec true --type=amqp://u:s3cret@h", "`--type`")]
    fn a_url_is_refused_in_an_argument_that_takes_none(#[case] line: &str, #[case] says: &str) {
        let said = checked(line).expect_err("refused").to_string();
        assert!(!said.contains("s3cret") && said.contains(says), "{said}");
    }

    #[rstest]
    #[case("plan --amqp-url amqp://u:s3cret@h --redis-url=redis://:s3cret@h --management-url http://u:s3cret@h")]
    #[case("work --type mail --http http://u:s3cret@h")]
    #[case("work --type mail --http @http://u:s3cret@h")]
    #[case("work --type mail --exec psql postgres://u:s3cret@h")]
    #[case("work --type mail --exec true -- amqp://u:s3cret@h --type amqp://u:s3cret@h")]
    #[case("publish mail --payload \"amqp://u:s3cret@h\"")]
    #[case("publish mail --reference https://example.org/@ada --id a@b")]
    #[case("publish mail --reference ssh://git@github.com/x --id https://ada@example.org/x")]
    #[case("events show --type mail --reference mailto:ada@example.org")]
    #[case(
        "source test hr {\"mail\":\"ann@example.org\",\"url\":\"https://ann@example.org/x\"} --message-id urn:a:b@c"
    )]
    #[case("apply --moved-from rabbit@host -f /srv/app@2/topology.yaml")]
    fn a_url_is_accepted_where_it_belongs(#[case] line: &str) {
        checked(line).expect("taken");
    }

    /// Mistyped forms of `amqp://u:s3cret@h`: texts with a password between a `:` and an `@`, and URLs.
    const SLIPS: [&str; 36] = [
        "amqp://u:s3cret@h",
        "amqp://u:s3cret@h:5672/v",
        "amqps://u:s3cret@h/v",
        "redis://:s3cret@h",
        "AMQP://u:s3cret@h",
        "amqp://u:s3/cret-s3cret@h",
        "amqp://u:73219/s3cret@h",
        "amqp://u:s3cret#s3cret@h",
        "amqp://u:s3cret?s3cret@h",
        "amqp://u:s3cret@s3cret@h",
        "amqp://u:s3cret\\s3cret@h",
        "amqp://u:s3cret,s3cret@h",
        "amqp://u:s3cret@h/v;amqp://u:s3cret@h/v",
        "amqp://u:s3cret@h/v,u:s3cret@h/v",
        "amqp://u:s3cret@h\namqp://u:s3cret@h",
        "amqp:///u:s3cret@h",
        "http://u:s3cret@h/path?x=y#z",
        "\"amqp://u:s3cret@h\"",
        "'amqp://u:s3cret@h'",
        "AMQP_URL=amqp://u:s3cret@h",
        "--amqp-url=amqp://u:s3cret@h",
        "@amqp://u:s3cret@h",
        "\u{feff}amqp://u:s3cret@h",
        // Without a scheme, or without its slashes.
        "u:s3cret@h",
        ":s3cret@h",
        "u:s3/cret-s3cret@h/v",
        "amqp:u:s3cret@h",
        "amqp:/u:s3cret@h",
        "amqp//u:s3cret@h",
        "//u:s3cret@h/v",
        "@u:s3cret@h",
        " u:s3cret@h",
        // Without an `@`.
        "amqp://u:s3cret",
        "s3cret://h",
        "amqp://u%3As3cret%40h",
        "redis://s3cret@h",
    ];

    /// Returns the arguments that the verb requires besides this one.
    fn before(verbs: &[&str], argument: &str) -> &'static [&'static str] {
        match (verbs, argument) {
            (["publish"], "rejects") => &["--batch", "x"],
            (["publish"], id) if !matches!(id, "batch" | "event_type") => &["mail"],
            (["work"], "exec" | "http") => &["--type", "mail"],
            (["work"], "types") => &["--http", "http://h"],
            (["work"], _) => &["--type", "mail", "--http", "http://h"],
            (["events", "reschedule"], id) if id != "to" => &["--to", "2026-06-01T09:00:00Z"],
            (["completions"], id) if id != "shell" => &["bash"],
            _ => &[],
        }
    }

    /// Collects all arguments of all verbs that take a value.
    fn arguments(command: &Command, verbs: &[&'static str], found: &mut Vec<(Vec<&'static str>, Arg)>) {
        for verb in command.get_subcommands() {
            let name: &'static str = String::leak(verb.get_name().to_owned());
            arguments(verb, &[verbs, &[name]].concat(), found);
        }
        if !command.has_subcommands() {
            let takes_values = |argument: &&Arg| argument.get_action().takes_values();
            found.extend(
                command.get_arguments().filter(takes_values).map(|argument| (verbs.to_vec(), argument.clone())),
            );
        }
    }

    #[test]
    fn no_argument_of_any_verb_shows_or_accepts_a_mistyped_url() {
        let mut topology = Cli::command().disable_help_subcommand(true);
        topology.build();
        let mut found = Vec::new();
        arguments(&topology, &[], &mut found);
        assert!(found.len() > 150, "{}", found.len());
        let mut wrong = Vec::new();
        let unbuilt = Cli::command();
        // Each argument is tried with every sixth slip, and each slip with every sixth argument.
        let pairs = found
            .iter()
            .enumerate()
            .flat_map(|(number, one)| SLIPS.iter().skip(number % 6).step_by(6).map(move |slip| (one, *slip)));
        for ((verbs, argument), slip) in pairs {
            let mut words = vec!["topology".to_owned()];
            let before = before(verbs, argument.get_id().as_str());
            words.extend(verbs.iter().chain(before).map(|word| (*word).to_owned()));
            match argument.get_long() {
                Some("exec") => words.extend(["--exec".to_owned(), slip.to_owned()]),
                Some(long) => words.push(format!("--{long}={slip}")),
                None => words.extend(["--".to_owned(), slip.to_owned()]),
            }
            let matches = unbuilt.clone().try_get_matches_from(&words);
            let refused = matches.and_then(|matches| without_misplaced(unbuilt.clone(), matches));
            let what = format!("{verbs:?} {} {slip}", argument.get_id());
            match refused {
                Ok(_) if is_for_urls(argument) => {}
                Ok(_) if argument.get_long() == Some("payload") && !slip.starts_with('@') => {}
                Ok(_) if is_data(argument.get_id().as_str()) && !is_url_with_password(slip) => {}
                Ok(_) => wrong.push(format!("{what} is taken")),
                Err(error) => {
                    let said = without_values(&error, &words).unwrap_or_else(|| error.to_string());
                    if said.contains("s3cret") {
                        wrong.push(format!("{what} is shown"));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[rstest]
    #[case("plan --bogus", "--bogus")]
    #[case("plan bogus", "bogus")]
    #[case("plan --amqp-url amqp://u:s3cret@h --bogus", "--bogus")]
    #[case("publish mail --payload @file --delay -5s", "-5s")]
    fn a_wrong_argument_that_is_no_url_is_repeated(#[case] line: &str, #[case] says: &str) {
        let values: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Err(error) = Cli::try_parse_from([&["topology".to_owned()][..], &values].concat()) else {
            panic!("parsed")
        };
        assert_eq!(without_values(&error, &values), None);
        assert!(error.to_string().contains(says), "{error}");
    }
}
