//! The cases. Each has two sides that take turns: hatchery and a baseline.

mod cancel;
mod coalesce;
mod http;
mod instant;
mod latency;
mod random;
mod start;
mod throughput;

use self::{
    Kind::{Cancel, Coalesce, EndToEnd, Http, Instant, Latency, Publish, Random, Start, Work},
    cancel::Selection,
    http::Way,
    instant::Timer,
    latency::{SECONDS, Stream},
};

use anyhow::{Context as _, bail};
use tokio::time::timeout;

use crate::{
    load::{INSTANT, Load, Side},
    meter::Measured,
    surroundings::Surroundings,
    topology::Type,
};

/// The usual number of events of most cases.
const USUAL: u32 = 50_000;

/// The usual number of events where each call costs the more the more events wait.
const FEW: u32 = 5_000;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The measured work, in words.
    pub(crate) about: &'static str,
    /// The work that it is compared with, in words.
    pub(crate) beside: &'static str,
    /// The usual number of events.
    pub(crate) events: u32,
    kind: Kind,
}

enum Kind {
    Publish(Type),
    /// With handlers that run in the event loop, or in tasks of their own.
    Work {
        of: Type,
        inline: bool,
    },
    EndToEnd(Type),
    Instant(Timer),
    Random,
    Coalesce,
    Cancel(Selection),
    Start,
    Latency(Stream),
    Http(Way),
}

const CONFIRMS: &str = "lapin, one confirm channel, as many unconfirmed";
const CONSUMER: &str = "a lapin consumer, same prefetch, one ack for 50";
const SET: &str = "a Redis SET with expiry each, as many in flight";

const ALL: [Case; 30] = [
    Case {
        name: "publish-each",
        about: "publish, register on, no coalescing",
        beside: CONFIRMS,
        events: USUAL,
        kind: Publish(Type::Each),
    },
    Case {
        name: "publish-latest",
        about: "publish, coalesce: latest",
        beside: CONFIRMS,
        events: USUAL,
        kind: Publish(Type::Latest),
    },
    Case {
        name: "publish-unregistered",
        about: "publish, register: off",
        beside: CONFIRMS,
        events: USUAL,
        kind: Publish(Type::Unregistered),
    },
    Case {
        name: "work-unregistered",
        about: "work, register: off",
        beside: CONSUMER,
        events: USUAL,
        kind: Work { of: Type::Unregistered, inline: false },
    },
    Case {
        name: "work-each",
        about: "work, register on, no coalescing",
        beside: CONSUMER,
        events: USUAL,
        kind: Work { of: Type::Each, inline: false },
    },
    Case {
        name: "work-inline",
        about: "work, register on, handlers in the event loop",
        beside: CONSUMER,
        events: USUAL,
        kind: Work { of: Type::Each, inline: true },
    },
    Case {
        name: "work-latest",
        about: "work, coalesce: latest",
        beside: CONSUMER,
        events: USUAL,
        kind: Work { of: Type::Latest, inline: false },
    },
    Case {
        name: "end-to-end",
        about: "publish and work at the same time, register on",
        beside: "lapin that does both",
        events: USUAL,
        kind: EndToEnd(Type::Each),
    },
    Case {
        name: "instant-hatchery",
        about: "work what one hatchery releases at once, register on",
        beside: CONSUMER,
        events: INSTANT,
        kind: Instant(Timer::Hatchery),
    },
    Case {
        name: "instant-ladder",
        about: "work what is due at one instant in the ladder",
        beside: CONSUMER,
        events: INSTANT,
        kind: Instant(Timer::Ladder),
    },
    Case {
        name: "random",
        about: "random delays through the ladder, 1,000 events/s",
        beside: CONSUMER,
        events: INSTANT,
        kind: Random,
    },
    Case {
        name: "coalesce",
        about: "100 changes of each reference, latest, window 1 s",
        beside: "lapin that publishes as many and consumes each",
        events: INSTANT,
        kind: Coalesce,
    },
    Case {
        name: "cancel-reference",
        about: "cancel waiting events: all of a reference, which is one",
        beside: SET,
        events: FEW,
        kind: Cancel(Selection::Reference),
    },
    Case {
        name: "cancel-date",
        about: "cancel waiting events: by reference and date",
        beside: SET,
        events: USUAL,
        kind: Cancel(Selection::Date),
    },
    Case {
        name: "start",
        about: "start a worker process with a backlog, register on",
        beside: "a process with a lapin consumer",
        events: INSTANT,
        kind: Start,
    },
    Case {
        name: "http-batches",
        about: "publish over HTTP, 10,000 lines a request, register on",
        beside: "the library, 1,000 unconfirmed",
        events: USUAL,
        kind: Http(Way::Batches),
    },
    Case {
        name: "http-single",
        about: "publish over HTTP, a request each, 64 connections",
        beside: "the library, 64 unconfirmed",
        events: USUAL,
        kind: Http(Way::Single),
    },
    latency("latency-each-20", "latency, register on, no coalescing, 20 events/s", Type::Each, 20),
    latency("latency-each-200", "latency, register on, no coalescing, 200 events/s", Type::Each, 200),
    latency("latency-each-1000", "latency, register on, no coalescing, 1,000 events/s", Type::Each, 1_000),
    latency("latency-each-2000", "latency, register on, no coalescing, 2,000 events/s", Type::Each, 2_000),
    latency("latency-latest-20", "latency, coalesce: latest, 20 events/s", Type::Latest, 20),
    latency("latency-latest-200", "latency, coalesce: latest, 200 events/s", Type::Latest, 200),
    latency("latency-latest-2000", "latency, coalesce: latest, 2,000 events/s", Type::Latest, 2_000),
    latency("latency-unregistered-20", "latency, register: off, 20 events/s", Type::Unregistered, 20),
    latency("latency-unregistered-200", "latency, register: off, 200 events/s", Type::Unregistered, 200),
    latency("latency-unregistered-2000", "latency, register: off, 2,000 events/s", Type::Unregistered, 2_000),
    delayed("latency-ladder-20", "latency of delayed events, register on, 20 events/s", 20),
    delayed("latency-ladder-200", "latency of delayed events, register on, 200 events/s", 200),
    delayed("latency-ladder-2000", "latency of delayed events, register on, 2,000 events/s", 2_000),
];

