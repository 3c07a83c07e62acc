//! The steps that can happen next. Each step is one effect: a message published, a state written, an event settled or acknowledged.

use hatchery::internals::schedule::{
    rule::{Arm, Mode},
    run::RunOutcome,
    state::{Admission, ScheduleState, Wanted},
};

use super::{
    scenario::{Fault, Protocol, Scenario},
    world::{At, Copy, End, Mark, Repair, Task, World},
};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A worker claims a message of the queue.
    Claim {
        worker: usize,
        message: usize,
    },
    /// A worker takes the next step with its event.
    Work {
        worker: usize,
    },
    Apply(usize),
    /// A worker with this file heals.
    Heal {
        file: u8,
    },
    Tick,
    WorkerCrashes(usize),
    ApplyCrashes(usize),
    HealingCrashes,
    Duplicates(usize),
    Purge,
    Flush,
}

impl World {
    pub(crate) fn steps(&self, scenario: &Scenario) -> Vec<Step> {
        let mut steps = Vec::new();
        for (worker, task) in self.workers.iter().enumerate() {
            match task {
                Some(_) => steps.push(Step::Work { worker }),
                None => steps.extend((0..self.queue.len()).map(|message| Step::Claim { worker, message })),
            }
        }
        steps.extend((0..self.applies.len()).map(Step::Apply));
        let files = &scenario.files[..if scenario.files[0] == scenario.files[1] { 1 } else { 2 }];
        steps.extend(files.iter().map(|file| Step::Heal { file: *file }));
        steps.push(Step::Tick);
        if self.faults > 0 {
            for kind in scenario.kinds {
                match kind {
                    Fault::Crash => {
                        steps.extend((0..self.workers.len()).map(Step::WorkerCrashes));
                        steps.extend((0..self.applies.len()).map(Step::ApplyCrashes));
                        steps.push(Step::HealingCrashes);
                    }
                    Fault::Duplicate => steps.extend((0..self.queue.len()).map(Step::Duplicates)),
                    Fault::Purge => steps.push(Step::Purge),
                    Fault::Flush => steps.push(Step::Flush),
                }
            }
        }
        steps
    }

    /// Returns the world after a step, and `None` if the step cannot happen.
    pub(crate) fn after(&self, scenario: &Scenario, step: Step) -> Option<Self> {
        let mut world = self.clone();
        let w = &mut world;
        match step {
            Step::Claim { worker, message } => w.claim(scenario, worker, message)?,
            Step::Work { worker } => w.work(scenario, worker)?,
            Step::Apply(n) => w.apply(scenario, n)?,
            Step::Heal { file } => w.heal(scenario, file)?,
            Step::Tick => w.tick(scenario)?,
            Step::WorkerCrashes(worker) => {
                let task = w.workers[worker].take()?;
                w.queue.push(task.copy);
                let mark = w.marks.entry(task.copy.arm.position).or_default();
                mark.leased = false;
                w.fault()?;
            }
            Step::ApplyCrashes(n) => {
                if matches!(w.applies[n], Repair::Idle | Repair::Done) {
                    return None;
                }
                // Whoever applies runs it again, or leaves it to the workers.
                w.applies[n] = Repair::Done;
                w.fault()?;
            }
            Step::HealingCrashes => {
                if w.healing == Repair::Idle {
                    return None;
                }
                w.healing = Repair::Idle;
                w.fault()?;
            }
            Step::Duplicates(message) => {
                let copy = w.queue[message];
                w.queue.push(copy);
                w.fault()?;
            }
            Step::Purge => {
                if w.queue.is_empty() {
                    return None;
                }
                w.queue.clear();
                w.has_lost = true;
                w.fault()?;
            }
            Step::Flush => {
                w.state = None;
                w.marks.clear();
                w.has_lost = true;
                w.fault()?;
            }
        }
        w.queue.sort_unstable();
        Some(world)
    }

    fn fault(&mut self) -> Option<()> {
        self.faults = self.faults.checked_sub(1)?;
        self.quiet = 0;
        Some(())
    }

    /// Time passes once everybody has done what they can do now.
    fn tick(&mut self, scenario: &Scenario) -> Option<()> {
        let can_claim = self.queue.iter().any(|copy| self.is_due(*copy) && !self.waits(scenario, *copy));
        let busy = self.workers.iter().flatten().any(|task| task.at != At::Running);
        let healing = scenario.heals() && self.is_applied() && !self.healed;
        let applying = !matches!(self.applies[0], Repair::Done);
        if can_claim || busy || healing || applying || self.healing != Repair::Idle || self.now >= scenario.ticks {
            return None;
        }
        self.now += 1;
        self.quiet += 1;
        self.healed = false;
        Some(())
    }

