//! Measures the cost of the register: Redis's memory for each event that waits, was handled or was cancelled, and the
//! time of each call.

mod calls;
mod hot;
mod server;

use std::time::{Duration, Instant};

use hatchery::internals::{
    ports::Register as _,
    redis::RedisRegister,
    register::{CopyVersion, DedupSlot, Subject},
};
use jiff::Timestamp;

use self::{
    calls::{BATCH, cancel, claim, note, register, reserve, settle, subject, version},
    server::Server,
};
use crate::harness::{Console, Table, grouped};

/// The most bytes that a waiting event may cost, without a reason.
const MOST: u64 = 420;
/// A reason of 40 characters.
const REASON: &str = "message: queue=hr-changes id=1234-567890";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events, each of a reference of its own
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    events: u32,
}

/// The kind of the events.
#[derive(Clone, Copy)]
enum Kind {
    /// `immediate: latest` with a window.
    Latest,
    /// `delayed: each-time`.
    EachTime,
    /// A handler's `Requeue`, or a person's reschedule.
    Requeued,
    /// No coalescing.
    Alone,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Latest => "latest, window 2s",
            Self::EachTime => "each time, in 30 days",
            Self::Requeued => "requeued, in 30 days",
            Self::Alone => "not coalesced",
        }
    }

    fn due(self, now: Timestamp) -> Timestamp {
        now + match self {
            Self::Latest => Duration::from_secs(2),
            Self::EachTime | Self::Requeued => Duration::from_hours(30 * 24),
            Self::Alone => Duration::ZERO,
        }
    }

    fn slot(self, id: &str, due: Timestamp) -> DedupSlot {
        match self {
            Self::Latest => DedupSlot::Immediate,
            Self::EachTime => DedupSlot::DatedAt(due.as_millisecond()),
            Self::Requeued => DedupSlot::RequeuedAt(due.as_millisecond()),
            Self::Alone => DedupSlot::Event(id.to_owned()),
        }
    }
}

/// The end of the waiting events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Handled,
    Cancelled,
}

/// One use of the register, measured by itself in an empty Redis.
struct Case {
    kind: Kind,
    reason: Option<&'static str>,
    fate: Fate,
}

const CASES: [Case; 9] = [
    Case { kind: Kind::Latest, reason: None, fate: Fate::Handled },
    Case { kind: Kind::Latest, reason: Some(REASON), fate: Fate::Cancelled },
    Case { kind: Kind::EachTime, reason: None, fate: Fate::Handled },
    Case { kind: Kind::EachTime, reason: Some(REASON), fate: Fate::Cancelled },
    Case { kind: Kind::Requeued, reason: None, fate: Fate::Handled },
    Case { kind: Kind::Requeued, reason: Some(REASON), fate: Fate::Cancelled },
    Case { kind: Kind::Alone, reason: None, fate: Fate::Handled },
    Case { kind: Kind::Alone, reason: Some(REASON), fate: Fate::Cancelled },
    Case { kind: Kind::Latest, reason: None, fate: Fate::Cancelled },
];

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    console.step("Start Redis");
    let mut server = Server::start().await?;
    let version = server.version().await?;
    let mut memory = Table::new(&["bytes of an event", "reason", "waiting", "handled", "cancelled", "must be"]);
    let mut time = Table::new(&["µs of an event", "reserve", "record", "claim", "settle", "cancel", ""]);
    for case in CASES {
        let what = case.kind.name();
        console.step(&format!("{} events: {what}", grouped(args.events)));
        let measured = measure(&case, args.events, &mut server, console).await?;
        let reason = case.reason.map_or(0, str::len).to_string();
        let [waiting, gone] = [measured.waiting, measured.gone].map(|bytes| bytes.to_string());
        let [handled, cancelled] = match case.fate {
            Fate::Handled => [gone.as_str(), ""],
            Fate::Cancelled => ["", gone.as_str()],
        };
        if case.reason.is_none() {
            let must = format!("waiting below {MOST}");
            memory.must(measured.waiting < MOST, &[what, &reason, &waiting, handled, cancelled, &must]);
        } else {
            memory.tell(&[what, &reason, &waiting, handled, cancelled, ""]);
        }
        let times = measured.times.map(|took| took.map_or_else(String::new, |micros| format!("{micros:.1}")));
        console.note(&format!("µs: {}", times.join(" ")));
        let [reserve, record, claim, settle, cancel] = times.each_ref().map(String::as_str);
        time.tell(&[what, reserve, record, claim, settle, cancel, ""]);
    }
    console.step("One reference with many dates");
    let hot = hot::table(&mut server).await?;
    console.step(&format!("The account, of Redis {version}"));
    console.say(&memory.render());
    console.say(&time.render());
    console.say(&hot.render());
    console.note(&format!("references of 10 characters, ids UUIDs; batches of {BATCH}; the time is Redis's CPU time"));
    console.note("the last table is of one reference: bytes of a date, and µs of a call about one event");
    let holds = memory.holds();
    server.end().await;
    Ok(holds)
}

