//! The call that a worker makes for many events at once: settles what has run, and claims what may start.

use super::{Register, RegisterError};
use crate::domain::register::{Claim, Claimed, Settle};

/// The answers to a turn, in the order of its calls. An error concerns one call alone: its key cannot be read.
#[derive(Debug)]
pub struct Turn {
    /// The answers to the settlements.
    pub settled: Vec<Result<(), RegisterError>>,
    /// The answers to the claims.
    pub claimed: Vec<Result<Claimed, RegisterError>>,
}

/// Makes a turn of two calls. A key that cannot be read fails a whole call, so the batch is halved until each call about
/// such a key stands alone.
///
/// # Errors
/// When the register does not answer, or refuses this client.
pub async fn turn_in_parts<R: Register + ?Sized>(
    register: &R,
    settles: &[Settle],
    claims: &[Claim],
) -> Result<Turn, RegisterError> {
    let mut turn = Turn { settled: Vec::with_capacity(settles.len()), claimed: Vec::with_capacity(claims.len()) };
    let mut parts = vec![settles];
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        match register.settle(part).await {
            Ok(()) => turn.settled.extend(part.iter().map(|_| Ok(()))),
            Err(error) => halve(part, error, &mut parts, &mut turn.settled)?,
        }
    }
    let mut parts = vec![claims];
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        match register.claim(part).await {
            Ok(claimed) => turn.claimed.extend(claimed.into_iter().map(Ok)),
            Err(error) => halve(part, error, &mut parts, &mut turn.claimed)?,
        }
    }
    Ok(turn)
}

/// Puts the halves of a part that met an unreadable key back, the first half on top.
fn halve<'a, C, A>(
    part: &'a [C],
    error: RegisterError,
    parts: &mut Vec<&'a [C]>,
    answers: &mut Vec<Result<A, RegisterError>>,
) -> Result<(), RegisterError> {
    match error {
        RegisterError::Unreadable { .. } if part.len() > 1 => {
            let (first, second) = part.split_at(part.len() / 2);
            parts.extend([second, first]);
            Ok(())
        }
        RegisterError::Unreadable { .. } => {
            answers.push(Err(error));
            Ok(())
        }
        error => Err(error),
    }
}
