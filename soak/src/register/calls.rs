//! Builds the calls to the register that are measured.

use std::time::Duration;

use anyhow::bail;
use hatchery::internals::{
    ports::Register as _,
    redis::RedisRegister,
    register::{
        Cancel, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Record, Reserve, Reserved, Settle, Subject, Terms,
    },
    spec::RedisSpec,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::server::Server;

/// The number of calls in a batch: as many as the library sends at once.
pub(super) const BATCH: usize = 256;

const TERMS: Terms = Terms {
    exclusive: true,
    lease: Duration::from_hours(1),
    dedup_retention: Duration::from_hours(1),
    max_wait: Duration::from_secs(30),
};

/// Returns the terms of a slot's type: one that coalesces nothing does not exclude its events from each other either.
fn terms(slot: &DedupSlot) -> Terms {
    Terms { exclusive: !matches!(slot, DedupSlot::Event(_)), ..TERMS }
}

const HORIZON: Duration = Duration::from_hours(365 * 24);

pub(super) fn subject(number: u32) -> anyhow::Result<Subject> {
    let reference = format!("{:010}", u64::from(number) * 7 + 1_000_000_000);
    Ok(Subject {
        event_type: "hr-import".parse()?,
        reference: Some(reference.parse()?),
        id: Uuid::now_v7().to_string(),
    })
}

pub(super) async fn register(server: &Server) -> anyhow::Result<RedisRegister> {
    let spec = RedisSpec {
        prefix: "hatchery".to_owned(),
        shards: 1,
        dedup_retention: TERMS.dedup_retention,
        backlog_retention: Duration::from_hours(7 * 24),
    };
    let register = RedisRegister::new(&server.url, "/", &"billing".parse()?, &spec)?;
    register.ping().await?;
    Ok(register.with_limit(Duration::from_mins(1)))
}

pub(super) fn reserve(subject: &Subject, stamp: &CopyVersion, due: Timestamp) -> Reserve {
    Reserve { subject: subject.clone(), slot: stamp.slot.clone(), due, asked_by: None, terms: terms(&stamp.slot) }
}

pub(super) fn note(subject: &Subject, stamp: &CopyVersion, due: Timestamp, reason: Option<&str>) -> Record {
    Record {
        subject: subject.clone(),
        slot: stamp.slot.clone(),
        version: stamp.version,
        due,
        reason: reason.map(str::to_owned),
        kept: None,
        terms: terms(&stamp.slot),
    }
}

pub(super) fn version(answer: Reserved) -> anyhow::Result<i64> {
    let Reserved::Version(version) = answer else { bail!("unexpected answer to a reserve: stale") };
    Ok(version)
}

pub(super) fn claim(subject: &Subject, stamp: &CopyVersion, due: Timestamp) -> Claim {
    let (subject, stamp, terms) = (subject.clone(), stamp.clone(), terms(&stamp.slot));
    Claim { subject, stamp, token: Uuid::now_v7(), due, alone: false, terms }
}

/// Returns the settlement of a claim that was granted.
pub(super) fn settle((claim, answer): (Claim, ClaimAnswer)) -> anyhow::Result<Settle> {
    let ClaimAnswer::Run { fence, stamp, .. } = answer else { bail!("the claim was refused: {answer:?}") };
    let Claim { subject, token, due, terms, .. } = claim;
    Ok(Settle { subject, stamp, fence, token, due, end: End::Finished, terms })
}

pub(super) fn cancel(subject: &Subject, slot: Option<&DedupSlot>) -> Cancel {
    Cancel { subject: subject.clone(), slot: slot.cloned(), due: None, horizon: HORIZON }
}
