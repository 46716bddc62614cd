"""Orders and payments: join two streams on a key, and find rows without a partner.

Orders and payments arrive on two inputs, in no particular order; their key is the order's number.
``emit_mode="final"`` waits for the end of the input and then emits every number, with ``None`` for
a side without a value. The default, ``"complete"``, emits a pair as soon as both sides have a
value, but never emits a row without a partner.

Run it; `TestDriver` needs no Spark:

    python examples/orders_and_payments.py

It prints:

    paid      A1: 20 ordered, 20 paid
    paid      A3: 35 ordered, 30 paid
    unpaid    A2: 12 ordered
    no order  A9: 50 paid
"""

from __future__ import annotations

from typing import Any

import flow.operators as op
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource

Row = dict[str, Any]

ORDERS = [
    {"order": "A1", "amount": 20},
    {"order": "A2", "amount": 12},
    {"order": "A3", "amount": 35},
]
PAYMENTS = [
    {"for_order": "A9", "paid": 50},
    {"for_order": "A3", "paid": 30},
    {"for_order": "A1", "paid": 20},
]


def has_both(item: tuple[str, tuple[Row | None, Row | None]]) -> bool:
    """Return True if an order number has its order and its payment."""
    return None not in item[1]


graph = Dataflow("orders_and_payments")
orders = op.input("orders", graph, TestingSource(ORDERS))
payments = op.input("payments", graph, TestingSource(PAYMENTS))
joined = op.join(
    "match",
    op.key_on("orders_by_number", orders, "order"),
    op.key_on("payments_by_number", payments, "for_order"),
    emit_mode="final",
)
paid, unmatched = op.branch("has_both", joined, has_both)
op.output("paid", paid, TestingSink([]))
op.output("unmatched", unmatched, TestingSink([]))


def main() -> None:
    """Run the flow and print the matched numbers, then the others."""
    with TestDriver(graph) as driver:
        driver.send("payments", PAYMENTS)
        driver.send("orders", ORDERS)
        driver.end()
    for number, (order, payment) in sorted(driver.received("paid")):
        print(f"paid      {number}: {order['amount']} ordered, {payment['paid']} paid")
    for number, (order, payment) in sorted(driver.received("unmatched")):
        if payment is None:
            print(f"unpaid    {number}: {order['amount']} ordered")
        else:
            print(f"no order  {number}: {payment['paid']} paid")


if __name__ == "__main__":
    main()
