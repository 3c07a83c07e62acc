//! A program that applies its topology at its start.
#![allow(clippy::print_stdout, reason = "it is an example")]

use hatchery::Hatchery;
use hatchery_admin::{Admin, AdminError, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let builder = Hatchery::builder(hatchery::read_file("topology.yaml")?).name("payroll");
    apply(&Admin::new(builder.clone())?).await?;
    let hatchery = builder.connect().await?;
    hatchery.close().await;
    Ok(())
}

/// Applies the topology, and prints what it changes.
pub(crate) async fn apply(admin: &Admin) -> Result<(), AdminError> {
    let planned = admin.plan().await?;
    for change in planned.plan.to_write() {
        println!("{} {}", change.action.sign(), change.address);
    }
    admin.apply(&planned, &Options::default(), &()).await?;
    println!("the broker is as topology.yaml says");
    Ok(())
}
