//! A program that applies its topology at its start and prints its status, as the documentation of `hatchery-admin` shows it.

use std::time::Duration;

use hatchery::Hatchery;
use hatchery_admin::{Admin, AdminError, Severity, Verdict};

use super::TOPOLOGY;
use crate::support::{cli::Bench, redis};

#[allow(dead_code, reason = "its `main` is that of another program")]
#[path = "../../../admin/examples/apply.rs"]
mod example;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_applies_its_topology_at_its_start_and_prints_its_status() {
    let bench = Bench::new(TOPOLOGY);
    let topology = hatchery::file::read(TOPOLOGY, "topology.yaml").unwrap();
    let builder = Hatchery::builder(topology).amqp_url(bench.host.amqp()).redis_url(redis::url());
    let admin = Admin::new(builder).unwrap().management_url(&bench.host.management()).unwrap();
    let nothing = admin.plan_destroy(false, &()).await.unwrap();
    let status = admin.status(&()).await.unwrap();
    let [found] = status.findings.as_slice() else { panic!("{status:#?}") };
    assert_eq!((found.severity, found.command.as_str()), (Severity::Stuck, "topology apply"));
    example::apply(&admin).await.unwrap();
    let status = admin.status(&()).await.unwrap();
    assert_eq!(status.verdict, Verdict::Well, "{status:#?}");
    example::print(&status);
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    // A destroy that found nothing before the apply does not say that nothing is there.
    let destroyed = admin.destroy(&nothing, Duration::from_secs(30), false, &()).await;
    assert!(matches!(destroyed, Err(AdminError::Stale)), "{destroyed:?}");
    // Another process of the program finds nothing to do.
    example::apply(&admin).await.unwrap();
}
