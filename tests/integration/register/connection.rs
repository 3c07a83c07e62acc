//! A single Redis that is away, slow, silent, or refuses the password; and a cancel that reaches it after its caller has given
//! up. The caller was told that it failed, and others may have published since.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use hatchery::{
    RegisterError,
    internals::{
        ports::{Clock, Register},
        redis::RedisRegister,
        register::{Cancel, Claim, ClaimAnswer, DedupSlot, Reserve},
        trouble::Trouble,
    },
};
use jiff::Timestamp;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Notify,
};

use super::bench::{EXCLUSIVE, HORIZON, VIRTUAL_HOST, event, register, reserve, spec, stamp, token, topology, version};
use crate::support::{
    broker::eventually,
    clock::TestClock,
    redis::{Server, connect, free_port, prefix, url},
};

/// A time limit for calls that should take a fraction of it.
const LONG: Duration = Duration::from_secs(30);

fn lazy(url: &str) -> RedisRegister {
    register(url, &prefix(), 1)
}

async fn ask(register: &RedisRegister) -> Result<(), RegisterError> {
    let call = reserve(&event("1", "a"), &DedupSlot::Immediate);
    tokio::time::timeout(LONG, register.reserve(&[call])).await.expect("the call ignores its time limit").map(drop)
}

#[tokio::test]
async fn a_port_without_a_listener_is_unreachable() {
    let url = format!("redis://:secret@127.0.0.1:{}", free_port());
    let register = RedisRegister::new(&url, VIRTUAL_HOST, &topology(), &spec("x", 1)).unwrap();
    let error = register.ping().await.unwrap_err();
    assert!(matches!(error, RegisterError::Unreachable { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let port = free_port();
    let _server = Server::start(port, &["--requirepass", "correct"]);
    for credentials in ["", ":secret@", "hatchery:secret@"] {
        let url = format!("redis://{credentials}127.0.0.1:{port}");
        // A short command, and one that Redis does not read to its end without a password.
        for error in [lazy(&url).ping().await.unwrap_err(), ask(&lazy(&url)).await.unwrap_err()] {
            assert!(matches!(error, RegisterError::Refused { .. }), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            let says = error.to_string().contains("it asks for a password, and the URL has none");
            assert_eq!(says, credentials.is_empty(), "{error}");
        }
    }
    let register = lazy(&format!("redis://:correct@127.0.0.1:{port}"));
    register.ping().await.unwrap();
    assert!(!format!("{register:?}").contains("correct"), "{register:?}");
}

#[tokio::test]
async fn a_register_recovers_once_its_password_is_accepted() {
    let port = free_port();
    let server = Server::start(port, &["--requirepass", "other"]);
    let register = lazy(&format!("redis://:correct@127.0.0.1:{port}"));
    assert!(matches!(ask(&register).await, Err(RegisterError::Refused { .. })));
    let mut other = connect(&format!("redis://:other@127.0.0.1:{port}")).await.unwrap();
    let set = ::redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("correct").to_owned();
    let () = set.query_async(&mut other).await.unwrap();
    ask(&register).await.unwrap();
    drop(server);
}

#[tokio::test]
async fn a_silent_server_is_unreachable_after_the_time_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let register = lazy(&format!("redis://{}", silent.local_addr().unwrap())).with_limit(Duration::from_millis(50));
    for _ in 0..3 {
        let error = ask(&register).await.unwrap_err();
        assert!(matches!(error, RegisterError::Unreachable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_register_reconnects_after_every_loss_of_its_server() {
    let port = free_port();
    let register = lazy(&format!("redis://127.0.0.1:{port}"));
    for _ in 0..2 {
        for _ in 0..3 {
            let error = ask(&register).await.unwrap_err();
            assert!(matches!(error, RegisterError::Unreachable { .. }), "{error:?}");
        }
        let server = Server::start(port, &[]);
        ask(&register).await.unwrap();
        drop(server);
    }
}

#[tokio::test]
async fn a_restart_between_two_calls_is_not_noticed() {
    let port = free_port();
    let register = lazy(&format!("redis://127.0.0.1:{port}"));
    for _ in 0..3 {
        let _server = Server::start(port, &[]);
        ask(&register).await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced() {
    let port = free_port();
    let _server = Server::start(port, &[]);
    let relay = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", relay.local_addr().unwrap());
    let gone = Arc::new(Notify::new());
    tokio::spawn({
        let gone = gone.clone();
        async move {
            loop {
                let (mut client, _) = relay.accept().await.unwrap();
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let gone = gone.clone();
                tokio::spawn(async move {
                    let cut = gone.notified();
                    let relayed = tokio::io::copy_bidirectional(&mut client, &mut server);
                    if tokio::select! { () = cut => true, _ = relayed => false } {
                        // Keep both sockets open without relaying anything.
                        std::future::pending::<()>().await;
                    }
                });
            }
        }
    });
    let register = lazy(&url);
    ask(&register).await.unwrap();
    gone.notify_waiters();
    let hasty = register.clone().with_limit(Duration::from_millis(100));
    assert!(matches!(ask(&hasty).await, Err(RegisterError::Unreachable { .. })));
    ask(&register).await.unwrap();
}

#[tokio::test]
async fn a_distant_server_answers_although_the_time_limit_is_shorter_than_its_handshake() {
    let port = free_port();
    let _server = Server::start(port, &[]);
    let relay = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", relay.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (client, _) = relay.accept().await.unwrap();
            let server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let ((from, to), (back_from, back_to)) = (client.into_split(), server.into_split());
            tokio::spawn(slowly(from, back_to));
            tokio::spawn(slowly(back_from, to));
        }
    });
    // A round trip takes 200 ms: one for the handshake, and one for the script.
    let hasty = lazy(&url).with_limit(Duration::from_millis(250));
    eventually("the server answers", async || ask(&hasty).await.ok()).await;
}

/// Relays bytes with a delay of 100 ms.
async fn slowly(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}

#[tokio::test]
async fn many_calls_at_once_share_one_connection() {
    let register = lazy(url());
    let answers = futures_util::future::join_all((0..100).map(|_| ask(&register))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

const LIMIT: Duration = Duration::from_secs(20);

/// A clock that advances by this many µs each time that it is read.
#[derive(Default)]
struct Leaping {
    clock: TestClock,
    by: AtomicI64,
}

impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        self.clock.advance(Duration::from_micros(self.by.load(Ordering::SeqCst).try_into().unwrap()));
        self.clock.now()
    }
}

#[tokio::test]
async fn a_cancel_after_its_time_limit_does_nothing() {
    let clock = Arc::new(Leaping::default());
    let register = register(url(), &prefix(), 1).with_limit(LIMIT).with_clock(clock.clone());
    let subject = event("1", "a");
    let call = Reserve { due: clock.now(), ..reserve(&subject, &DedupSlot::Immediate) };
    let version = version(&register, call).await.unwrap();
    let cancel = |slot| Cancel { subject: subject.clone(), slot, due: None, horizon: HORIZON };
    let (of_slot, of_all, by_id) =
        (cancel(Some(DedupSlot::Immediate)), cancel(None), cancel(Some(DedupSlot::Event("a".to_owned()))));

    let late = i64::try_from(LIMIT.as_micros()).unwrap() + 1;
    clock.by.store(late, Ordering::SeqCst);
    for call in [&of_slot, &of_all] {
        let error = register.cancel(std::slice::from_ref(call)).await.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Slow, "{error}");
        assert!(error.to_string().contains("nobody waited"), "{error}");
    }
    let error = register.cancel_anywhere(&by_id).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Slow, "{error}");
    clock.by.store(0, Ordering::SeqCst);
    let claim = Claim {
        subject: subject.clone(),
        stamp: stamp(&DedupSlot::Immediate, version, 0),
        token: token(1),
        due: clock.now(),
        alone: false,
        terms: EXCLUSIVE,
    };
    assert!(matches!(register.claim(std::slice::from_ref(&claim)).await.unwrap()[0], ClaimAnswer::Run { .. }));

    // A cancel just within its time limit counts.
    clock.by.store(late - 1, Ordering::SeqCst);
    assert!(register.cancel(&[of_slot]).await.unwrap()[0][0].running);
    assert_eq!(register.cancel_anywhere(&by_id).await.unwrap().len(), 1);
    clock.by.store(0, Ordering::SeqCst);
    assert_eq!(register.claim(&[Claim { token: token(2), ..claim }]).await.unwrap(), [ClaimAnswer::Stale]);
}
