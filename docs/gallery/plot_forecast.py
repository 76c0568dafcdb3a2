"""
How far ahead does a forecast keep its word?
============================================

The oil in a transformer of the electric kind is warm by day and wanders from week to
week. A transformer of the other kind forecasts four days of it, hour by hour, with
bands that widen as the forecast looks further ahead.
"""  # noqa: D205, D400

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom
from sklearn.frozen import FrozenEstimator

from uqformer import StochasticAttentionRegressor
from uqformer.calibration import ConformalRegressor
from uqformer.datasets import fetch_ett
from uqformer.series import make_windows

# %%
# Two weeks are seen, four days are forecast
# ------------------------------------------
# A year of windows trains, four months later calibrate, and four more are for the test.
# The forecast is of the change from the last value seen, so that no level is learnt.

ett = fetch_ett("ETTh1")
X, y, first = make_windows(ett.target, context_length=336, horizon=96)
X, y = X - X[:, -1:], y - X[:, -1]
parts = [(ett.train_indices, 3), (ett.validation_indices, 13), (ett.test_indices, 13)]
train, later, test = (
    np.isin(first, hours) & np.isin(first + 95, hours) & (first % every == 0)
    for hours, every in parts
)
shape = {"normalise": "window", "d_token": 32, "n_blocks": 2, "dropout": 0.3}
model = StochasticAttentionRegressor(
    "sequence", backbone_params=shape, n_draws=1, max_epochs=8, random_state=0
).fit(X[train], y[train])
calibrated = ConformalRegressor(
    FrozenEstimator(model), conformity_score="spread", spread_floor=1.0
).fit(X[later], y[later])

# %%
# A forecast as a fan
# -------------------
# Grey bands are made to hold the temperature as often as they say, step by step.

levels, row = [0.9, 0.8, 0.5], np.flatnonzero(test)[60]
lower, upper = calibrated.predict_interval(X[[row]], levels)[0]
zero, days = ett.target.iloc[first[row] - 1], np.arange(-119, 97) / 24
fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for level, low, high in zip(levels, lower, upper, strict=True):
    shade = {"color": str(0.3 + 0.6 * level), "label": f"{level:.0%}"}
    ax.fill_between(days[120:], zero + low, zero + high, **shade)
ax.plot(days[120:], zero + model.predict(X[[row]])[0], color="C3", label="forecast")
seen = np.append(X[row, -120:, 0], y[row])
ax.plot(days, zero + seen, color="C0", label="temperature")
ax.set(xlabel="days from now", ylabel="degrees Celsius")
ax.legend(ncols=5, loc="upper left")

# %%
# Coverage of each step
# ---------------------
# One draw spreads the members most, and still too little. What was seen on later months
# corrects that at every step, and a little too much: the last months are calmer. The
# dotted lines hold 95 % of what chance does to so many windows.

X_new, y_new = X[test], y[test]
found = {"members": model.predict_ensemble(X_new).interval(0.9),
         "conformal": calibrated.predict_interval(X_new)}  # fmt: skip
fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for name, ends in found.items():
    held = (ends[:, 0] <= y_new) & (y_new <= ends[:, 1])
    ax.plot(days[120:], held.mean(axis=0), label=f"{name}: {held.mean():.0%}")
ax.axhline(0.9, color="0.5")
for limit in binom.ppf([0.025, 0.975], len(y_new), 0.9) / len(y_new):
    ax.axhline(limit, color="0.5", linestyle=":")
ax.set(xlabel="days ahead", ylabel="coverage of 90 % intervals", ylim=(0, 1))
ax.legend(loc="lower right")
plt.show()
