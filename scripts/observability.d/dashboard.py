"""Checks the dashboard, and prints a rule for each of its queries, so that promtool reads them. The rule of a tile is named
after its title. scripts/observability runs it from the root of the checkout."""

import itertools
import json
import re

VARIABLES = {"$__rate_interval": "5m", "$job": ".*", "$type": ".*"}
# Grafana shows an unknown unit as a suffix.
UNITS = {"short", "s", "eps", "mps"}

panels = [panel for panel in json.load(open("deploy/grafana/hatchery.json"))["panels"] if panel["type"] != "row"]
metrics = set(re.findall(r"^## `(\w+)`", open("docs/reference/metrics.md").read(), re.MULTILINE))
assert panels and metrics

rules = []
taken = {}
for panel in panels:
    title, place = panel["title"], panel["gridPos"]
    columns, lines = (range(place[start], place[start] + place[size]) for start, size in ("xw", "yh"))
    assert columns.stop <= 24, f"{title} is outside of the grid"
    for cell in itertools.product(columns, lines):
        other = taken.setdefault(cell, title)
        assert other == title, f"{title} lies on {other}"
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, f"{title} has an unknown unit"
    for target in panel["targets"]:
        query = target["expr"]
        assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}", f"{title} has a fixed data source"
        names = {re.sub("_bucket$", "", name) for name in re.findall(r"hatchery_\w+", query)}
        assert names and names <= metrics, f"{title} has an unknown metric: {names - metrics}"
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query))))
        legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert legend <= grouped, f"{title} has a legend without its label: {legend - grouped}"
        # A query that leaves out zeros shows "No data" while all is well.
        assert not re.search(r"[<>=] *[\d.]+$", query), f"{title} leaves out values"
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        kind = "tile" if panel["type"] == "stat" else "panel"
        rules.append({"record": f"{kind}:" + re.sub(r"\W+", "_", title.lower()), "expr": query, "labels": {"query": target["refId"]}})
print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
