//! Shows in each verb's help only the common options that mean something to the verb.

use clap::Command;

/// The options that connect to a server.
const AMQP: &str = "amqp_url";
const REDIS: &str = "redis_url";
const MANAGEMENT: &str = "management_url";
const TLS: [&str; 3] = ["ca_file", "cert_file", "key_file"];
const FILE: &str = "file";
/// The options that name a server of the API.
const SERVER: [&str; 2] = ["server", "token_file"];

/// Returns the command as users see it. A hidden option is still accepted, because a script may give the same options
/// to every verb.
pub(crate) fn fitted(mut command: Command) -> Command {
    // Passes the common options on to the verbs.
    command.build();
    command.mut_subcommands(|verb| {
        let mut unused = unused(verb.get_name());
        if !["publish", "status"].contains(&verb.get_name()) {
            unused.extend(SERVER);
        }
        without(verb, &unused)
    })
}

/// Returns the common options that this verb does not use.
fn unused(verb: &str) -> Vec<&'static str> {
    let servers = [&[AMQP, REDIS, MANAGEMENT][..], &TLS].concat();
    match verb {
        "init" | "validate" | "graph" | "source" | "dev" => servers,
        "schema" | "completions" | "man" => [&servers[..], &[FILE]].concat(),
        // The broker's URL names the virtual host; nothing connects to it.
        "export" => servers.into_iter().filter(|option| *option != AMQP).collect(),
        "publish" | "work" | "dead-letter" | "breaker" => vec![MANAGEMENT],
        _ => Vec::new(),
    }
}

fn without(command: Command, unused: &[&str]) -> Command {
    let command = command.mut_args(|option| {
        let is_unused = unused.contains(&option.get_id().as_str());
        if is_unused { option.hide(true) } else { option }
    });
    command.mut_subcommands(|verb| without(verb, unused))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::*;
    use crate::commands::Cli;

    fn helps(path: &[&str]) -> (String, String) {
        let mut command = fitted(Cli::command());
        for verb in path {
            command = command.find_subcommand(verb).expect("a verb").clone();
        }
        (command.render_help().to_string(), command.render_long_help().to_string())
    }

    #[rstest]
    #[case::validate(&["validate"], &["--file"], &["--amqp-url", "--redis-url", "--management-url", "--ca-file"])]
    #[case::graph(&["graph"], &["--file"], &["--amqp-url", "--redis-url", "--management-url", "--key-file"])]
    #[case::schema(&["schema"], &["--output"], &["--file", "--amqp-url", "--redis-url", "--management-url"])]
    #[case::completions(&["completions"], &[], &["--file", "--amqp-url", "--redis-url", "--management-url"])]
    #[case::man(&["man"], &["--out"], &["--file", "--amqp-url", "--cert-file"])]
    #[case::export(&["export"], &["--file", "--amqp-url"], &["--redis-url", "--management-url", "--ca-file"])]
    #[case::list(&["events", "list"], &["--amqp-url", "--redis-url", "--management-url", "--ca-file"], &[])]
    #[case::letters(&["dead-letter", "list"], &["--amqp-url", "--redis-url", "--ca-file"], &["--management-url"])]
    #[case::publish(&["publish"], &["--amqp-url", "--redis-url", "--ca-file"], &["--management-url"])]
    #[case::plan(&["plan"], &["--file", "--amqp-url", "--redis-url", "--management-url", "--ca-file"], &[])]
    fn a_help_shows_the_options_that_the_verb_uses(
        #[case] path: &[&str],
        #[case] shown: &[&str],
        #[case] hidden: &[&str],
    ) {
        let (_, help) = helps(path);
        for option in shown {
            assert!(help.contains(&format!("{option} <")), "no {option} in\n{help}");
        }
        for option in hidden {
            assert!(!help.contains(&format!("{option} <")), "{option} in\n{help}");
        }
    }

    #[test]
    fn a_hidden_option_is_still_accepted() {
        let typed = ["topology", "validate", "--amqp-url", "amqp://h"];
        assert!(fitted(Cli::command()).try_get_matches_from(typed).is_ok());
    }

    #[test]
    fn the_short_help_is_shorter_and_says_where_more_is() {
        for path in [&["plan"][..], &["work"], &["publish"], &["apply"], &["events", "list"], &[]] {
            let (short, long) = helps(path);
            assert!(short.contains("see more with '--help'"), "{short}");
            assert!(!short.contains("Examples:") && long.contains("Examples:"), "{path:?}");
            assert!(short.lines().count() <= 60, "{path:?} has {} lines", short.lines().count());
        }
    }
}
