"""The tables of `compositefl fit`: from files to features, response, weights and sites."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compositefl.cli.coding import chosen_categories
from compositefl.cli.fit_options import FitSettings
from compositefl.cli.settings import option_name
from compositefl.cli.wording import about
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.data import site_tables, tables
from compositefl.data.categories import Categories, coded, coded_names
from compositefl.glm.families import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

ROLES = {  # options that name a column, and what it is in errors
    "target": "the target",
    "time": "the times",
    "event": "the events",
    "weight": "the weights",
    "offset": "the offset",
    "exposure": "the exposure",
}
ALSO_CALLED = {
    "logistic": "binomial",
    "linear": "gaussian",
    "normal": "gaussian",
    "softmax": "multinomial",
    "count": "poisson",
    "survival": "cox",
}
LOGARITHMIC = ("poisson", "gamma")  # families in which an exposure means something


@dataclass(frozen=True)
class Tables:
    """What is fitted, row by row, the sites one after the other."""

    x: "pd.DataFrame"
    y: np.ndarray
    sites: np.ndarray  # the name of every row's site
    weight: np.ndarray | None
    offset: np.ndarray | None
    names: list[str]  # of the sites
    categories: Categories  # as they are coded in x

    @property
    def features(self) -> list[str]:
        """The names of the columns."""
        return [str(c) for c in self.x.columns]

    def of_site(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(features, response) of one site."""
        mine = self.sites == name
        return self.x.to_numpy()[mine], self.y[mine]


def split(names: Sequence[str] | None) -> list[str]:
    """The names in ["a,b", "c"]."""
    return [name.strip() for text in names or [] for name in text.split(",") if name.strip()]


def family_of(settings: FitSettings) -> str:
    """The family; times and events are of one alone."""
    survival = settings.time is not None or settings.event is not None
    name = settings.family or ("cox" if survival else None)
    if name is None:
        raise CompositeFLError(f"--family is missing: one of {', '.join(FAMILIES)}")
    if name in ALSO_CALLED:
        raise CompositeFLError(f"--family {name} is called {ALSO_CALLED[name]} here")
    if name not in FAMILIES:
        raise unknown_name("family", name, FAMILIES)
    if name == "cox":
        for option in ("time", "event"):
            if getattr(settings, option) is None:
                raise CompositeFLError(f"--family cox needs --{option} COLUMN")
        _refuse(settings, ("target", "offset"), "--family cox takes --time and --event")
    else:
        _refuse(settings, ("time", "event"), f"it is of --family cox, not of {name}")
        if settings.target is None:
            raise CompositeFLError(f"--family {name} needs --target COLUMN")
    if name not in LOGARITHMIC:
        _refuse(settings, ("exposure",), f"it is of {' and '.join(LOGARITHMIC)}, not of {name}")
    if settings.exposure is not None:
        _refuse(settings, ("offset",), f"--exposure {settings.exposure} is one already")
    return name


