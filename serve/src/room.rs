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

/// How many KiB all requests with one event may hold together.
const ALL: u32 = 512 * 1024;
/// How long a request waits for its room.
const PATIENCE: Duration = Duration::from_secs(10);

/// The room that is left.
pub(crate) struct Room(Arc<Semaphore>);

/// The room of a request, until it is dropped.
pub(crate) struct Taken {
    _permit: OwnedSemaphorePermit,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ALL as usize)))
    }

    /// Waits until there is room for this many bytes.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Taken, Problem> {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(ALL).clamp(1, ALL);
        match timeout(PATIENCE, Arc::clone(&self.0).acquire_many_owned(kibibytes)).await {
            Ok(Ok(permit)) => Ok(Taken { _permit: permit }),
            _ => Err(Problem::full("other requests take all the memory that there is for them")),
        }
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
