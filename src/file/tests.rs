//! Tests of the reader. The messages in `tests/invalid` are compared in the command line's tests, which draw them.

use std::{fs, path::Path, time::Duration};

use rstest::rstest;

use super::{table::Absent, *};
use crate::domain::{
    life_cycle::{LifeCycle, Told},
    spec::{Coalesce, Delayed, Immediate, OnExpiry, OnFailure, QueueType, RedisSpec, Retry, Topology, TypeSpec},
    words::Word,
};

/// Reads a topology with these keys at the top and these keys in the type `mail`.
fn mail(top: &str, mail: &str) -> Result<TypeSpec, FileError> {
    let text = format!("version: 1\nname: billing\n{top}\ntypes: {{ mail: {mail} }}\n");
    read(&text, "topology.yaml").map(|topology| topology.types["mail"].clone())
}

fn valid(top: &str, of_mail: &str) -> TypeSpec {
    mail(top, of_mail).expect("valid")
}

fn ttls(texts: &[&str]) -> Vec<crate::Ttl> {
    texts.iter().map(|text| text.parse().expect("a TTL")).collect()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn the_shipped_example_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology.yaml");
    let topology = read(&fs::read_to_string(path).expect("a text"), "topology.yaml").expect("valid");
    assert_eq!(topology.hatcheries, ttls(&["2s", "5s", "1m", "1h"]));
    let retry = Retry { delays: ttls(&["1s", "2s", "3s"]), max_attempts: 4, jitter: 0 };
    assert_eq!(topology.types["mail"].retry, retry);
    assert_eq!(topology.types["hr-import"].retry, retry);
    assert_eq!(topology.types["hr-import"].coalesce.window, Some(ttls(&["2s"])[0]));
}

#[test]
fn the_default_settings_of_a_type() {
    let topology = read("version: 1\nname: billing\ntypes:\n  mail:\n", "topology.yaml").expect("valid");
    let mail = TypeSpec {
        renamed_from: vec![],
        paused: None,
        prefetch: 100,
        concurrency: 10,
        handler_timeout: secs(60),
        drain_timeout: secs(25),
        coalesce: Coalesce { immediate: Immediate::Off, delayed: Delayed::Off, window: None, max_wait: secs(30) },
        on_failure: OnFailure::Retry,
        retry: Retry { delays: ttls(&["10s", "1m", "10m"]), max_attempts: 6, jitter: 0 },
        on_expiry: OnExpiry::DeadLetter,
        crash_limit: 5,
        register: true,
        exclusive: false,
        lease: secs(15),
        breaker: None,
        keep_payload: None,
    };
    let expected = Topology {
        name: "billing".parse().expect("a word"),
        renamed_from: vec![],
        adopt: [].into(),
        paused: None,
        queue_type: QueueType::Quorum,
        hatcheries: vec![],
        ladder: crate::domain::delay::Ladder::new(ttls(&["250ms"])[0], ttls(&["365d"])[0]).expect("a ladder"),
        redis: RedisSpec {
            prefix: "hatchery".to_owned(),
            shards: 1,
            dedup_retention: secs(3_600),
            backlog_retention: secs(7 * 86_400),
        },
        ack_timeout: secs(30 * 60),
        max_payload: 16 << 20,
        life_cycle: LifeCycle { events: Told::Failures, keep: secs(7 * 86_400), max_size: 1 << 30 },
        types: [("mail".parse().expect("a word"), mail)].into(),
        schedules: [].into(),
        sources: [].into(),
        notify: None,
    };
    assert_eq!(topology, expected);
}

#[test]
fn every_key_has_a_description_and_a_valid_default() {
    for key in levels::LEVELS.iter().flat_map(|level| level.keys) {
        assert!(key.about.ends_with(['.', ')']) || key.about.ends_with("repeats."), "{}: {}", key.name, key.about);
        match key.absent {
            Absent::Value(text) => {
                assert!(defaults::default(key).is_some(), "{} has no value {text}", key.name);
            }
            Absent::Depends(how) => assert!(!how.is_empty(), "{}", key.name),
            Absent::Required => assert!(value::example(key).starts_with("write"), "{}", key.name),
        }
    }
}

