//! Discarding letters.

use hatchery::Outcome;

use super::{TYPES, numbered, put};
use crate::support::{declared::Declared, process::Place, workers::Working};

#[tokio::test]
#[ignore = "discards and publishes hundreds of letters; scripts/test --all runs it"]
async fn discarded_letters_are_in_the_file_and_can_be_published_from_it() {
    let declared = Declared::new(TYPES).await;
    put(&declared, "mail", 600).await;
    let (hatchery, place) = (declared.connect().await, Place::new(&declared));
    let dry = place.letters(0, &["discard"]).await;
    assert!(dry.stdout.ends_with("Dry run: would discard 600 letters. --save FILE --yes does it.\n"), "{dry:?}");
    let usage = place.letters(2, &["discard", "--yes"]).await;
    assert!(usage.stderr.contains("--yes needs --save"), "{usage:?}");
    assert_eq!(place.letter_ids(&[]).await.len(), 600);
    place.letters(0, &["discard", "--yes", "--save", "letters.ndjson"]).await;
    assert_eq!(place.letter_ids(&[]).await, [""; 0]);
    let noted = |line: &String| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["discarded"]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(place.lines("letters.ndjson").iter().map(noted).collect::<Vec<_>>(), numbered(600).collect::<Vec<_>>());
    place.run(&mut place.command(&["publish", "--batch", "letters.ndjson"])).await.expect(0);
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(600).await;
    let mut payloads = worker.runs.payloads();
    worker.stop().await;
    payloads.sort();
    assert_eq!(payloads, numbered(600).collect::<Vec<_>>());
}
