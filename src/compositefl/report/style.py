"""One colour and one line style for each method, the same in every picture and page."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

Dash: TypeAlias = str | tuple[float, tuple[float, ...]]  # of matplotlib: lengths of dashes and gaps

# Okabe and Ito's colours, told apart with every kind of colour vision. The dashes let a line show
# through one that covers it; 7 colours and 5 dashes make 35 different lines.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
DASHES: tuple[Dash, ...] = (
    "-",
    (0, (4, 2.5)),
    (0, (1.2, 2.2)),
    (0, (5, 1.5, 1.2, 1.5)),
    (0, (9, 2.5)),
)
CSS_DASHES = ("solid", "8px,5px", "2px,4px", "9px,3px,2px,3px", "16px,5px")
POSITIVE, NEGATIVE = COLOURS[0], COLOURS[4]  # of numbers with a sign
NOT_A_NUMBER = "#888888"

# The order gives methods that are often compared different colours. A name that is missing here
# takes the first style that nobody in its picture has.
# fmt: off
METHODS = (
    "FedNMap", "ZA1", "FedCanon", "FedMiD", "FedDA", "Scaffold", "FedAvg",
    "FedProx", "FastFedDA", "FedSplit", "Scaffnew", "FedADMM", "ProxSkip", "FedDR",
    "FedDyn", "FedPD", "FedDC", "EControlDA", "Mime", "MimeLite", "STEM",
    "VRLSGD", "FedAvgM", "ScaffoldM", "ScaffoldI", "FedCanonII", "FedMSPP", "PGD",
    "ProxSGD", "NormSGD", "ProxNewton", "FedProxNonsmooth", "FedMSPPNonsmooth",
)
# fmt: on


class Style(NamedTuple):
    """How a method is drawn."""

    colour: str
    dash: Dash
    css_dash: str  # for a page


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """The style of each label; "FedNMap" and "FedNMap, gamma 2" begin with the same name.

    Of several labels of one method the first has its style, and the others one from the end, which
    is no usual method's, in a colour that nobody in the picture has as long as there is one.
    """
    labels = list(dict.fromkeys(labels))
    known = {name.lower(): number for number, name in enumerate(METHODS)}
    numbers: dict[str, int] = {}
    for label in sorted(labels, key=lambda text: text.lower() not in known):  # plain names first
        number = known.get(_first_word(label))
        if number is not None and number not in numbers.values():
            numbers[label] = number
    count = len(COLOURS) * len(DASHES)
    free = (n for n in range(count) if n not in numbers.values())
    for position, label in enumerate(labels):
        if label not in numbers:
            variant = _first_word(label) in known
            numbers[label] = next(_from_the_end(numbers) if variant else free, position)
    return {label: _style(numbers[label]) for label in labels}


def _from_the_end(numbers: dict[str, int]) -> Iterator[int]:
    """Numbers that nobody has, the last first: before all those whose colour nobody has either."""
    left = set(range(len(COLOURS) * len(DASHES))) - set(numbers.values())
    colours = {number % len(COLOURS) for number in numbers.values()}
    return iter(sorted(left, key=lambda n: (n % len(COLOURS) in colours, -n)))


def _style(number: int) -> Style:
    dash = number % len(DASHES)
    return Style(COLOURS[number % len(COLOURS)], DASHES[dash], CSS_DASHES[dash])


def _first_word(label: str) -> str:
    for at, letter in enumerate(label):
        if not (letter.isalnum() or letter in "-_"):
            label = label[:at]
            break
    return label.lower().replace("-", "").replace("_", "")
