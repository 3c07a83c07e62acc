//! A worker's steps: `src/flow/work.rs`, `claim.rs` and `settle.rs`.
//!
//! A delivery that nobody has claimed yet is as good as in its queue, so delivering and claiming are one step, and a copy
//! that finds its reference busy stays where it is. What the register does not want is acknowledged in the same step: a
//! crash in between changes nothing but that it is asked again.

use hatchery::internals::{
    register::{Claimed, Reserved},
    settlement::{self, Decision, Next, Outcome, Ran},
    spec::{OnFailure, Retry},
};

use crate::{
    leases,
    message::{Message, Place, Tick},
    order::{Effect, Effects},
    properties,
    publisher::later,
    register::time,
    scenario::{Answer, Fault, Scenario},
    step::Step,
    world::{Doing, Ending, Late, Phase, Task, World},
};

/// What workers can do next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    let may = |fault| world.faults > 0 && scenario.allows(fault);
    for (worker, tasks) in world.workers.iter().enumerate() {
        // Two workers that are alike would do the same.
        let twin = world.workers.iter().take(worker).any(|other| other == tasks);
        if twin {
            continue;
        }
        for (message, one) in world.queue.iter().enumerate() {
            let same = world.queue.iter().take(message).any(|other| other == one);
            if same || one.due > world.now {
                continue;
            }
            steps.push(Step::Claim { worker, message, fault: None });
            for fault in [Fault::AnswerLost, Fault::CallLate].into_iter().filter(|fault| may(*fault)) {
                steps.push(Step::Claim { worker, message, fault: Some(fault) });
            }
        }
        for task in 0..tasks.len() {
            of_task(world, scenario, worker, task, steps);
        }
        of_worker(world, scenario, worker, steps);
    }
}

/// What a worker can do next with one of its deliveries, and what can happen to it meanwhile.
pub(crate) fn steps_of(world: &World, scenario: &Scenario, worker: usize, task: usize, steps: &mut Vec<Step>) {
    of_task(world, scenario, worker, task, steps);
    of_worker(world, scenario, worker, steps);
    leases::steps(world, scenario, steps);
}

fn of_worker(world: &World, scenario: &Scenario, worker: usize, steps: &mut Vec<Step>) {
    let Some(tasks) = world.workers.get(worker).filter(|tasks| !tasks.is_empty()) else { return };
    let may = |fault| world.faults > 0 && scenario.allows(fault);
    if may(Fault::WorkerCrashes) {
        steps.push(Step::WorkerCrashes(worker));
    }
    if tasks.iter().any(|task| task.delivery) && may(Fault::Disconnect) {
        steps.push(Step::Disconnects(worker));
    }
}

fn of_task(world: &World, scenario: &Scenario, worker: usize, task: usize, steps: &mut Vec<Step>) {
    let Some(one) = world.workers.get(worker).and_then(|tasks| tasks.get(task)) else { return };
    let may = |fault| world.faults > 0 && scenario.allows(fault);
    match one.phase {
        Phase::Unheard => {
            steps.push(Step::ClaimAgain { worker, task });
            steps.push(Step::GiveBack { worker, task, fault: None });
        }
        Phase::Running => {
            steps.push(Step::Ends { worker, task, answer: None });
            if world.answers > 0 {
                let answers = scenario.answers.iter().copied().map(Some);
                steps.extend(answers.map(|answer| Step::Ends { worker, task, answer }));
            }
            if may(Fault::GivesBack) {
                steps.push(Step::GiveBack { worker, task, fault: Some(Fault::GivesBack) });
            }
        }
        Phase::Ended => {
            steps.push(Step::Effect { worker, task, fault: None });
            let fault = match one.doing.todo.first() {
                Some(Effect::PublishCopy | Effect::PublishCopyLater | Effect::PublishLetter | Effect::PublishAgain) => {
                    Fault::ConfirmLost
                }
                Some(Effect::SettleCopied | Effect::SettleFinished) => Fault::CallLate,
                Some(Effect::ReserveAgain) => Fault::NoVersion,
                _ => return,
            };
            if may(fault) {
                steps.push(Step::Effect { worker, task, fault: Some(fault) });
            }
        }
    }
}

