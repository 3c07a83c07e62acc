//! `kill -9` at every step of the event's way: nothing is lost, and nothing runs twice that may not.

#[cfg(feature = "fail-points")]
mod crash_loop;
#[cfg(feature = "fail-points")]
mod crowd;
#[cfg(feature = "fail-points")]
mod in_order;
#[cfg(feature = "fail-points")]
mod large;
mod lost_leader;
mod poison;
#[cfg(feature = "fail-points")]
mod publisher;
#[cfg(feature = "fail-points")]
mod worker;
mod x_death;

#[cfg(not(feature = "fail-points"))]
#[test]
fn the_points_to_kill_at_are_compiled_in() {
    panic!("they are not, and nothing is killed: run `cargo test --all-features`");
}

/// A type for each point, so that all points can be tried at a time.
#[cfg(feature = "fail-points")]
fn types(points: &[&str]) -> String {
    let lines: Vec<String> = points.iter().map(|point| format!("  {}: {{}}", event_type(point))).collect();
    format!("types:\n{}\n", lines.join("\n"))
}

#[cfg(feature = "fail-points")]
fn event_type(point: &str) -> String {
    point.replace('.', "-")
}
