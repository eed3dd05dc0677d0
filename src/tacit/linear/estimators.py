"""Estimators after scikit-learn's conventions.

What scikit-learn would look up in the data, bounds and class labels, are parameters here: a minimum or a rare label is
somebody's. A missing one is an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours, PrivacyUnit, Statement
from tacit.core.randomness import Randomness
from tacit.core.validation import check_choice, check_count
from tacit.datasets.tables import CategoryColumn, NumberColumn, Schema, as_schema
from tacit.ledger import Account, Ledger
from tacit.linear.choosing import choose_method
from tacit.linear.fitting import LinearModel, fit_rows, problem_of
from tacit.linear.guarantee import Guarantee, Terms
from tacit.linear.rows import Block, Floats, Integers, PublicScale, bounds_of, targets_on_grid


class _PrivateLinear(BaseEstimator):  # type: ignore[misc]
    """What both estimators share. Parameters are stored as given and checked by `fit`."""

    epsilon: float
    delta: float
    bounds: Any
    method: str
    split: float | None
    row_norm: float | None
    neighbours: str | Neighbours
    examples: int | None
    ledger: str | None
    dataset: str | None
    unsafe_seed: int | None
    model_: LinearModel

    def statement(self) -> Statement:
        """The guarantee of the fitted coefficients."""
        check_is_fitted(self)
        return self.model_.statement

    def _fit(self, inputs: Floats, targets: Integers, classes: int) -> LinearModel:
        account = self._account()
        unit = PrivacyUnit() if account is None else account.unit
        guarantee = Guarantee(self.epsilon, self.delta, _relation(self.neighbours), unit)
        scale = PublicScale.box(*self._feature_bounds(inputs.shape[1]), row_norm=self.row_norm)
        problem = problem_of(scale, classes=classes, examples=self._public_count(guarantee, len(targets)))
        method = choose_method(self.method, problem, guarantee, split=self.split)
        block = Block(scale.on_grid(inputs), targets)

        def examples() -> Iterator[Block]:
            yield block

        return fit_rows(
            examples,
            scale,
            problem,
            method,
            guarantee,
            terms=Terms(account, run=f"{type(self).__name__} ({method.name})"),
            randomness=Randomness(unsafe_seed=self.unsafe_seed),
        )

    def _feature_bounds(self, width: int) -> tuple[Floats, Floats]:
        if self.bounds is None:
            raise InputError(
                "bounds=None: the range of each feature must be stated, since looking it up would tell about the data. "
                "Give (lower, upper), a mapping from columns to such pairs, or a schema."
            )
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        if isinstance(self.bounds, (Schema, str, Path)):
            return bounds_of(_schema_bounds(as_schema(self.bounds), names), width, names)
        return bounds_of(self.bounds, width, names)

    def _public_count(self, guarantee: Guarantee, count: int) -> int | None:
        """The number of rows is public where rows are replaced or zeroed; else only what the caller says."""
        if self.examples is not None:
            return check_count("examples", self.examples)
        return None if guarantee.neighbours is Neighbours.ADD_REMOVE else count

    def _account(self) -> Account | None:
        if self.ledger is None:
            return None
        if self.dataset is None:
            raise InputError("dataset=None: the ledger needs the name of the data set whose budget pays. State it.")
        return Ledger.open(self.ledger).account(self.dataset)


class LinearRegression(RegressorMixin, _PrivateLinear):  # type: ignore[misc]
    """Linear regression with differential privacy.

    Formal guarantee: `coef_` and `intercept_` together are (epsilon, delta)-differentially private for one row under
    ``neighbours``, whatever the rows hold; see `statement`. Values outside the bounds are moved to them. Predictions on
    new rows cost nothing; `score` on training rows is no release and is not covered.

    Args:
        epsilon, delta: the guarantee. A delta of 0 is pure, and only the functional mechanism has it.
        bounds: the public range of each feature: a pair (lower, upper) for all, a pair of lists, a mapping from column
            names to pairs, or a schema (an object or a TOML file) that names the columns of a frame.
        target_bounds: the public range of the target, or its column in the schema.
        method: auto, functional, adassp, sufficient or newton; see `tacit.linear.choosing`.
        split: for functional and sufficient, the second moments' share of the budget.
        row_norm: after scaling to [-1, 1], rows of a larger norm are scaled down to it; less noise where norms are
            small.
        neighbours: add-remove, replace-one or zero-out.
        examples: about how many rows, as a public number, for ``auto`` and for the default split. Under replace-one and
            zero-out the number of rows is public and known; under add-remove it is private, and without this argument
            nothing depends on it.
        ledger, dataset: the ledger and the data set whose budget pays; nobody by default. The account's privacy unit,
            such as a person with up to 3 rows, is then the guarantee's.
        unsafe_seed: fixes the noise; **voids the guarantee**.

    Attributes:
        coef_, intercept_: for features and target in their own units.
        model_: the release itself, with its statement.
    """

    intercept_: float
    coef_: Floats

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: Any = None,
        target_bounds: tuple[float, float] | str | None = None,
        method: str = "auto",
        split: float | None = None,
        row_norm: float | None = None,
        neighbours: str | Neighbours = "add-remove",
        examples: int | None = None,
        ledger: str | None = None,
        dataset: str | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.method = method
        self.split = split
        self.row_norm = row_norm
        self.neighbours = neighbours
        self.examples = examples
        self.ledger = ledger
        self.dataset = dataset
        self.unsafe_seed = unsafe_seed

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Fits to rows of an array or a frame."""
        inputs, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        lower, upper = self._target_bounds()
        self.model_ = self._fit(inputs, targets_on_grid(targets.astype(np.float64), (lower, upper)), classes=0)
        slopes, intercept = self.model_.raw_coefficients()
        half = (upper - lower) / 2
        self.coef_ = half * slopes
        self.intercept_ = float((lower + upper) / 2 + half * intercept)
        return self

    def predict(self, X: Any) -> Floats:  # noqa: N803 - scikit-learn's name
        """The predictions, in the target's own units."""
        check_is_fitted(self)
        inputs = validate_data(self, X, dtype=np.float64, reset=False)
        lower, upper = self._target_bounds()
        return (lower + upper) / 2 + (upper - lower) / 2 * self.model_.scores(inputs)

    def _target_bounds(self) -> tuple[float, float]:
        given = self.target_bounds
        if given is None:
            raise InputError("target_bounds=None: the target's public range must be stated as (lower, upper).")
        if isinstance(given, str):
            if not isinstance(self.bounds, (Schema, str, Path)):
                raise InputError(f"target_bounds={given!r}: names a column, but bounds is no schema. State a pair.")
            lower, upper = bounds_of(_schema_bounds(as_schema(self.bounds), [given]), 1, [given], "target_bounds")
        else:
            lower, upper = bounds_of(given, 1, argument="target_bounds")
        return float(lower[0]), float(upper[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.unsafe_seed is None
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks
        return tags


class LogisticRegression(ClassifierMixin, _PrivateLinear):  # type: ignore[misc]
    """Classification with a linear model and differential privacy.

    ``newton`` is logistic (softmax) regression; ``functional`` its second-order expansion, for two classes, with a pure
    guarantee; ``sufficient`` and ``adassp`` are least squares on two classes. Guarantee and parameters are those of
    `LinearRegression`, but for

    Args:
        classes: the labels that there may be, a public list; any other label is refused.

    Attributes:
        coef_, intercept_: of the scores, (classes, d) and (classes,), or (1, d) and (1,) for two classes.
        classes_: the labels.
    """

    coef_: Floats
    intercept_: Floats
    classes_: Any

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        method: str = "auto",
        split: float | None = None,
        row_norm: float | None = None,
        neighbours: str | Neighbours = "add-remove",
        examples: int | None = None,
        ledger: str | None = None,
        dataset: str | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.method = method
        self.split = split
        self.row_norm = row_norm
        self.neighbours = neighbours
        self.examples = examples
        self.ledger = ledger
        self.dataset = dataset
        self.unsafe_seed = unsafe_seed

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Fits to rows of an array or a frame."""
        inputs, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        if self.classes is None or len(np.unique(list(self.classes))) < 2:
            raise InputError(
                f"classes={self.classes!r}: the labels that there may be must be stated, at least two, since a rare "
                "one that is looked up in the data is somebody's."
            )
        self.classes_ = np.unique(list(self.classes))
        places = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[places] != labels
        if unknown.any():
            raise InputError(
                f"y: {labels[unknown].tolist()[0]!r} is not among classes={list(self.classes)!r}. Add or drop it."
            )
        self.model_ = self._fit(inputs, places.astype(np.int64), classes=len(self.classes_))
        slopes, intercept = self.model_.raw_coefficients()
        if len(self.classes_) == 2:
            slopes, intercept = slopes[:, 1:] - slopes[:, :1], intercept[1:] - intercept[:1]
        self.coef_, self.intercept_ = slopes.T, intercept
        return self

    def decision_function(self, X: Any) -> Floats:  # noqa: N803 - scikit-learn's name
        """Scores: of every class, or the log-odds of the second of two."""
        check_is_fitted(self)
        scores = self.model_.scores(validate_data(self, X, dtype=np.float64, reset=False))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Any:  # noqa: N803 - scikit-learn's name
        """The likeliest class of each row."""
        check_is_fitted(self)
        return self.classes_[self.model_.classes(validate_data(self, X, dtype=np.float64, reset=False))]

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803 - scikit-learn's name
        """The probability of each class."""
        check_is_fitted(self)
        scores = self.model_.scores(validate_data(self, X, dtype=np.float64, reset=False))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Floats = weights / weights.sum(axis=1, keepdims=True)
        return probabilities

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.unsafe_seed is None
        tags.classifier_tags.poor_score = True  # on the few rows of scikit-learn's checks
        return tags


def _relation(neighbours: str | Neighbours) -> Neighbours:
    if isinstance(neighbours, Neighbours):
        return neighbours
    return Neighbours(check_choice("neighbours", neighbours, [relation.value for relation in Neighbours]))


def _schema_bounds(schema: Schema, names: Sequence[str] | None) -> Mapping[str, tuple[float, float]]:
    """The bounds of these columns: a number's own, 0 and 1 of a boolean."""
    if names is None:
        raise InputError("bounds: a schema names columns, but X has no column names. Pass a frame.")
    bounds: dict[str, tuple[float, float]] = {}
    for name in names:
        column = schema.columns.get(name)
        if column is None or isinstance(column, CategoryColumn):
            what = "is not a column of the schema" if column is None else "is a category, not a number"
            raise InputError(f"bounds: {name!r} {what}. Describe it, or encode it first and state its bounds.")
        bounds[name] = (column.lower, column.upper) if isinstance(column, NumberColumn) else (0.0, 1.0)
    return bounds
