//! Checks the keys against each other. Each key's own value was checked before.

use std::time::Duration;

use super::{
    amount::say,
    assemble, breakers,
    error::quote,
    field::Words as _,
    holding::{self, Holding, how_often, times},
    keys::{
        ACK_TIMEOUT, COALESCE, CONCURRENCY, DEFAULTS, DELAY, DRAIN_TIMEOUT, EXCLUSIVE, FailureWord, HANDLER_TIMEOUT,
        HATCHERIES, HORIZON, IMMEDIATE, IN_PLACE, KEEP_PAYLOAD, LADDER, LEASE, MAX_ATTEMPTS, MAX_WAIT, NAME,
        ON_FAILURE, PREFETCH, REGISTER, RENAMED_FROM, RESOLUTION, RETRY, RegisterWord, TRIES, TYPES, WINDOW,
    },
    schedules,
    section::{Origin, Reader, Section},
    sources,
};
use crate::domain::{
    delay::{Ladder, LadderError},
    safety::RESERVED,
    spec::Immediate,
    ttl::Ttl,
};

/// Reports every conflict between keys. A key whose own value was refused is skipped.
pub(super) fn all(reader: &mut Reader<'_>, top: &Section) {
    name(reader, top);
    hatcheries(reader, top);
    names(reader, top);
    sources::check(reader, top);
    let types = assemble::types(top).unwrap_or_default();
    schedules::check(reader, top, &types);
    breakers::check(reader, top, &types);
    if let Some(ladder) = top.get(&LADDER) {
        horizon(reader, ladder);
    }
    for (_, section) in types {
        if let Some(ack) = top.get(&ACK_TIMEOUT).copied()
            && let Some(holding) = Holding::of(&section, ack)
        {
            concurrency(reader, &section, holding);
            acknowledgement(reader, top, &section, holding, ack);
        }
        in_order(reader, &section);
        idle(reader, &section);
        if let Some(coalesce) = section.get(&COALESCE) {
            window(reader, coalesce);
            exclusive(reader, &section, coalesce);
            register(reader, &section, coalesce);
        }
    }
}

/// RabbitMQ reserves names with this prefix, and refuses to declare such objects.
fn name(reader: &mut Reader<'_>, top: &Section) {
    let now = top.get(&NAME).filter(|name| *name == RESERVED).and_then(|_| top.blame(&[NAME.name]));
    let before = top.get(&RENAMED_FROM).unwrap_or_default().iter().filter(|former| former.text == RESERVED);
    for span in now.map(|(_, span)| span).into_iter().chain(before.map(|former| former.span.clone())) {
        let message = format!("RabbitMQ keeps every name that begins with `{RESERVED}.` for itself");
        reader.refuse(&span, message, "write another word, like `billing`");
    }
}

/// A hatchery's queue is named after its TTL, so two hatcheries with the same TTL would be one queue.
fn hatcheries(reader: &mut Reader<'_>, top: &Section) {
    let timers = top.get(&HATCHERIES).unwrap_or_default();
    let mut first = std::collections::BTreeMap::new();
    for timer in timers {
        let text = reader.text.get(timer.span.clone()).unwrap_or_default();
        if let Some(before) = first.insert(timer.duration, text) {
            let message = format!("{} and {} are the same hatchery", quote(before), quote(text));
            reader.refuse(&timer.span, message, "remove one of the two: there is one queue for a TTL");
        }
    }
}

/// A current or former name may belong to one topology or type only.
fn names(reader: &mut Reader<'_>, top: &Section) {
    let name = top.get(&NAME).unwrap_or_default();
    for former in top.get(&RENAMED_FROM).unwrap_or_default().iter().filter(|former| former.text == name) {
        let message = format!("{} is the name that it has now", quote(name));
        reader.refuse(&former.span, message, "write the name that it had before, or remove `renamed-from`");
    }
    let said = top.get(&DEFAULTS).and_then(|defaults| defaults.blame(&[RENAMED_FROM.name]));
    if let Some((_, span)) = said.filter(|(origin, _)| *origin != Origin::Table) {
        reader.refuse(&span, "`defaults` cannot say what every type was called before", "write it in the type");
    }
    let types = top.get(&TYPES).unwrap_or_default();
    let mut taken: std::collections::BTreeMap<&str, &str> =
        types.iter().map(|named| (named.name.as_str(), named.name.as_str())).collect();
    for named in types {
        for former in named.section.get(&RENAMED_FROM).unwrap_or_default() {
            if let Some(other) = taken.insert(&former.text, &named.name) {
                let message = match other {
                    other if other == former.text => {
                        format!("{} is the name of a type that is there now", quote(other))
                    }
                    other => format!("{} was {} before, as it says above", quote(other), quote(&former.text)),
                };
                reader.refuse(&former.span, message, "a name that a type had before belongs to it alone");
            }
        }
    }
}

