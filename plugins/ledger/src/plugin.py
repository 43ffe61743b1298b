"""The ledger of a ship chandler, as two collections.

The host makes the tools (`list_accounts`, `get_accounts`, `list_entries`, `get_entries`) and does what the adapter does
not. This adapter does what is easy for it, selecting entries and finding the start of a page, and says so.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import reply, shaping, types

import books
import declaration

# Rows of one push.
_ROWS_A_PUSH = 200


def _push(rows):
    for first in range(0, len(rows), _ROWS_A_PUSH):
        lines = b"".join(line + b"\n" for _, line in rows[first : first + _ROWS_A_PUSH])
        if reply.rows(lines) == reply.Demand.ENOUGH:
            return


def _accounts():
    # So few that the host may as well do everything.
    reply.total(len(books.ACCOUNTS))
    _push(books.ACCOUNTS)


def _entries(selection):
    reply.total(books.ENTRIES)
    if selection.conditions:
        # All that match, also those of other pages, so that the host can count them.
        wanted = [(c.field, {json.loads(value) for value in c.values}) for c in selection.conditions]
        reply.applied(shaping.PushDown.FILTERS)
        _push([row for row in books.ENTRIES_BY_ID if all(row[0][field] in values for field, values in wanted)])
        return
    # Ids count from 1 without a gap, so that the last one of a page says where the next begins.
    first = json.loads(selection.after) if selection.after is not None else 0
    end = first + selection.limit if selection.limit is not None else books.ENTRIES
    reply.applied(shaping.PushDown.AFTER | shaping.PushDown.LIMIT)
    _push(books.ENTRIES_BY_ID[first:end])


def _missing(what):
    return Err(types.Fault_NotFound(what))


class Backend(exports.Backend):
    def list_collections(self):
        return [declaration.ACCOUNTS, declaration.ENTRIES]

    def query(self, collection, selection):
        if collection == "accounts":
            _accounts()
        elif collection == "entries":
            _entries(selection)
        else:
            raise _missing(f"there is no collection {collection} here")

    def get(self, collection, key):
        # A caller may take a number for a text and the other way round.
        wanted = str(json.loads(key))
        rows, field = (books.ACCOUNTS, "number") if collection == "accounts" else (books.ENTRIES_BY_ID, "id")
        line = next((line for row, line in rows if str(row[field]) == wanted), None)
        if line is None:
            raise _missing(f"there is no row {wanted} in {collection}")
        reply.document(line)
