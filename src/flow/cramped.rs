//! Where the machine has no room for a handler: what did not start waits a moment, and the log hears of it now and then.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Where there is room for some and not for others, it comes and goes many times a second.
const SELDOM: Duration = Duration::from_mins(1);

/// What a lane knows of the room for its handler, and has said of it.
#[derive(Default)]
pub(super) struct Cramped(Mutex<State>);

#[derive(Default)]
struct State {
    /// How often there was none.
    times: u64,
    /// The last that was said is that there is none.
    open: bool,
    /// When something was said.
    said: Option<Instant>,
}

impl Cramped {
    /// How often there was none until now.
    pub(super) fn times(&self) -> u64 {
        self.state().times
    }

    /// There was none. Whether that is to be said: nothing else was for a while, so that neither line comes more often.
    pub(super) fn begins(&self) -> bool {
        let mut state = self.state();
        state.times += 1;
        let says = state.said.is_none_or(|said| said.elapsed() >= SELDOM);
        if says {
            (state.open, state.said) = (true, Some(Instant::now()));
        }
        says
    }

    /// A handler has begun for which there had been none so often before. Whether it is to be said that there is room again:
    /// what began before the last one that found none tells nothing of that.
    pub(super) fn ends(&self, times: u64) -> bool {
        let mut state = self.state();
        let says = state.open && state.times == times;
        if says {
            (state.open, state.said) = (false, Some(Instant::now()));
        }
        says
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_and_goes_is_said_once_a_minute() {
        let cramped = Cramped::default();
        let (mut began, mut ended) = (Vec::new(), Vec::new());
        for second in 0..200 {
            if cramped.begins() {
                began.push(second);
            }
            if cramped.ends(cramped.times()) {
                ended.push(second);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!((began, ended), (vec![0, 60, 120, 180], vec![0, 60, 120, 180]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_that_is_said_is_how_it_is() {
        let cramped = Cramped::default();
        assert!(cramped.begins() && !cramped.begins());
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(cramped.ends(2), "it was said that there is none");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!cramped.begins() && !cramped.ends(3), "it was not said");
        tokio::time::sleep(Duration::from_secs(58)).await;
        assert!(cramped.begins() && cramped.ends(4));
    }

    #[tokio::test(start_paused = true)]
    async fn what_began_before_tells_nothing_of_the_room_there_is() {
        let cramped = Cramped::default();
        let before = cramped.times();
        assert!(cramped.begins());
        assert!(!cramped.ends(before));
        assert!(cramped.ends(cramped.times()));
    }
}