/// A delivery and its claim.
pub(crate) fn claim(
    world: &mut World,
    scenario: &Scenario,
    worker: usize,
    index: usize,
    fault: Option<Fault>,
) -> Option<()> {
    let message = *world.queue.get(index)?;
    let tasks = world.workers.get(worker)?;
    let token = match tasks.first() {
        Some(task) if scenario.protocol.token_per_process => task.doing.token,
        _ => world.fresh_token(),
    };
    // What runs in this process is waited for before an event runs alone.
    let quiet = tasks.iter().all(|task| task.phase == Phase::Ended && task.doing.todo == [Effect::Acknowledge]);
    let mut claimed = world.claim(scenario, &message, token, false);
    if claimed == Claimed::Alone && quiet {
        claimed = world.claim(scenario, &message, token, true);
    }
    if fault == Some(Fault::CallLate) {
        world.late.push(Late::Claim(message));
    }
    match claimed {
        Claimed::Busy | Claimed::Alone => return None,
        Claimed::Stale | Claimed::Replaced if fault == Some(Fault::AnswerLost) => return None,
        Claimed::Stale | Claimed::Replaced => {
            world.queue.remove(index);
        }
        Claimed::Later(then) => {
            let then = Tick::try_from(then.as_second()).ok()?;
            world.queue.get_mut(index)?.due = then;
        }
        Claimed::Run { fence, crashes, .. } => {
            let message = world.queue.remove(index);
            let stands = properties::starts(world, scenario, &message, fence);
            let doing = Doing { message, stands, fence, token, todo: &[], again: None };
            let mut task = Task { phase: Phase::Unheard, delivery: true, lost: false, doing };
            if fault != Some(Fault::AnswerLost) {
                run(&mut task, scenario, crashes, world.now);
            }
            world.workers.get_mut(worker)?.push(task);
        }
    }
    Some(())
}

/// The handler starts, unless the event has killed its worker too often: `run_and_settle`.
fn run(task: &mut Task, scenario: &Scenario, crashes: u32, now: Tick) {
    task.phase = Phase::Running;
    // Events of the model have ids.
    let attempts = task.doing.message.attempts.into();
    if let Some(decision) = settlement::crashed(crashes, 0, attempts, scenario.crash_limit, time(now)) {
        follow(task, scenario, &decision);
    }
}

/// The claim again, by its token: `ask`.
pub(crate) fn claim_again(world: &mut World, scenario: &Scenario, worker: usize, index: usize) -> Option<()> {
    let mut task = *world.workers.get(worker)?.get(index)?;
    let Doing { message, token, .. } = task.doing;
    let mut claimed = world.claim(scenario, &message, token, false);
    if claimed == Claimed::Alone {
        claimed = world.claim(scenario, &message, token, true);
    }
    match claimed {
        Claimed::Busy | Claimed::Alone | Claimed::Later(_) => return None,
        Claimed::Stale | Claimed::Replaced => {
            world.workers.get_mut(worker)?.remove(index);
        }
        Claimed::Run { fence, crashes, .. } => {
            // The handler starts by this answer, whatever an earlier one has said that nobody heard.
            task.doing.stands = properties::starts(world, scenario, &message, fence);
            (task.doing.fence, task.lost) = (fence, false);
            run(&mut task, scenario, crashes, world.now);
            *world.workers.get_mut(worker)?.get_mut(index)? = task;
        }
    }
    Some(())
}

