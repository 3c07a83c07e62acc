//! A handler gets a payload byte for byte as it was published.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
};

/// JSON that would change if it were parsed and written again.
const JSON: &str = concat!(
    "{\"b\" :  1.0,\t\"a\": 12345678901234567890.10, \"é\": \"\\u00e9\\/\\n\", \"e\":1E+2, \"nested\": [ ] ,",
    "\"a\": -0, \"big\": 340282366920938463463374607431768211456 }"
);

fn payloads() -> Vec<(&'static str, Vec<u8>)> {
    let mebibyte = (0..1 << 20).map(|n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    vec![
        ("empty", Vec::new()),
        ("all-bytes", (0..=255).collect()),
        ("mebibyte", mebibyte),
        ("json", JSON.as_bytes().to_vec()),
        ("lines", b"\n\r\n\0\n".to_vec()),
    ]
}

async fn webhook() -> Declared {
    Declared::new("types: { webhook: {} }").await
}

/// Runs a worker until its program has stored every payload, and compares them with the originals.
async fn expect_unchanged(place: &Place<'_>) {
    let script = place.write("handler.sh", "cat > \"out-$EVENT_ID\"; echo $EVENT_ID >> done");
    let worker = Process::spawn(place.worker("webhook", &script));
    let count = payloads().len();
    eventually("the program has stored every payload", async || (place.lines("done").len() == count).then_some(()))
        .await;
    for (name, payload) in payloads() {
        let out = fs::read(place.path(&format!("out-{name}"))).unwrap();
        assert!(out == payload, "{name}: {} bytes of {}", out.len(), payload.len());
    }
    assert_eq!(worker.stop().await["done"], count);
    assert!(place.declared.amqp().await.filled(&place.declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_published_file_reaches_the_program_unchanged() {
    let declared = webhook().await;
    let place = Place::new(&declared);
    for (name, payload) in payloads() {
        fs::write(place.path(name), payload).unwrap();
        let mut publish = place.command(&["publish", "webhook", "--id", name, "--payload", &format!("@{name}")]);
        assert_eq!(place.run(&mut publish).await.expect(0).stdout, format!("{name}\n"));
    }
    expect_unchanged(&place).await;
}

#[tokio::test]
async fn a_published_batch_reaches_the_program_unchanged() {
    let declared = webhook().await;
    let place = Place::new(&declared);
    let line = |(name, payload): (&str, Vec<u8>)| {
        let payload = if name == "json" {
            format!("\"payload\" : {JSON} ")
        } else {
            format!("\"payload_base64\":\"{}\"", BASE64_STANDARD.encode(payload))
        };
        format!("{{\"type\": \"webhook\", \"id\": \"{name}\", {payload}}}")
    };
    let batch: Vec<String> = payloads().into_iter().map(line).collect();
    place.write("batch.ndjson", &batch.join("\n"));
    let published = place.run(&mut place.command(&["publish", "--batch", "batch.ndjson"])).await.expect(0);
    assert_eq!(published.stdout, format!("{} published, 0 refused\n", payloads().len()));
    expect_unchanged(&place).await;
}
