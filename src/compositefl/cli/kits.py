"""`compositefl deploy`: startup kits, from the first certificates to a server that moves."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from compositefl.cli.settings import whole

if TYPE_CHECKING:
    from compositefl.deployment import Federation
FederationFile = Annotated[Path, typer.Argument(help="The federation, a TOML file.")]
Folder = Annotated[
    Path, typer.Option(help="Folder of the federation: kits, jobs and results.", metavar="DIR")
]
Kit = Annotated[Path, typer.Argument(help="A startup kit.")]
Kits = Annotated[list[Path], typer.Argument(help="Startup kits of servers and sites.")]
Modules = Annotated[
    list[str] | None,
    typer.Option("--module", help="Module of your own that it names. Repeatable.", metavar="NAME"),
]
Host = Annotated[str, typer.Option(help="Name of the server's machine.", metavar="HOST")]
Port = Annotated[int, typer.Option(help="Its port.", parser=whole, metavar="INT")]
HERE = Path("federation")
SOON = 30  # days before the end of a certificate from which on it is told


def provision(
    federation: FederationFile,
    host: Host,
    folder: Folder = HERE,
    port: Port = 8002,
    module: Modules = None,
    authority: Annotated[
        bool, typer.Option("--authority", help="A new authority: no old certificate is good.")
    ] = False,
) -> int:
    """Make certificates and startup kits. Again: new ones for all.

    For the server, every site and the administrator.
    """
    declared = _read(federation, module)
    kits = flare().provision(declared, folder, host, port, authority=authority)
    _hand_out(declared, kits, list(kits))
    return 0


def add(federation: FederationFile, folder: Folder = HERE, module: Modules = None) -> int:
    """Make kits for sites that have none. The others stay as they are."""
    declared = _read(federation, module)
    host, port, known = flare().provisioned(folder, declared.name)
    new = [site for site in declared.sites if site not in known]
    if not new:
        print("every site of the federation has a kit")
        return 0
    kits = flare().provision(declared, folder, host, port, keep=known)
    _hand_out(declared, kits, new)
    return 0


def renew(
    federation: FederationFile,
    names: Annotated[list[str], typer.Argument(help="Sites, or the name of the server.")],
    folder: Folder = HERE,
    module: Modules = None,
) -> int:
    """Make new keys and certificates for some. The old ones end on their day."""
    from compositefl.core.errors import unknown_name

    declared = _read(federation, module)
    host, port, known = flare().provisioned(folder, declared.name)
    for name in names:
        if name not in known:
            raise unknown_name("site", name, known)
    kits = flare().provision(declared, folder, host, port, keep=known - set(names))
    _hand_out(declared, kits, names)
    return 0


def move(
    federation: FederationFile,
    host: Host,
    folder: Folder = HERE,
    port: Port = 8002,
    module: Modules = None,
) -> int:
    """Make kits for a server on another machine. Sites keep their keys."""
    declared = _read(federation, module)
    before, _, known = flare().provisioned(folder, declared.name)
    kits = flare().provision(declared, folder, host, port, keep=known - {before})
    _hand_out(declared, kits, list(kits))
    print(f"copy the old kit of {before} to {host}; there and at every site: deploy update KIT NEW")
    return 0


def update(
    kit: Kit, new: Annotated[Path, typer.Argument(help="The new kit of the same node.")]
) -> int:
    """Take keys and addresses of a new kit into one in use.

    Its folder local/ and its states stay.
    """
    from compositefl.core.errors import CompositeFLError
    from compositefl.deployment import flare_kits

    if flare().running(kit.resolve()) is not None:
        raise CompositeFLError(f"{kit} is running; stop it first")
    flare_kits.update(kit.resolve(), new.resolve())
    found = flare_kits.Kit.read(kit)
    print(f"{kit}: {found.kind} {found.name}, certificate until {found.until:%Y-%m-%d}")
    return 0


def revoke(
    federation: FederationFile,
    site: Annotated[str, typer.Argument(help="The site.")],
    folder: Folder = HERE,
    undo: Annotated[bool, typer.Option("--undo", help="Let it connect again.")] = False,
) -> int:
    """Let a site connect no more. The server must be running."""
    from compositefl.core.errors import CompositeFLError, unknown_name
    from compositefl.deployment.flare_admin import Admin

    declared = _read(federation, None)
    host, _, known = flare().provisioned(folder, declared.name)
    others = {host: "the server", flare().ADMIN: "the administrator, who could not undo it"}
    if site in others:
        raise CompositeFLError(f"{site} is {others[site]}; only a site can be revoked")
    known -= set(others)
    if site not in known:
        raise unknown_name("site", site, known)
    with Admin(flare().admin_kit(folder, declared.name)) as admin:
        (admin.enable if undo else admin.disable)(site)
    print(f"{site} may {'connect again' if undo else 'not connect any more'}")
    return 0


def flare() -> ModuleType:
    """The adapter, or one line that says what to install."""
    from compositefl.core.errors import CompositeFLError

    try:
        from compositefl.deployment import flare as adapter
    except ImportError as error:
        raise CompositeFLError(
            f"deploy needs NVIDIA FLARE: pip install 'compositefl[deploy]' ({error})"
        ) from None
    return adapter


def _read(federation: Path, module: list[str] | None) -> "Federation":
    from compositefl.deployment import Federation

    return Federation.read(existing(federation)).trusting(module or ()).check()


def existing(file: Path) -> Path:
    """`file`, if it is there: a name that is wrong is wrong input, and no fault of the disk."""
    from compositefl.core.errors import CompositeFLError

    if not file.is_file():
        raise CompositeFLError(f"{file} is not a file")
    return file


def _hand_out(declared: "Federation", kits: dict[str, Path], names: list[str]) -> None:
    """Write what the sites read first; say where the kits are and how long they are good."""
    from compositefl.deployment.flare_kits import Kit as Found

    for name in declared.sites:
        (kits[name] / "local" / "site.toml.example").write_text(EXAMPLE.format(name=name))
        (kits[name] / "local" / "federation.toml").write_text(declared.text)
    for name in names:
        print(f"{name}: {kits[name]}")
    found = Found.read(kits[names[0]])
    print(f"certificates until {found.until:%Y-%m-%d}", end="")
    print(f", their authority until {found.authority_until:%Y-%m-%d}")
    if found.authority_until < found.until:
        print("the authority ends first; renew it in time: provision --authority, new kits for all")
    print(f"sha256 of the federation, for accept in each site.toml:\n{declared.hash}")


EXAMPLE = """# Rename to site.toml after you have read federation.toml beside this file.
name = "{name}"
accept = []  # sha256sum federation.toml
modules = []  # of your own, whose functions a federation may name

[train]
file = "train.csv"  # or .parquet, .npz; with the columns that [data] of the federation names

# [columns]  # where a column is called otherwise here: name in the federation = name here
# age = "AGE_YEARS"

# [limits]  # may be narrower than what the federation says
# minimum_samples = 20
"""
