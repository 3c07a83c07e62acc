//! Calls about batches in which one key may be unreadable.

use futures_util::future::BoxFuture;

use super::error::RegisterError;
use crate::domain::register::ClaimAnswer;

/// The answers to [`settle_and_claim`](super::Register::settle_and_claim), in the order of its items. An error concerns one
/// item alone: its key cannot be read.
#[derive(Debug)]
pub struct SettledAndClaimed {
    /// The answers to the settlements.
    pub settled: Vec<Result<(), RegisterError>>,
    /// The answers to the claims.
    pub claimed: Vec<Result<ClaimAnswer, RegisterError>>,
}

/// Calls the register about a batch. A key that cannot be read fails a whole call, so the batch is halved until each call
/// about such a key stands alone.
///
/// # Errors
/// When the register does not answer, or refuses this client.
pub(crate) async fn in_parts<'a, C, A>(
    batch: &'a [C],
    call: impl Fn(&'a [C]) -> BoxFuture<'a, Result<Vec<A>, RegisterError>>,
) -> Result<Vec<Result<A, RegisterError>>, RegisterError> {
    let mut answers = Vec::with_capacity(batch.len());
    let mut parts = vec![batch];
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        match call(part).await {
            Ok(answered) => answers.extend(answered.into_iter().map(Ok)),
            Err(RegisterError::Unreadable { .. }) if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error @ RegisterError::Unreadable { .. }) => answers.push(Err(error)),
            Err(error) => return Err(error),
        }
    }
    Ok(answers)
}
