"""A site: it owns its data and its private state, and answers the server's calls."""

import math
import threading
from pathlib import Path

from compositefl.core.errors import CompositeFLError, wrong_value
from compositefl.core.trees import tree_bytes
from compositefl.core.types import Batch, Broadcast, Params, PlainValues
from compositefl.core.vector import Vector
from compositefl.deployment.compute import Plan, SiteEngine, make_site_engine
from compositefl.deployment.entries import MEBIBYTE
from compositefl.deployment.federation import Federation
from compositefl.deployment.messages import SLACK, Message, decode, encode, pack, unpack, value
from compositefl.deployment.privacy import Gaussian
from compositefl.deployment.session import SiteSession
from compositefl.deployment.site import Site
from compositefl.deployment.steered import numbers_of, rounds_to_keep
from compositefl.deployment.store import BEFORE_FIRST, Entry, Store
from compositefl.deployment.transport import PrivateError
from compositefl.deployment.trust import check_name


class Worker:
    """Answers `hello` and the calls of the session that it joined, one at a time.

    `folder` is where private states are kept, one sub-folder per run.
    """

    def __init__(self, site: Site, folder: Path):
        self.site = site
        self.folder = folder
        self._lock = threading.Lock()
        self._session: SiteSession | None = None

    def handle(self, method: str, payload: bytes) -> bytes:
        """The answer to one call. Calls that overlap wait for each other."""
        with self._lock:
            if method == "hello":
                return self._hello(decode(payload, MEBIBYTE))
            session = self._session
            if session is None:
                raise CompositeFLError("no federation has been joined; say hello first")
            if method not in session.answers:
                raise CompositeFLError(f"there is no method {method!r:.80}")
            return session.answers[method](session.read(payload))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the owner of the data should know of the run that was joined."""
        return () if self._session is None else self._session.notes

    def _hello(self, message: Message) -> bytes:
        """Join a run of a federation that this site was told to accept."""
        run = check_name("run", value(message, "run", str))
        federation = self.site.admit(value(message, "federation", str))
        session = self._session
        if session is None or (session.hash, session.run) != (federation.hash, run):
            kind = _session_class(federation)
            session = self._session = kind(self.site, federation, run, self.folder)
        return encode(
            {
                "federation": federation.hash,
                "run": run,
                "site": self.site.name,
                "samples": session.size,
                "tests": session.test_size,
            }
        )


def _session_class(federation: Federation) -> type[SiteSession]:
    if federation.glm is None:
        return Session
    from compositefl.deployment.glm_site import GLMSession  # loads what others do not need

    return GLMSession


class Session(SiteSession):
    """A site that trains: rounds of an algorithm from its private state."""

    def __init__(self, site: Site, federation: Federation, run: str, folder: Path):
        federation = federation.for_run(run)
        super().__init__(site, federation, run, folder)
        self.plan = Plan(federation)
        data = site.load(federation.data, self.plan.model.classes)
        self.engine = self._engine(federation.sites.index(site.name), *data)
        self.size, self.test_size = self.engine.size, self.engine.test_size
        self.check_size(self.size)
        if 0 < self.test_size < self.minimum:
            raise CompositeFLError(
                f"this site has fewer test samples than the minimum of {self.minimum}; it may "
                "leave out [test]"
            )
        self.answers = {"open": self.open, "round": self.round, "evaluate": self.evaluate}
        if self.plan.automatic:
            self.answers["curvature"] = self.curvature
        shapes = self.plan.shapes
        self.store = Store(folder / run / self.hash[:16], self.plan.client, shapes.upload)
        self.noise = None if federation.privacy is None else Gaussian(federation.privacy)
        arrays = tree_bytes(shapes.message) + tree_bytes(shapes.params)
        self.limit = min(federation.network.limit, arrays + SLACK)

    def _engine(self, number: int, train: Batch, test: Batch | None) -> SiteEngine:
        try:
            return make_site_engine(self.plan, number, train, test)
        except CompositeFLError as error:  # its text may speak of the data
            raise PrivateError(str(error), "its data do not fit the model") from error

    def curvature(self, message: Message) -> bytes:
        """The largest curvature of this site's loss at the start, where numbers set themselves."""
        t = self.round_of(message, last=0)
        with self.ledger.locked():
            number = self.ledger.check("curvatures")
            found = self.engine.curvature()
            # A kink or an overflow at the start tells nothing, as a flat loss: a pilot takes 1.
            about = {"curvature": found if math.isfinite(found) else 0.0}
            self.ledger.record("curvatures", number)
        return self.reply(t, self.call("curvature", t, message), about, {})

    def open(self, message: Message) -> bytes:
        """The full gradient at the round's anchor: a round trip that few methods need."""
        t = self.round_of(message)
        self._take_numbers(message)
        if "mean_full_gradient" not in self.plan.algorithm.needs:
            raise CompositeFLError("this method has no opening round trip")
        content = unpack("message", message.arrays, self.plan.shapes.message, finite=True)
        with self.ledger.locked():
            number = self.ledger.check("openings")
            arrays = pack("gradient", self.engine.opening(content))
            self.ledger.record("openings", number)
        return self.reply(t, self.call("open", t, message), {}, arrays)

    def round(self, message: Message) -> bytes:
        """One round from the committed state. The same call again gets the same answer."""
        t = self.round_of(message)
        self._take_numbers(message)
        shapes = self.plan.shapes
        content = unpack("message", message.arrays, shapes.message, finite=True)
        mean = None
        if "mean_full_gradient" in self.plan.algorithm.needs:
            mean = unpack("mean", message.arrays, self._vector(), finite=True)
        digest = self.call("round", t, message)
        with self.store.locked(), self.ledger.locked():
            self._settle(message, t)
            entry = self.store.pending
            if entry is None or (entry.round, entry.digest) != (t, digest):
                entry = self._work(t, digest, content, mean, self.ledger.check("uploads"))
                self.store.keep(entry)
            self.ledger.record("uploads", entry.uploads)
        about = {"steps": entry.steps, "uploads": entry.uploads}
        return self.reply(t, digest, about, pack("upload", entry.upload))

    def evaluate(self, message: Message) -> bytes:
        """Loss and full gradient of this site at x, and right answers on its test set."""
        if self.noise is not None:
            raise CompositeFLError("this federation adds noise: exact values are not sent")
        if not self.plan.federation.every:
            raise CompositeFLError("this federation has eval_every = 0: nothing is evaluated")
        t = self.round_of(message, last=self.rounds)
        x = unpack("x", message.arrays, self._vector(), finite=True).tree
        with self.store.locked():
            self._settle(message, t)
        with self.ledger.locked():
            number = self.ledger.check("evaluations")
            loss, gradient = self.engine.loss_and_gradient(x)
            about: PlainValues = {"loss": loss, "tests": 0, "right": 0.0}
            if message.values.get("accuracy"):
                about |= {"tests": self.engine.test_size, "right": self.engine.right_answers(x)}
            self.ledger.record("evaluations", number)
        call = self.call("evaluate", t, message)
        return self.reply(t, call, about, pack("gradient", self._vector(gradient)))

    def _work(
        self, t: int, digest: str, content: Broadcast, mean: Vector | None, number: int
    ) -> Entry:
        committed = self.store.committed
        upload, state, steps = self.engine.round(t, content, committed.state, mean)
        if self.noise is not None:
            upload = self.noise(upload)
            state = self.engine.state_after(content, committed.state, upload)
        return Entry(t, digest, steps, number, upload, state)

    def _take_numbers(self, message: Message) -> None:
        """The numbers of this round, where they set themselves."""
        if self.plan.automatic:
            self.plan.use(self.plan.method.at(numbers_of(message)))

    def _settle(self, message: Message, t: int) -> None:
        keep = rounds_to_keep(message, self.name) if self.plan.automatic else None
        self.store.settle(self._accepted(message), t, keep)

    def _accepted(self, message: Message) -> int:
        """The round of this site's last upload that the server accepted."""
        accepted = value(message, "accepted", dict).get(self.name)
        if type(accepted) is not int or accepted < BEFORE_FIRST:  # true and false are ints too
            raise wrong_value("accepted", accepted, f"a round of {self.name}", shown=repr(accepted))
        return accepted

    def _vector(self, tree: Params = None) -> Vector:
        return Vector(self.plan.shapes.params if tree is None else tree)
