//! The call that settles and claims, which the script answers item by item.

use std::{collections::BTreeMap, vec};

use futures_util::future::join_all;

use super::{RedisRegister, items::Item, scripts};
use crate::{
    domain::register::{Claim, Settle},
    ports::{RegisterError, SettledAndClaimed},
};

/// The answer of the script `settle_and_claim` to an item whose key cannot be read.
const UNREADABLE: i64 = -1;

/// The calls about one shard, and their places in the batch.
#[derive(Default)]
struct Part<'a> {
    settles: Vec<(usize, &'a Settle)>,
    claims: Vec<(usize, &'a Claim)>,
}

/// Answers, and their places in the batch.
type Placed<A> = Vec<(usize, Result<A, RegisterError>)>;

impl RedisRegister {
    /// Makes one call for each shard.
    pub(super) async fn settle_and_claim_by_shard(
        &self,
        settles: &[Settle],
        claims: &[Claim],
    ) -> Result<SettledAndClaimed, RegisterError> {
        let mut shards: BTreeMap<u16, Part<'_>> = BTreeMap::new();
        for (place, settle) in settles.iter().enumerate() {
            shards.entry(self.keys.shard(&settle.subject)).or_default().settles.push((place, settle));
        }
        for (place, claim) in claims.iter().enumerate() {
            shards.entry(self.keys.shard(&claim.subject)).or_default().claims.push((place, claim));
        }
        let (mut settled, mut claimed) = (Vec::with_capacity(settles.len()), Vec::with_capacity(claims.len()));
        // Waits for all shards even if one has failed, because the other calls are under way.
        for answers in join_all(shards.into_iter().map(|(shard, part)| call_shard(self, shard, part))).await {
            let (settles, claims) = answers?;
            settled.extend(settles);
            claimed.extend(claims);
        }
        Ok(SettledAndClaimed { settled: in_order(settled), claimed: in_order(claimed) })
    }
}

fn in_order<A>(mut answers: Placed<A>) -> Vec<Result<A, RegisterError>> {
    answers.sort_unstable_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn call_shard(
    register: &RedisRegister,
    shard: u16,
    Part { settles, claims }: Part<'_>,
) -> Result<(Placed<<Settle as Item>::Answer>, Placed<<Claim as Item>::Answer>), RegisterError> {
    let mut script = register.begin(&scripts::SETTLE_AND_CLAIM, shard);
    script.arg(settles.len());
    for (_, settle) in &settles {
        script.arg(settle.argument(&register.keys));
    }
    for (_, claim) in &claims {
        script.arg(claim.argument(&register.keys));
    }
    let (raw, failures) = register.call_with_failures::<i64>(&script, shard, register.limit.into()).await?;
    let (answered, asked) = (raw.len(), settles.len() * Settle::VALUES + claims.len() * Claim::VALUES);
    if answered != asked {
        return Err(register.client.unexpected(format!("{answered} values answer a call for {asked}")));
    }
    let (mut raw, mut failures) = (raw.into_iter(), failures.into_iter());
    let settled = read(register, &settles, &mut raw, &mut failures)?;
    Ok((settled, read(register, &claims, &mut raw, &mut failures)?))
}

fn read<I: Item<Raw = i64>>(
    register: &RedisRegister,
    items: &[(usize, &I)],
    raw: &mut vec::IntoIter<i64>,
    failures: &mut vec::IntoIter<Vec<u8>>,
) -> Result<Placed<I::Answer>, RegisterError> {
    let answer = |(place, item): &(usize, &I)| {
        if raw.as_slice().first() == Some(&UNREADABLE) {
            raw.by_ref().take(I::VALUES).for_each(drop);
            let reason = failures.next().unwrap_or_default();
            let reason = String::from_utf8_lossy(&reason).into_owned();
            return Ok((*place, Err(RegisterError::Unreadable { url: register.client.url(), reason })));
        }
        let answer = item.read(raw).ok_or_else(|| register.client.unexpected("a value is missing".to_owned()))?;
        Ok((*place, Ok(answer)))
    };
    items.iter().map(answer).collect()
}