def _refuse(settings: FitSettings, names: Sequence[str], why: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            raise CompositeFLError(f"{option_name(name)} {value} does not go here: {why}")


def read(settings: FitSettings, family: str) -> Tables:
    """Read and match the tables."""
    names, frames = _frames(settings)
    aside = {str(getattr(settings, role)): role for role in ROLES if getattr(settings, role)}
    for name, role in aside.items():
        for where, frame in frames.items():
            with about(f"--{role}", name):
                tables.require_column(frame, name, file=where)
    y = _response(settings, family, frames)
    taken = aside | dict.fromkeys(split(settings.drop), "drop")
    categories = chosen_categories(split(settings.categories), frames, taken)
    frames = {where: coded(frame, categories, where) for where, frame in frames.items()}
    features = _features(settings, frames, aside, categories)
    import pandas as pd

    x = pd.concat([site_tables.numbers(f, features) for f in frames.values()], ignore_index=True)
    sizes = [len(frame) for frame in frames.values()]

    def column(role: str) -> np.ndarray | None:
        name = getattr(settings, role)
        return site_tables.number_column(frames, name, ROLES[role]) if name else None

    offset = column("offset")
    exposure = column("exposure")
    if exposure is not None:
        if (exposure <= 0).any():
            raise CompositeFLError(
                f"--exposure {settings.exposure} holds {exposure.min():g}; it must be above 0"
            )
        offset = np.log(exposure)
    return Tables(x, y, np.repeat(names, sizes), column("weight"), offset, names, categories)


def _frames(settings: FitSettings) -> tuple[list[str], dict[str, "pd.DataFrame"]]:
    """(names of the sites, their tables under the names that errors call them)."""
    if settings.data is not None:
        _refuse(settings, ("site",), f"--data {settings.data} has the rows of all sites")
        with about("--data"):
            frame = tables.read_table(settings.data)
            if settings.site_column is None:
                return ["all"], {str(settings.data): frame}
            rows = tables.site_rows(frame, settings.site_column, file=settings.data)
        parts = {
            site_tables.label(name, settings.data): frame.iloc[mine].drop(
                columns=settings.site_column
            )
            for name, mine in rows.items()
        }
        return list(rows), parts
    if not settings.site:
        raise CompositeFLError(
            "no tables: --site NAME=FILE for every site, or --data FILE --site-column COLUMN"
        )
    _refuse(settings, ("site_column",), "it goes with --data FILE")
    files: dict[str, str] = {}
    for text in settings.site:
        name, equals, file = text.partition("=")
        if not equals or not file:
            name, file = Path(text).name.partition(".")[0], text
        if name in files:
            raise CompositeFLError(f"--site {text}: there is a site '{name}' already")
        files[name] = file
    with about("--site"):
        return list(files), site_tables.read_sites(files)


def _features(
    settings: FitSettings,
    frames: dict[str, "pd.DataFrame"],
    aside: dict[str, str],
    categories: Categories,
) -> list[str]:
    wanted, dropped = coded_names(split(settings.features), categories), split(settings.drop)
    for name in dropped:
        if not any(name in frame.columns for frame in frames.values()):
            where, frame = next(iter(frames.items()))
            with about("--drop", name):
                tables.require_column(frame, name, file=where)
    for name in wanted:
        if name in aside:
            raise CompositeFLError(f"--features {name} is named by --{aside[name]} already")
        for where, frame in frames.items():
            with about("--features", name):
                tables.require_column(frame, name, file=where)
    if not wanted:
        return site_tables.common_features(frames, aside=[*aside, *dropped])
    return site_tables.common_features(
        frames, [n for n in dict.fromkeys(wanted) if n not in dropped]
    )


def _response(settings: FitSettings, family: str, frames: dict[str, "pd.DataFrame"]) -> np.ndarray:
    if family == "cox":
        time = site_tables.number_column(frames, str(settings.time), ROLES["time"])
        event = site_tables.number_column(frames, str(settings.event), ROLES["event"])
        return np.column_stack([time, event])
    target = str(settings.target)
    if FAMILIES[family].response != "class":
        return site_tables.number_column(frames, target, ROLES["target"])
    y = site_tables.class_column(frames, target)
    classes = np.unique(y)
    shown = ", ".join(map(str, classes[:6])) + (", ..." if len(classes) > 6 else "")
    if family == "binomial" and len(classes) > 2:
        raise CompositeFLError(
            f"--family binomial is for two classes; '{target}' has {len(classes)}: {shown}. "
            "--family multinomial takes more"
        )
    if family == "multinomial" and len(classes) == 2:
        raise CompositeFLError(
            f"--family multinomial is for more than two classes; '{target}' has {shown}: "
            "--family binomial"
        )
    return y


def summary(data: Tables, name: str, family: str) -> str:
    """One line on what was read."""
    sizes = [int(np.sum(data.sites == site)) for site in data.names]
    parts = [f"{len(data.y):,} rows", f"{len(data.features):,} features"]
    if FAMILIES[family].response == "class":
        classes = np.unique(data.y)
        shown = ", ".join(map(str, classes[:6])) + (", ..." if len(classes) > 6 else "")
        parts.append(f"{len(classes)} classes ({shown})")
    if family == "cox":
        parts.append(f"{int(data.y[:, 1].sum()):,} events")
    parts += [f"{name} against '{values[0]}'" for name, values in data.categories.items()]
    plural = f"{len(sizes)} sites of {min(sizes):,} to {max(sizes):,} rows"
    parts.append(plural if len(sizes) > 1 else "1 site")
    return f"{name}: {', '.join(parts)}"
