//! Finds a time zone by its IANA name, and the name that was meant.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::field::shown;

/// A time zone that the database does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone `{zone}`; {}", match nearest {
    Some(name) => format!("is it `{name}`?"),
    None => "write a name of the IANA database, like Europe/Berlin or UTC".to_owned(),
})]
#[non_exhaustive]
pub struct UnknownZone {
    /// The name, shortened if it is long.
    pub zone: String,
    /// The most similar zone of the database, if one is similar enough.
    pub nearest: Option<String>,
}

/// Returns the time zone of this name, in any case. The system's database is asked first, and then the bundled one: the
/// system's may be absent, or lack the older names, which Debian has in a package of their own.
pub(super) fn find(name: &str) -> Result<TimeZone, UnknownZone> {
    let found = TimeZone::get(name).or_else(|_| TimeZoneDatabase::bundled().get(name));
    // `Etc/Unknown` is in the database, but no clock shows it.
    let known = found.ok().filter(|zone| !zone.is_unknown() && zone.iana_name().is_some());
    known.ok_or_else(|| UnknownZone { zone: shown(name), nearest: nearest(name) })
}

/// Returns the zone's name as the database spells it.
pub(super) fn name_of(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("UTC")
}

/// Returns the most similar name of the bundled database, so that the answer is the same on every machine. `Berlin`
/// alone is compared with the last part of each name.
fn nearest(name: &str) -> Option<String> {
    const LONGEST: usize = 40;
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_ascii_lowercase().replace(' ', "_");
    let known = TimeZoneDatabase::bundled();
    let (edits, nearest) = known
        .available()
        .map(|known| {
            let full = known.as_str().to_ascii_lowercase();
            let city = full.rsplit('/').next().unwrap_or(&full);
            let compared = if name.contains('/') { &full } else { city };
            (strsim::damerau_levenshtein(&name, compared), known.as_str().to_owned())
        })
        .min()?;
    (edits * 4 <= name.len()).then_some(nearest)
}
