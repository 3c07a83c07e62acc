//! What clap says of arguments that are wrong. It repeats them, and a URL that stands in the wrong place may have a password.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process,
};

use clap::error::{ContextKind, Error};

use super::exit::Exit;

/// What clap repeats of the arguments.
const REPEATED: [ContextKind; 3] = [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];

/// Variables that clap reads.
const VARIABLES: [&str; 4] = ["TOPOLOGY_FILE", "TOPOLOGY_CA_FILE", "TOPOLOGY_CERT_FILE", "TOPOLOGY_KEY_FILE"];

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
    use clap::Parser as _;
    use rstest::rstest;

    use super::{super::Cli, *};

    #[rstest]
    #[case("plan amqp://u:s3cret@h", "unexpected argument found")]
    #[case("amqp://u:s3cret@h", "unrecognized subcommand")]
    #[case("plan --ampq-url=amqp://u:s3cret@h --file x", "--ampq-url")]
    #[case("plan -o amqp://u:s3cret@h", "`--output <FORMAT>`")]
    #[case("plan -oamqp://u:s3cret@h", "`--output <FORMAT>`")]
    #[case("plan -f amqp://u:s3cret@h", "`--file <PATH>`")]
    #[case("plan --ca-file=amqp://u:s3cret@h", "`--ca-file <PATH>`")]
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
