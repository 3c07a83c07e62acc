//! The cases. Each has two sides that take turns: hatchery and a baseline.

mod end_to_end;
mod publish;
mod work;

use self::Kind::{EndToEnd, Publish, Work};

use anyhow::{Context as _, bail};
use tokio::time::timeout;

use crate::{load::Load, meter::Measured, side::Side, surroundings::Surroundings, topology::Type};

/// The usual number of events of most cases.
const USUAL: u32 = 50_000;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What is measured.
    pub(crate) about: &'static str,
    /// What it is compared with.
    pub(crate) beside: &'static str,
    /// The usual number of events.
    pub(crate) events: u32,
    kind: Kind,
}

enum Kind {
    Publish(Type),
    Work(Type),
    EndToEnd(Type),
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
            Publish(event_type) => publish::run(around, event_type, load, side).await,
            Work(event_type) => work::run(around, event_type, load, side).await,
            EndToEnd(event_type) => end_to_end::run(around, event_type, load, side).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_selected_by_its_name_or_first_word() {
        for (name, count) in [("publish", 3), ("publish-latest", 1), ("end-to-end", 1)] {
            assert_eq!(selected(&[name.to_owned()]).unwrap().len(), count, "{name}");
        }
        assert_eq!(selected(&[]).unwrap().len(), ALL.len());
        for unknown in ["publ", "publish-", "latest", ""] {
            assert!(selected(&[unknown.to_owned()]).is_err(), "{unknown}");
        }
    }
}