#[rstest]
#[case("retry: { max-attempts: 8 }", &["1s", "2s"], 8)]
#[case("retry: { delays: [5m] }", &["5m"], 4)]
#[case("retry: {}", &["1s", "2s"], 4)]
#[case("retry: ", &["1s", "2s"], 4)]
#[case("", &["1s", "2s"], 4)]
fn a_type_overrides_the_defaults_key_by_key(#[case] own: &str, #[case] delays: &[&str], #[case] attempts: u32) {
    let spec =
        valid("defaults: { prefetch: 20, retry: { delays: [1s, 2s], max-attempts: 4 } }", &format!("{{ {own} }}"));
    assert_eq!(spec.retry, Retry { delays: ttls(delays), max_attempts: attempts, jitter: 0 });
    assert_eq!(spec.prefetch, 20);
}

#[rstest]
#[case("", "on-failure: in-place", OnFailure::InPlace { tries: 3, delay: Duration::from_millis(200) })]
#[case("", "on-failure: in-place, in-place: { tries: 5 }", OnFailure::InPlace { tries: 5, delay: Duration::from_millis(200) })]
#[case("in-place: { delay: 0s }", "on-failure: in-place", OnFailure::InPlace { tries: 3, delay: Duration::ZERO })]
#[case("on-failure: block", "", OnFailure::Block)]
#[case("on-failure: block", "on-failure: drop", OnFailure::Drop)]
#[case("in-place: { tries: 9 }", "", OnFailure::Retry)]
fn on_failure_is_read_with_its_own_keys(#[case] defaults: &str, #[case] own: &str, #[case] expected: OnFailure) {
    assert_eq!(valid(&format!("defaults: {{ {defaults} }}"), &format!("{{ {own} }}")).on_failure, expected);
}

#[rstest]
#[case("", "", &[])]
#[case("", "retry: {}", &["10s", "1m", "10m"])]
#[case("", "retry: { delays: [1s] }", &["1s"])]
#[case("retry: { delays: [2s] }", "", &["2s"])]
fn tries_in_place_are_followed_only_by_retries_that_the_file_names(
    #[case] defaults: &str,
    #[case] own: &str,
    #[case] delays: &[&str],
) {
    let own = format!("{{ on-failure: in-place, {own} }}");
    let spec = valid(&format!("defaults: {{ {defaults} }}"), &own);
    assert_eq!(spec.retry.delays, ttls(delays));
    assert_eq!(spec.retry_queues(), ttls(delays).into_iter().collect());
}

#[rstest]
#[case("", "on-failure: block", (10, 1))]
#[case("", "on-failure: block, prefetch: 1", (1, 1))]
#[case("prefetch: 40, concurrency: 4", "on-failure: block", (40, 1))]
#[case("", "on-failure: in-place", (33, 10))]
#[case("", "on-failure: in-place, concurrency: 50", (50, 50))]
#[case("", "on-failure: in-place, prefetch: 90", (90, 10))]
#[case("prefetch: 60", "on-failure: in-place", (60, 10))]
#[case("", "on-failure: in-place, in-place: { tries: 1000, delay: 0s }, handler-timeout: 1s", (10, 10))]
fn the_default_prefetch_depends_on_on_failure(#[case] defaults: &str, #[case] own: &str, #[case] expected: (u16, u16)) {
    let spec = valid(&format!("defaults: {{ {defaults} }}"), &format!("{{ {own} }}"));
    assert_eq!((spec.prefetch, spec.concurrency), expected);
    // The command line's flag for the prefetch does not break the order.
    let told = if spec.keeps_order() { 1 } else { 7 };
    assert_eq!(spec.concurrency_for(Some(7)), told);
}

