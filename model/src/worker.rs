//! The steps of a worker, as in `src/work`.
//!
//! A delivery that is not claimed yet makes no difference to a message in its queue. So delivery and claim are one
//! step, and a copy whose reference is busy stays in the queue. A copy that the register does not want is acknowledged
//! in the same step, because a crash in between would only lead to another claim.

use hatchery::internals::{
    register::{ClaimAnswer, Renewed, Reserved},
    settlement::{self, Decision, Finish, Next, Outcome, Ran},
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

/// Adds the steps that workers can take next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    let may = |fault| world.faults > 0 && scenario.allows(fault);
    for (worker, tasks) in world.workers.iter().enumerate() {
        // Two workers in the same state would take the same steps.
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

/// Adds the steps that a worker can take next with one of its deliveries, and the faults that can happen to it.
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
            if is_stale(world, &one.doing.message) {
                steps.push(Step::Told { worker, task });
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

/// Delivers a message and claims it.
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
    // An event runs alone only when nothing else runs in this process.
    let quiet = tasks.iter().all(|task| task.phase == Phase::Ended && task.doing.todo == [Effect::Acknowledge]);
    let mut claimed = world.claim(scenario, &message, token, false);
    if claimed == ClaimAnswer::Alone && quiet {
        claimed = world.claim(scenario, &message, token, true);
    }
    if fault == Some(Fault::CallLate) {
        world.late.push(Late::Claim(message));
    }
    match claimed {
        ClaimAnswer::Busy | ClaimAnswer::Alone => return None,
        ClaimAnswer::Stale | ClaimAnswer::Replaced if fault == Some(Fault::AnswerLost) => return None,
        ClaimAnswer::Stale | ClaimAnswer::Replaced => {
            world.queue.remove(index);
        }
        ClaimAnswer::Later(then) => {
            let then = Tick::try_from(then.as_second()).ok()?;
            world.queue.get_mut(index)?.due = then;
        }
        ClaimAnswer::Run { fence, crashes, .. } => {
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

/// Starts the handler, unless the event has killed its worker too often, as `run_and_settle` does.
fn run(task: &mut Task, scenario: &Scenario, crashes: u32, now: Tick) {
    task.phase = Phase::Running;
    // No redeliveries before the event had an id, because all events of the model have one.
    let attempts = task.doing.message.attempts.into();
    if let Some(decision) = settlement::crashed(crashes, 0, attempts, scenario.crash_limit, time(now)) {
        follow(task, scenario, &decision);
    }
}

/// Repeats a claim with its token, as `ask` does.
pub(crate) fn claim_again(world: &mut World, scenario: &Scenario, worker: usize, index: usize) -> Option<()> {
    let mut task = *world.workers.get(worker)?.get(index)?;
    let Doing { message, token, .. } = task.doing;
    let mut claimed = world.claim(scenario, &message, token, false);
    if claimed == ClaimAnswer::Alone {
        claimed = world.claim(scenario, &message, token, true);
    }
    match claimed {
        ClaimAnswer::Busy | ClaimAnswer::Alone | ClaimAnswer::Later(_) => return None,
        ClaimAnswer::Stale | ClaimAnswer::Replaced => {
            world.workers.get_mut(worker)?.remove(index);
        }
        ClaimAnswer::Run { fence, crashes, .. } => {
            // The handler starts by this answer. The earlier answer was lost.
            task.doing.stands = properties::starts(world, scenario, &message, fence);
            (task.doing.fence, task.lost) = (fence, false);
            run(&mut task, scenario, crashes, world.now);
            *world.workers.get_mut(worker)?.get_mut(index)? = task;
        }
    }
    Some(())
}

/// Releases a claim and gives the delivery back, as `until_settled` does after the drain timeout, and `ask` without an
/// answer.
pub(crate) fn give_back(world: &mut World, scenario: &Scenario, worker: usize, index: usize) -> Option<()> {
    let task = world.workers.get_mut(worker)?.remove(index);
    world.release(scenario, &task.doing);
    if task.delivery {
        world.queue.push(task.doing.message);
    }
    Some(())
}

/// Ends a handler and decides what follows, as `until_decided` does.
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

/// Tells whether the slot's mark has passed a copy, so that the answer to a renewal may be another one than before.
fn is_stale(world: &World, message: &Message) -> bool {
    let slot = world.register.slots.iter().find(|(place, _)| *place == message.place);
    slot.is_some_and(|(_, slot)| slot.stale(message.version, message.generation))
}

/// Ends a handler whose event was cancelled, as `end_cancelled` does.
pub(crate) fn told(world: &mut World, scenario: &Scenario, worker: usize, index: usize) -> Option<()> {
    let doing = world.workers.get(worker)?.get(index)?.doing;
    if world.renew(scenario, &doing) != Renewed::Cancelled {
        return None;
    }
    let task = world.workers.get_mut(worker)?.get_mut(index)?;
    follow(task, scenario, &Decision::Finish(Finish::Cancelled));
    Some(())
}

/// Sets the effects that follow a decision, as `follow_up` does.
fn follow(task: &mut Task, scenario: &Scenario, decision: &Decision) {
    let order = &scenario.protocol.order;
    let stays = !matches!(task.doing.message.place, Place::Immediate | Place::First);
    task.phase = Phase::Ended;
    task.doing.todo = match decision {
        Decision::Finish(_) | Decision::Drop { .. } => order.finish,
        Decision::Retry { .. } | Decision::RetryAfter { .. } => order.retry,
        Decision::DeadLetter(_) | Decision::Expire(..) => order.dead_letter,
        Decision::Requeue { .. } if stays => order.requeue_in_place,
        Decision::Requeue { .. } => order.requeue,
    };
}

/// Does the next effect after a handler's end.
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

/// Does one effect of a worker or a person, and returns the progress after it. The acknowledgement itself changes
/// nothing in the broker, because a task or a person already holds the delivery outside of the queue.
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
    // A retry is due in one tick, and a requeue within its slot in two. A person's copy is due now, or at the date of
    // the reschedule.
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
        Effect::ReserveAnew => {
            match world.reserve(scenario, message.event, message.place, due, Some(message.stamp())) {
                Reserved::Version(version) => {
                    doing.again = Some((version, due));
                    world.account.gives(message.place, version, message.event, stands);
                }
                Reserved::Stale => {
                    doing.todo = order.unwanted;
                    return Some(doing);
                }
            }
        }
        Effect::PublishAnew => {
            let (version, due) = doing.again?;
            world.queue.push(Message { version, generation: 0, attempts: 0, due, serves: stands, ..message });
        }
        Effect::RecordAnew => {
            let (version, due) = doing.again?;
            world.record(scenario, message.event, message.place, version, due);
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

/// Reserves a version in the slot of the new date, as `requeue` does. Without a version the copy goes to the event's
/// own slot.
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

/// Returns the requeued copy, which is due at the new date.
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

/// Kills a worker. Its deliveries go back to the queue, and its leases last until they run out.
pub(crate) fn crashes(world: &mut World, worker: usize) -> Option<()> {
    let tasks = std::mem::take(world.workers.get_mut(worker)?);
    world.queue.extend(tasks.iter().filter(|task| task.delivery).map(|task| task.doing.message));
    Some(())
}

/// Breaks the connection of a worker. Its deliveries go back to the queue, and its handlers go on.
pub(crate) fn disconnects(world: &mut World, worker: usize) -> Option<()> {
    let tasks = world.workers.get_mut(worker)?;
    for task in tasks.iter_mut().filter(|task| task.delivery) {
        world.queue.push(task.doing.message);
        task.delivery = false;
    }
    // The real worker drops a delivery that has not started yet (`unless_over`): here it is given back, by a later
    // step.
    Some(())
}
