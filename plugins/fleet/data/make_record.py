#!/usr/bin/env python3
"""Makes up a record of work streams, the same one for the same arguments.

    make_record.py > fleet.json                          the record that is shipped: 68 streams
    make_record.py --streams 400 --prose 40000           400 streams, each with about 40,000 bytes of justification

Of the shipped record the streams that are over (merged, closed-without-merge) are about 83 % of the bytes, as in real
fleets: what is finished has been through more gates. One stream a line, no other white space.
"""

import argparse
import json
import sys

# In the shipped record: bytes of justification over all gates of a stream that is over, and of one that is not.
PROSE_OVER = 5_900
PROSE_LIVE = 690
# Hours since the epoch at which the record was taken, 2026-11-16T08:00:00Z. Nothing here asks a clock.
NOW = 498_560

STATES = ["merged"] * 29 + ["closed-without-merge"] * 9 + ["open"] * 17 + ["gated"] * 8 + ["parked"] * 5
OVER = {"merged", "closed-without-merge"}
OWNERS = ["amara", "bjorn", "chidi", "dalia", "esra", "fen", "gauri", "hugo", "ines", "jun", "kofi", "lena"]
REVIEWERS = ["review-panel", "mirela", "tomasz", "oona", "security-desk", "pascal", "release-desk", "yusuf"]
GATES = ["scope", "design", "tests", "performance", "security", "data-migration", "rollout", "documentation"]
HOSTS = ["quay-01", "quay-02", "quay-03", "lock-11", "lock-12", "basin-7"]
CHECKS = ["unit", "integration", "lint", "licences", "fuzz-smoke", "bench-smoke", "docs", "package"]

VERBS = ["Split", "Move", "Cache", "Retire", "Harden", "Measure", "Batch", "Stream", "Sign", "Index", "Rename", "Retry"]
OBJECTS = [
    "the invoice exporter", "tenant quotas", "the search ranker", "webhook deliveries", "the audit trail",
    "session tokens", "the price importer", "nightly backups", "the permissions cache", "report rendering",
    "the address validator", "image thumbnails", "the ledger reconciler", "push notifications", "the schema registry",
    "login throttling", "the warehouse sync", "feature switches", "the translation store", "dead-letter queues",
]
QUALIFIERS = [
    "per region", "behind a switch", "without downtime", "for large tenants", "off the hot path", "by content hash",
    "in one pass", "with back-pressure", "for the mobile clients", "under the new contract", "per key", "at the edge",
]

# A sentence of justification is one opening, one finding and one consequence; the slots make them differ.
OPENINGS = [
    "On the second reading of {object}", "After {number} runs on {host}", "Measured against last month's baseline",
    "With the change limited to {object}", "Looking at the diff file by file", "Since {owner} rebased on Tuesday",
    "Compared with the plan agreed in wave {wave}", "When the reviewers replayed production traffic",
    "With {object} out of the way", "Under a load of {number} requests a second",
    "Going through the open questions of {owner}", "In the rehearsal on {host}", "For tenants above {number} seats",
    "Reading the rollback notes next to the code", "Before the branch could be compared at all",
]
FINDINGS = [
    "the p99 stayed within {number} ms and no retry storm appeared", "two of the {number} failing cases turned out to be fixtures",
    "the lock is held across the remote call in exactly one place", "every new column has a default and can be dropped again",
    "the error path returns the same text for {few} different causes", "memory levelled off at {number} MiB instead of climbing",
    "nobody outside {owner}'s group depends on the old signature", "the counters agree with the ledger to the last row",
    "the test that was quarantined in wave {wave} passes {number} times in a row",
    "the new index is used by the three queries that matter and by none of the others",
    "clock skew between {host} and its neighbour explains the odd timestamps",
    "the setting that this stream removes is still read by {object}", "the fallback was exercised and took {few} seconds",
    "the documentation names the old default in {few} places", "the queue drains within {few} minutes of a restart",
    "the permission check happens before the lookup, as it should", "a partial write leaves a row that the reader skips and reports",
]
CONSEQUENCES = [
    "so the gate can rely on it", "which {owner} will watch for a week", "and that is good enough for a first tenth of the traffic",
    "hence the condition of migrating {object} first", "so a follow-up is filed and does not block",
    "which is the reason for asking {reviewer} to look as well", "and the remaining risk is a slow start, not a wrong answer",
    "so the verdict rests on evidence rather than on the estimate", "although the margin is only {few} percent",
    "and the dashboards have been changed to show it", "so we would rather wait one wave than do it twice",
    "which leaves {object} as the only open point", "and the on-call notes now say what to do at night",
    "but the comparison with {host} has to be repeated after the upgrade",
]
NOTES = [
    "Heartbeat is regular; the last quiet spell was a machine restart.", "Worker waits for a free slot on {host}.",
    "Rebased {few} commits this morning, no conflicts.", "Owner is away until wave {wave}; {owner} stands in.",
    "Flaky check re-run once and green since.", "Nothing has moved since the gate asked for {object} first.",
    "Disk on {host} was full for {few} minutes; no work lost.", "Runs the long benchmark, expect silence for {number} minutes.",
]


