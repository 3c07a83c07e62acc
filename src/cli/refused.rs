//! Arguments that are refused. clap repeats what is wrong with them, and others repeat a type, a name or a file: a URL that
//! stands in the wrong place may have a password.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    process,
};

use clap::{
    Arg, ArgMatches, Command,
    error::{ContextKind, Error, ErrorKind},
};

use super::exit::Exit;

/// What clap repeats of the arguments.
const REPEATED: [ContextKind; 3] = [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];

/// Variables that clap reads.
const VARIABLES: [&str; 4] = ["TOPOLOGY_FILE", "TOPOLOGY_CA_FILE", "TOPOLOGY_CERT_FILE", "TOPOLOGY_KEY_FILE"];

/// Refuses a URL with credentials in an argument that is not for URLs.
pub(super) fn without_misplaced(mut command: Command, matches: ArgMatches) -> Result<ArgMatches, Error> {
    let Some(argument) = misplaced(&command, &matches) else { return Ok(matches) };
    let name = match (argument.get_long(), argument.get_value_names()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => format!("<{name}>"),
        (None, _) => argument.get_id().to_string(),
    };
    let message = format!(
        "`{name}` was given a URL with a user or a password, and takes none\n\nIt is not repeated. URLs go to --amqp-url, \
         --redis-url, --management-url or --http."
    );
    Err(command.error(ErrorKind::InvalidValue, message))
}

/// The argument that has such a URL.
fn misplaced<'a>(command: &'a Command, matches: &ArgMatches) -> Option<&'a Arg> {
    let here = command.get_arguments().find(|argument| {
        let id = argument.get_id().as_str();
        let values = matches.get_raw(id).into_iter().flatten().map(OsStr::to_string_lossy);
        match id {
            "amqp_url" | "redis_url" | "management_url" | "http" => false,
            // The arguments of the program that `--exec` runs are not ours to judge.
            "exec" => values.take(1).any(|value| has_credentials(&value, false)),
            "payload" => values.filter(|value| value.starts_with('@')).any(|value| has_credentials(&value, false)),
            "reference" | "reference_prefix" | "id" | "correlation_id" | "reason" => {
                values.into_iter().any(|value| has_credentials(&value, true))
            }
            _ => values.into_iter().any(|value| has_credentials(&value, false)),
        }
    });
    here.or_else(|| {
        let (verb, matches) = matches.subcommand()?;
        misplaced(command.find_subcommand(verb)?, matches)
    })
}

/// Whether a text has a URL with a user or a password. What is wrong in such a URL may put an `@` anywhere behind the scheme. In
/// the data of an event an `@` counts before the path alone: `https://example.org/@ada` is a reference.
fn has_credentials(text: &str, is_data: bool) -> bool {
    text.split("://").skip(1).any(|rest| {
        let end = if is_data { rest.find(['/', '?', '#']) } else { None };
        rest[..end.unwrap_or(rest.len())].contains('@')
    })
}

/// Ends the process as clap does, but repeats nothing where a URL is among the arguments.
pub(super) fn exit(error: &Error, arguments: &[OsString]) -> ! {
    let values = arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let values: Vec<String> = values.chain(VARIABLES.iter().filter_map(|name| std::env::var(name).ok())).collect();
    match without_values(error, &values) {
        None => error.exit(),
        Some(text) => {
            // Nobody may be there to read it.
            let _ = io::stderr().write_all(text.as_bytes());
            process::exit(Exit::Usage as i32)
        }
    }
}

/// What to say instead of what clap says, where clap would repeat a URL, or a part of one that a shell has cut at a blank.
fn without_values(error: &Error, values: &[String]) -> Option<String> {
    let may_be_url = |value: &&String| value.contains("://") || value.rfind('@').is_some_and(|at| at > 0);
    if !error.use_stderr() || !values.iter().any(|value| may_be_url(&value)) {
        return None;
    }
    let is_value = |text: &str| {
        // Of `--listen <HOST:PORT>` the placeholder is ours.
        let name = text.split_once(" <").map_or(text, |(name, _)| name);
        let is_option = name.starts_with('-') && !name.contains(['=', '@', ':']);
        !is_option && values.iter().any(|value| value.contains(text) || text.contains(value.as_str()))
    };
    let repeated = REPEATED.iter().filter_map(|kind| error.get(*kind)).map(ToString::to_string);
    let (values_of_it, options): (Vec<_>, Vec<_>) = repeated.partition(|text| is_value(text));
    let said = error.to_string();
    let says_url = values.iter().filter(may_be_url).any(|value| said.contains(value.as_str()));
    if values_of_it.is_empty() && !says_url {
        return None;
    }
    let of = options.first().map(|option| format!(" for `{option}`")).unwrap_or_default();
    let what = error.kind();
    Some(format!(
        "error: {what}{of}\n\nIt is not repeated: there is a URL among the arguments, and it may have a password.\nFor more information, try \
         '--help'.\n"
    ))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use rstest::rstest;

    use super::{super::Cli, *};

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
        let words = ["topology"].into_iter().chain(line.split(' '));
        without_misplaced(Cli::command(), Cli::command().try_get_matches_from(words).expect("clap takes it"))
    }

    #[rstest]
    #[case("plan -f amqp://u:s3cret@h", "`--file`")]
    #[case("-f amqp://u:s3cret@h plan", "`--file`")]
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
    fn a_url_is_refused_in_an_argument_that_takes_none(#[case] line: &str, #[case] says: &str) {
        let said = checked(line).expect_err("refused").to_string();
        assert!(!said.contains("s3cret") && said.contains(says), "{said}");
    }

    #[rstest]
    #[case("plan --amqp-url amqp://u:s3cret@h --redis-url=redis://:s3cret@h --management-url http://u:s3cret@h")]
    #[case("work --type mail --http http://u:s3cret@h")]
    #[case("work --type mail --http @http://u:s3cret@h")]
    #[case("work --type mail --exec psql postgres://u:s3cret@h --type=postgres://u:s3cret@h")]
    #[case("publish mail --payload \"amqp://u:s3cret@h\"")]
    #[case("publish mail --reference https://example.org/@ada --id a@b")]
    #[case("apply --moved-from rabbit@host -f http://host/a")]
    fn a_url_is_taken_where_it_belongs(#[case] line: &str) {
        checked(line).expect("taken");
    }

    #[rstest]
    #[case("plan --bogus", "--bogus")]
    #[case("plan bogus", "bogus")]
    #[case("plan --amqp-url amqp://u:s3cret@h --bogus", "--bogus")]
    #[case("publish mail --payload @file --delay -5s", "-5s")]
    fn another_argument_is_repeated(#[case] line: &str, #[case] says: &str) {
        let values: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Err(error) = Cli::try_parse_from([&["topology".to_owned()][..], &values].concat()) else {
            panic!("parsed")
        };
        assert_eq!(without_values(&error, &values), None);
        assert!(error.to_string().contains(says), "{error}");
    }
}
