//! Every command of a page is run by a test, or stands here with the reason why it is not.

use std::{collections::BTreeSet, fs};

use fancy_regex::Regex;

use super::{pages, root};

/// Blocks of commands that no test of `tests/integration/pages` runs: the page, how the block begins, and why.
const NOT_FOLLOWED: &[(&str, &str, &str)] = &[
    ("CONTRIBUTING.md", "$ scripts/check ttl::", BUILDS),
    ("README.md", "cargo install", INSTALLS),
    ("README.md", "scripts/demo", "the step `demo` of scripts/test --all"),
    ("docs/how-to/container.md", "", "needs Docker or systemd; scripts/image --compose runs the demo"),
    ("docs/operations/observe.md", "cp deploy/systemd/hatchery-status", "needs systemd"),
    ("docs/how-to/kubernetes.md", "", "needs a cluster; scripts/image validates the manifests"),
    ("docs/how-to/least-privilege.md", "rabbitmqctl add_vhost", "topology::permissions makes users of its own"),
    ("docs/how-to/least-privilege.md", "# topology plan", "topology::permissions works as these users"),
    ("docs/how-to/least-privilege.md", "ACL SETUSER", "register::access works as these users"),
    ("docs/making-a-release.md", "", "makes a release"),
    ("docs/operations/broken-x-death.md", "$ rabbitmqctl eval", "faults::x_death runs them"),
    ("docs/operations/untranslatable.md", "$ rabbitmqctl", "faults::untranslatable runs them"),
    ("docs/operations/connections.md", "export AMQP_URL", "needs three nodes; connections::cluster has them"),
    ("docs/operations/observe.md", "OTEL_EXPORTER", "scripts/traces runs it"),
    ("docs/reference/command-line.md", "", "the examples of --help, which are parsed; verbs:: has each verb"),
    ("docs/pause-protocol.md", "rabbitmqctl eval", "needs a cluster that RabbitMQ left without a coordinator"),
    ("docs/testing.md", "", BUILDS),
    ("docs/tutorial.md", "cargo install", INSTALLS),
    ("docs/tutorial.md", "docker compose", INSTALLS),
    ("examples/python/README.md", "$ apt-get", INSTALLS),
];

const BUILDS: &str = "builds the project and runs its tests";
const INSTALLS: &str = "installs on the machine";

/// Returns the pages that the integration tests follow: those that they name.
fn followed() -> BTreeSet<String> {
    let name = Regex::new(r#""((?:docs/)?[\w/-]+\.md)""#).expect("a pattern");
    let files = fs::read_dir(root().join("tests/integration/pages")).expect("the tests of pages");
    let texts = files.map(|file| fs::read_to_string(file.expect("a file").path()).expect("a test"));
    let names = texts.flat_map(|text| {
        let found = name.captures_iter(text.as_str()).map(|found| found.expect("a page")[1].to_owned());
        found.collect::<Vec<_>>()
    });
    names.collect()
}

#[test]
fn every_command_of_a_page_is_run_by_a_test_or_says_why_not() {
    let (followed, mut wrong, mut used) = (followed(), Vec::new(), BTreeSet::new());
    assert!(followed.contains("README.md") && followed.len() > 10, "{followed:?}");
    for (path, page) in pages() {
        let path = path.display().to_string();
        let is_followed = followed.contains(&path);
        for block in page.blocks.iter().filter(|block| block.is_of_a_shell()) {
            let known = NOT_FOLLOWED.iter().position(|(page, begin, _)| *page == path && block.text.starts_with(begin));
            used.extend(known);
            if known.is_none() && !(is_followed && (block.language == "console" || block.is_file)) {
                wrong.push(format!("{path}: {}", block.text.lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "neither run by a test nor listed: {wrong:#?}");
    let stale = NOT_FOLLOWED.iter().enumerate().filter(|(n, _)| !used.contains(n)).map(|(_, entry)| entry);
    assert_eq!(stale.collect::<Vec<_>>(), Vec::<&(&str, &str, &str)>::new(), "listed, and not in the page");
}
