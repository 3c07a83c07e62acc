"""Random requests that keep to the description of the API, and that break it: whether the answers keep to it too."""

import os
import random
import re
import subprocess
import time
from pathlib import Path

from harness import Case, operations, token

REQUESTS = int(os.environ.get("HATCHERY_REQUESTS", "1500"))
SEED = int(os.environ.get("HATCHERY_SEED", random.randrange(1 << 32)))


class Described(Case):
    def test_answers_are_as_described(self):
        seed, sent, began = SEED, 0, time.monotonic()
        # A run sends more or fewer requests than it was told.
        examples = max(10, REQUESTS // (2 * len(list(operations(self.description)))))
        while sent < REQUESTS:
            sent += self.run_once(seed, examples)
            seed += 1
        took = time.monotonic() - began
        print(f"{sent} requests in {took:.0f} s ({sent / took:.0f} a second), seed {SEED}; memory {self.memory()[1]} MiB")

    def run_once(self, seed, examples):
        command = ["python3", "-m", "schemathesis.cli", f"--config-file={Path(__file__).with_name('schemathesis.toml')}", "run"]
        command += ["--no-color", "--checks=all", f"--seed={seed}", f"--max-examples={examples}", "--generation-database=none"]
        command += ["-H", f"Authorization: Bearer {token('all')}", f"http://127.0.0.1:{self.port}/v1/openapi.json"]
        done = subprocess.run(command, cwd=self.place, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"seed {seed}\n{done.stdout}{done.stderr}")
        return int(re.search(r"(\d+) generated", done.stdout)[1])