fn horizon(reader: &mut Reader<'_>, ladder: &Section) {
    let Some((resolution, horizon)) = assemble::resolution_and_horizon(ladder) else { return };
    let (Ok(step), Ok(longest)) = (Ttl::new(resolution), Ttl::new(horizon)) else { return };
    let Err(error) = Ladder::new(step, longest) else { return };
    let Some((_, span)) = ladder.blame(&[HORIZON.name, RESOLUTION.name]) else { return };
    let (message, help) = match error {
        LadderError::Short { .. } => (
            format!("the horizon {} is shorter than the resolution {}", say(horizon), say(resolution)),
            "write a longer `horizon`, or a shorter `resolution`",
        ),
        LadderError::Long { .. } => (
            format!("a ladder from {} to {} needs a queue of more than ten years", say(resolution), say(horizon)),
            "write a shorter `resolution` or `horizon`",
        ),
    };
    reader.refuse(&span, message, help);
}

fn concurrency(reader: &mut Reader<'_>, section: &Section, Holding { prefetch, concurrency, .. }: Holding) {
    if let (true, Some((_, span))) = (concurrency > prefetch, section.blame(&[CONCURRENCY.name, PREFETCH.name])) {
        let message = format!("{concurrency} handlers can never run with a prefetch of {prefetch}");
        let help = format!("write a `prefetch` of at least {concurrency}, or a `concurrency` of at most {prefetch}");
        reader.refuse(&span, message, help);
    }
}

/// The last prefetched delivery waits for all the others. It must be acknowledged before the broker's consumer timeout.
fn acknowledgement(
    reader: &mut Reader<'_>,
    top: &Section,
    section: &Section,
    holding: Holding,
    ack: Duration,
) -> Option<()> {
    let Holding { prefetch, concurrency, handler, drain, tries, pause, held } = holding;
    let (longest, runs) = (holding.longest(), holding.runs());
    if longest <= ack {
        return None;
    }
    let keys = [HANDLER_TIMEOUT.name, PREFETCH.name, DRAIN_TIMEOUT.name, CONCURRENCY.name];
    let in_place =
        section.get(&IN_PLACE).filter(|_| tries > 1).and_then(|section| section.blame(&[TRIES.name, DELAY.name]));
    let places = [section.blame(&keys), in_place, top.blame(&[ACK_TIMEOUT.name])];
    let (_, span) = places.into_iter().flatten().min_by_key(|(origin, _)| *origin)?;
    let before = if held.is_zero() {
        format!("{prefetch} prefetched, {concurrency} at a time: ")
    } else {
        format!("it hands them back after {}: ", say(held))
    };
    let of = match tries {
        1 => say(handler),
        _ => format!("{tries} tries of {} and {} between them", say(handler), say(pause)),
    };
    let message = format!(
        "a worker could hold a delivery for {}, and the broker waits {} for its acknowledgement \
         ({before}{runs} {} of {of}, then {} to drain)",
        say(longest),
        say(ack),
        if runs == 1 { "run" } else { "runs, one after the other," },
        say(drain),
    );
    let help = lower(ack.saturating_sub(held + drain), holding);
    let raise = if held.is_zero() { longest } else { times(holding.run().saturating_add(drain), 2) };
    let raise = format!("; or raise `ack-timeout` to {}, and the broker's consumer_timeout with it", say(raise));
    reader.refuse(&span, message, help + &raise);
    Some(())
}

/// Names the keys to lower, and their new values, so that all runs fit into `free`.
fn lower(free: Duration, holding: Holding) -> String {
    let Holding { concurrency, handler, tries, pause, .. } = holding;
    let (mut ways, runs, fitting) = (Vec::new(), holding.runs(), how_often(holding.run(), free));
    if fitting > 0 && runs > 1 {
        ways.push(format!("`prefetch` to {}", fitting.saturating_mul(concurrency)));
    }
    let tried = how_often(handler + pause, free) / runs;
    if tries > 1 && tried > 0 {
        ways.push(format!("`tries` to {tried}"));
    }
    let each = free / u32::try_from(runs.saturating_mul(tries).max(1)).unwrap_or(u32::MAX);
    let longest = each.saturating_sub(pause);
    if longest >= Duration::from_millis(1) {
        ways.push(format!("`handler-timeout` to {}", say(whole_seconds(longest))));
    }
    if ways.is_empty() {
        ways.push("`drain-timeout`, which leaves no time for a run".to_owned());
    }
    format!("lower {}", ways.join(", or "))
}

