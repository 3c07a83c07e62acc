//! The process of the case `start`: a worker of one side that tells on its standard output when it has handled the first event,
//! when it has handled all, and when it has ended. The process ends with its standard input.

use std::{env, io::Write as _};

use anyhow::Context as _;
use hatchery_soak::stage::connect_from_environment;
use tokio::io::AsyncReadExt as _;

use crate::{args::Args, bare::Bare, handled::Handled, load::Side, ours, topology::Type};

pub(crate) const TYPE: Type = Type::Each;
/// The first event was handled.
pub(crate) const FIRST: &str = "first";
/// All events were handled.
pub(crate) const ALL: &str = "all";
/// The worker has ended.
pub(crate) const ENDED: &str = "ended";

pub(crate) async fn run(args: &Args, side: Side) -> anyhow::Result<()> {
    let load = args.load(0);
    let handled = Handled::all(load.events);
    let working = async {
        match side {
            Side::Ours => {
                let hatchery = connect_from_environment("bench child").await?;
                ours::work(&hatchery, TYPE, &load, handled.clone()).await?;
                hatchery.close().await;
            }
            Side::Bare => {
                let bare = Bare::connect(&env::var("AMQP_URL").context("AMQP_URL is not set")?).await?;
                bare.consume(&TYPE.queue(), &load, &handled).await?;
                bare.close().await?;
            }
        }
        anyhow::Ok(())
    };
    let first = async {
        handled.first().await;
        say(FIRST)
    };
    let all = async {
        handled.all_are().await;
        say(ALL)
    };
    tokio::try_join!(working, first, all)?;
    say(ENDED)?;
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
