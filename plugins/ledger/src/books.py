"""The books: 30 accounts and 6,000 entries, made up from a seed.

What stands at the top level of a module runs when the component is built, and calls begin with its outcome: the books
cost a call nothing.
"""

import json
from datetime import date, timedelta
from random import Random

ENTRIES = 6_000
_SEED = 1876
_FIRST_DAY = date(2025, 11, 20)
_CLERKS = ("amara", "bjorn", "chidi", "dalia", "esra")

# Number, name, kind, and whether the account is closed.
_ACCOUNTS = (
    ("1000", "Petty cash", "asset", False),
    ("1010", "Harbour bank, current account", "asset", False),
    ("1020", "Harbour bank, reserve account", "asset", False),
    ("1030", "Savings bank of the isles", "asset", True),
    ("1200", "Trade debtors", "asset", False),
    ("1210", "Debtors in arrears", "asset", False),
    ("1300", "Stock of rope and chain", "asset", False),
    ("1310", "Stock of lights and instruments", "asset", False),
    ("1320", "Stock of clothing", "asset", False),
    ("1330", "Stock of coal", "asset", True),
    ("1400", "Prepaid rent", "asset", False),
    ("1500", "Delivery boats", "asset", False),
    ("1510", "Cranes and scales", "asset", False),
    ("2000", "Trade creditors", "liability", False),
    ("2100", "Deposits of customers", "liability", False),
    ("2200", "Value added tax", "liability", False),
    ("2300", "Bank loan for the quay", "liability", False),
    ("2310", "Bank loan for the old store", "liability", True),
    ("3000", "Capital", "equity", False),
    ("3100", "Profit brought forward", "equity", False),
    ("4000", "Sales of rope and chain", "income", False),
    ("4010", "Sales of lights and instruments", "income", False),
    ("4020", "Sales of clothing", "income", False),
    ("4100", "Mooring fees", "income", False),
    ("5000", "Cost of goods", "expense", False),
    ("5100", "Wages", "expense", False),
    ("5200", "Rent", "expense", False),
    ("5210", "Rent of the old store", "expense", True),
    ("5300", "Fuel", "expense", False),
    ("5400", "Bank charges", "expense", False),
)

# What the books were opened with: debit, credit, purpose, cents.
_OPENING = (
    ("1010", "3000", "Opening balance: bank", 95_000_000),
    ("1020", "3000", "Opening balance: bank", 20_000_000),
    ("1000", "3000", "Opening balance: cash", 150_000),
    ("1300", "3000", "Opening balance: stock", 7_400_000),
    ("1320", "3000", "Opening balance: stock", 2_150_000),
    ("1500", "3000", "Opening balance: boats", 31_000_000),
    ("1510", "3000", "Opening balance: cranes", 8_800_000),
    ("3000", "2300", "Opening balance: loan", 24_000_000),
)

# Which account an entry debits, which it credits, what it is for, and the largest amount.
_KINDS_OF_ENTRY = (
    ("1200", "4000", "Invoice for rope and chain", 90_000),
    ("1200", "4010", "Invoice for lights and instruments", 240_000),
    ("1200", "4020", "Invoice for clothing", 60_000),
    ("1000", "4100", "Mooring fee", 4_500),
    ("1010", "1200", "Payment received", 180_000),
    ("1210", "1200", "Reminder sent: moved to arrears", 70_000),
    ("1300", "2000", "Rope and chain bought", 120_000),
    ("1310", "2000", "Lights and instruments bought", 300_000),
    ("2000", "1010", "Supplier paid", 250_000),
    ("5000", "1300", "Goods taken from stock", 60_000),
    ("5100", "1010", "Wages paid", 310_000),
    ("5300", "1000", "Fuel for the delivery boats", 9_000),
    ("5400", "1010", "Bank charges", 1_200),
    ("1010", "2100", "Deposit for a special order", 50_000),
    ("1000", "1010", "Cash drawn", 20_000),
)


def _line(row):
    return json.dumps(row, separators=(",", ":")).encode()


def _entries():
    random = Random(_SEED)
    balances = {number: 0 for number, *_ in _ACCOUNTS}
    rows = []
    for number in range(1, ENTRIES + 1):
        if number <= len(_OPENING):
            debit, credit, purpose, cents = _OPENING[number - 1]
        else:
            debit, credit, purpose, most = _KINDS_OF_ENTRY[int(random.random() * len(_KINDS_OF_ENTRY))]
            cents = 100 + int(random.random() * most)
        balances[debit] += cents
        balances[credit] -= cents
        rows.append(
            {
                "id": number,
                "date": (_FIRST_DAY + timedelta(days=number * 360 // ENTRIES)).isoformat(),
                "debit": debit,
                "credit": credit,
                "cents": cents,
                "purpose": purpose,
                "voucher": f"V-{100_000 + int(random.random() * 900_000)}",
                "booked_by": _CLERKS[int(random.random() * len(_CLERKS))],
            }
        )
    return rows, balances


def _books():
    entries, balances = _entries()
    accounts = [
        {
            "number": number,
            "name": name,
            "kind": kind,
            "status": "closed" if is_closed else "open",
            "currency": "EUR",
            # Debits less credits.
            "balance_cents": balances[number],
        }
        for number, name, kind, is_closed in _ACCOUNTS
    ]
    return accounts, entries


_accounts, _rows = _books()

ACCOUNTS = [(account, _line(account)) for account in _accounts]
"""Every account with its JSON text, by number."""

ENTRIES_BY_ID = [(entry, _line(entry)) for entry in _rows]
"""Every entry with its JSON text; the entry with id 1 is the first."""
