"""How large the noise of a query is, by epsilon and mechanism: public, and known before a row is read."""

import dataclasses
from typing import Any

import numpy as np

from tacit.queries.answer import Answer
from tacit.queries.intervals import radius
from tacit.queries.noise import Noise, classical_scale
from tacit.queries.query import NoisySums, Query, Setting
from tacit.queries.terms import GAUSSIAN, LAPLACE, Terms

COMPARED_DELTA = 1e-6
_POINTS = 25


def compare_mechanisms(query: Query, setting: Setting, answer: Answer) -> dict[str, Any] | None:
    """Both mechanisms at the same epsilon, and their errors from a tenth of it to ten times as much.

    An error is the standard deviation of the noise on one sum, in the units of the answer's scale. Gaussian noise is
    compared at the answer's delta, or at 1e-6 where that is 0. None for a query that is answered without added noise.
    """
    if not isinstance(query, NoisySums):
        return None
    delta = setting.terms.delta or COMPARED_DELTA
    unit = answer.reading.scale / query.noise(setting).scale

    def noise(mechanism: str, epsilon: float) -> Noise:
        terms = _terms(setting.terms, mechanism, epsilon, delta)
        return query.noise(dataclasses.replace(setting, terms=terms))

    epsilons = [float(epsilon) for epsilon in setting.terms.epsilon * np.geomspace(0.1, 10, _POINTS)]
    errors: dict[str, list[float | None]] = {
        mechanism: [unit * noise(mechanism, epsilon).deviation for epsilon in epsilons]
        for mechanism in (LAPLACE, GAUSSIAN)
    }
    gaussian = [_terms(setting.terms, GAUSSIAN, epsilon, delta) for epsilon in epsilons]
    classical = [classical_scale(terms, query.distance(setting)) for terms in gaussian]
    errors["classical gaussian"] = [None if scale is None else unit * scale for scale in classical]
    radii = {
        mechanism: unit * radius(noise(mechanism, setting.terms.epsilon).mechanism, setting.confidence)
        for mechanism in (LAPLACE, GAUSSIAN)
    }
    return {"epsilons": epsilons, "errors": errors, "delta": delta, "radius": radii}


def _terms(terms: Terms, mechanism: str, epsilon: float, delta: float) -> Terms:
    return dataclasses.replace(
        terms, epsilon=epsilon, mechanism=mechanism, delta=delta if mechanism == GAUSSIAN else 0.0
    )
