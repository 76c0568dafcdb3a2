"""
Where, and when, is the weather forecast wrong?
===============================================

A small transformer looks at four hourly maps of the temperature and draws the map six
hours later. Redrawing its attention makes an ensemble of maps, whose spread is laid
beside the errors that the forecast then makes: over places, and over hours.
"""  # noqa: D205, D400

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator

from uqformer import StochasticAttentionRegressor
from uqformer.calibration import ConformalRegressor
from uqformer.datasets import fetch_era5_t2m

# %%
# Maps in, maps out
# -----------------
# The maps of now and of 1, 3 and 6 hours ago, and the hour of the day as two more
# channels; the target is the change of the map. The first 15 days train the model. With
# one draw for each softmax row, the ensemble spreads as far as it can.

era5, now = fetch_era5_t2m(), np.arange(6, 738)
maps, angle = era5.data, 2 * np.pi * (now % 24) / 24
clock = [np.tile(wave(angle)[:, None, None], (1, 33, 49)) for wave in (np.sin, np.cos)]
X = np.stack([maps[now - lag] for lag in (0, 1, 3, 6)] + clock, axis=1)
y = (maps[now + 6] - maps[now]).reshape(len(now), -1)
early, later, newest = slice(348), slice(360, 528), slice(540, None)
shape = {"output": "field", "patch_size": (6, 7), "n_blocks": 2, "dropout": 0.3}
settings = {"max_epochs": 40, "batch_size": 32, "n_draws": 1, "random_state": 0}
model = StochasticAttentionRegressor("patch", backbone_params=shape, **settings)
model.fit(X[early], y[early])

# %%
# A week of its own to calibrate on
# ---------------------------------
# Hours that are kept from training at random have their neighbours in it, and are no
# strangers. So the model is frozen, and its intervals are calibrated on the next week.

calibrated = ConformalRegressor(FrozenEstimator(model)).fit(X[later], y[later])
low, high = calibrated.predict_interval(X[newest]).swapaxes(0, 1)
held = (low <= y[newest]) & (y[newest] <= high)
error = np.abs(y[newest] - model.predict(X[newest]))
spread = model.predict_std(X[newest])

# %%
# The spread knows where
# ----------------------
# The land is harder than the sea, and the spread says so. That in these days the south
# was harder than the north, it does not.

sizes = {"mean absolute error (K)": error, "mean spread (K)": spread}
fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, (name, size) in zip(axes, sizes.items(), strict=True):
    place = size.mean(axis=0).reshape(33, 49)
    colors = ax.pcolormesh(era5.longitude, era5.latitude, place, cmap="magma")
    fig.colorbar(colors, ax=ax, label=name)
    ax.set(xlabel="degrees east", ylabel="degrees north", aspect=1.7)
r = np.corrcoef(error.mean(axis=0), spread.mean(axis=0))
fig.suptitle(f"Over places, error and spread correlate by {r[0, 1]:.2f}")

# %%
# It does not know when
# ---------------------
# Eight days later the weather is another, and intervals of 90 % hold too little.

day = 1 + (now[newest] + 6) / 24
r = np.corrcoef(error.mean(axis=1), spread.mean(axis=1))[0, 1]
fig, (top, below) = plt.subplots(2, figsize=(9, 4), sharex=True, layout="constrained")
for name, size in sizes.items():
    top.plot(day, size.mean(axis=1), label=name)
top.set(title=f"Over hours, error and spread correlate by {r:.2f}", ylim=(0, 2.7))
top.legend(ncols=2, loc="upper left")
below.plot(day, held.mean(axis=1), color="C2")
below.axhline(0.9, color="0.5", linestyle=":")
below.set(xlabel="day of March 2019", ylabel="share of map held", ylim=(0, 1))
plt.show()
