"""The table of a fitted model: names, coefficients, ratios, and where they exist intervals."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compositefl.core.errors import wrong_value
from compositefl.glm.inference import NO_ERRORS

if TYPE_CHECKING:
    import pandas as pd

    from compositefl.linear_model.base import GeneralizedLinearModel


@dataclass(frozen=True)
class Summary:
    """Rows by coefficient. `frame` is the table; printing shows it with a line about the fit."""

    frame: "pd.DataFrame"
    title: str
    footnote: str = ""

    @classmethod
    def of(cls, model: "GeneralizedLinearModel", confidence: float = 0.95) -> "Summary":
        """Of a fitted estimator."""
        import pandas as pd

        if not 0 < confidence < 1:
            raise wrong_value("confidence", confidence, "in (0, 1), such as 0.95")
        family = model._family(len(getattr(model, "classes_", ())) or 2)
        b = np.atleast_2d(model.coef_)
        names = list(model._names)
        has_intercept = family.intercept and model.fit_intercept
        intercepts = np.atleast_1d(model.intercept_)
        rows = []
        for c in range(len(b)):
            kind = {"class": str(model.classes_[c])} if len(b) > 1 else {}
            if has_intercept:
                rows.append(kind | {"name": "(intercept)", "coefficient": intercepts[c]})
            rows += [
                kind | {"name": name, "coefficient": value}
                for name, value in zip(names, b[c], strict=True)
            ]
        frame = pd.DataFrame(rows)
        if family.ratio:
            frame[family.ratio] = np.exp(np.clip(frame["coefficient"], -700, 700))
        found = model._inference
        if found is not None:
            frame = pd.concat([frame, found.table(confidence, family.ratio)], axis=1)
        zeros = int(np.sum(b == 0))
        counted = f" (for {model.classes_[1]})" if family.name == "binomial" else ""
        title = (
            f"{type(model).__name__}: {family.name}{counted}, {b.size - zeros} of {b.size} "
            f"coefficients are not zero; {len(model.sites_)} site{'s' * (len(model.sites_) > 1)}, "
            f"{model.n_iter_} rounds of communication"
        )
        note = ""
        if found is None and family.name in NO_ERRORS:
            note = f"Standard errors and intervals: not for the family {family.name}."
        elif found is None:
            note = (
                "Standard errors and intervals: only for fits without a penalty (alpha=0) and "
                "without bounds."
            )
        elif np.isnan(found.error).all() and found.freedom < 1:
            note = "NaN: there are no more samples than coefficients, so no errors are known."
        elif np.isnan(found.error).any():
            note = (
                "NaN: the data do not determine this coefficient (collinear or constant columns)."
            )
        return cls(frame, title, note)

    def __str__(self) -> str:
        text = self.frame.to_string(index=False, float_format=lambda v: f"{v:.6g}")
        return "\n".join(
            part for part in (self.title, "", text, self.footnote) if part or part == ""
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{self.title}</p>{self.frame.to_html(index=False)}<p>{self.footnote}</p>"
