//! Compares pictures with `tests/screens/graph.txt`, and with the picture in the README. `UPDATE_GOLDEN=1` writes them again.

use std::fmt::Write as _;

use hatchery::internals::{compile::compile, spec::Topology};
use hatchery_admin::{
    graph::{picture::Swimlane, *},
    names::{self, Names},
};
use proptest::prelude::*;
use rstest::rstest;

use crate::golden::{golden, part, screens};

const BILLING: &str = include_str!("../../../topology.yaml");

fn topology(text: &str) -> Topology {
    hatchery::file::read(text, "topology.yaml").expect("a valid file")
}

/// A thousand equal types, and some that differ.
fn many() -> Topology {
    let mut text = "version: 1\nname: orders\nhatcheries: [5s]\ntypes:\n".to_owned();
    for n in 0..1_000 {
        let _ = writeln!(text, "  type-{n:03}: {{}}");
    }
    text += "  slow: { retry: { delays: [1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 1h], max-attempts: 30 } }\n";
    text += "  lossy: { on-failure: drop }\n  spread: { retry: { jitter: 12.5% } }\n";
    text += "  keen: { on-failure: in-place }\n  strict: { on-failure: block }\n";
    topology(
        &(text
            + &format!(
                "  {}: {{ prefetch: 50, retry: {{ delays: [5s, 1s, 5s], max-attempts: 3 }} }}\n",
                "x".repeat(64)
            )),
    )
}

#[rstest]
#[case("billing.mmd", mermaid)]
#[case("billing.dot", dot)]
fn each_format_draws_the_golden_picture(#[case] name: &str, #[case] draw: fn(&Picture) -> String) {
    part(&format!("graph/{name}"), &draw(&Picture::new(&topology(BILLING))));
}

#[rstest]
#[case(mermaid, "processor.#lt;type#gt;<br/>1000 types: type-000, type-001, type-002, …\"")]
#[case(dot, "processor.<type>\\n1000 types: type-000, type-001, type-002, …\"")]
fn each_format_draws_equal_types_once(#[case] draw: fn(&Picture) -> String, #[case] group: &str) {
    let drawn = draw(&Picture::new(&many()));
    assert_eq!(drawn.matches(group).count(), 1, "{drawn}");
    assert!(drawn.contains("failed events are dropped") && !drawn.contains("retry.lossy"), "{drawn}");
}

const SOURCES: &str = "\
version: 1
name: billing
hatcheries: [5s, 1m]
types: { hr-import: { coalesce: latest }, mail: {} }
sources:
  hr: { declare: on, events: [ { when: { /kind: change }, type: hr-import }, { type: mail } ] }
  webhooks: { queue: github, events: [ { type: mail } ] }
