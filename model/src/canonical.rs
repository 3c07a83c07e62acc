//! Brings states that differ in nothing relevant into one form, so that each is explored once.
//!
//! Four differences are irrelevant: the order of the copies in a queue, which of two workers has a task, the names of
//! tokens, and the distance between two versions. Versions are only compared, so their ranks are enough.

use std::hash::{Hash, Hasher};

use crate::{
    message::Place,
    order::Effect,
    scenario::Scenario,
    world::{Late, Register, World},
};

impl World {
    /// Brings the state into its canonical form.
    pub(crate) fn canonical(&mut self, scenario: &Scenario) {
        self.tidy(scenario);
        self.rank();
        self.rename_tokens();
        self.queue.sort_unstable();
        self.letters.sort_unstable();
        self.late.sort_unstable();
        self.account.given.sort_unstable();
        self.account.started.sort_unstable();
        self.account.below.sort_unstable();
        self.account.settled.sort_unstable();
    }

    /// Does the part of [`canonical`](Self::canonical) that renames and reorders nothing.
    pub(crate) fn tidy(&mut self, scenario: &Scenario) {
        self.drop_unwanted(scenario);
        self.forget(scenario);
    }

    /// Removes the data on which nothing depends any more.
    fn forget(&mut self, scenario: &Scenario) {
        for tasks in &mut self.workers {
            // An acknowledgement on a connection that is gone has no effect.
            tasks.retain(|task| task.delivery || task.doing.todo != [Effect::Acknowledge]);
        }
        if scenario.time.is_none() {
            for register in [Some(&mut self.register), self.replica.as_mut()].into_iter().flatten() {
                for (_, slot) in &mut register.slots {
                    (slot.since, slot.due, slot.overtaken) = (0, 0, false);
                }
            }
        }
        if self.account.redis_lost {
            for task in self.workers.iter_mut().flatten() {
                task.lost = false;
            }
        }
        for register in [Some(&mut self.register), self.replica.as_mut()].into_iter().flatten() {
            for lease in &mut register.leases {
                let holder = |task: &crate::world::Task| task.doing.token == lease.token;
                if !self.workers.iter().flatten().any(holder) {
                    lease.token = 0;
                }
            }
        }
        self.forget_account();
    }

    /// Keeps only the entries of the account that may still be compared: those with a slot and a version of which a
    /// copy may still come.
    fn forget_account(&mut self) {
        let mut live: Vec<(Place, i64)> = self.messages().map(|message| (message.place, message.version)).collect();
        live.extend(self.events.iter().map(|event| (event.place, event.version)).filter(|(_, version)| *version > 0));
        live.extend(self.late.iter().filter_map(|late| match late {
            Late::Claim(message) => Some((message.place, message.version)),
            Late::Record { .. } | Late::Settle { .. } | Late::Cancel { .. } => None,
        }));
        let account = &mut self.account;
        account.settled.retain(|one| live.contains(&(one.place, one.version)));
        account.started.retain(|(place, newest)| live.iter().any(|(of, version)| of == place && version < newest));
    }

    /// Replaces all versions and fences by their ranks.
    fn rank(&mut self) {
        let mut found = Vec::with_capacity(24);
        self.numbers(|number| {
            if *number > 0 && *number < i64::MAX {
                found.push(*number);
            }
        });
        found.sort_unstable();
        found.dedup();
        self.numbers(|number| {
            if let Ok(rank) = found.binary_search(number) {
                *number = i64::try_from(rank).unwrap_or(0) + 1;
            }
        });
        self.given = i64::try_from(found.len()).unwrap_or(0);
    }

    /// Calls `each` with every version and fence.
    fn numbers(&mut self, mut each: impl FnMut(&mut i64)) {
        for register in [Some(&mut self.register), self.replica.as_mut()].into_iter().flatten() {
            numbers_of(register, &mut each);
        }
        for event in &mut self.events {
            each(&mut event.version);
        }
        for message in self.queue.iter_mut().chain(&mut self.letters) {
            each(&mut message.version);
        }
        let tasks = self.workers.iter_mut().flatten().map(|task| &mut task.doing);
        for doing in tasks.chain(self.person.iter_mut().map(|person| &mut person.doing)) {
            each(&mut doing.message.version);
            each(&mut doing.fence);
            if let Some((version, _)) = &mut doing.again {
                each(version);
            }
        }
        for late in &mut self.late {
            match late {
                Late::Record { version, .. } => each(version),
                Late::Claim(message) => each(&mut message.version),
                Late::Settle { message, fence, .. } => {
                    each(&mut message.version);
                    each(fence);
                }
                Late::Cancel { .. } => {}
            }
        }
        let account = &mut self.account;
        account.given.iter_mut().for_each(|given| each(&mut given.version));
        account.started.iter_mut().chain(&mut account.below).for_each(|(_, version)| each(version));
        account.settled.iter_mut().for_each(|settled| each(&mut settled.version));
    }

    /// Sorts the workers by their tasks, and numbers the tokens in the order of their holders.
    fn rename_tokens(&mut self) {
        let leases = self.register.leases.clone();
        for tasks in &mut self.workers {
            tasks.sort_by_cached_key(|task| {
                let held = leases.iter().find(|lease| lease.token == task.doing.token).copied();
                let mut task = *task;
                task.doing.token = 0;
                (task, held)
            });
        }
        self.workers.sort_by_cached_key(|tasks| {
            tasks
                .iter()
                .map(|task| {
                    let held = leases.iter().find(|lease| lease.token == task.doing.token).map(|lease| lease.holder);
                    let mut task = *task;
                    task.doing.token = 0;
                    (task, held)
                })
                .collect::<Vec<_>>()
        });
        let mut names: Vec<u8> = Vec::new();
        for task in self.workers.iter_mut().flatten() {
            let old = task.doing.token;
            let known = names.iter().position(|name| *name == old);
            let new = known.unwrap_or_else(|| {
                names.push(old);
                names.len() - 1
            });
            task.doing.token = u8::try_from(new + 1).unwrap_or(u8::MAX);
        }
        for register in [Some(&mut self.register), self.replica.as_mut()].into_iter().flatten() {
            for lease in &mut register.leases {
                let new = names.iter().position(|name| *name == lease.token);
                lease.token = new.and_then(|new| u8::try_from(new + 1).ok()).unwrap_or(0);
            }
        }
    }

    /// Returns a hash of the state. Two states have the same hash with a probability of 1 in 10^19.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut mixer = Mixer(0x243f_6a88_85a3_08d3);
        self.hash(&mut mixer);
        mixer.finish()
    }
}

fn numbers_of(register: &mut Register, each: &mut impl FnMut(&mut i64)) {
    for (_, slot) in &mut register.slots {
        each(&mut slot.mark.version);
        each(&mut slot.newest);
        each(&mut slot.covered);
        if let Some(later) = &mut slot.later {
            each(&mut later.version);
        }
    }
    for lease in &mut register.leases {
        each(&mut lease.version);
        each(&mut lease.fence);
    }
}

/// A hasher that mixes in one word after the other. Each step is a bijection.
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        let mut mixed = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^= mixed >> 32;
        mixed = mixed.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