#[rstest]
#[case("", "handler-timeout: 2m, concurrency: 1", (14, 1, 25))]
#[case("", "concurrency: 200", (200, 200, 25))]
#[case("", "prefetch: 4", (4, 4, 25))]
#[case("", "handler-timeout: 29m 50s", (10, 10, 10))]
#[case("ack-timeout: 5m", "", (40, 10, 25))]
#[case("defaults: { handler-timeout: 4m }", "", (70, 10, 25))]
#[case("", "on-failure: in-place, in-place: { delay: 5m }", (10, 10, 25))]
#[case("", "on-failure: block, handler-timeout: 14m 50s", (10, 1, 10))]
fn a_default_gives_way_to_what_the_file_says(#[case] top: &str, #[case] own: &str, #[case] expected: (u16, u16, u64)) {
    let spec = valid(top, &format!("{{ {own} }}"));
    assert_eq!((spec.prefetch, spec.concurrency, spec.drain_timeout), (expected.0, expected.1, secs(expected.2)));
}

#[rstest]
#[case("{ resolution: 400d }", "400d-1")]
#[case("{ horizon: 100ms }", "100ms-1")]
fn the_default_of_one_length_of_the_ladder_gives_way_to_the_other(#[case] ladder: &str, #[case] expected: &str) {
    let text = format!("version: 1\nname: billing\nladder: {ladder}\ntypes: {{ mail: {{}} }}\n");
    assert_eq!(read(&text, "topology.yaml").expect("valid").ladder.to_string(), expected);
}

#[rstest]
#[case("off", "latest", (Immediate::Latest, Delayed::EachTime, None, 30))]
#[case("latest", "{ window: 2s }", (Immediate::Latest, Delayed::EachTime, Some("2s"), 20))]
#[case("off", "first", (Immediate::First, Delayed::EachTime, None, 30))]
#[case("off", "{ immediate: first, window: 2s }", (Immediate::First, Delayed::Off, Some("2s"), 20))]
#[case("off", "{ delayed: latest }", (Immediate::Off, Delayed::Latest, None, 30))]
#[case("latest", "{ delayed: latest }", (Immediate::Latest, Delayed::Latest, None, 30))]
#[case("{ immediate: latest, window: 5s, max-wait: 9s }", "{ delayed: off }", (Immediate::Latest, Delayed::Off, Some("5s"), 9))]
#[case("{ immediate: latest, window: 5s, max-wait: 9s }", "latest", (Immediate::Latest, Delayed::EachTime, None, 30))]
#[case("{ immediate: latest, window: 5s, max-wait: 9s }", "off", (Immediate::Off, Delayed::Off, None, 30))]
fn a_short_form_replaces_all_of_coalesce(
    #[case] defaults: &str,
    #[case] own: &str,
    #[case] (immediate, delayed, window, max_wait): (Immediate, Delayed, Option<&str>, u64),
) {
    let spec = valid(&format!("defaults: {{ coalesce: {defaults} }}"), &format!("{{ coalesce: {own} }}"));
    let window = window.map(|window| ttls(&[window])[0]);
    assert_eq!(spec.coalesce, Coalesce { immediate, delayed, window, max_wait: secs(max_wait) });
    assert_eq!(spec.exclusive, immediate != Immediate::Off || delayed != Delayed::Off);
}

#[rstest]
#[case(&["off", "\"off\"", "false", "\"false\"", "Off", "'OFF'", "no", "FALSE"], false)]
#[case(&["on", "\"on\"", "true", "\"true\"", "On", "'ON'", "yes", "TRUE"], true)]
fn on_and_off_have_many_spellings_and_one_meaning(#[case] spellings: &[&str], #[case] on: bool) {
    for spelling in spellings {
        assert_eq!(valid("", &format!("{{ exclusive: {spelling} }}")).exclusive, on, "{spelling}");
        let keep = mail("", &format!("{{ keep-payload: {spelling} }}"));
        assert_eq!(keep.is_ok(), !on, "{spelling}");
        let register = mail("", &format!("{{ register: {spelling} }}"));
        assert_eq!(register.ok().map(|spec| spec.register), Some(on), "{spelling}");
        let coalesce = mail("", &format!("{{ coalesce: {{ immediate: {spelling}, delayed: latest }} }}"));
        assert_eq!(coalesce.map(|spec| spec.coalesce.immediate).ok(), (!on).then_some(Immediate::Off), "{spelling}");
        assert_eq!(mail("", &format!("{{ coalesce: {spelling} }}")).is_ok(), !on, "{spelling}");
    }
}

