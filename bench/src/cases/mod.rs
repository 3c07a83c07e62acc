//! The cases. Each has two sides that take turns: hatchery and a baseline.

mod end_to_end;
mod publish;
mod work;

use self::Kind::{EndToEnd, Publish, Work};
use crate::{args::Args, load::Load, meter::Measured, surroundings::Surroundings, topology::Type};

/// The usual number of events of most cases.
const USUAL: u32 = 50_000;
/// The usual number of events that are due at one instant, or at random.
pub(crate) const INSTANT: u32 = 100_000;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What is measured.
    pub(crate) about: &'static str,
    /// What it is compared with.
    pub(crate) beside: &'static str,
    /// The usual number of events.
    events: u32,
    kind: Kind,
}

enum Kind {
    Publish(Type),
    Work(Type),
    EndToEnd(Type),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Bare,
}

const CONFIRMS: &str = "lapin, one confirm channel, as many unconfirmed";
const CONSUMER: &str = "a lapin consumer, same prefetch, one ack for 50";

const ALL: [Case; 7] = [
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
        kind: Work(Type::Unregistered),
    },
    Case {
        name: "work-each",
        about: "work, register on, no coalescing",
        beside: CONSUMER,
        events: USUAL,
        kind: Work(Type::Each),
    },
    Case {
        name: "work-latest",
        about: "work, coalesce: latest",
        beside: CONSUMER,
        events: USUAL,
        kind: Work(Type::Latest),
    },
    Case {
        name: "end-to-end",
        about: "publish and work at the same time, register on",
        beside: "lapin that does both",
        events: USUAL,
        kind: EndToEnd(Type::Each),
    },
];

/// Checks the name of a case, or the first word of several names.
pub(crate) fn check_name(name: &str) -> Result<String, String> {
    let known = ALL.iter().any(|case| case.is_called(name));
    known.then(|| name.to_owned()).ok_or_else(|| "no such case; --list prints all".to_owned())
}

/// Returns the selected cases, or all if none is selected.
pub(crate) fn selected(names: &[String]) -> Vec<&'static Case> {
    ALL.iter().filter(|case| names.is_empty() || names.iter().any(|name| case.is_called(name))).collect()
}

impl Case {
    fn is_called(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) && !name.is_empty()
    }

    pub(crate) fn load(&self, args: &Args) -> Load {
        Load::of(args, self.events)
    }

    /// Runs one side once.
    pub(crate) async fn run(&self, around: &mut Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
        around.clear().await?;
        match self.kind {
            Publish(event_type) => publish::run(around, event_type, load, side).await,
            Work(event_type) => work::run(around, event_type, load, side).await,
            EndToEnd(event_type) => end_to_end::run(around, event_type, load, side).await,
        }
    }
}
