//! A real master with a replica and three sentinels.

use std::time::Duration;

use hatchery::{
    RegisterError, Tls,
    internals::{ports::Register, register::DedupSlot, trouble::Trouble},
};

use super::bench::{event, register, register_over_tls, reserve, version};
use crate::support::{
    broker::eventually,
    certificates::Authority,
    deployments::{Guard, Watched},
    redis::{free_port, prefix, url},
};

async fn ask(register: &impl Register) -> Result<i64, RegisterError> {
    version(register, reserve(&event("1", "a"), &DedupSlot::Immediate)).await
}

#[tokio::test]
async fn a_register_finds_the_master_again_after_a_fail_over() {
    let mut watched = Watched::start().await;
    let register = register(&watched.url(), &prefix(), 3);
    register.ping().await.unwrap();
    let before = ask(&register).await.unwrap();
    watched.servers[0].kill();
    let error = ask(&register.clone().with_limit(Duration::from_secs(2))).await.unwrap_err();
    assert!(matches!(error.trouble(), Trouble::FailingOver | Trouble::Slow), "{error}");
    watched.wait_for_master(1).await;
    let after = eventually("the new master gives a version", async || ask(&register).await.ok()).await;
    assert!(after > before);
    register.ping().await.unwrap();

    // The old master comes back as a replica. The sentinels would make it one too, but later.
    watched.servers[0].restart();
    let port = watched.servers[1].port.to_string();
    watched.servers[0].ask::<()>(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
    assert!(ask(&register).await.unwrap() > after);
}

#[tokio::test]
async fn a_sentinel_that_is_down_or_knows_no_master_is_skipped() {
    let mut watched = Watched::start().await;
    watched.sentinels[0].kill();
    watched.sentinels[1].ask::<()>(&["SENTINEL", "REMOVE", "mymaster"]).await.unwrap();
    let register = register(&watched.url(), &prefix(), 1);
    ask(&register).await.unwrap();
}

#[tokio::test]
async fn a_sentinel_that_names_a_replica_is_skipped() {
    let watched = Watched::start().await;
    // The sentinel that is asked first has missed a fail-over.
    let (stale, replica) = (&watched.sentinels[0], watched.servers[1].port.to_string());
    stale.ask::<()>(&["SENTINEL", "REMOVE", "mymaster"]).await.unwrap();
    stale.ask::<()>(&["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &replica, "3"]).await.unwrap();
    let register = register(&watched.url(), &prefix(), 1);
    ask(&register).await.unwrap();
    register.ping().await.unwrap();
}

#[tokio::test]
async fn a_replaced_master_that_still_answers_is_left() {
    let watched = Watched::start().await;
    let register = register(&watched.url(), &prefix(), 1);
    ask(&register).await.unwrap();
    let versions = async |server: usize| -> u64 { watched.servers[server].ask(&["DBSIZE"]).await.unwrap() };
    // The old master stays a master and takes writes, as after a network partition.
    for sentinel in &watched.sentinels {
        sentinel.ask::<()>(&["SENTINEL", "REMOVE", "mymaster"]).await.unwrap();
    }
    watched.servers[1].ask::<()>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    watched.servers[1].ask::<()>(&["FLUSHALL"]).await.unwrap();
    let port = watched.servers[1].port.to_string();
    for sentinel in &watched.sentinels {
        sentinel.ask::<()>(&["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &port, "2"]).await.unwrap();
    }
    eventually("the register writes to the new master", async || {
        ask(&register).await.unwrap();
        (versions(1).await > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_unknown_master_name_and_unreachable_sentinels_are_reported() {
    let watched = Watched::start().await;
    let other = watched.url().replace("#mymaster", "#another");
    let error = register(&other, &prefix(), 1).ping().await.unwrap_err();
    assert!(matches!(error, RegisterError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("know of no master"), "{error}");

    let nobody = format!("redis-sentinel://:secret@127.0.0.1:{}/0?sentinel_password=secret#mymaster", free_port());
    let error = register(&nobody, &prefix(), 1).ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away);
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");

    // The URL names a Redis in place of a sentinel.
    let redis = format!("{}#mymaster", url().replace("redis://", "redis-sentinel://"));
    let error = register(&redis, &prefix(), 1).ping().await.unwrap_err();
    assert!(matches!(error, RegisterError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let lines = "sentinel auth-pass mymaster inner\nrequirepass outer\nsentinel sentinel-pass outer\n";
    let options = ["--requirepass", "inner", "--masterauth", "inner"];
    let guard = Guard { servers: (":inner@", &options), sentinels: (":outer@", lines), tls: None };
    let watched = Watched::start_with(guard).await;
    let url = |access: &str, own: &str| {
        watched
            .url()
            .replace("redis-sentinel://", &format!("redis-sentinel://{access}"))
            .replace("#mymaster", &format!("{own}#mymaster"))
    };
    let mended = register(&url(":inner@", "?sentinel_password=outer"), &prefix(), 1);
    ask(&mended).await.unwrap();
    for (access, own) in [(":inner@", ""), (":inner@", "?sentinel_password=wrong"), ("", "?sentinel_password=outer")] {
        let error = register(&url(access, own), &prefix(), 1).ping().await.unwrap_err();
        assert!(matches!(error, RegisterError::Refused { .. }), "{access} {own}: {error:?}");
        assert!(!format!("{error:?}").contains("inner") && !format!("{error:?}").contains("outer"), "{error:?}");
    }
}

#[tokio::test]
async fn sentinels_and_servers_are_reached_over_tls() {
    let authority = Authority::new();
    let options = authority.redis_options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let watched = Watched::start_with(Guard { tls: Some(&options), ..Guard::default() }).await;
    let tls = Tls::default().trust_file(authority.file()).unwrap();
    let open = |tls: &Tls| register_over_tls(&watched.url(), tls, 1);
    ask(&open(&tls)).await.unwrap();
    let stranger = Tls::default().trust_file(Authority::called("stranger").file()).unwrap();
    let error = ask(&open(&stranger)).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away);
    assert!(error.to_string().contains("no authority that is trusted here"), "{error}");
}

#[tokio::test]
async fn a_master_whose_address_is_not_in_its_certificate_is_reported() {
    let authority = Authority::new();
    let options = authority.redis_options_for("127.0.0.2");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let watched = Watched::start_with(Guard { tls: Some(&options), ..Guard::default() }).await;
    let tls = Tls::default().trust_file(authority.file()).unwrap();
    let url = watched.url().replace("127.0.0.1", "127.0.0.2");
    let error = ask(&register_over_tls(&url, &tls, 1)).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away, "{error}");
    assert!(error.to_string().contains("not for the host name 127.0.0.1 but for"), "{error}");
}
