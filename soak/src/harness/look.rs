//! Watches a run until all is over.

use std::time::Duration;

use anyhow::ensure;
use hatchery_soak::console::Console;
use tokio::time::Instant;

/// The time between two looks.
const TICK: Duration = Duration::from_millis(50);
/// How many looks in a row have to find that all is over: a second run of an event may be under way.
const CALM: u32 = 6;

/// How long nothing may be done before a run gives up: longer than a lease, and than the three minutes after which a busy RabbitMQ
/// offers a due message again (`settle_timeout` in `rabbit_fifo_dlx_worker.erl`).
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// The result of a look.
pub(crate) struct Look {
    pub(crate) done: usize,
    pub(crate) all: usize,
    /// More about the progress.
    pub(crate) said: String,
    pub(crate) is_over: bool,
}

/// Looks again and again, and shows the progress, until all is over. Gives up when nothing more is done for this long.
pub(crate) async fn until_over(
    console: &mut Console,
    patience: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Look>,
) -> anyhow::Result<()> {
    let (mut calm, mut before, mut moved) = (0, 0, Instant::now());
    while calm < CALM && moved.elapsed() < patience {
        tokio::time::sleep(TICK).await;
        let Look { done, all, said, is_over } = look().await?;
        if done != before {
            (before, moved) = (done, Instant::now());
        }
        console.progress(done.min(all), all, &said);
        calm = if is_over { calm + 1 } else { 0 };
    }
    console.end_progress();
    Ok(())
}

/// Looks again and again until there is no trouble. Fails with the trouble once this time is over, and with an error at
/// once.
pub(crate) async fn until_well(
    patience: Duration,
    tick: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<String>>,
) -> anyhow::Result<()> {
    let given_up = Instant::now() + patience;
    loop {
        tokio::time::sleep(tick).await;
        let Some(trouble) = look().await? else { return Ok(()) };
        ensure!(Instant::now() <= given_up, "after {} s: {trouble}", patience.as_secs());
    }
}
