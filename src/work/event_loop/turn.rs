//! One call to the register that settles what has run and claims what may start.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::{
    ports::{self, RegisterError},
    work::{
        lane::Lane,
        stage::{Confirmed, Ready},
    },
};

/// What was asked, and the answers.
pub(super) struct Turned {
    pub(super) asked: Instant,
    pub(super) settles: Vec<Confirmed>,
    pub(super) claims: Vec<Ready>,
    pub(super) answers: Result<ports::Turn, RegisterError>,
}

/// Makes the call.
pub(super) async fn turn(lane: Arc<Lane>, settles: Vec<Confirmed>, claims: Vec<Ready>) -> Turned {
    let settle: Vec<_> = settles.iter().filter_map(|confirmed| confirmed.settle(lane.terms)).collect();
    let claim: Vec<_> = claims.iter().map(|ready| ready.claim(false, lane.terms)).collect();
    let asked = Instant::now();
    let answers = lane.common.register.turn(&settle, &claim).await;
    Turned { asked, settles, claims, answers }
}

/// Waits for the call that is under way; for ever if there is none.
pub(super) async fn turned(turn: &mut Option<BoxFuture<'static, Turned>>) -> Turned {
    match turn {
        Some(turn) => turn.await,
        None => std::future::pending().await,
    }
}
