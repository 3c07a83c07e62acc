//! The memory for what requests send. Without a bound for all of them, some hundred large ones would take more than there is.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{problem::Problem, tokens::Caller};

/// How many bytes a small body has at most.
const SMALL: usize = 64 * 1024;
/// How many KiB all requests with one event may hold together. Small bodies have a part of their own, so that large ones keep no room
/// from them.
const OF_SMALL: u32 = 128 * 1024;
const OF_LARGE: u32 = 384 * 1024;
/// How long a request waits for its room.
const PATIENCE: Duration = Duration::from_secs(10);

/// The room that is left.
#[derive(Clone)]
pub(crate) struct Room {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// The room of a request, until it is dropped. It has none at first.
pub(crate) struct Taken {
    room: Room,
    permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(crate) fn new() -> Self {
        let of = |kibibytes: u32| Arc::new(Semaphore::new(kibibytes as usize));
        Self { small: of(OF_SMALL), large: of(OF_LARGE) }
    }

    /// Returns the room of a request of which nothing has come yet.
    pub(crate) fn begin(&self) -> Taken {
        Taken { room: self.clone(), permit: None }
    }
}

impl Taken {
    /// Waits until there is room for the part of a body that has come so far. A small body takes none before its end: connections bound what
    /// slow clients hold of them.
    pub(crate) async fn hold_part(&mut self, length: usize) -> Result<(), Problem> {
        if length > SMALL { self.hold(length).await } else { Ok(()) }
    }

    /// Waits until there is room for a body of this length, and for the event that is made of it.
    pub(crate) async fn hold(&mut self, length: usize) -> Result<(), Problem> {
        let (free, most) = if length > SMALL { (&self.room.large, OF_LARGE) } else { (&self.room.small, OF_SMALL) };
        let kibibytes = u32::try_from(length.saturating_mul(2).div_ceil(1024)).unwrap_or(most).clamp(1, most);
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = kibibytes.saturating_sub(u32::try_from(held).unwrap_or(most));
        match timeout(PATIENCE, Arc::clone(free).acquire_many_owned(missing)).await {
            Ok(Ok(more)) => match &mut self.permit {
                Some(permit) => permit.merge(more),
                None => self.permit = Some(more),
            },
            _ => return Err(Problem::full("other requests take all the memory that there is for them")),
        }
        Ok(())
    }
}

/// Places for requests of one kind. One token may have a part of them.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    of_a_token: usize,
    taken: Arc<Mutex<BTreeMap<String, usize>>>,
    what: &'static str,
}

/// A place, until it is dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    taken: Arc<Mutex<BTreeMap<String, usize>>>,
    token: Option<String>,
}

impl Places {
    pub(crate) fn new(all: usize, of_a_token: usize, what: &'static str) -> Self {
        Self { free: Arc::new(Semaphore::new(all)), of_a_token, taken: Arc::default(), what }
    }

    /// Waits for a place.
    pub(crate) async fn take(&self, caller: &Caller) -> Result<Place, Problem> {
        let Ok(Ok(permit)) = timeout(PATIENCE, Arc::clone(&self.free).acquire_owned()).await else {
            return Err(Problem::full(format!("as many {} as there may be are under way", self.what)));
        };
        let token = caller.describe().0.map(str::to_owned);
        if let Some(token) = &token {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let of_it = taken.entry(token.clone()).or_default();
            if *of_it >= self.of_a_token {
                return Err(Problem::full(format!("this token has {} {} under way", self.of_a_token, self.what)));
            }
            *of_it += 1;
        }
        Ok(Place { _permit: permit, taken: Arc::clone(&self.taken), token })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(token) = &self.token else { return };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_it) = taken.get_mut(token) {
            *of_it -= 1;
            if *of_it == 0 {
                taken.remove(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Tokens;

    #[tokio::test(start_paused = true)]
    async fn small_bodies_have_room_while_large_ones_take_all_of_theirs() {
        let room = Room::new();
        let mut slow = room.begin();
        slow.hold_part(SMALL).await.expect("it takes none");
        assert!(slow.permit.is_none());
        let (mut large, mut next) = (room.begin(), room.begin());
        large.hold_part(SMALL + 1).await.expect("room for its begin");
        large.hold(usize::MAX).await.expect("room for the rest");
        let refused = next.hold_part(SMALL + 1).await.expect_err("no room");
        assert_eq!(refused.detail(), "other requests take all the memory that there is for them");
        slow.hold(SMALL).await.expect("room for small ones");
        drop(large);
        next.hold(SMALL * 10).await.expect("room again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_takes_a_part_of_the_places_and_gives_them_back() {
        let topology =
            hatchery::file::read("version: 1\nname: t\ntypes: { mail: {} }", "topology.yaml").expect("valid");
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let tokens = Tokens::read(&format!("shop {hash} read"), &topology).expect("a token");
        let (shop, here) = (Caller(tokens.find("test")), Caller(None));
        let places = Places::new(3, 2, "batches");
        let first = places.take(&shop).await.expect("a place");
        let _second = places.take(&shop).await.expect("a place");
        let refused = places.take(&shop).await.err().expect("refused");
        assert_eq!(refused.detail(), "this token has 2 batches under way");
        let last = places.take(&here).await.expect("the last place");
        let refused = places.take(&here).await.err().expect("refused");
        assert_eq!(refused.detail(), "as many batches as there may be are under way");
        drop((first, last));
        places.take(&shop).await.expect("a place again");
    }
}
