"""One writing process: runs a mix of mutations and notes every answer it got, one JSON line each."""

from __future__ import annotations

import json
import random
import sys

from omnigraph.engine.operations.mutate import mutate
from omnigraph.errors import ConflictError
from omnigraph.graph import connect
from omnigraph.plan import compile_query
from omnigraph.plan.parameters import bind

QUERIES = {
    "insert": (
        "$k: String, $n: I64",
        "insert P { k: $k, n: $n } insert E { from: $k, to: $k, w: 1.0 }",
    ),
    "upsert": ("$k: String, $n: I64", "insert P { k: $k, n: $n }"),
    "update": ("$k: String, $n: I64", "update P set { n: $n } where k = $k"),
    "delete": ("$k: String", "delete P where k = $k"),
    "log": ("$k: String", "insert L { text: $k }"),
}


def main(root: str, number: int, count: int, notes: str) -> None:
    chance = random.Random(number)
    context = connect(root).context
    plans = {
        name: compile_query(context.catalog, f"query {name}({signature}) {{ {body} }}", None)
        for name, (signature, body) in QUERIES.items()
    }
    mine: list[str] = []
    with open(notes, "w", encoding="utf-8") as file:
        for step in range(count):
            name = chance.choices(list(QUERIES), weights=[5, 3, 2, 1, 1])[0]
            hot = f"hot-{chance.randrange(4)}"
            value = number * 1_000_000 + step
            if name == "insert":
                parameters = {"k": f"cold-{number}-{step}", "n": value}
            elif name in ("upsert", "update"):
                parameters = {"k": hot, "n": value}
            elif name == "delete":
                parameters = {"k": mine.pop(chance.randrange(len(mine))) if mine else "nobody"}
            else:
                parameters = {"k": f"log-{number}-{step}"}
            note = {"query": name, "parameters": parameters, "commit": None, "refused": None}
            plan = plans[name]
            try:
                result = mutate(context, plan, bind(plan.parameters, parameters), actor=f"act-{number}")
                note["commit"] = result.commit_id
                if name == "insert":
                    mine.append(parameters["k"])
            except ConflictError as conflict:
                note["refused"] = type(conflict).__name__
                if name == "delete" and parameters["k"] != "nobody":
                    mine.append(parameters["k"])
            file.write(json.dumps(note) + "\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
