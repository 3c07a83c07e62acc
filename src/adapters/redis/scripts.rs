//! The Lua scripts.

use std::sync::LazyLock;

use redis::Script;

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("scripts/common.lua"), include_str!($file))));
    };
}

/// Defines a script that writes into the index or reads it.
macro_rules! indexed {
    ($name:ident, $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/index.lua"),
                $(include_str!($file)),+
            ))
        });
    };
}

script!(PING, "scripts/ping.lua");
script!(TRY_WRITE, "scripts/try_write.lua");
script!(NOW, "scripts/now.lua");
script!(STATES, "scripts/states.lua");
script!(REPORTS, "scripts/reports.lua");
script!(OWN, "scripts/own.lua");
script!(RESERVE, "scripts/reserve.lua");
script!(RENEW, "scripts/renew.lua");
script!(RELEASE, "scripts/release.lua");
indexed!(RECORD, "scripts/record.lua");
indexed!(LATER, "scripts/later.lua");
indexed!(SETTLE_AND_CLAIM, "scripts/settle.lua", "scripts/claim.lua", "scripts/settle_and_claim.lua");
indexed!(CANCEL, "scripts/cancel.lua");
script!(FIND, "scripts/find.lua");
script!(COUNT, "scripts/count.lua");
script!(LOOK, "scripts/look.lua");
script!(LOOK_AT, "scripts/look_at.lua");
script!(CANCELLED_RUN, "scripts/cancelled_run.lua");
indexed!(KEPT, "scripts/kept.lua");
