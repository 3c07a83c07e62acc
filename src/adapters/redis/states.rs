//! The named states in Redis. They are few, and all of them are in the first shard.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;

use super::{RedisRegister, scripts};
use crate::{
    domain::register::state::millis,
    ports::{NamedStates, RegisterError, Replaced, StateChange, StateKind},
};

const SHARD: u16 = 0;

impl RedisRegister {
    async fn ask_states(&self, arguments: &[&str]) -> Result<Vec<String>, RegisterError> {
        let mut script = self.begin(&scripts::STATES, SHARD);
        for argument in arguments {
            script.arg(argument);
        }
        let (mut answers, _) = self.call::<Vec<String>>(&script, SHARD, self.limit.into()).await?;
        Ok(answers.pop().unwrap_or_default())
    }
}

const fn key(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Schedule => "schedules",
        StateKind::Breaker => "breakers",
    }
}

#[async_trait]
impl NamedStates for RedisRegister {
    async fn states(&self, kind: StateKind) -> Result<BTreeMap<String, String>, RegisterError> {
        let mut texts = self.ask_states(&["all", key(kind)]).await?.into_iter();
        Ok(std::iter::from_fn(|| Some((texts.next()?, texts.next()?))).collect())
    }

    async fn state(&self, kind: StateKind, name: &str) -> Result<Option<String>, RegisterError> {
        Ok(self.ask_states(&["read", key(kind), name]).await?.pop())
    }

    async fn replace_states(
        &self,
        kind: StateKind,
        changes: &[StateChange<'_>],
    ) -> Result<Vec<Replaced>, RegisterError> {
        let mut arguments = vec!["replace", key(kind)];
        for StateChange { name, before, after } in changes {
            arguments.extend([*name, before.unwrap_or_default(), after.unwrap_or_default()]);
        }
        let mut answers = self.ask_states(&arguments).await?.into_iter();
        let answer = || {
            let (is_replaced, now) = (answers.next()? == "1", answers.next()?);
            Some(if is_replaced { Ok(()) } else { Err(Some(now).filter(|now| !now.is_empty())) })
        };
        Ok(std::iter::from_fn(answer).collect())
    }

    async fn take_turn(&self, length: Duration) -> Result<bool, RegisterError> {
        Ok(!self.ask_states(&["turn", &millis(length).to_string()]).await?.is_empty())
    }
}
