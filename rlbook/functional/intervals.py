"""Confidence intervals of a mean, by Student's t, of independent samples and of groups of them."""

from __future__ import annotations

import numpy as np


def t_interval(values: np.ndarray, groups: np.ndarray | None = None) -> tuple[float, float]:
    """95 % interval (Student's t) for the mean of samples; a single point if they are one sample,
    or one group.

    Args:
        values: [n].
        groups: [n], from 0 on, equal for samples that depend on each other, such as those of one
            prompt; None: all are independent.

    Source: Student 1908, "The probable error of a mean", doi:10.1093/biomet/6.1.1.
    """
    from scipy.stats import t

    n, mean = len(values), float(values.mean())
    count = n if groups is None else int(groups.max()) + 1
    spread = deviation(values, groups)
    half = float(t.ppf(0.975, count - 1)) * spread / n**0.5 if count > 1 else 0.0
    return mean - half, mean + half


def deviation(values: np.ndarray, groups: np.ndarray | None = None) -> float:
    """√n times the standard error of the mean: of independent samples their standard deviation, and
    of groups, as in `t_interval`, s in

        s² = G / (G - 1) · Σ_g (Σ_{i in g} (x_i - mean))² / n

    which is the same for groups of one. 0 for one sample or one group, which gives no estimate.

    Source: the variance of a mean of clusters: Liang and Zeger 1986, Biometrika 73(1). The factor
    G / (G - 1) is that of the sample variance.
    """
    sums = values if groups is None else np.bincount(groups, values - values.mean())
    count = len(sums)
    if count == 1:
        return 0.0
    if count == len(values):
        return float(values.std(ddof=1))
    return float((count / (count - 1) * (sums**2).sum() / len(values)) ** 0.5)
