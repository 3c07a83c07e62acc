// BullMQ as a peer of scripts/bench --peers: adds N jobs, then processes them with a handler that does nothing.
//
//   node bullmq.mjs REDIS_URL N BYTES [SETTINGS]
//
// SETTINGS is a JSON object that overrides the settings below. The last line of standard output is a JSON object with
// the rates. The lines before it, `add`, `added`, `work` and `worked`, say when a phase begins and ends, so that the
// caller can measure the CPU time of each.

import { fork } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { createClient } from "redis";

const { version } = createRequire(import.meta.url)("bullmq/package.json");

// The fastest of these on two cores: ioredis and node-redis; `add` 1,000 at a time with and without pipelining, and
// `addBulk` of 100, 200, 500, 1,000 and 5,000; one and two processes that add or work; concurrency 50, 100, 200, 500 and
// 1,000. A second worker gained nothing, because Redis is the other core's load. Completed jobs are removed. `drainDelay`
// matters only for an empty queue.
const SETTINGS = {
  client: "ioredis",
  // Whether ioredis sends the commands of one turn of the event loop in one pipeline.
  pipelining: false,
  adders: 1,
  // 0 adds each job on its own with `add`.
  bulk: 200,
  // Calls of `addBulk` or `add` that an adder has under way.
  parallel: 10,
  workers: 1,
  concurrency: 100,
};

const QUEUE = "peer";
const JOB = "each";
// Jobs before the clock starts, so that the JIT compiler has seen the code.
const WARM = 4_000;
// A run that stands still for this long has lost a job.
const STALLED_MILLIS = 60_000;

function connected(url, settings) {
  if (settings.client === "redis") return createClient({ url }).on("error", console.error);
  return new Redis(url, { maxRetriesPerRequest: null, enableAutoPipelining: settings.pipelining });
}

async function add(queue, count, bytes, settings) {
  const data = { payload: "x".repeat(bytes) };
  const chunk = settings.bulk || 1;
  let next = 0;
  const adder = async () => {
    while (next < count) {
      const size = Math.min(chunk, count - next);
      next += size;
      if (settings.bulk) await queue.addBulk(Array.from({ length: size }, () => ({ name: JOB, data })));
      else await queue.add(JOB, data);
    }
  };
  await Promise.all(Array.from({ length: settings.parallel }, adder));
}

// Runs in a process of its own. Does what the parent's messages say, and answers each.
async function child([role, url, settingsText]) {
  const settings = JSON.parse(settingsText);
  let ran = 0;
  const connection = connected(url, settings);
  const keep = { removeOnComplete: { count: 0 }, removeOnFail: { count: 0 } };
  const options = { connection, concurrency: settings.concurrency, autorun: false, ...keep };
  const queue = new Queue(QUEUE, { connection });
  const worker = role === "work" ? new Worker(QUEUE, async () => void ran++, options) : undefined;
  worker?.on("error", console.error);
  await (worker ?? queue).waitUntilReady();
  process.on("message", async ({ count, bytes, running }) => {
    if (count) await add(queue, count, bytes, settings);
    if (running === true) worker.resume();
    if (running === false) await worker.pause();
    process.send({ ran });
  });
  process.on("disconnect", () => process.exit());
  process.send({});
}

async function main([url, nText, bytesText, overrides = "{}"]) {
  const [n, bytes] = [Number(nText), Number(bytesText)];
  const settings = { ...SETTINGS, ...JSON.parse(overrides) };
  const control = new Queue(QUEUE, { connection: connected(url, settings) });
  await control.obliterate({ force: true });

  const start = async (role, count) => {
    const args = [role, url, JSON.stringify(settings)];
    const children = Array.from({ length: count }, () => fork(fileURLToPath(import.meta.url), args));
    await Promise.all(children.map((child) => once(child, "message")));
    return children;
  };
  const ask = (children, message) =>
    Promise.all(
      children.map(async (child, i) => {
        child.send(message(i));
        return (await once(child, "message"))[0];
      }),
    );
  const [adders, workers] = [await start("add", settings.adders), await start("work", settings.workers)];
  const share = (count, i) => Math.floor((count * (i + 1)) / adders.length) - Math.floor((count * i) / adders.length);
  const addAll = (count) => ask(adders, (i) => ({ count: share(count, i), bytes }));
  const running = (running) => ask(workers, () => ({ running }));
  const ran = async () => (await running()).reduce((sum, answer) => sum + answer.ran, 0);
  const allRan = async (count) => {
    for (let last = -1, since = performance.now(), now = 0; (now = await ran()) < count; last = now) {
      if (now !== last) since = performance.now();
      else if (performance.now() - since > STALLED_MILLIS) throw new Error(`stopped at ${now} of ${count}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    // The handlers have run; the jobs are done once no list has one.
    while ((await control.getJobCountByTypes("wait", "active")) > 0);
  };
  const seconds = async (phase, phaseEnd, run) => {
    console.log(phase);
    const begun = performance.now();
    await run();
    const took = (performance.now() - begun) / 1000;
    console.log(phaseEnd);
    return took;
  };

  await addAll(WARM);
  await running(true);
  await allRan(WARM);
  await running(false);
  const addSeconds = await seconds("add", "added", () => addAll(n));
  const workSeconds = await seconds("work", "worked", async () => {
    await running(true);
    await allRan(WARM + n);
  });
  const total = await ran();
  if (total !== WARM + n) throw new Error(`${total} handlers ran, and not ${WARM + n}`);
  for (const child of [...adders, ...workers]) child.disconnect();
  await control.obliterate({ force: true });
  await control.close();
  console.log(
    JSON.stringify({
      peer: "BullMQ",
      version,
      settings,
      added_per_second: n / addSeconds,
      processed_per_second: n / workSeconds,
    }),
  );
  process.exit();
}

const [role, ...rest] = process.argv.slice(2);
if (process.send) await child([role, ...rest]);
else await main([role, ...rest]);
