"""The passenger ledger: how long people wait and ride, counted exactly once, to the second.

Counts are constant between events, so the integral of the paper's cost equation is a sum of count
times seconds, kept in whole numbers. `charge` returns the cost since the last charge, which is the
cost of a decision (zero inside a batch).
"""

from dataclasses import dataclass

from evenline.support.compiled import shared

WEIGHT_WAITING = 2
WEIGHT_RIDING = 1


@shared
def cost_of(waiting_s: int, riding_s: int) -> int:
    """Generalized passenger-seconds of people's waiting and riding."""
    return WEIGHT_WAITING * waiting_s + WEIGHT_RIDING * riding_s


@dataclass
class Ledger:
    """Passenger-seconds so far. They never decrease."""

    waiting_s: int = 0
    riding_s: int = 0
    charged: int = 0

    def advance(self, waiting: int, riding: int, seconds: int = 1) -> None:
        """Let time pass while `waiting` people wait and `riding` people ride."""
        self.waiting_s += waiting * seconds
        self.riding_s += riding * seconds

    @property
    def cost(self) -> int:
        """Generalized passenger-seconds from the beginning of the day."""
        return cost_of(self.waiting_s, self.riding_s)

    def charge(self) -> int:
        """The cost since the last call."""
        due = self.cost - self.charged
        self.charged += due
        return due
