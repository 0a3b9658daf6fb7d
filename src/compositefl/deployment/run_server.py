"""What every server of a run is: its federation, its folder, and the calls to its sites."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compositefl.core.files import only_one, private_folder
from compositefl.deployment.calls import Report, SiteCalls
from compositefl.deployment.federation import Federation
from compositefl.deployment.roster import Roster
from compositefl.deployment.transport import Transport
from compositefl.deployment.trust import check_name


class RunServer:
    """One run of a federation, from what is in `folder` where there is something.

    run: the name of the run; a new name is a new run. report: called with a dict for every event.
    patience: seconds to wait for another job of the run, such as one whose server has just died.
    steps: the fewest and the most local steps of a site in a round.
    """

    def __init__(
        self,
        federation: Federation,
        transport: Transport,
        folder: Path,
        run: str,
        report: Report = lambda _: None,
        patience: float = 0.0,
        steps: Callable[[int], tuple[int, int]] = lambda _: (0, 0),
    ):
        self.federation, self.transport, self.name = federation, transport, run
        self.folder = folder / check_name("run", run)
        self.report, self.patience = report, patience
        self.roster = Roster.of(federation.sites)
        self.calls = SiteCalls(
            federation,
            run,
            transport,
            self.roster,
            lambda event: self.report(event),
            steps,
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the run: no other job may go on with it."""
        with only_one(private_folder(self.folder) / "lock", f"the run {self.name}", self.patience):
            yield
