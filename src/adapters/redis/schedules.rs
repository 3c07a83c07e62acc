//! The states of the schedules in Redis. They are few, and all of them are in the first shard.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use jiff::SignedDuration;

use super::{RedisRegister, ReportedClock, scripts};
use crate::{
    domain::register::state::millis,
    ports::{RegisterError, ScheduleStates},
};

const SHARD: u16 = 0;

impl RedisRegister {
    async fn ask_schedules(&self, arguments: &[&str]) -> Result<Vec<String>, RegisterError> {
        let mut script = self.begin(&scripts::SCHEDULES, SHARD);
        for argument in arguments {
            script.arg(argument);
        }
        Ok(self.call::<Vec<String>>(&script, SHARD, self.limit.into()).await?.pop().unwrap_or_default())
    }

    /// Returns the newest report of a machine whose clock is wrong.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call.
    pub async fn reported_clock(&self) -> Result<Option<ReportedClock>, RegisterError> {
        Ok(self.ask_schedules(&["clock"]).await?.pop().as_deref().and_then(ReportedClock::parse))
    }
}

#[async_trait]
impl ScheduleStates for RedisRegister {
    async fn schedules(&self) -> Result<BTreeMap<String, String>, RegisterError> {
        let mut texts = self.ask_schedules(&["all"]).await?.into_iter();
        Ok(std::iter::from_fn(|| Some((texts.next()?, texts.next()?))).collect())
    }

    async fn schedule(&self, name: &str) -> Result<Option<String>, RegisterError> {
        Ok(self.ask_schedules(&["read", name]).await?.pop())
    }

    async fn replace_schedule(
        &self,
        name: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<bool, RegisterError> {
        let arguments = ["replace", name, before.unwrap_or_default(), after.unwrap_or_default()];
        Ok(!self.ask_schedules(&arguments).await?.is_empty())
    }

    async fn take_turn(&self, length: Duration) -> Result<bool, RegisterError> {
        Ok(!self.ask_schedules(&["turn", &millis(length).to_string()]).await?.is_empty())
    }

    async fn report_clock(&self, ahead: SignedDuration, length: Duration) -> Result<(), RegisterError> {
        let report = ReportedClock::here(ahead).text();
        self.ask_schedules(&["report", &report, &millis(length).to_string()]).await.map(drop)
    }
}