#[rstest]
#[case("off", None)]
#[case("1", Some(1))]
#[case("4KiB", Some(4 << 10))]
#[case("64 KiB", Some(64 << 10))]
fn a_payload_is_kept_up_to_a_size(#[case] said: &str, #[case] kept: Option<usize>) {
    assert_eq!(valid("", &format!("{{ keep-payload: {said} }}")).keep_payload, kept);
    assert_eq!(valid(&format!("defaults: {{ keep-payload: {said} }}"), "{}").keep_payload, kept);
}

#[rstest]
#[case("16MiB", 16 << 20)]
#[case("64KiB", 64 << 10)]
#[case("1 KiB", 1 << 10)]
#[case("512B", 512)]
#[case("1000", 1000)]
fn a_payload_is_counted_in_bytes(#[case] written: &str, #[case] bytes: usize) {
    let text = format!("version: 1\nname: billing\nmax-payload: {written}\ntypes: {{ mail: {{}} }}\n");
    assert_eq!(read(&text, "topology.yaml").expect("valid").max_payload, bytes);
}

#[rstest]
#[case("hatcheries: [1ms, 3650d, 1s, 1500ms]", "{ retry: { delays: [1ms, 3650d] } }")]
#[case("hatcheries:", "{ prefetch: 10, concurrency: 10, drain-timeout: 0s }")]
#[case("ack-timeout: 10m 25s", "{ prefetch: 100, concurrency: 10 }")]
#[case("ack-timeout: 11m 25s", "{ prefetch: 101, concurrency: 10 }")]
#[case("ladder: { resolution: 1m, horizon: 1m }", "{ lease: 100ms, crash-limit: 3 }")]
#[case(&format!("redis: {{ shards: 16384, prefix: {} }}", "p".repeat(64)), "{ coalesce: { immediate: latest, window: 1m, max-wait: 1m } }")]
#[case("max-payload: 16777216", "{ prefetch: 65535, concurrency: 65535, retry: { max-attempts: 1 } }")]
#[case("max-payload: 1", "{ exclusive: on, coalesce: { delayed: latest } }")]
#[case("redis:\nladder:", "{ exclusive: off }")]
fn the_largest_and_smallest_valid_values_are_accepted(#[case] top: &str, #[case] of_mail: &str) {
    valid(top, of_mail);
}

#[test]
fn names_that_look_like_yaml_booleans_or_numbers_are_accepted() {
    let text = "version: 1\nname: \"on\"\ntypes: { 123: {}, no: {}, Mail: {}, mail: {} }\n";
    let topology = read(text, "topology.yaml").expect("valid");
    let names: Vec<&str> = topology.types.keys().map(crate::domain::words::Word::as_str).collect();
    assert_eq!((topology.name.as_str(), names), ("on", vec!["123", "Mail", "mail", "no"]));
}

#[test]
fn keys_of_a_later_version_may_be_switched_off() {
    let spec = "{ keep-payload: off, register: on, on-failure: retry, retry: { jitter: 0 } }";
    assert_eq!(mail("queue-type: quorum", spec).ok(), mail("", "{}").ok());
}

#[rstest]
#[case("", "{ register: off }")]
#[case("", "{ register: false, exclusive: off, coalesce: off, crash-limit: 3 }")]
#[case("defaults: { register: off }", "{}")]
#[case("defaults: { coalesce: latest, lease: 20s }", "{ register: off, coalesce: off }")]
fn a_type_may_do_without_the_register(#[case] top: &str, #[case] spec: &str) {
    let spec = valid(top, spec);
    assert_eq!((spec.register, spec.exclusive), (false, false));
    let coalesce = spec.coalesce;
    assert_eq!((coalesce.immediate, coalesce.delayed, coalesce.window), (Immediate::Off, Delayed::Off, None));
}

#[rstest]
#[case("0", 0)]
#[case("0.2", 200)]
#[case("20%", 200)]
#[case("12.5 %", 125)]
#[case("1", 1_000)]
#[case("100%", 1_000)]
fn jitter_is_a_part_of_the_delay(#[case] text: &str, #[case] thousandths: u16) {
    assert_eq!(valid("", &format!("{{ retry: {{ jitter: {text} }} }}")).retry.jitter, thousandths);
}

