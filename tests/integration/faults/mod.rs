//! `kill -9` at every step of the event's way: nothing is lost, and nothing runs twice that may not.

#[cfg(feature = "fail-points")]
mod crash_loop;
#[cfg(feature = "fail-points")]
mod crowd;
#[cfg(feature = "fail-points")]
mod publisher;
#[cfg(feature = "fail-points")]
mod worker;

#[test]
fn the_points_to_kill_at_are_compiled_in() {
    assert!(cfg!(feature = "fail-points"), "without them nothing is killed: run `cargo test --all-features`");
}
