//! Tests that compare printed plans, and three of them also as JSON, with `tests/screens/plan.txt`.
//! `UPDATE_GOLDEN=1` writes them anew.

use hatchery::internals::compile::{Desired, OWNER, compile};
use hatchery_admin::{
    Name, Pause, PauseChange, Paused, PausedBy, ScheduleChange,
    live::{LiveExchange, LivePolicy, LiveQueue},
    plan::plan,
};
use rstest::rstest;

use super::*;
use crate::{
    besides::{Armed, PlannedPause},
    golden::{part, screens},
};

pub(crate) const FILE: &str = "\
version: 1
name: billing
hatcheries: [5s, 1m]
ladder: { resolution: 1s, horizon: 1m }
types:
  hr-import: { retry: { delays: [10s, 10m], max-attempts: 6 } }
  mail: { retry: { delays: [1m], max-attempts: 6 } }
";

pub(crate) fn read(text: &str) -> Desired {
    let topology = hatchery::file::read(text, "topology.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    compile(&topology).expect("safe")
}

fn changed(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    FILE.replace(from, to)
}

/// Returns the broker after `apply`, with all queues empty.
pub(crate) fn applied(desired: &Desired) -> Observed {
    Observed { version: Some("4.3.6".to_owned()), ..Observed::from(desired) }
}

/// Returns the queue with this name, which must exist.
pub(crate) fn queue<'a>(observed: &'a mut Observed, name: &str) -> &'a mut LiveQueue {
    observed.queues.iter_mut().find(|queue| queue.name == name).unwrap_or_else(|| panic!("there is {name}"))
}

fn policy(name: &str, pattern: &str, key: &str, value: i64) -> LivePolicy {
    LivePolicy {
        name: name.to_owned(),
        pattern: pattern.to_owned(),
        apply_to: "all".to_owned(),
        priority: 0,
        definition: [(key.to_owned(), value.into())].into(),
    }
}

/// Replaces the queue of this name with one of this owner, or of none, that holds this many messages.
fn strange(observed: &mut Observed, name: &str, owner: Option<&str>, ready: u64) {
    let label = owner.map(|owner| (OWNER.to_owned(), owner.into()));
    observed.queues.retain(|queue| queue.name != name);
    observed.queues.push(LiveQueue {
        name: name.to_owned(),
        arguments: label.into_iter().collect(),
        messages_ready: Some(ready),
        ..LiveQueue::default()
    });
}

/// A file, and the broker that it is planned for.
struct Case {
    file: String,
    observed: Observed,
}

/// Returns a case in which `FILE` was applied to the broker, and `with` has changed the broker since.
fn met(file: String, with: impl FnOnce(&mut Observed)) -> Case {
    let mut observed = applied(&read(FILE));
    with(&mut observed);
    Case { file, observed }
}

fn same(with: impl FnOnce(&mut Observed)) -> Case {
    met(FILE.to_owned(), with)
}

fn no_change(_: &mut Observed) {}

/// Makes all queues classic, so that they need a migration.
fn classic(observed: &mut Observed) {
    *observed = applied(&read(&(FILE.to_owned() + "queue-type: classic\n")));
    queue(observed, "billing.processor.mail").messages_ready = Some(1_204);
    queue(observed, "billing.processor.mail").messages_unacknowledged = Some(100);
    queue(observed, "billing.hatchery.1m").messages_ready = Some(37);
}

/// Leaves the broker as a migration does that was killed when the queue was deleted and its events were in the
/// stand-in.
fn interrupted(observed: &mut Observed) {
    let stand_in = "billing.moving.billing.hatchery.1m";
    observed.queues.retain(|queue| queue.name != "billing.hatchery.1m");
    observed.bindings.iter_mut().filter(|it| it.destination == "billing.hatchery.1m").for_each(|it| {
        it.destination = stand_in.to_owned();
    });
    strange(observed, stand_in, Some("billing"), 37);
    let label = [(OWNER.to_owned(), "billing".into())].into();
    observed.exchanges.push(LiveExchange { name: stand_in.to_owned(), arguments: label, ..LiveExchange::default() });
}

const NONE: Asked = Asked { migrate: false, prune: false };
const MIGRATE: Asked = Asked { migrate: true, prune: false };
const PRUNE: Asked = Asked { migrate: false, prune: true };

