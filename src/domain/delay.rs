//! Chooses the route of a delayed event: straight to the processor, through a named hatchery, or through the ladder.
//!
//! The ladder is the timer for every delay that no hatchery has. It has one queue for each power of two times its
//! resolution. The delay, as a number of resolution steps in bits, is part of the routing key, and the broker itself
//! moves the event from the queue of one set bit to the queue of the next by dead-lettering.
//!
//! The bits are in the key with the least significant one first. An event waits in the short queues right after it was
//! published, and in the longest queue last. Events that are due at one instant therefore make one hop at that instant.
//! With the most significant bit first they make about three hops in their last seconds.

use std::{fmt, time::Duration};

use super::{
    ttl::{LONGEST, Ttl},
    words::EventType,
};

/// A ladder with the levels 0 to `levels - 1`. The queue of level n holds an event for `resolution * 2^n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    resolution: Ttl,
    levels: u8,
}

/// Why no ladder has this resolution and this horizon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LadderError {
    /// The horizon is shorter than one step.
    #[error("the horizon {horizon} is shorter than the resolution {resolution}")]
    Short {
        /// The horizon of the file.
        horizon: Ttl,
        /// The resolution of the file: one step.
        resolution: Ttl,
    },
    /// The queue of the highest level would need a TTL above RabbitMQ's limit of ten years.
    #[error("a ladder of {resolution} up to {horizon} needs a queue of more than ten years; take a finer resolution")]
    Long {
        /// The horizon of the file.
        horizon: Ttl,
        /// The resolution of the file: one step.
        resolution: Ttl,
    },
}

impl Ladder {
    /// Returns the smallest ladder with this resolution whose longest delay is at least the horizon.
    ///
    /// # Errors
    /// When the horizon is shorter than the resolution, or the highest queue would need a TTL above ten years.
    pub fn new(resolution: Ttl, horizon: Ttl) -> Result<Self, LadderError> {
        if horizon < resolution {
            return Err(LadderError::Short { horizon, resolution });
        }
        let steps = horizon.as_millis().div_ceil(resolution.as_millis());
        let levels = u64::BITS - steps.leading_zeros();
        let highest = u128::from(resolution.as_millis()) << (levels - 1);
        if highest > LONGEST.as_millis() {
            return Err(LadderError::Long { horizon, resolution });
        }
        // A TTL has at most 39 bits of milliseconds, so the levels always fit.
        Ok(Self { resolution, levels: u8::try_from(levels).unwrap_or(u8::MAX) })
    }

    /// Returns the number of levels, each of which has one queue.
    #[must_use]
    pub const fn levels(self) -> u8 {
        self.levels
    }

    /// Returns the length of one step. The ladder rounds a delay up by less than one step, and never down.
    #[must_use]
    pub const fn resolution(self) -> Ttl {
        self.resolution
    }

    /// Returns the TTL of this level's queue, in milliseconds.
    #[must_use]
    pub const fn hold_millis(self, level: u8) -> u64 {
        self.resolution.as_millis() << level
    }

    /// Returns the TTL of this level's queue.
    #[must_use]
    pub const fn hold(self, level: u8) -> Duration {
        Duration::from_millis(self.hold_millis(level))
    }

    /// Returns the longest delay that one round through the ladder makes.
    #[must_use]
    pub fn longest(self) -> Duration {
        Duration::from_millis(self.resolution.as_millis() * ((1 << self.levels) - 1))
    }

    /// Returns the number of steps of a delay: rounded up, and at most one round through the whole ladder.
    #[must_use]
    pub fn steps(self, delay: Duration) -> u64 {
        let step = u128::from(self.resolution.as_millis()) * 1_000_000;
        let steps = delay.as_nanos().div_ceil(step);
        let most = (1 << self.levels) - 1;
        u64::try_from(steps).map_or(most, |steps| steps.min(most))
    }
}

/// Writes the ladder's word in routing keys and in its queues' names, like `250ms-27`.
impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.resolution, self.levels)
    }
}

/// The route of an event from the scheduler to the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// At once.
    Now,
    /// Through the hatchery of this TTL.
    Hatchery(Ttl),
    /// Through the ladder, this many steps.
    Ladder(Ladder, u64),
}