const fn latency(name: &'static str, about: &'static str, of: Type, rate: u32) -> Case {
    let kind = Latency(Stream { of, rate, is_delayed: false });
    Case { name, about, beside: "lapin, one ack for each", events: rate * SECONDS, kind }
}

const fn delayed(name: &'static str, about: &'static str, rate: u32) -> Case {
    let kind = Latency(Stream { of: Type::Each, rate, is_delayed: true });
    Case { name, about, beside: "a lapin consumer, one ack for each", events: rate * SECONDS, kind }
}

/// Returns the cases that have these names or begin with these words, or all if there is no name.
///
/// # Errors
/// When a name is not known.
pub(crate) fn selected(names: &[String]) -> anyhow::Result<Vec<&'static Case>> {
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|case| case.is_called(name))) {
        bail!("there is no case {unknown:?}; --list prints all");
    }
    Ok(ALL.iter().filter(|case| names.is_empty() || names.iter().any(|name| case.is_called(name))).collect())
}

/// Returns the case that has this name.
pub(crate) fn named(name: &str) -> anyhow::Result<&'static Case> {
    ALL.iter().find(|case| case.name == name).with_context(|| format!("there is no case {name:?}"))
}

impl Case {
    fn is_called(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) && !name.is_empty()
    }

    /// Runs one side once.
    pub(crate) async fn run(&self, around: &Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
        around.clear().await?;
        // Publishing, and then handling.
        let limit = load.limit() * 2;
        let ran = timeout(limit, self.run_side(around, load, side)).await;
        ran.with_context(|| format!("{}, {side:?}: not done within {} s", self.name, limit.as_secs()))?
            .with_context(|| format!("{}, {side:?}", self.name))
    }

    async fn run_side(&self, around: &Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
        match self.kind {
            Publish(event_type) => throughput::publish(around, event_type, load, side).await,
            Work { of, inline } => throughput::work(around, of, inline, load, side).await,
            EndToEnd(event_type) => throughput::both(around, event_type, load, side).await,
            Instant(timer) => instant::run(around, timer, load, side).await,
            Random => random::run(around, load, side).await,
            Coalesce => coalesce::run(around, load, side).await,
            Cancel(selection) => cancel::run(around, selection, load, side).await,
            Start => start::run(around, load, side).await,
            Latency(stream) => latency::run(around, stream, load, side).await,
            Http(way) => http::run(around, way, load, side).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_selected_by_its_name_or_first_word() {
        for (name, count) in [("publish", 3), ("publish-latest", 1), ("end-to-end", 1), ("latency", 13), ("http", 2)] {
            assert_eq!(selected(&[name.to_owned()]).unwrap().len(), count, "{name}");
        }
        assert_eq!(selected(&[]).unwrap().len(), ALL.len());
        for unknown in ["publ", "publish-", "latest", ""] {
            assert!(selected(&[unknown.to_owned()]).is_err(), "{unknown}");
        }
    }
}
