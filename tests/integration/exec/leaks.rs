//! A worker that has run many programs is as it was.

use std::fs;

use hatchery::NewEvent;

use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
};

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Children that run or wait to be reaped.
fn children(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.map(|task| of(task.unwrap())).collect();
    all.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn hundreds_of_programs_leave_no_process_and_no_open_file_behind() {
    let declared = Declared::new("types: { job: { prefetch: 20, retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    // Some fail, some leave a child behind that holds their output open for a moment, some write much.
    let script = place.write(
        "handler.sh",
        "n=$(cat)
         case $n in
         *7) [ $EVENT_ATTEMPTS = 1 ] || exit 1 ;;
         *8) true & ;;
         *9) head -c 200000 /dev/zero ;;
         esac
         echo $n >> runs",
    );
    let worker = Process::spawn(place.worker("job", &script));
    let publish = async |from: u32, to: u32| {
        let events = (from..to).map(|n| NewEvent::new("job", n.to_string())).collect();
        assert!(hatchery.publisher().publish_batch(events).await.iter().all(Result::is_ok));
        let all = usize::try_from(to).unwrap();
        eventually("all have run", async || (place.lines("runs").len() == all).then_some(())).await;
        eventually("no child is left", async || children(worker.id()).is_empty().then_some(())).await;
    };
    publish(0, 20).await;
    let before = open_files(worker.id());
    publish(20, 320).await;
    eventually("no more files are open than before", async || (open_files(worker.id()) <= before).then_some(())).await;
    assert_eq!(worker.stop().await["done"], 320);
}
