//! Checks that `topology plan` never reports missing objects during a fault, because none is ever missing.

use std::{process::Stdio, time::Duration};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use serde_json::Value;

use super::nodes::NODES;
use crate::harness::{Stage, Table};

/// How long a plan may take: longer than `topology` takes to give up on a node that does not answer.
const LIMIT: Duration = Duration::from_secs(90);

/// The results of all plans.
#[derive(Default)]
pub(super) struct Plans {
    pub(super) asked: usize,
    /// How many plans failed because the node could not see all objects.
    pub(super) blind: usize,
    /// The wrong plans: when each was asked for, and its answer.
    pub(super) wrong: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    InSync,
    Blind(String),
    Wrong(String),
}

impl Plans {
    /// Asks each node for a plan by itself. During a fault a plan may report that the node cannot see all objects; in a
    /// healthy cluster that is wrong.
    pub(super) async fn ask(&mut self, stage: &Stage, when: &str, is_healthy: bool) -> anyhow::Result<()> {
        let answers = try_join_all(NODES.map(|node| ask(stage, node))).await?;
        for (node, answer) in NODES.into_iter().zip(answers) {
            self.asked += 1;
            match answer {
                Answer::InSync => {}
                Answer::Blind(_) if !is_healthy => self.blind += 1,
                Answer::Blind(said) | Answer::Wrong(said) => self.wrong.push(format!("{when}, by node {node}: {said}")),
            }
        }
        Ok(())
    }

    pub(super) fn tell(&self, table: &mut Table) {
        let must = format!("0 of {}", self.asked);
        table.must(self.wrong.is_empty(), &["plans that are wrong", &self.wrong.len().to_string(), &must]);
        table.tell(&["plans that cannot see", &self.blind.to_string(), ""]);
    }
}

async fn ask(stage: &Stage, node: usize) -> anyhow::Result<Answer> {
    let mut command = stage.topology(&["plan", "--detailed-exitcode", "-o", "json"])?;
    command
        .env("AMQP_URL", stage.servers.rabbitmq.said(&format!("AMQP_URL_{node}"))?)
        .env("RABBITMQ_MANAGEMENT_URL", stage.servers.rabbitmq.said(&format!("RABBITMQ_MANAGEMENT_URL_{node}"))?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(output) = tokio::time::timeout(LIMIT, command.output()).await else {
        return Ok(Answer::Wrong(format!("no answer within {} s", LIMIT.as_secs())));
    };
    let output = output?;
    let code = output.status.code().context("topology plan was killed")?;
    Ok(read(code, &output.stdout, &output.stderr))
}

/// Judges the answer of a plan. A node that cannot see all objects must give an error or a blocked plan. No plan may
/// add or change an object.
fn read(code: i32, stdout: &[u8], stderr: &[u8]) -> Answer {
    let plan = serde_json::from_slice::<Value>(stdout).unwrap_or_default();
    let counts = ["add", "change", "migrate"].map(|count| plan["counts"][count].as_u64());
    let said = || format!("exit {code}, counts {} {}", plan["counts"], String::from_utf8_lossy(stderr).trim());
    match (code, counts) {
        (0, [Some(0), Some(0), Some(0)]) => Answer::InSync,
        (4, [Some(0), Some(0), Some(0)]) | (1 | 6, [None, None, None]) => Answer::Blind(said()),
        _ => Answer::Wrong(said()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_adds_existing_objects_is_wrong() {
        let said = |add: u32| format!(r#"{{"counts": {{"add": {add}, "change": 0, "migrate": 0}}}}"#);
        assert_eq!(read(0, said(0).as_bytes(), b""), Answer::InSync);
        assert!(matches!(read(4, said(0).as_bytes(), b""), Answer::Blind(_)));
        assert!(matches!(read(6, b"", b"nobody answers"), Answer::Blind(_)));
        assert!(matches!(read(3, said(13).as_bytes(), b""), Answer::Wrong(_)));
        assert!(matches!(read(4, said(13).as_bytes(), b""), Answer::Wrong(_)));
        assert!(matches!(read(0, b"", b""), Answer::Wrong(_)));
    }
}