class Dice:
    """A splitmix64 generator: unlike the standard library's, its results can be promised for every version of Python."""

    def __init__(self, seed):
        self.state = seed * 0x1_0000_0001

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (mixed ^ (mixed >> 31)) % bound

    def one_of(self, choices):
        return choices[self.below(len(choices))]


class Slots(dict):
    """Fills the slots of a text, each time with another value."""

    def __init__(self, dice):
        super().__init__()
        self.dice = dice

    def __missing__(self, slot):
        if slot == "number":
            return self.dice.below(880) + 12
        if slot == "few":
            return self.dice.below(17) + 3
        if slot == "wave":
            return self.dice.below(9) + 1
        return self.dice.one_of({"object": OBJECTS, "host": HOSTS, "owner": OWNERS, "reviewer": REVIEWERS}[slot])


def fill(dice, text):
    return text.format_map(Slots(dice))


def prose(dice, size):
    """Sentences of `size` bytes or a little more, in paragraphs."""
    sentences, length = [], 0
    while length < size:
        sentence = fill(dice, f"{dice.one_of(OPENINGS)}, {dice.one_of(FINDINGS)}, {dice.one_of(CONSEQUENCES)}.")
        length += len(sentence) + 1
        sentences.append(sentence + ("\n\n" if dice.below(5) == 0 else " "))
    return "".join(sentences).rstrip()


def moment(hours, dice):
    """The time `hours` before NOW, to the minute, in RFC 3339."""
    total = NOW - hours
    days, hour = divmod(total, 24)
    # Days since the epoch to a civil date, counted in years that begin in March, so that a leap day comes last.
    shifted = days + 719_468
    era, day_of_era = divmod(shifted, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + 3 if month_index < 10 else month_index - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{dice.below(60):02}:00Z"


def verdicts(state, count):
    """Verdicts of the gates in order: the last one fits the state."""
    last = {"merged": "passed", "closed-without-merge": "rejected", "open": "passed", "gated": "pending", "parked": "deferred"}
    return ["passed"] * (count - 1) + [last[state]]


def stream(number, state, prose_bytes):
    dice = Dice(number)
    over = state in OVER
    title = f"{dice.one_of(VERBS)} {dice.one_of(OBJECTS)} {dice.one_of(QUALIFIERS)}"
    age = (1_600 if over else 500) + dice.below(900)
    quiet = 400 + dice.below(700) if over else dice.below(90)
    count = 3 + dice.below(4) if over else 1 + dice.below(2)
    if prose_bytes is None:
        # Half as much to half as much again: real records are uneven.
        prose_bytes = (PROSE_OVER if over else PROSE_LIVE) * (50 + dice.below(101)) // 100
    first_gate = dice.below(len(GATES))
    gates = [
        {
            "name": GATES[(first_gate + index) % len(GATES)],
            "verdict": verdict,
            "decided_by": dice.one_of(REVIEWERS),
            "decided_at": moment(quiet + (age - quiet) * (count - index) // (count + 1), dice),
            "justification": prose(dice, prose_bytes // count),
        }
        for index, verdict in enumerate(verdicts(state, count))
    ]
    return {
        "id": f"ws-{number:03}",
        "title": title,
        "wave": 1 + (number - 1) * 9 // 68 % 9,
        "owner": dice.one_of(OWNERS),
        "branch": f"stream/{number:03}-{title.lower().replace(' ', '-')[:24].rstrip('-')}",
        "state": state,
        "created": moment(age, dice),
        "updated": moment(quiet, dice),
        "gates": gates,
        "last_gate": gates[-1],
        "liveness": {
            "status": "ended" if over else dice.one_of(["alive", "alive", "alive", "quiet", "lost"]),
            "last_commit": f"{dice.below(1 << 48):012x}",
            "last_heartbeat": moment(quiet, dice),
            "host": dice.one_of(HOSTS),
            "pid": None if over else 2_000 + dice.below(60_000),
            "commits_ahead": 0 if state == "merged" else 1 + dice.below(40),
            "commits_behind": dice.below(120),
            "checks": [
                {"name": name, "passed": over or dice.below(8) != 0, "seconds": (5 + dice.below(9_000)) / 10}
                for name in CHECKS[: 3 + dice.below(6)]
            ],
            "note": fill(dice, dice.one_of(NOTES)),
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=len(STATES), help="how many streams (default: %(default)s)")
    parser.add_argument("--prose", type=int, help="bytes of justification in every stream (default: uneven, as shipped)")
    arguments = parser.parse_args()

    write = sys.stdout.write
    write('{"record":"fleet","taken":"%s","streams":[\n' % moment(0, Dice(0)))
    for number in range(1, arguments.streams + 1):
        # 25 and 68 have no common divisor, so this visits every entry once and mixes the states.
        state = STATES[number * 25 % len(STATES)]
        text = json.dumps(stream(number, state, arguments.prose), separators=(",", ":"), ensure_ascii=False)
        write(text + (",\n" if number < arguments.streams else "\n"))
    write("]}\n")


if __name__ == "__main__":
    main()
