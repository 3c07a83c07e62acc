//! A program that applies its topology at its start, and prints its status.
#![allow(clippy::print_stdout, reason = "it is an example")]

use hatchery::Hatchery;
use hatchery_admin::{Admin, AdminError, Options, Status};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let builder = Hatchery::builder(hatchery::read_file("topology.yaml")?).name("payroll");
    let admin = Admin::new(builder)?;
    apply(&admin).await?;
    print(&admin.status(&()).await?);
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

/// Prints what is wrong, and how many events are due.
pub(crate) fn print(status: &Status) {
    for found in &status.findings {
        println!("{}: {}", found.message, found.command);
    }
    for line in &status.types {
        println!("{}: {} due", line.name, line.due.unwrap_or_default());
    }
}
