"""What the collections are, and how the host is to shape their rows."""

from wit_world.exports import backend
from wit_world.imports import shaping

import books


def _shape(key, summary, columns, horizon=None):
    return shaping.Shape(
        rows=shaping.RowSource_Automatic(),
        key=key,
        horizon=horizon,
        views=[shaping.View("summary", summary)],
        default_view="summary",
        columns=[shaping.Column(name, name) for name in columns],
        # The host fills it from the filters of the collection.
        filters=[],
        page=None,
        cap_bytes=None,
        applies=shaping.PushDown(0),
    )


ACCOUNTS = backend.Collection(
    name="accounts",
    description="The accounts of a ship chandler's ledger with their balances in cents (debits less credits). Closed "
    "accounts are hidden unless asked for.",
    filters=[
        backend.FilterField("kind", "asset, liability, equity, income or expense.", backend.ValueType.TEXT),
    ],
    shape=_shape(
        "number",
        ["number", "name", "kind", "balance_cents"],
        ["number", "name", "kind", "status", "currency", "balance_cents"],
        shaping.Horizon("status", shaping.Accepted_NoneOf(["closed"]), "closed accounts"),
    ),
    count=len(books.ACCOUNTS),
    tags=[],
)

ENTRIES = backend.Collection(
    name="entries",
    description="The entries of the ledger in the order in which they were booked: an amount in cents, the account it "
    "debits and the account it credits.",
    filters=[
        backend.FilterField("debit", "number of the account that is debited.", backend.ValueType.TEXT),
        backend.FilterField("credit", "number of the account that is credited.", backend.ValueType.TEXT),
    ],
    shape=_shape(
        "id",
        ["id", "date", "debit", "credit", "cents", "purpose"],
        ["id", "date", "debit", "credit", "cents", "purpose", "voucher", "booked_by"],
    ),
    count=books.ENTRIES,
    tags=[],
)
