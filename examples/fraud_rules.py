"""Fraud rules that change while the flow runs: a table of rules, and payments that they score.

Rules are a stream of their own, such as a compacted topic that an analyst's tool writes. The newest
version of each rule is in the table; a rule that is switched off leaves it. All payments of an
epoch are scored with the same rules, in every worker, and a replayed epoch is scored with the rules
of its first run.

Run it; `TestDriver` needs no Spark:

    python examples/fraud_rules.py

It prints:

    two rules
      p1 of 90 EUR is fine
      p2 of 1,200 EUR: large
      p3 of 1,500 EUR: large, abroad
    the limit is 1,300 now, and abroad is switched off
      p4 of 1,200 EUR is fine
      p5 of 1,500 EUR: large
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flow.operators as op
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource

Payment = dict[str, Any]
Rule = dict[str, Any]

RULES: list[Rule] = [
    {"id": "large", "active": True, "above": 1_000},
    {"id": "abroad", "active": True, "above": 500, "home": ["DE", "FR"]},
]
CHANGED: list[Rule] = [
    {"id": "large", "active": True, "above": 1_300},
    {"id": "abroad", "active": False},
]
PAYMENTS: list[Payment] = [
    {"id": "p1", "amount": 90, "country": "DE"},
    {"id": "p2", "amount": 1_200, "country": "FR"},
    {"id": "p3", "amount": 1_500, "country": "US"},
]
LATER: list[Payment] = [
    {"id": "p4", "amount": 1_200, "country": "US"},
    {"id": "p5", "amount": 1_500, "country": "US"},
]


def active_rule(rule: Rule) -> Rule | None:
    """Return the rule, or ``None`` for a rule that is switched off, which removes it."""
    return rule if rule["active"] else None


def score(payment: Payment, rules: Mapping[str, Rule]) -> tuple[Payment, list[str]]:
    """Return a payment with the names of the rules that it breaks."""
    return payment, [name for name, rule in rules.items() if breaks(payment, rule)]


def breaks(payment: Payment, rule: Rule) -> bool:
    """Return True if a payment breaks a rule."""
    is_home = payment["country"] in rule.get("home", [])
    return payment["amount"] > rule["above"] and not is_home


def in_words(scored: tuple[Payment, list[str]]) -> str:
    """Describe a payment and the rules that it breaks."""
    payment, broken = scored
    text = f"{payment['id']} of {payment['amount']:,} EUR"
    return f"{text}: {', '.join(broken)}" if broken else f"{text} is fine"


graph = Dataflow("fraud_rules")
changes = op.input("rule_changes", graph, TestingSource(list[Rule]()))
payments = op.input("payments", graph, TestingSource(list[Payment]()))
rules = op.table("rules", changes, key="id", value=active_rule, max_bytes=1_000_000)
scored = op.map_with("score", payments, rules, score)
op.output("out", op.map("in_words", scored, in_words), TestingSink([]))


def main() -> None:
    """Score payments, change the rules, and score more payments."""
    with TestDriver(graph) as driver:
        driver.send("rule_changes", RULES)
        driver.send("payments", PAYMENTS)
        show("two rules", driver)
        driver.send("rule_changes", CHANGED)
        driver.send("payments", LATER)
        show("the limit is 1,300 now, and abroad is switched off", driver)


def show(heading: str, driver: TestDriver) -> None:
    """Print the output since the last call."""
    print(heading)
    for line in driver.take("out"):
        print(f"  {line}")


if __name__ == "__main__":
    main()