    /// Tells whether a due message waits for the end of another run: it goes round the busy hatchery.
    fn waits(&self, scenario: &Scenario, copy: Copy) -> bool {
        let mark = self.marks.get(&copy.arm.position).copied().unwrap_or_default();
        if mark.leased && !mark.finished {
            return true;
        }
        let link = Self::link(scenario, copy);
        let state = self.state.as_ref();
        !mark.finished && state.is_some_and(|state| state.admit(&link, false, self.time()) == Admission::Wait)
    }

    fn claim(&mut self, scenario: &Scenario, worker: usize, message: usize) -> Option<()> {
        let copy = *self.queue.get(message)?;
        // The order of equal messages makes no difference, and neither do the names of idle workers.
        let is_repeated = message > 0 && self.queue[message - 1] == copy;
        if !self.is_due(copy) || self.waits(scenario, copy) || is_repeated || self.workers[..worker].contains(&None) {
            return None;
        }
        self.queue.remove(message);
        let mark = self.marks.entry(copy.arm.position).or_default();
        if mark.finished {
            let link = Self::link(scenario, copy);
            let passes = scenario.protocol != Protocol::PassesNever;
            if passes
                && self.state.as_ref().is_some_and(|state| state.stands_at(&link))
                && let Some(next) = self.next(scenario, copy)
            {
                self.workers[worker] = Some(Task { copy, at: At::Arming(next, End::Passed) });
            }
            return Some(());
        }
        *mark = Mark { finished: false, leased: true };
        self.workers[worker] = Some(Task { copy, at: At::Claimed });
        Some(())
    }

    fn work(&mut self, scenario: &Scenario, worker: usize) -> Option<()> {
        let task = self.workers[worker]?;
        let Task { copy, at } = task;
        let link = Self::link(scenario, copy);
        let now = self.time();
        let at = match at {
            At::Claimed => {
                let own = scenario.definition(scenario.files[worker]).digest();
                self.state = ScheduleState::restored(self.state.take(), Some(&own), now);
                let admission = self.state.as_ref()?.admit(&link, false, now);
                let end = match admission {
                    Admission::Run => End::Run,
                    Admission::Skip(_) => End::Skip,
                    Admission::Drop { is_armed, .. } => {
                        let finishes = !is_armed || scenario.protocol == Protocol::FinishesArmed;
                        self.let_go(copy, finishes);
                        self.workers[worker] = None;
                        return Some(());
                    }
                    Admission::Wait => {
                        self.let_go(copy, false);
                        self.queue.push(copy);
                        self.workers[worker] = None;
                        return Some(());
                    }
                };
                let arms = scenario.mode == Mode::Fixed || end == End::Skip;
                let next = self.next(scenario, copy).filter(|_| arms);
                if let Some(arm) = next.filter(|_| scenario.protocol == Protocol::ArmedUnpublished) {
                    self.arm(scenario, copy.definition, arm);
                }
                match next {
                    Some(arm) if end == End::Skip => At::Arming(arm, end),
                    next => At::Starting(next, end),
                }
            }
            At::Arming(arm, end) => {
                self.publish(copy.definition, arm);
                At::Armed(arm, end)
            }
            At::Armed(arm, end) => {
                self.arm(scenario, copy.definition, arm);
                match end {
                    End::Over => {
                        self.end(scenario, copy);
                        At::Settling
                    }
                    End::Passed => At::Settled,
                    End::Run => At::Running,
                    End::Skip => self.start(scenario, copy, end),
                }
            }
            At::Starting(next, end) => {
                let started = self.start(scenario, copy, end);
                next.map_or(started, |arm| At::Arming(arm, end))
            }
            At::Running => At::Ended,
            At::Ended => {
                let next = self.next(scenario, copy).filter(|_| scenario.mode == Mode::Sequential);
                if let Some(arm) = next {
                    At::Arming(arm, End::Over)
                } else {
                    self.end(scenario, copy);
                    At::Settling
                }
            }
            At::Settling => {
                let mark = self.marks.entry(copy.arm.position).or_default();
                *mark = Mark { finished: true, leased: false };
                *self.finished.entry(copy.arm.position).or_default() += 1;
                At::Settled
            }
            At::Settled => {
                self.workers[worker] = None;
                return Some(());
            }
        };
        self.workers[worker] = Some(Task { copy, at });
        Some(())
    }