impl Route {
    /// Chooses the route for a delay: `Now` for zero, a hatchery if one has exactly this TTL, and the ladder otherwise.
    #[must_use]
    pub fn after(delay: Duration, hatcheries: &[Ttl], ladder: Ladder) -> Self {
        if delay.is_zero() {
            return Self::Now;
        }
        match hatcheries.iter().find(|ttl| ttl.as_duration() == delay) {
            Some(ttl) => Self::Hatchery(*ttl),
            None => Self::Ladder(ladder, ladder.steps(delay)),
        }
    }

    /// Returns the routing key for the scheduler: the type, then the route.
    #[must_use]
    pub fn key(self, event_type: &EventType) -> String {
        match self {
            Self::Now => format!("{event_type}.now"),
            Self::Hatchery(ttl) => format!("{event_type}.{ttl}"),
            Self::Ladder(ladder, steps) => {
                let mut key = format!("{event_type}.{ladder}");
                for level in 0..ladder.levels {
                    key.push_str(if steps >> level & 1 == 1 { ".1" } else { ".0" });
                }
                key
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn ttl(text: &str) -> Ttl {
        text.parse().expect("a valid TTL")
    }

    fn key(delay: &str, hatcheries: &[&str], ladder: (&str, &str)) -> String {
        let hatcheries: Vec<Ttl> = hatcheries.iter().map(|text| ttl(text)).collect();
        let ladder = Ladder::new(ttl(ladder.0), ttl(ladder.1)).expect("a valid ladder");
        let delay = super::super::ttl::parse_duration(delay).expect("a valid duration");
        Route::after(delay, &hatcheries, ladder).key(&"mail".parse().expect("a word"))
    }

    #[rstest]
    #[case("0s", "mail.now")]
    #[case("5s", "mail.5s")]
    #[case("60s", "mail.1m")]
    #[case("1.2s", "mail.250ms-4.1.0.1.0")]
    #[case("1ms", "mail.250ms-4.1.0.0.0")]
    #[case("250ms", "mail.250ms-4.1.0.0.0")]
    #[case("251ms", "mail.250ms-4.0.1.0.0")]
    #[case("1s", "mail.250ms-4.0.0.1.0")]
    #[case("1750ms", "mail.250ms-4.1.1.1.0")]
    #[case("3750ms", "mail.250ms-4.1.1.1.1")]
    #[case("4s", "mail.250ms-4.1.1.1.1")]
    fn a_delay_has_one_route(#[case] delay: &str, #[case] expected: &str) {
        assert_eq!(key(delay, &["5s", "1m"], ("250ms", "3s")), expected);
    }

    #[rstest]
    #[case("250ms", "365d", 27)]
    #[case("1s", "1s", 1)]
    #[case("1s", "3s", 2)]
    #[case("1s", "4s", 3)]
    #[case("1ms", "3650d", 39)]
    fn the_ladder_reaches_its_horizon(#[case] resolution: &str, #[case] horizon: &str, #[case] levels: u8) {
        assert_eq!(Ladder::new(ttl(resolution), ttl(horizon)).expect("valid").levels(), levels);
    }

    #[test]
    fn a_ladder_that_rabbitmq_would_refuse_is_refused() {
        assert!(matches!(Ladder::new(ttl("1m"), ttl("5s")), Err(LadderError::Short { .. })));
        assert!(matches!(Ladder::new(ttl("2190d"), ttl("3650d")), Err(LadderError::Long { .. })));
    }

    proptest! {
        #[test]
        fn the_bits_add_up_to_the_delay_and_never_to_less(millis in 1_u64..31_536_000_000) {
            let ladder = Ladder::new(ttl("250ms"), ttl("365d")).expect("valid");
            let delay = Duration::from_millis(millis);
            let key = Route::after(delay, &[], ladder).key(&"mail".parse().expect("a word"));
            let words: Vec<&str> = key.split('.').collect();
            prop_assert_eq!(words.len(), 2 + 27);
            let held: u64 = (0..27_u8)
                .filter(|level| words[2 + usize::from(*level)] == "1")
                .map(|level| ladder.hold_millis(level))
                .sum();
            prop_assert!(held >= millis);
            prop_assert!(held < millis + 250);
        }
    }
}