schedules:
  nightly-import: { type: hr-import, cron: \"0 3 * * 1-5\", timezone: Europe/Berlin }
  poll-bank: { type: hr-import, every: 5m }
";

#[rstest]
#[case("sources.mmd", mermaid)]
#[case("sources.dot", dot)]
#[case("sources.svg", svg)]
fn sources_and_schedules_are_drawn(#[case] name: &str, #[case] draw: fn(&Picture) -> String) {
    part(&format!("graph/{name}"), &draw(&Picture::new(&topology(SOURCES))));
    let chosen = ["mail".parse().expect("a word")].into();
    assert!(!draw(&Picture::of(&topology(SOURCES), &chosen)).contains("nightly-import"));
}

#[test]
fn a_tree_is_as_it_was_drawn() {
    screens("graph/billing", |columns| text(&Picture::new(&topology(BILLING)), columns));
    screens("graph/many", |columns| text(&Picture::new(&many()), columns));
    part("graph/sources", &text(&Picture::new(&topology(SOURCES)), 80));
}

#[test]
fn the_readme_shows_the_shipped_example() {
    golden("docs/topology.svg", &svg(&Picture::new(&topology(BILLING))));
}

/// A picture that lacks an object that events may pass is worse than none.
#[rstest]
#[case(|picture: &Picture| text(picture, 80))]
#[case(mermaid)]
#[case(dot)]
#[case(svg)]
fn every_object_on_the_way_of_events_is_in_the_picture(#[case] draw: fn(&Picture) -> String) {
    let topology = topology(&format!(
        "{BILLING}\n  plain: {{ register: off }}\n  exact: {{ register: off, on-failure: block }}\n"
    ));
    let (drawn, desired) = (draw(&Picture::new(&topology)), compile(&topology).expect("safe"));
    let retry = format!("{}.", Names::new(topology.name.clone()).retry());
    let objects = desired.exchanges.iter().map(|e| &e.name).chain(desired.queues.iter().map(|q| &q.name));
    for name in objects.filter(|name| !names::streams(&desired.owner).contains(name)) {
        // The ladder is one node, and where there is no room for each of them, so are the retry queues of a type.
        let name = names::ladder_of(name).unwrap_or(name);
        let whole = name.strip_prefix("billing.").expect("owned");
        let whole =
            if name.starts_with(&retry) { whole.rsplit_once('.').map_or(whole, |(name, _)| name) } else { whole };
        assert!(drawn.contains(whole), "no {whole} in\n{drawn}");
    }
}

#[test]
fn the_tree_has_every_retry_queue() {
    let drawn = text(&Picture::new(&topology(BILLING)), 80);
    for queue in
        compile(&topology(BILLING)).expect("safe").queues.iter().filter(|queue| queue.name.starts_with("billing.retry"))
    {
        assert!(drawn.contains(&queue.name["billing.".len()..]), "no {} in\n{drawn}", queue.name);
    }
}

#[rstest]
#[case("[1s, 2s]", 3, &[("1s", "after failure 1"), ("2s", "after failure 2")])]
#[case("[1s, 2s]", 9, &[("1s", "after failure 1"), ("2s", "after failure 2 and later")])]
#[case("[2s, 1s, 2s]", 4, &[("1s", "after failure 2"), ("2s", "after failures 1, 3")])]
#[case("[1s, 2s, 3s]", 2, &[("1s", "after failure 1"), ("3s", "never: 2 attempts in all")])]
#[case("[1s]", 1, &[("1s", "never: 1 attempt in all")])]
fn each_retry_queue_names_its_failures(#[case] delays: &str, #[case] attempts: u32, #[case] expected: &[(&str, &str)]) {
    let retry = format!("{{ delays: {delays}, max-attempts: {attempts} }}");
    let topology = topology(&format!("version: 1\nname: t\ntypes: {{ mail: {{ retry: {retry} }} }}"));
    let lane = Swimlane::new(&"mail".parse().expect("a word"), &topology.types["mail"]);
    for (ttl, when) in expected {
        assert_eq!(lane.when(ttl.parse().expect("a TTL")), *when);
    }
}

#[test]
fn equal_types_share_a_lane_if_there_are_many() {
    let picture = Picture::new(&many());
    let members: Vec<usize> = picture.lanes.iter().map(|lane| lane.types.len()).collect();
    assert_eq!((members, picture.left_out), (vec![1, 1, 1, 1, 1, 1_000, 1], 0));

    let few = topology("version: 1\nname: t\ntypes: { a: {}, b: {}, c: {} }");
    assert_eq!(Picture::new(&few).lanes.len(), 3, "few are never put together");

    let types = |n: usize| format!("  t{n}: {{ crash-limit: 5, prefetch: {} }}\n", 20 + n);
    let text = (0..20).map(types).collect::<Vec<_>>().concat();
    let picture = Picture::new(&topology(&format!("version: 1\nname: t\ntypes:\n{text}")));
    assert_eq!((picture.lanes.len(), picture.left_out), (12, 8));
    assert_eq!(picture.rest().as_deref(), Some("8 types not shown; --type shows them"));
}

#[test]
fn a_chosen_type_has_a_lane_of_its_own() {
    let chosen = ["type-001", "type-002"].map(|name| name.parse().expect("a word")).into();
    let picture = Picture::of(&many(), &chosen);
    let labels: Vec<&str> = picture.lanes.iter().map(Swimlane::label).collect();
    assert_eq!((labels, picture.left_out), (vec!["type-001", "type-002"], 1_004));
}

proptest! {
    #[test]
    fn a_tree_fits_its_columns(columns in 60_usize..200, name in "[A-Za-z0-9_-]{1,64}", types in prop::collection::btree_set("[A-Za-z0-9_-]{1,64}", 1..20)) {
        let types = types.iter().map(|name| format!("  \"{name}\": {{ coalesce: {{ immediate: latest, window: 3s }} }}\n"));
        let file = format!("version: 1\nname: \"{name}\"\ntypes:\n{}", types.collect::<String>());
        let picture = Picture::new(&topology(&file));
        for line in text(&picture, columns).lines() {
            prop_assert!(line.chars().count() <= columns && line.trim_end() == line, "{:?}", line);
        }
        let drawn = svg(&picture);
        prop_assert!(!drawn.contains("<type>"));
        prop_assert_eq!(drawn.matches("<g>").count(), drawn.matches("</g>").count());
    }
}
