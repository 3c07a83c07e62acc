//! Workers, publishers and nodes are killed with `kill -9` at every step of an event's way. No event is lost, and only
//! those run twice that may.

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
mod untranslatable;
#[cfg(feature = "fail-points")]
mod worker;
mod x_death;

#[cfg(not(feature = "fail-points"))]
#[test]
fn fail_points_are_compiled_in() {
    panic!("without fail points nothing is killed: run `cargo test --all-features`");
}

/// Returns the types of a topology, one for each fail point, so that one test tries all points at the same time.
#[cfg(feature = "fail-points")]
fn types(points: &[&str]) -> String {
    let lines: Vec<String> = points.iter().map(|point| format!("  {}: {{}}", event_type(point))).collect();
    format!("types:\n{}\n", lines.join("\n"))
}

#[cfg(feature = "fail-points")]
fn event_type(point: &str) -> String {
    point.replace('.', "-")
}
