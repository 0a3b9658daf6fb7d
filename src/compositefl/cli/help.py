"""Help in plain text, printed at once, the options of a command under headings."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

OTHERS = "Options"


class QuickGroup(TyperGroup):
    """The commands; `compositefl run --help` loads no more than it needs."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option --help, with a default that is quick to convert."""
        option = super().get_help_option(ctx)
        if option is not None and option.default is None:
            option.default = False  # Typer loads pydantic to make a bool of None
        return option


class HelpByPanel(TyperCommand):
    """A command whose help groups the options by their panels, without loading `rich`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, a section per panel."""
        panels: dict[str, list[tuple[str, str]]] = {OTHERS: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panel = getattr(param, "rich_help_panel", None) or OTHERS
                panels.setdefault(panel, []).append(record)
        for panel in sorted(panels, key=_order):
            with formatter.section(panel):
                formatter.write_dl(panels[panel])


def _order(panel: str) -> int:
    from compositefl.cli.settings import METHOD, PROBLEM, RUN

    known = [OTHERS, PROBLEM, METHOD, RUN]
    return known.index(panel) if panel in known else len(known)
