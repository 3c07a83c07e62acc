//! The number of events of each type.

use std::collections::BTreeMap;

use super::{error::EventsError, shared::Events};
use crate::domain::{register::index::TypeCounts, words::EventType};

impl Events {
    /// Counts the events of each type that uses the register.
    ///
    /// # Errors
    /// If Redis does not answer.
    #[doc(hidden)]
    pub async fn counts(&self) -> Result<BTreeMap<EventType, TypeCounts>, EventsError> {
        let registered = self.shared.topology.types.iter().filter(|(_, spec)| spec.register);
        let types: Vec<EventType> = registered.map(|(name, _)| name.clone()).collect();
        let counts = self.shared.index.count(&types).await?;
        Ok(types.into_iter().zip(counts).collect())
    }
}
