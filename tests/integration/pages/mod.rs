//! Pages of the documentation, followed as a reader would.
//!
//! The unit tests of the command line (`documentation::commands`) read here which pages are followed.

mod handler;
mod state;

use rstest::rstest;

use crate::support::page::{Otherwise, Reader, follow, read};

#[tokio::test]
async fn the_start_of_the_readme_works() {
    follow(&read("README.md")).await;
}

#[rstest]
#[case::retry("docs/how-to/retry.md")]
#[case::debounce("docs/how-to/debounce.md")]
#[case::pause("docs/how-to/pause.md")]
#[case::breaker("docs/how-to/breaker.md")]
#[case::python_and_node("docs/how-to/worker-in-python-and-node.md")]
#[case::test_a_handler("docs/how-to/test-a-handler.md")]
#[case::schedules("docs/schedules.md")]
#[case::api("docs/how-to/api.md")]
#[case::dev("docs/how-to/dev.md")]
#[tokio::test]
#[ignore = "follows nine pages; scripts/test --all runs it"]
async fn a_page_works(#[case] page: &str) {
    follow(&read(page)).await;
}

#[tokio::test]
#[ignore = "migrates and prunes queues, whose count of 0 has to last 12 s; scripts/test --all runs it"]
async fn the_changes_of_a_topology_in_production_work() {
    follow(&read("docs/how-to/change-in-production.md")).await;
}

/// The commands of the tutorial that need servers, and what a reader without servers does in their place.
const WITHOUT_SERVERS: &[Otherwise] = &[
    Otherwise { command: "topology plan\n", instead: "", why: "asks the broker" },
    Otherwise {
        command: "topology apply --auto-approve\n",
        instead: "",
        why: "`dev` takes over each change of the file",
    },
    Otherwise {
        command: "topology work --type mail --type stock --exec ./send.sh ",
        instead: "\
$ export TOPOLOGY_URL=http://127.0.0.1:8080
$ topology dev --listen 127.0.0.1:8080 --exec ./send.sh 2> worker.log > summary.txt &
$ topology status
shop on …
…",
        why: "`dev` is the broker and the worker",
    },
    Otherwise { command: "topology work --source till ", instead: "", why: SOURCE },
    Otherwise { command: "chmod +x till.sh\n", instead: "", why: SOURCE },
    Otherwise { command: "./till.sh\n", instead: "", why: SOURCE },
    Otherwise { command: "tail -n 1 sent.txt\nstock 4\n", instead: "", why: SOURCE },
    Otherwise { command: "kill %2\n", instead: "", why: SOURCE },
    Otherwise {
        command: "topology status\nshop on RabbitMQ ",
        instead: "$ topology status\nshop on …\n…",
        why: "names RabbitMQ",
    },
    Otherwise {
        command: "cat summary.txt\n",
        instead: "$ cat summary.txt\n…\nThe account:\n…",
        why: "`dev` ends with an account",
    },
    Otherwise { command: "topology destroy ", instead: "", why: "`dev` forgets everything at its end" },
];

const SOURCE: &str = "no other program reaches the broker of `dev`";

#[tokio::test]
#[ignore = "follows a page that takes a reader ten minutes; scripts/test --all runs it"]
async fn the_tutorial_works() {
    follow(&read("docs/tutorial.md")).await;
}

#[tokio::test]
async fn the_tutorial_works_without_servers() {
    let page = read("docs/tutorial.md");
    // The tutorial tells its readers of these commands.
    for other in WITHOUT_SERVERS {
        let started = other.instead.lines().filter_map(|line| line.strip_prefix("$ "));
        for command in started.filter(|command| command.contains("8080")) {
            assert!(page.contains(&format!("`{command}`")), "the tutorial has no `{command}`");
        }
    }
    Reader::without_servers().follow_otherwise(&page, WITHOUT_SERVERS).await;
}
