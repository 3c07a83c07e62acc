//! `topology breaker list`.

use hatchery_admin::{
    breakers::{BreakerList, BreakerView, Breakers, Counted},
    text::relative,
};
use jiff::Timestamp;

use crate::{
    exit::Exit,
    output::{Format, GREEN, Output, RED, YELLOW},
    table::{paint, table},
};

/// List the circuit breakers, and what has opened them
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology breaker list
  topology breaker list -o ndjson | jq -r 'select(.state == \"open\").type'")]
pub(crate) struct Args {}

pub(super) async fn run(breakers: &Breakers, output: Output) -> anyhow::Result<Exit> {
    let (infos, now) = (breakers.list().await?, breakers.now());
    let views: Vec<BreakerView> = infos.iter().map(|info| BreakerView::of(info, now)).collect();
    match output.format {
        Format::Text => output.print(&screen(&views, now))?,
        Format::Json => output.json(&BreakerList { breakers: views })?,
        Format::Ndjson => views.iter().try_for_each(|view| output.json(view))?,
    }
    Ok(Exit::Done)
}

fn screen(views: &[BreakerView], now: Timestamp) -> String {
    if views.is_empty() {
        return "No type of the file has a breaker.\n".to_owned();
    }
    let row = |view: &BreakerView| {
        let style = match view.state {
            "open" => RED,
            "half-open" | "unreadable" => YELLOW,
            _ => GREEN,
        };
        let by = view.opened_by.as_ref().map(|Counted { errors, runs }| format!("{errors} errors of {runs} runs"));
        let next = match (view.state, view.tried_at) {
            ("open", Some(at)) => format!("events are tried {}", relative(now, at, 2)),
            ("open", None) => "waits for `topology breaker close`".to_owned(),
            ("half-open", _) if view.tried == 0 => "waits for an event to try".to_owned(),
            ("half-open", _) => format!("events that are tried: {}", view.tried),
            ("of each worker", _) => "the log of each worker tells".to_owned(),
            ("unreadable", _) => "the next worker with an event replaces it".to_owned(),
            _ => String::new(),
        };
        [
            view.event_type.clone(),
            paint(style, view.state),
            format!("{} in {}", view.errors, view.window),
            view.opened_at.map(|at| relative(now, at, 1)).unwrap_or_default(),
            by.unwrap_or_default(),
            next,
        ]
    };
    let heads = ["TYPE", "STATE", "OPENS AT", "LAST OPENED", "BY", "NEXT"];
    let mut lines = vec![table(&heads, views.iter().map(row), 0..0)];
    for view in views.iter().filter(|view| matches!(view.state, "open" | "half-open")) {
        lines.extend(view.reasons.iter().map(|reason| format!("{}: {reason}", view.event_type)));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hatchery::internals::breaker::{BreakerSpec, BreakerState, Errors};
    use hatchery_admin::breakers::{BreakerInfo, Known};
    use rstest::rstest;

    use super::*;

    fn shared(phase: &str) -> Known {
        let opening = r#"{"at":0,"by":"a","errors":9,"runs":10,"reasons":[],"is_notified":true}"#;
        let text = format!(r#"{{"era":{{"number":7,"round":0}},"phase":{phase},"opening":{opening}}}"#);
        Known::Shared(BreakerState::parse(&text).expect("a state"))
    }

    #[rstest]
    #[case::open(shared(r#"{"open":{"since":7200000}}"#), "open", "events are tried in 1m")]
    #[case::a_quiet_type(shared(r#"{"open":{"since":0}}"#), "half-open", "waits for an event to try")]
    #[case::no_event_to_try(shared(r#"{"half-open":{"grants":[]}}"#), "half-open", "waits for an event to try")]
    #[case::two_are_tried(
        shared(r#"{"half-open":{"grants":[{"to":"a"},{"to":"a","until":9000000},{"to":"b","until":9000000}]}}"#),
        "half-open",
        "events that are tried: 2"
    )]
    #[case::without_the_register(Known::OfEachWorker, "of each worker", "the log of each worker tells")]
    #[case::no_state(Known::NoState, "unreadable", "the next worker with an event replaces it")]
    fn a_breaker_is_shown_as_it_is(#[case] state: Known, #[case] word: &str, #[case] next: &str) {
        let (window, cooldown) = (Duration::from_secs(30), Some(Duration::from_mins(1)));
        let spec = BreakerSpec { errors: Errors::Count(100), window, cooldown, probes: 5 };
        let info = BreakerInfo { event_type: "pay".parse().expect("a type"), spec, state };
        let now = Timestamp::from_second(7_200).expect("a time");
        let view = BreakerView::of(&info, now);
        assert_eq!(view.state, word);
        let screen = screen(&[view], now);
        assert!(screen.contains(next), "{screen}");
    }
}