#[rstest]
#[case::from_nothing("from-nothing", NONE, || Case { file: FILE.to_owned(), observed: Observed::default() })]
#[case::in_sync("in-sync", NONE, || same(no_change))]
#[case::type_added("type-added", NONE, || met(changed("  mail:", "  invoice: {}\n  mail:"), no_change))]
#[case::ttl("hatchery-ttl", NONE, || met(changed("[5s, 1m]", "[5s, 90s]"), |observed| {
    queue(observed, "billing.hatchery.1m").messages_ready = Some(412);
}))]
#[case::retry("retry-delay", NONE, || met(changed("[10s, 10m]", "[10s, 1h]"), |observed| {
    queue(observed, "billing.retry.hr-import.10m").messages_ready = Some(3);
}))]
#[case::ladder("ladder", NONE, || met(changed("1s, horizon: 1m", "250ms, horizon: 1m"), no_change))]
#[case::ladder_gone("ladder-prune", PRUNE, || met(changed("1s, horizon: 1m", "250ms, horizon: 1m"), no_change))]
#[case::classic("classic-to-quorum", NONE, || same(classic))]
#[case::classic_migrated("classic-to-quorum-migrate", MIGRATE, || same(classic))]
#[case::renamed("rename-topology", NONE, || met(
    changed("name: billing", "name: payroll\nrenamed-from: billing"),
    |observed| queue(observed, "billing.processor.mail").messages_ready = Some(12),
))]
#[case::type_renamed("rename-type", NONE, || met(changed("mail: { ", "letter: { renamed-from: mail, "), |observed| {
    queue(observed, "billing.processor.mail").messages_ready = Some(12);
}))]
#[case::type_renamed_asked("rename-type-migrate", MIGRATE, || met(
    changed("mail: { ", "letter: { renamed-from: mail, "),
    |observed| queue(observed, "billing.processor.mail").messages_ready = Some(12),
))]
#[case::type_removed("type-removed", NONE, || met(
    changed("  mail: { retry: { delays: [1m], max-attempts: 6 } }\n", ""),
    |observed| {
        queue(observed, "billing.processor.mail").messages_ready = Some(12);
        queue(observed, "billing.processor.mail").messages_unacknowledged = Some(3);
    },
))]
#[case::stranger("stranger", NONE, || same(|observed| {
    strange(observed, "billing.processor.mail", None, 5);
    strange(observed, "billing.dead-letter.mail", Some("payroll"), 0);
}))]
#[case::adopted("adopt", NONE, || met(
    FILE.to_owned() + "adopt: [billing.dead-letter.mail, legacy.mail]\n",
    |observed| {
        queue(observed, "billing.dead-letter.mail").arguments.remove(OWNER);
        strange(observed, "legacy.mail", None, 5);
    },
))]
#[case::shadowed("policy-shadows", NONE, || same(|observed| {
    observed.policies.push(LivePolicy { priority: 200, ..policy("ha-all", ".*", "queue-leader-locator", 1) });
}))]
#[case::operator("policy-operator-ttl", NONE, || same(|observed| {
    observed.operator_policies.push(policy("max-age", "hatchery", "message-ttl", 1_000));
}))]
#[case::harmless("policy-harmless", NONE, || same(|observed| {
    observed.policies.push(policy("ha-all", ".*", "queue-leader-locator", 1));
}))]
#[case::interrupted("interrupted", NONE, || same(interrupted))]
#[case::interrupted_asked("interrupted-migrate", MIGRATE, || same(interrupted))]
#[case::drifted("drift", NONE, || same(|observed| {
    observed.policies[0].definition.insert("delivery-limit".to_owned(), 20.into());
    observed.bindings.retain(|binding| binding.routing_key != "mail.#" || binding.source != "billing.processor");
}))]
fn a_plan_reads_as_in_its_golden_file(#[case] name: &str, #[case] asked: Asked, #[case] case: fn() -> Case) {
    let Case { file, observed } = case();
    let plan = plan(&read(&file), &observed);
    screens(&format!("plan/{name}"), |columns| {
        render::plan(&plan, &Besides::default(), "topology.yaml", false, asked, columns)
    });
    let as_json = format!("{name}.json");
    if ["classic-to-quorum.json", "hatchery-ttl.json", "stranger.json"].contains(&&*as_json) {
        let source = Source::new("topology.yaml".to_owned(), &file);
        let none = Besides { schedules: Some(Vec::new()), pauses: Some(Vec::new()) };
        let document =
            serde_json::to_value(document(&plan, &observed, &source, &LeftoverTypes::default(), &none, asked));
        let document = document.expect("JSON");
        part(&format!("plan/{as_json}"), &format!("{document:#}\n"));
    }
}

#[test]
fn a_plan_shows_what_becomes_of_schedules() {
    let at = "2026-06-01T01:00:00Z".parse().expect("a time");
    let changes = [
        ("nightly-import", ScheduleChange::Armed(at)),
        ("poll-bank", ScheduleChange::Unchanged),
        ("poll-mail", ScheduleChange::ArmedAgain(at)),
        ("reminders-of-invoices-that-are-overdue", ScheduleChange::Paused),
        ("yearly", ScheduleChange::Removed),
    ];
    let changes = changes.map(|(name, change)| Armed::of((name.to_owned(), change)));
    let plan = plan(&read(FILE), &applied(&read(FILE)));
    let besides = |changes: &[Armed]| Besides { schedules: Some(changes.to_vec()), pauses: None };
    let drawn =
        |changes: &[Armed], columns| render::plan(&plan, &besides(changes), "topology.yaml", false, NONE, columns);
    screens("plan/schedules", |columns| drawn(&changes, columns));
    let unchanged = drawn(&changes[1..2], 80);
    assert!(unchanged.starts_with("No changes."), "{unchanged}");
}

#[test]
fn a_plan_shows_the_pauses_of_the_file() {
    let since = "2026-06-01T01:00:00Z".parse().expect("a time");
    let name = |text: &str| Name(text.parse().expect("a word"));
    let change = |of, reason: &str, begins| {
        let pause = Pause { of, by: PausedBy::File, reason: reason.to_owned(), since, until: None };
        PlannedPause::of(&PauseChange { pause, begins })
    };
    let pauses = vec![
        change(Paused::All, "", true),
        change(Paused::Type(name("mail")), "the provider migrates to another data centre until Monday morning", true),
        change(Paused::Source(name("hr")), "closed", false),
    ];
    let plan = plan(&read(FILE), &applied(&read(FILE)));
    let besides = Besides { schedules: None, pauses: Some(pauses) };
    screens("plan/pauses", |columns| render::plan(&plan, &besides, "topology.yaml", false, NONE, columns));
}