/// The bytes of an event in Redis, and the µs of each call about it.
#[derive(Default)]
struct Measured {
    waiting: u64,
    gone: u64,
    /// Of *reserve*, *record*, *claim*, *settle* and *cancel*.
    times: [Option<f64>; 5],
}

async fn measure(case: &Case, events: u32, server: &mut Server, console: &mut Console) -> anyhow::Result<Measured> {
    server.flush().await?;
    let register = register(server).await?;
    let empty = server.memory().await?;
    let began = Instant::now();
    let (now, mut measured) = (Timestamp::now(), Measured::default());
    let due = case.kind.due(now);
    let subjects: Vec<Subject> = (0..events).map(subject).collect::<Result<_, _>>()?;
    let mut stamps = Vec::with_capacity(subjects.len());
    for batch in subjects.chunks(BATCH) {
        let slots = batch.iter().map(|subject| case.kind.slot(&subject.id, due));
        stamps.extend(slots.map(|slot| CopyVersion { slot, version: 0, generation: 0 }));
    }

    if !matches!(case.kind, Kind::Alone) {
        let before = server.busy().await?;
        for (batch, stamps) in subjects.chunks(BATCH).zip(stamps.chunks_mut(BATCH)) {
            let calls: Vec<_> =
                batch.iter().zip(&*stamps).map(|(subject, stamp)| reserve(subject, stamp, due)).collect();
            for (stamp, answer) in stamps.iter_mut().zip(register.reserve(&calls).await?) {
                stamp.version = version(answer)?;
            }
        }
        measured.times[0] = Some(server.busy().await?.since(before, events));
    }
    let before = server.busy().await?;
    for (batch, stamps) in subjects.chunks(BATCH).zip(stamps.chunks(BATCH)) {
        let calls: Vec<_> =
            batch.iter().zip(stamps).map(|(subject, stamp)| note(subject, stamp, due, case.reason)).collect();
        register.record(&calls).await?;
    }
    measured.times[1] = Some(server.busy().await?.since(before, events));
    measured.waiting = server.memory().await?.saturating_sub(empty) / u64::from(events);
    console.note(&format!("wait: {} bytes, {} ms", measured.waiting, began.elapsed().as_millis()));

    match case.fate {
        Fate::Handled => {
            let [claimed, settled] = handle(&register, server, &subjects, &stamps, due).await?;
            (measured.times[2], measured.times[3]) = (Some(claimed), Some(settled));
        }
        Fate::Cancelled => {
            let before = server.busy().await?;
            for (batch, stamps) in subjects.chunks(BATCH).zip(stamps.chunks(BATCH)) {
                let calls = batch.iter().zip(stamps).map(|(subject, stamp)| cancel(subject, Some(&stamp.slot)));
                register.cancel(&calls.collect::<Vec<_>>()).await?;
            }
            measured.times[4] = Some(server.busy().await?.since(before, events));
        }
    }
    measured.gone = server.memory().await?.saturating_sub(empty) / u64::from(events);
    console.note(&format!("gone: {} bytes, {} ms", measured.gone, began.elapsed().as_millis()));
    Ok(measured)
}

/// Claims and settles the events, one batch after the other. Returns the µs of a *claim* and of a *settle*.
async fn handle(
    register: &RedisRegister,
    server: &mut Server,
    subjects: &[Subject],
    stamps: &[CopyVersion],
    due: Timestamp,
) -> anyhow::Result<[f64; 2]> {
    let events = u32::try_from(subjects.len())?;
    let (mut claimed, mut settled) = (0.0, 0.0);
    for (batch, stamps) in subjects.chunks(BATCH).zip(stamps.chunks(BATCH)) {
        let calls: Vec<_> = batch.iter().zip(stamps).map(|(subject, stamp)| claim(subject, stamp, due)).collect();
        let before = server.busy().await?;
        let answers = register.claim(&calls).await?;
        let between = server.busy().await?;
        let calls: Vec<_> = calls.into_iter().zip(answers).map(settle).collect::<Result<_, _>>()?;
        register.settle(&calls).await?;
        claimed += between.since(before, events);
        settled += server.busy().await?.since(between, events);
    }
    Ok([claimed, settled])
}
