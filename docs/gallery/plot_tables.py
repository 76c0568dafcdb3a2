"""
Who survived the Titanic, and how sure can one be?
==================================================

A table as tables are: numbers, categories, and holes where nobody wrote anything down.
It goes in as it is, and comes out with probabilities, sets, and doubt in two parts.
"""  # noqa: D205, D400

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from uqformer import StochasticAttentionClassifier
from uqformer.datasets import fetch_titanic

# %%
# Categories and gaps need no preparation
# ---------------------------------------
# Every fifth age is missing. The cabins would only name the passengers, so they go.

X, survived = fetch_titanic(return_X_y=True)
X, y = X.drop(columns="cabin"), np.where(survived == 1, "survived", "died")
X_train, X_new, y_train, y_new = train_test_split(
    X, y, test_size=0.3, stratify=y, random_state=0
)
model = StochasticAttentionClassifier(n_draws=32, n_members=30, random_state=0)
model.fit(X_train, y_train)

# %%
# What if he had been a boy?
# --------------------------
# A member is one function, so each has a curve of its own; where they part, the model
# does not know. The bars at the question mark are for an age that nobody wrote down.

ages = np.append(np.arange(1.0, 76.0, 3), np.nan)
fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, sex, color in zip(axes, ["female", "male"], ["C1", "C0"], strict=True):
    person = X_new[X_new.sex == sex].iloc[[0] * len(ages)]
    person = person.assign(age=ages, pclass=2, sibsp=0, parch=0, fare=13.0)
    curves = model.predict_ensemble(person).members[..., 1]
    ax.plot(ages, curves.T, color=color, alpha=0.3, linewidth=1)
    ax.plot(ages, curves.mean(axis=0), color=color, linewidth=3)
    ax.vlines(-6, *np.quantile(curves[:, -1], [0.05, 0.95]), color=color, linewidth=4)
    ax.set(title=f"{sex}, second class, alone", xlabel="age", ylim=(0, 1))
    ax.set_xticks([-6, 0, 20, 40, 60], ["?", 0, 20, 40, 60])
axes[0].set_ylabel("probability of survival")

# %%
# Where sets have one class, and where doubt is
# ---------------------------------------------
# A set at 90 % names one fate where the table tells, and both where it does not.

sets = model.predict_set(X_new, confidence_level=0.9)
doubt = model.predict_uncertainty(X_new)
groups = [(sex, cabin) for sex in ("female", "male") for cabin in (1, 2, 3)]
members = [((X_new.sex == s) & (X_new.pclass == c)).to_numpy() for s, c in groups]
labels = [f"{sex}, class {cabin}" for sex, cabin in groups]

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), sharey=True, layout="constrained"
)
kinds = {"died": ~sets[:, 1], "either": sets.all(axis=1), "survived": ~sets[:, 0]}
start = np.zeros(len(groups))
for (kind, is_kind), color in zip(kinds.items(), ["C0", "0.8", "C1"], strict=True):
    share = np.array([is_kind[rows].mean() for rows in members])
    left.barh(labels, share, left=start, color=color, label=kind)
    start += share
left.set(xlabel="share of passengers whose set is ...")
left.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
shared = np.array([doubt.aleatoric[rows].mean() for rows in members])
between = np.array([doubt.epistemic[rows].mean() for rows in members])
right.barh(labels, shared, color="C2", label="fates overlap (aleatoric)")
right.barh(labels, between, left=shared, color="C3", label="members disagree")
right.set(xlabel="doubt (nats)")
right.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()
