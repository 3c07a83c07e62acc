//! Describes a path to a state, with a line for each step.

use crate::{
    message::{Message, name},
    scenario::{Answer, Fault, Scenario},
    step::Step,
    world::{Doing, Late, World},
};

/// Takes the steps of a path again and describes them. Workers, tokens and versions keep their names here.
pub(crate) fn tell(scenario: &Scenario, way: &[u64]) -> Vec<String> {
    let mut world = World::new(scenario);
    let mut lines = Vec::new();
    for to in way {
        let mut steps = Vec::new();
        world.steps(scenario, &mut steps);
        let next = steps.into_iter().find_map(|step| {
            let next = world.after(scenario, step)?;
            let mut canonical = next.clone();
            canonical.canonical(scenario);
            (canonical.fingerprint() == *to).then_some((step, next))
        });
        let Some((step, next)) = next else {
            lines.push("(a step that is not found again)".to_owned());
            break;
        };
        lines.push(line(&world, scenario, step, &next));
        world = next;
        world.tidy(scenario);
    }
    lines
}

fn line(world: &World, scenario: &Scenario, step: Step, next: &World) -> String {
    let task = |worker: usize, task: usize| world.workers.get(worker).and_then(|tasks| tasks.get(task));
    let doing = |worker, index| task(worker, index).map(|task| task.doing);
    match step {
        Step::Publisher(n, fault) => publisher(world, n, fault, next),
        Step::Claim { worker, message, fault } => {
            let message = world.queue.get(message).copied();
            let runs = next.workers.iter().flatten().count() > world.workers.iter().flatten().count();
            let what = if runs { "starts" } else { "may not start" };
            let more = fault.map_or("", |fault| match fault {
                Fault::AnswerLost => "; the answer is lost",
                _ => "; the same call will arrive a second time",
            });
            format!("worker {}: claims and {what} {}{more}", worker + 1, shown(message))
        }
        Step::ClaimAgain { worker, task } => {
            let message = doing(worker, task).map(|doing| doing.message);
            format!("worker {}: asks again about {}", worker + 1, shown(message))
        }
        Step::GiveBack { worker, task, .. } => {
            let message = doing(worker, task).map(|doing| doing.message);
            format!("worker {}: gives {} back", worker + 1, shown(message))
        }
        Step::Ends { worker, task, answer } => {
            let answer = match answer {
                None => "done",
                Some(Answer::Retry) => "retry",
                Some(Answer::DeadLetter) => "dead letter",
                Some(Answer::Requeue) => "again later",
            };
            let message = doing(worker, task).map(|doing| doing.message);
            format!("worker {}: the handler of {} ends: {answer}", worker + 1, shown(message))
        }
        Step::Told { worker, task } => {
            let message = doing(worker, task).map(|doing| doing.message);
            format!("worker {}: is told that {} is cancelled", worker + 1, shown(message))
        }
        Step::Effect { worker, task, fault } => {
            format!("worker {}: {}", worker + 1, effect(doing(worker, task), fault))
        }
        Step::WorkerCrashes(worker) => format!("worker {} CRASHES", worker + 1),
        Step::Disconnects(worker) => format!("worker {} LOSES its connection; its handlers go on", worker + 1),
        Step::LeaseRunsOut { fault: None, .. } => "the lease of a dead worker runs out".to_owned(),
        Step::LeaseRunsOut { .. } => "the lease of a running handler RUNS OUT".to_owned(),
        Step::Arrives(late) => match world.late.get(late) {
            Some(Late::Record { event, .. }) => format!("the record of {} arrives", name(*event)),
            Some(Late::Claim(message)) => format!("a claim of {message} arrives; nobody gets the answer"),
            Some(Late::Settle { message, .. }) => format!("a settle of {message} arrives"),
            Some(Late::Cancel { action, .. }) => {
                format!("{:?} arrives; its caller no longer waits for it", scenario.actions.get(usize::from(*action)))
            }
            None => String::new(),
        },
        Step::RedisEmptied => "Redis is EMPTIED".to_owned(),
        Step::ReplicaStops => "the replica of Redis STOPS following".to_owned(),
        Step::RedisRolledBack => "that replica becomes the master: Redis is ROLLED BACK".to_owned(),
        Step::Acts { action, fault, .. } => {
            let about = next.person.map(|person| format!(" of {}", person.doing.message)).unwrap_or_default();
            let more = fault.map_or("", |fault| match fault {
                Fault::AnswerLost => "; the answer is LOST",
                Fault::CallLate => "; the same call will arrive a SECOND time",
                _ => "; GIVES UP before the call arrives",
            });
            format!("a person: {:?}{about}{more}", scenario.actions.get(action))
        }
        Step::Person(fault) => format!("the person: {}", effect(world.person.map(|person| person.doing), fault)),
        Step::PersonCrashes => "the person's program CRASHES".to_owned(),
        Step::Tick => format!("time: {}", next.now),
    }
}

fn publisher(world: &World, n: usize, fault: Option<Fault>, next: &World) -> String {
    let who = char::from(b'A' + u8::try_from(n).unwrap_or(0));
    if fault == Some(Fault::PublisherCrashes) {
        return format!("publisher {who} CRASHES");
    }
    let todo = world.publishers.get(n).and_then(|publisher| publisher.todo.first());
    let what = todo.map_or("begins, reserves".to_owned(), |effect| format!("{effect:?}").to_lowercase());
    let changed = world.events.iter().zip(&next.events).zip(0..).find(|((one, other), _)| one != other);
    let event = match changed {
        Some(((_, event), number)) => {
            format!(" {} in {} version {}", name(number), event.place, event.version % 1_000_000)
        }
        None => next
            .queue
            .iter()
            .find(|message| world.queue.iter().filter(|one| one == message).count() < copies(next, message))
            .map(|message| format!(": {message}"))
            .unwrap_or_default(),
    };
    let more = fault.map_or("", |fault| match fault {
        Fault::ConfirmLost => "; the confirm is LOST",
        Fault::NoVersion => "; Redis is AWAY",
        _ => "; the call is LATE",
    });
    format!("publisher {who}: {what}{event}{more}")
}

fn copies(world: &World, message: &Message) -> usize {
    world.queue.iter().filter(|one| *one == message).count()
}

fn effect(doing: Option<Doing>, fault: Option<Fault>) -> String {
    let Some(doing) = doing else { return String::new() };
    let what = doing.todo.first().map(|effect| format!("{effect:?}")).unwrap_or_default();
    let more = fault.map_or("", |fault| match fault {
        Fault::ConfirmLost => "; the confirm is LOST",
        Fault::NoVersion => "; Redis is AWAY",
        _ => "; the same call will arrive a SECOND time",
    });
    format!("{what}, for {}{more}", doing.message)
}

fn shown(message: Option<Message>) -> String {
    message.map(|message| message.to_string()).unwrap_or_default()
}
