//! The results of the rounds of a peer.

use serde::Serialize;

use super::program::Ran;
use crate::{
    meter::Measured,
    rounds::{Median, Middle},
};

/// A round of hatchery and of one peer.
pub(super) struct Turn {
    pub(super) publish: Measured,
    pub(super) work: Measured,
    pub(super) peer: Ran,
}

/// The rounds of a peer, and what they come to.
#[derive(Serialize)]
pub(crate) struct Results {
    pub(super) peer: &'static str,
    pub(super) version: String,
    settings: serde_json::Value,
    pub(super) work: Phase,
    pub(super) publish: Phase,
    /// How many times as fast as the peer hatchery is to work at least.
    pub(super) at_least: f64,
}

/// One of the two things that are measured.
#[derive(Serialize)]
pub(super) struct Phase {
    pub(super) ours: Median,
    pub(super) peer: Median,
    /// Events a second of hatchery divided by those of the peer, round by round.
    pub(super) ratio: Middle,
    rounds: Vec<Round>,
}

#[derive(Serialize)]
struct Round {
    ours: Measured,
    peer: Measured,
    ratio: f64,
}

impl Results {
    /// Returns nothing if there was no turn.
    pub(super) fn of(peer: &'static str, at_least: f64, turns: &[Turn]) -> Option<Self> {
        let (version, settings) = turns.first().map(|turn| (turn.peer.version.clone(), turn.peer.settings.clone()))?;
        let work = Phase::of(turns.iter().map(|turn| (turn.work.clone(), turn.peer.work.clone())));
        let publish = Phase::of(turns.iter().map(|turn| (turn.publish.clone(), turn.peer.publish.clone())));
        Some(Self { peer, version, settings, work, publish, at_least })
    }
}

impl Phase {
    fn of(sides: impl Iterator<Item = (Measured, Measured)>) -> Self {
        let round = |(ours, peer): (Measured, Measured)| {
            let ratio = ours.events_per_second / peer.events_per_second;
            Round { ours, peer, ratio }
        };
        let rounds: Vec<Round> = sides.map(round).collect();
        Self {
            ours: Median::of(rounds.iter().map(|round| &round.ours)),
            peer: Median::of(rounds.iter().map(|round| &round.peer)),
            ratio: Middle::of(rounds.iter().map(|round| round.ratio)),
            rounds,
        }
    }
}