#[test]
fn every_queue_may_be_classic() {
    let text = "version: 1\nname: billing\nqueue-type: classic\ntypes: { mail: {} }\n";
    assert_eq!(read(text, "topology.yaml").expect("valid").queue_type, QueueType::Classic);
}

#[test]
fn aliases_and_merge_keys_are_resolved() {
    let text =
        "version: 1\nname: billing\ntypes:\n  a: &a { prefetch: 20 }\n  b: *a\n  c: { <<: *a, concurrency: 5 }\n";
    let types = read(text, "topology.yaml").expect("valid").types;
    assert_eq!((types["b"].prefetch, types["c"].prefetch, types["c"].concurrency), (20, 20, 5));
}

#[test]
fn many_types_may_share_one_anchor() {
    let types: Vec<String> = (0..500).map(|n| format!("  t{n}: *a\n")).collect();
    let text = format!("version: 1\nname: billing\ntypes:\n  a: &a {{ prefetch: 20 }}\n{}", types.concat());
    assert_eq!(read(&text, "topology.yaml").expect("valid").types.len(), 501);
}

#[test]
fn crlf_and_a_byte_order_mark_change_nothing() {
    let plain = "version: 1\nname: billing\n# größe\nhatcheries:\n- 5s\n- 1m\ntypes: { mail: {} }\n";
    let windows = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
    assert_eq!(read(&windows, "topology.yaml"), read(plain, "topology.yaml"));
}

#[test]
fn a_finding_has_its_place() {
    let error = read("version: 2", "topology.yaml").expect_err("invalid");
    assert_eq!(
        (error.findings()[0].line, error.findings()[0].column, error.findings()[0].range.clone()),
        (1, 10, 9..10)
    );
}

#[test]
fn the_readmes_example_is_valid() {
    let readme = include_str!("../../README.md");
    let example = readme.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    assert!(read(example, "README.md").is_ok());
}

#[test]
fn renamed_from_takes_one_name_or_a_list() {
    let text = "version: 1\nname: billing\nrenamed-from: invoicing\nadopt: [legacy.tmp]\n\
                types: { mail: { renamed-from: [post, letter] }, sms: {} }";
    let topology = read(text, "topology.yaml").expect("valid");
    let words = |words: &[Word]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        (words(&topology.renamed_from), topology.first_name().as_str()),
        (vec!["invoicing".into()], "invoicing")
    );
    assert_eq!(words(&topology.types["mail"].renamed_from), ["post", "letter"]);
    let first_names: Vec<(String, String)> =
        topology.first_names().iter().map(|(now, first)| (now.to_string(), first.to_string())).collect();
    assert_eq!(first_names, [("mail".to_owned(), "post".to_owned())]);
    assert_eq!(topology.adopt, ["legacy.tmp".to_owned()].into());
}

/// A value of the wrong kind still shows the user's intention. The help must not advise the opposite.
#[test]
fn the_help_for_a_wrong_value_does_not_advise_to_switch_the_key_off() {
    let help = |spec: &str| {
        let text = format!("version: 1\nname: t\ntypes: {{ mail: {{ {spec} }} }}\n");
        read(&text, "topology.yaml").expect_err("refused").to_string()
    };
    for (spec, expected) in [
        ("keep-payload: true", "write `keep-payload: 4KiB`"),
        ("keep-payload: on", "write `keep-payload: 4KiB`"),
        ("keep-payload: [1]", "write `keep-payload: 4KiB`"),
        ("retry: { jitter: true }", "like 0.2 or 20%"),
        ("retry: { jitter: [1] }", "write `jitter: 20%`"),
        ("coalesce: true", "write `coalesce: latest`"),
        ("coalesce: { immediate: true }", "write `immediate: latest` or `first`"),
    ] {
        let error = help(spec);
        assert!(error.contains(expected), "{spec}: {error}");
        assert!(
            !error.contains("write `keep-payload: off`") && !error.contains("write `jitter: 0`"),
            "{spec}: {error}"
        );
    }
}