    /// Returns the event to publish after this one, if the chain goes on from it.
    fn next(&self, scenario: &Scenario, copy: Copy) -> Option<Arm> {
        let link = Self::link(scenario, copy);
        let is_next =
            self.state.as_ref().is_some_and(|state| state.is_next(&link)) || scenario.protocol == Protocol::ArmsAlways;
        let next = || link.rule.next(&link.schedule, copy.arm.position, self.time());
        is_next.then(next).flatten()
    }

    fn publish(&mut self, definition: u8, arm: Arm) {
        self.queue.push(Copy { arm, definition });
    }

    fn arm(&mut self, scenario: &Scenario, definition: u8, arm: Arm) {
        let digest = scenario.definition(definition).digest();
        // The same time for each publish, which keeps the states few: a late event is published again at each look.
        let published = jiff::Timestamp::from_millisecond(arm.due).unwrap_or_default();
        self.state = self.state.take().map(|state| state.armed(&digest, arm, published));
    }

    fn start(&mut self, scenario: &Scenario, copy: Copy, end: End) -> At {
        let link = Self::link(scenario, copy);
        let now = self.time();
        let until = now + jiff::SignedDuration::from_mins(1);
        self.state = self.state.take().map(|state| match end {
            End::Skip => state.skipped(&link, now, "skipped"),
            End::Run | End::Over | End::Passed => state.started(&link, now, until),
        });
        if end == End::Skip { At::Settling } else { At::Running }
    }

    fn end(&mut self, scenario: &Scenario, copy: Copy) {
        let link = Self::link(scenario, copy);
        let now = self.time();
        self.state = self.state.take().map(|state| state.ended(&link, now, &RunOutcome::Done));
    }

    /// Gives a claim back.
    fn let_go(&mut self, copy: Copy, finishes: bool) {
        let mark = self.marks.entry(copy.arm.position).or_default();
        *mark = Mark { finished: finishes, leased: false };
    }

    fn apply(&mut self, scenario: &Scenario, n: usize) -> Option<()> {
        let applied = scenario.applies[n];
        // The second apply rolls out after the first has begun.
        if n > 0 && self.applies[n - 1] == Repair::Idle {
            return None;
        }
        self.applies[n] = match (self.applies[n], applied) {
            (Repair::Idle, None) => {
                self.state = self.state.take().map(ScheduleState::removed);
                Repair::Done
            }
            (Repair::Idle, Some(number)) => {
                let (definition, now) = (scenario.definition(number), self.time());
                let (state, wanted) =
                    ScheduleState::applied(self.state.take(), &definition, now).repaired(&definition, now);
                self.state = Some(state);
                self.repair(wanted).unwrap_or(Repair::Done)
            }
            (Repair::Publishing(arm), Some(number)) => {
                self.first.get_or_insert(arm.position);
                self.publish(number, arm);
                Repair::Published(arm)
            }
            (Repair::Published(arm), Some(number)) => {
                self.arm(scenario, number, arm);
                Repair::Done
            }
            _ => return None,
        };
        self.quiet = 0;
        Some(())
    }

    /// Late events are repaired only if none waits in the queue: then the event may be one of those.
    fn repair(&self, wanted: Option<Wanted>) -> Option<Repair> {
        let waits = self.queue.iter().any(|copy| self.is_due(*copy));
        match wanted? {
            Wanted::Late(_) if waits => None,
            wanted => Some(Repair::Publishing(wanted.arm())),
        }
    }

    fn heal(&mut self, scenario: &Scenario, file: u8) -> Option<()> {
        if !scenario.heals() || (self.healed && self.healing == Repair::Idle) {
            return None;
        }
        // Workers with the former file are gone once the applies have ended.
        let newest = scenario.applies.iter().flatten().last().copied().unwrap_or_default();
        if self.is_applied() && file != newest {
            return None;
        }
        if self.healing != Repair::Idle && file != self.healer {
            return None;
        }
        self.healer = file;
        let definition = scenario.definition(file);
        self.healing = match self.healing {
            Repair::Idle => {
                if self.healed {
                    return None;
                }
                self.healed = true;
                let restored = ScheduleState::restored(self.state.take(), Some(&definition.digest()), self.time())?;
                let (state, wanted) = restored.repaired(&definition, self.time());
                self.state = Some(state);
                self.repair(wanted).unwrap_or(Repair::Idle)
            }
            Repair::Publishing(arm) => {
                self.publish(file, arm);
                Repair::Published(arm)
            }
            Repair::Published(arm) => {
                self.arm(scenario, file, arm);
                Repair::Idle
            }
            Repair::Done => return None,
        };
        Some(())
    }
}