/// Rounds down to whole seconds, unless the duration is shorter than one.
const fn whole_seconds(duration: Duration) -> Duration {
    if duration.as_secs() > 0 { Duration::from_secs(duration.as_secs()) } else { duration }
}

/// A type with `on-failure: block` handles its events one by one, and tries each until it succeeds.
fn in_order(reader: &mut Reader<'_>, section: &Section) -> Option<()> {
    if !holding::blocks(section) {
        return None;
    }
    let own = |section: &Section, key| section.blame(&[key]).filter(|(origin, _)| *origin == Origin::Own);
    if let (Some((_, span)), true) = (own(section, CONCURRENCY.name), *section.get(&CONCURRENCY)? != 1) {
        let message = "a type with `on-failure: block` handles one event at a time";
        reader.refuse(&span, message, "remove `concurrency`, or write another `on-failure`");
    }
    if let Some((_, span)) = own(section.get(&RETRY)?, MAX_ATTEMPTS.name) {
        let message = "a type with `on-failure: block` tries an event until it works";
        reader.refuse(&span, message, "remove `max-attempts`, or write another `on-failure`");
    }
    Some(())
}

/// Refuses a key that has no effect in the type that sets it. `defaults` may set it for other types.
fn idle(reader: &mut Reader<'_>, section: &Section) -> Option<()> {
    let on_failure = section.get(&ON_FAILURE).copied()?;
    let (key, does_nothing) = match on_failure {
        FailureWord::InPlace => return None,
        FailureWord::Drop if section.is_own(RETRY.name) => (RETRY.name, "what fails is dropped, and never tried again"),
        _ => (IN_PLACE.name, "what fails is not tried again inside the worker"),
    };
    if section.is_own(key) {
        let (_, span) = section.blame(&[key])?;
        let message = format!("`{key}` does nothing here: with `on-failure: {}` {does_nothing}", on_failure.word());
        reader.refuse(&span, message, format!("remove `{key}`, or write another `on-failure`"));
    }
    Some(())
}

fn window(reader: &mut Reader<'_>, coalesce: &Section) -> Option<()> {
    let window = coalesce.get(&WINDOW).copied()?;
    if coalesce.get(&IMMEDIATE) == Some(&Immediate::Off) {
        let (_, span) = coalesce.blame(&[WINDOW.name, IMMEDIATE.name])?;
        let help = "write `immediate: latest` or `first` beside it, or remove `window`";
        reader.refuse(&span, "a window is for immediate events, and here each of them runs", help);
    }
    let max_wait = coalesce.get(&MAX_WAIT).copied()?;
    if max_wait < window {
        let (_, span) = coalesce.blame(&[MAX_WAIT.name, WINDOW.name])?;
        let message = format!("`max-wait` {} is shorter than the window {}", say(max_wait), say(window));
        reader.refuse(&span, message, format!("write a `max-wait` of at least {}", say(window)));
    }
    Some(())
}

/// Coalescing depends on which event of a reference ran last, so events of one reference must not run side by side.
fn exclusive(reader: &mut Reader<'_>, section: &Section, coalesce: &Section) -> Option<()> {
    if *section.get(&EXCLUSIVE)? || !assemble::coalesces(&assemble::coalesce(coalesce)) {
        return None;
    }
    let (_, span) = section.blame(&[EXCLUSIVE.name, COALESCE.name])?;
    let message = "a type that coalesces handles one event of a reference at a time";
    reader.refuse(&span, message, "remove `exclusive: off`, or write `coalesce: off`");
    Some(())
}

/// Refuses the keys that need the register in a type that switches it off.
fn register(reader: &mut Reader<'_>, section: &Section, coalesce: &Section) {
    if section.get(&REGISTER) != Some(&RegisterWord::Off) {
        return;
    }
    let has_window = coalesce.says(WINDOW.name) || coalesce.says(MAX_WAIT.name);
    let needs = [
        (COALESCE.name, assemble::coalesces(&assemble::coalesce(coalesce)) || has_window, "write `coalesce: off`"),
        (EXCLUSIVE.name, section.get(&EXCLUSIVE) == Some(&true), "write `exclusive: off`"),
        // Each type has a default lease. Only one that the type sets itself is a mistake.
        (LEASE.name, section.is_own(LEASE.name), "remove `lease`"),
        (KEEP_PAYLOAD.name, section.get(&KEEP_PAYLOAD).is_some_and(|bytes| *bytes > 0), "write `keep-payload: off`"),
    ];
    for (key, _, instead) in needs.into_iter().filter(|(_, needed, _)| *needed) {
        if let Some((_, span)) = section.blame(&[key, REGISTER.name]) {
            let message = format!("`{key}` needs the register, and this type says `register: off`");
            reader.refuse(&span, message, format!("{instead}, or switch the register on"));
        }
    }
}
