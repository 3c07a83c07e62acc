//! A cancel that reaches Redis after its caller has given up. The caller was told that it failed, and others may have
//! published since.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use hatchery::internals::{
    ports::{Clock, Register as _},
    register::{Cancel, Claim, ClaimAnswer, DedupSlot, Reserve},
    trouble::Trouble,
};
use jiff::Timestamp;

use super::bench::{EXCLUSIVE, HORIZON, event, register, reserve, stamp, token, version};
use crate::support::{
    clock::TestClock,
    redis::{prefix, url},
};

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
