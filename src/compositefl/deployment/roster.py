"""Who is there: which sites to call in a round, and what the server has accepted from each."""

from dataclasses import dataclass, field

from compositefl.deployment.store import BEFORE_FIRST

LONGEST_REST = 64  # rounds after which a lost site is called again at the latest


@dataclass
class Member:
    """One site as the server sees it."""

    accepted: int = BEFORE_FIRST  # round of the last accepted upload
    joined: bool = False  # it has answered hello in this process
    samples: int = 0  # 0 until it has joined once
    tests: int = 0  # samples of its test set
    lost: int = 0  # times in a row that it did not answer at all
    skipped_until: int = 0  # round in which it is called again
    refusals: int = 0  # times in a row that it did not want to join
    absent: int = 0  # rounds in a row without its upload
    rounds: int = 0  # that it took part in
    uploads: int = 0


@dataclass
class Roster:
    """All sites of a federation, in its order."""

    members: dict[str, Member] = field(default_factory=dict)

    @classmethod
    def of(cls, sites: tuple[str, ...]) -> "Roster":
        """Sites of which nothing is known yet."""
        return cls({site: Member() for site in sites})

    def to_call(self, t: int, everyone: bool = False) -> list[str]:
        """Sites to call in round t: all but those that are skipped."""
        return [s for s, m in self.members.items() if everyone or m.skipped_until <= t]

    def joined(self, sites: list[str]) -> list[str]:
        """Those of `sites` that have joined the run."""
        return [site for site in sites if self.members[site].joined]

    def failed(self, site: str, t: int, lost: bool, refused: bool = False) -> None:
        """A call failed. A site that is lost or refuses to join is skipped for 1, 2, 4, ... rounds.

        Waiting for the one costs time; the other says the same again.
        """
        member = self.members[site]
        member.joined = False
        if lost:
            member.skipped_until = t + 1 + min(LONGEST_REST, 2**member.lost)
            member.lost = min(member.lost + 1, 10)
        elif refused:
            member.skipped_until = t + 1 + min(LONGEST_REST, 2**member.refusals)
            member.refusals = min(member.refusals + 1, 10)

    def heard(self, site: str) -> None:
        """A site replied: it is not lost."""
        member = self.members[site]
        member.lost = member.skipped_until = member.refusals = 0

    def willing(self) -> int:
        """Sites that have not refused to join twice in a row."""
        return sum(member.refusals < 2 for member in self.members.values())

    def accepted(self) -> dict[str, int]:
        """What every message says: the round of each site's last accepted upload."""
        return {site: m.accepted for site, m in self.members.items()}

    def close_round(self, t: int, uploads: dict[str, int]) -> None:
        """Round t is over; `uploads` says how many uploads each accepted site has computed."""
        for site, member in self.members.items():
            if site in uploads:
                member.accepted, member.absent = t, 0
                member.uploads = max(uploads[site], member.uploads + 1)
                member.rounds += 1
            else:
                member.absent += 1

    def took_part(self) -> dict[str, int]:
        """In how many rounds each site took part."""
        return {site: m.rounds for site, m in self.members.items()}

    def longest_absence(self) -> int:
        """Rounds since the upload of the site that has been away longest was accepted."""
        return max(m.absent for m in self.members.values())