/// Released and given back: `until_settled` when the drain limit is over, and `ask` when it is not heard.
pub(crate) fn give_back(world: &mut World, scenario: &Scenario, worker: usize, index: usize) -> Option<()> {
    let task = world.workers.get_mut(worker)?.remove(index);
    world.release(scenario, &task.doing);
    if task.delivery {
        world.queue.push(task.doing.message);
    }
    Some(())
}

/// A handler's end, and what is decided: `until_decided`.
pub(crate) fn ends(
    world: &mut World,
    scenario: &Scenario,
    worker: usize,
    index: usize,
    answer: Option<Answer>,
) -> Option<()> {
    let now = time(world.now);
    let (attempts_at_most, at) = (scenario.max_attempts.into(), time(later(world, scenario, 1)));
    let task = world.workers.get_mut(worker)?.get_mut(index)?;
    let reason = String::new();
    let outcome = match answer {
        None => Outcome::Done,
        Some(Answer::Retry) => Outcome::Retry { reason, after: None },
        Some(Answer::DeadLetter) => Outcome::DeadLetter { reason },
        Some(Answer::Requeue) => Outcome::Requeue { at, reason },
    };
    let Doing { message, stands, .. } = task.doing;
    let ran = Ran { id: "", attempts: message.attempts.into(), tries: 0, now };
    let retry = Retry { delays: vec!["1s".parse().ok()?], max_attempts: attempts_at_most, jitter: 0 };
    let Next::Settle(decision) = settlement::decide(outcome, ran, OnFailure::Retry, &retry) else { return None };
    follow(task, scenario, &decision);
    match answer {
        None => world.account.handled |= stands,
        Some(_) => world.answers -= 1,
    }
    Some(())
}

/// `follow_up`: what is left to do after a decision.
fn follow(task: &mut Task, scenario: &Scenario, decision: &Decision) {
    let order = &scenario.protocol.order;
    let stays = !matches!(task.doing.message.place, Place::Immediate | Place::First);
    task.phase = Phase::Ended;
    task.doing.todo = match decision {
        Decision::Finish | Decision::Drop { .. } => order.finish,
        Decision::Retry { .. } | Decision::RetryAfter { .. } => order.retry,
        Decision::DeadLetter(_) => order.dead_letter,
        Decision::Requeue { .. } if stays => order.requeue_in_place,
        Decision::Requeue { .. } => order.requeue,
    };
}

/// The next thing after a handler's end.
pub(crate) fn effect(
    world: &mut World,
    scenario: &Scenario,
    worker: usize,
    index: usize,
    fault: Option<Fault>,
) -> Option<()> {
    let task = *world.workers.get(worker)?.get(index)?;
    let doing = carry_out(world, scenario, task.doing, fault, true)?;
    let tasks = world.workers.get_mut(worker)?;
    if doing.todo.is_empty() {
        tasks.remove(index);
    } else {
        tasks.get_mut(index)?.doing = doing;
    }
    Some(())
}

