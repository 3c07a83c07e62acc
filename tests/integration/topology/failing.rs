//! Each failure has its exit code and a message that says what to do, without a password.

use super::TOPOLOGY;
use crate::support::{
    broker::{Another, PASSWORD},
    cli::Bench,
};

/// An address on this machine where nothing listens.
const NOWHERE: &str = "127.0.0.1:1";

#[test]
fn an_apply_without_a_terminal_needs_auto_approve() {
    let bench = Bench::new(TOPOLOGY);
    let ran = bench.expect(2, &["apply"]);
    assert!(ran.stderr.contains("--auto-approve"), "{ran:?}");
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
    // A `y` from a pipe does not count as approval.
    bench.command(&["apply"]).write_stdin("y\n").assert().code(2);
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn an_unreachable_broker_ends_with_exit_code_6() {
    let bench = Bench::new(TOPOLOGY);
    let amqp = format!("amqp://app:{PASSWORD}@{NOWHERE}/x");
    let management = format!("http://app:{PASSWORD}@{NOWHERE}");
    for verb in [&["plan"][..], &["apply", "--auto-approve"]] {
        let ran = bench.expect(6, &[verb, &["--management-url", &management]].concat());
        assert!(ran.stderr.contains(NOWHERE) && ran.stderr.contains("unreachable"), "{ran:?}");
        assert!(ran.stderr.contains("help: is the broker running? Check --management-url"), "{ran:?}");
    }
    let ran = bench.expect(6, &["apply", "--auto-approve", "--amqp-url", &format!("{amqp}?x={PASSWORD}")]);
    assert!(ran.stderr.contains("virtual host `x`"), "{ran:?}");
    let amqp = amqp.replace("/x", &format!("/{}", bench.host.name));
    let ran = bench.expect(6, &["apply", "--auto-approve", "--amqp-url", &amqp]);
    assert!(ran.stderr.contains(NOWHERE) && ran.stderr.contains("unreachable"), "{ran:?}");
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn a_wrong_password_ends_with_exit_code_6() {
    let bench = Bench::new(TOPOLOGY);
    // The right password with something appended, so that the output must not show it either.
    let wrong = |url: String| url.replace(PASSWORD, &format!("{PASSWORD}x"));
    let (amqp, management) = (wrong(bench.host.amqp()), wrong(bench.host.management()));
    let ran = bench.expect(6, &["plan", "--management-url", &management]);
    assert!(ran.stderr.contains("401") && ran.stderr.contains("check the user, the password"), "{ran:?}");
    let ran = bench.expect(6, &["apply", "--auto-approve", "--amqp-url", &amqp]);
    assert!(ran.stderr.contains("ACCESS_REFUSED"), "{ran:?}");
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn an_apply_without_permission_says_what_is_written_and_what_is_left() {
    let bench = Bench::new(TOPOLOGY);
    bench.host.permit("^billing\\.(lock|unrouted|control)");
    let ran = bench.expect(5, &["apply", "--auto-approve"]);
    assert!(ran.stderr.contains("ACCESS_REFUSED"), "{ran:?}");
    assert!(ran.stderr.contains("; 7 written, left: exchange billing.dead-letter, exchange"), "{ran:?}");
    bench.host.permit("^billing\\.");
    bench.apply();
    bench.expect(0, &["plan", "--detailed-exitcode"]);
}

#[test]
fn an_invalid_url_is_a_usage_error() {
    let bench = Bench::new(TOPOLOGY);
    for flag in ["--amqp-url", "--management-url"] {
        for url in [format!("x:{PASSWORD}@h"), format!("ftp://x:{PASSWORD}@h"), format!("amqp://x:{PASSWORD}@:1")] {
            let ran = bench.expect(2, &["plan", flag, &url]);
            assert!(ran.stderr.contains(flag), "{ran:?}");
        }
    }
}

#[test]
fn a_missing_or_invalid_file_ends_with_exit_code_1() {
    let bench = Bench::new("version: 1\nname: billing\ntypes: { mail: { prefech: 1 } }\n");
    for verb in ["validate", "plan", "apply"] {
        let ran = bench.expect(1, &[verb]);
        assert!(ran.stderr.contains("topology.yaml:3:") && ran.stderr.contains("prefetch"), "{ran:?}");
        let ran = bench.expect(1, &[verb, "-f", "nope.yaml"]);
        assert!(ran.stderr.contains("nope.yaml"), "{ran:?}");
    }
    let findings = bench.expect(1, &["validate", "-o", "json"]).json();
    assert_eq!((&findings["valid"], &findings["findings"][0]["line"]), (&false.into(), &3.into()));
}

#[test]
fn a_valid_file_needs_no_broker() {
    let bench = Bench::new(TOPOLOGY);
    let ran = bench.expect(0, &["validate", "--amqp-url", "amqp://nowhere.invalid"]);
    assert_eq!(ran.stdout, "topology.yaml is valid: billing, 2 types, 3 hatcheries, ladder of 7 levels\n");
}

#[test]
#[ignore = "starts a second broker; scripts/test --all runs it"]
fn an_apply_whose_urls_lead_to_two_brokers_writes_nothing() {
    let bench = Bench::new(TOPOLOGY);
    let another = Another::like(&bench.host);
    let management = another.management(&bench.host);
    // Both clusters have the same name. The lock shows the difference before anything is written.
    for arguments in [&["apply", "--auto-approve"][..], &["apply", "--auto-approve", "--migrate", "--prune"]] {
        let ran = bench.expect(6, &[arguments, &["--management-url", &management]].concat());
        assert!(ran.stderr.contains("two brokers") && ran.stderr.contains("nothing was written"), "{ran:?}");
        assert_eq!(bench.host.names("queues"), Vec::<String>::new());
    }
}

/// In a cluster without a name, each node reports its own name, so different names do not prove two brokers.
#[test]
#[ignore = "starts two more brokers; scripts/test --all runs it"]
fn a_plan_whose_urls_lead_to_two_unnamed_brokers_fails() {
    let mut bench = Bench::new(TOPOLOGY);
    let [one, other] = [Another::like(&bench.host), Another::like(&bench.host)];
    other.set_name("rabbit@other");
    let management = other.management(&bench.host);
    one.set_name("rabbit@one");
    bench.host = one.into_host(&bench.host);
    let ran = bench.expect(6, &["plan", "--management-url", &management]);
    assert!(ran.stderr.contains("`rabbit@one`") && ran.stderr.contains("`rabbit@other`"), "{ran:?}");
    assert!(ran.stdout.is_empty(), "{ran:?}");
}

/// The commands fail even if there is nothing to write.
#[test]
#[ignore = "starts a second broker; scripts/test --all runs it"]
fn commands_whose_urls_lead_to_two_named_brokers_write_nothing() {
    let bench = Bench::new(TOPOLOGY);
    let another = Another::like(&bench.host);
    another.set_name("another");
    let management = another.management(&bench.host);
    let verbs = [
        &["plan", "--detailed-exitcode"][..],
        &["apply", "--auto-approve"],
        &["apply", "--auto-approve", "--migrate", "--prune"],
        &["destroy", "--auto-approve"],
    ];
    let refuse = |management: &str| {
        let names =
            [bench.host.overview(), another.overview()].map(|seen| seen["cluster_name"].as_str().unwrap().to_owned());
        assert_ne!(names[0], names[1]);
        for arguments in verbs {
            let ran = bench.expect(6, &[arguments, &["--management-url", management]].concat());
            assert!(ran.stderr.contains("two brokers") && ran.stderr.contains("nothing was written"), "{ran:?}");
            assert!(ran.stderr.contains("--management-url") && ran.stdout.is_empty(), "{ran:?}");
            assert!(names.iter().all(|name| ran.stderr.contains(&format!("`{name}`"))), "{ran:?}");
        }
    };
    refuse(&management);
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());

    // The commands also fail if the broker of the management URL is in sync, or has nothing of the topology.
    bench.apply();
    refuse(&management);
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    let amqp = another.amqp(&bench.host);
    for verb in [&["plan"][..], &["apply", "--auto-approve"], &["destroy", "--auto-approve"]] {
        let ran = bench.expect(6, &[verb, &["--amqp-url", &amqp]].concat());
        assert!(ran.stderr.contains("two brokers") && ran.stdout.is_empty(), "{ran:?}");
    }
}