/// One effect of a worker or a person, and what is left after it. The acknowledgement itself is that nobody holds the
/// delivery any more.
pub(crate) fn carry_out(
    world: &mut World,
    scenario: &Scenario,
    mut doing: Doing,
    fault: Option<Fault>,
    worker: bool,
) -> Option<Doing> {
    let order = &scenario.protocol.order;
    let Doing { message, stands, fence, token, .. } = doing;
    let (effect, rest) = doing.todo.split_first()?;
    // A retry waits for a moment, a handler's wish for two; what a person wants happens now, or at the date of its wish.
    let due = match effect {
        Effect::PublishCopyLater => later(world, scenario, 2),
        _ if worker => later(world, scenario, 1),
        _ => doing.again.map_or(world.now, |(_, at)| at),
    };
    let copy = Message { generation: message.generation + 1, due, serves: stands, ..message };
    match effect {
        Effect::PublishCopyLater => {
            world.reserve(scenario, message.event, message.place, due, None);
            world.queue.push(Message { attempts: 0, ..copy });
        }
        Effect::ReserveCopy => {
            let (due, asker) = (due.max(message.due), Some(message.stamp()));
            if world.reserve(scenario, message.event, message.place, due, asker) == Reserved::Stale {
                doing.todo = order.unwanted;
                return Some(doing);
            }
        }
        Effect::PublishCopy => world.queue.push(Message { attempts: message.attempts + u8::from(worker), ..copy }),
        Effect::PublishLetter => {
            let generation = message.generation + scenario.protocol.letter_generation;
            world.letters.push(Message { generation, due: world.now, ..copy });
        }
        Effect::ReserveAgain => return reserve_again(world, scenario, doing, rest, fault, order.unwanted),
        Effect::PublishAgain => world.queue.push(again(&doing)),
        #[cfg(test)]
        Effect::PublishDatedAgain => {
            let place = Place::DatedAt(1);
            world.queue.push(Message { place, generation: 0, attempts: 0, ..copy });
        }
        Effect::RecordAgain => {
            if let Some((version, at)) = doing.again.filter(|(version, _)| *version > 0) {
                world.record(scenario, message.event, Place::RequeuedAt(at), version, at);
            }
        }
        Effect::SettleFinished | Effect::SettleCopied => {
            let end = if *effect == Effect::SettleFinished { Ending::Finished } else { Ending::Copied(due) };
            world.settle(scenario, &message, fence, token, end);
            properties::settled(world, &message, fence, end);
            if fault == Some(Fault::CallLate) {
                world.late.push(Late::Settle { message, fence, end });
            }
        }
        Effect::Release => world.release(scenario, &doing),
        Effect::Acknowledge => {}
        Effect::Reserve | Effect::Publish | Effect::Record => return None,
    }
    if fault != Some(Fault::ConfirmLost) {
        doing.todo = rest;
    }
    Some(doing)
}

/// `requeue`: a version for the slot of the date. Without one it competes with nothing.
fn reserve_again(
    world: &mut World,
    scenario: &Scenario,
    mut doing: Doing,
    rest: Effects,
    fault: Option<Fault>,
    unwanted: Effects,
) -> Option<Doing> {
    let message = doing.message;
    let at = later(world, scenario, 1);
    let place = Place::RequeuedAt(at);
    doing.todo = rest;
    if fault == Some(Fault::NoVersion) {
        doing.again = Some((0, at));
        return Some(doing);
    }
    match world.reserve(scenario, message.event, place, at, Some(message.stamp())) {
        Reserved::Version(version) => {
            doing.again = Some((version, at));
            world.account.gives(place, version, message.event, doing.stands);
        }
        Reserved::Stale => doing.todo = unwanted,
    }
    Some(doing)
}

/// What comes again at the date.
fn again(doing: &Doing) -> Message {
    let message = doing.message;
    let (version, at) = doing.again.unwrap_or_default();
    let copy = Message { attempts: 0, due: at, serves: doing.stands, ..message };
    if version > 0 {
        Message { place: Place::RequeuedAt(at), version, generation: 0, ..copy }
    } else {
        Message { place: Place::Alone(message.event), version: 0, generation: message.generation + 1, ..copy }
    }
}

/// A worker dies: the broker has everything back, and its leases last until they run out.
pub(crate) fn crashes(world: &mut World, worker: usize) -> Option<()> {
    let tasks = std::mem::take(world.workers.get_mut(worker)?);
    world.queue.extend(tasks.iter().filter(|task| task.delivery).map(|task| task.doing.message));
    Some(())
}

/// Its connection is lost: the broker has everything back, and what runs goes on.
pub(crate) fn disconnects(world: &mut World, worker: usize) -> Option<()> {
    let tasks = world.workers.get_mut(worker)?;
    for task in tasks.iter_mut().filter(|task| task.delivery) {
        world.queue.push(task.doing.message);
        task.delivery = false;
    }
    // What has not started yet is let go: its patience is over (`unless_over`).
    Some(())
}
