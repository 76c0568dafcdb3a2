"""
Which classes could this picture be?
====================================

A small transformer learns photographs of ten kinds of things from scratch, and will
often be wrong. A prediction set says what a picture could be, and holds the truth as
often as it was asked to.
"""  # noqa: D205, D400

import matplotlib.pyplot as plt
import numpy as np

from uqformer import StochasticAttentionClassifier
from uqformer.datasets import fetch_cifar10

# %%
# Pixels go in as they are
# ------------------------
# The backbone wants colours before height and width. Six thousand pictures and a
# minute are little for a vision transformer: its doubt is real.

train, test = fetch_cifar10("train"), fetch_cifar10("test")
names = np.array(train.target_names)
X, y = train.data[:6000].transpose(0, 3, 1, 2), names[train.target[:6000]]
X_new, y_new = test.data[:600].transpose(0, 3, 1, 2), names[test.target[:600]]

model = StochasticAttentionClassifier(
    "patch",
    backbone_params={"patch_size": 8},
    n_members=16,
    max_epochs=15,
    random_state=0,
)
model.fit(X, y)
accuracy = model.score(X_new, y_new)

# %%
# Sets of four pictures in five
# -----------------------------
# Easy pictures have small sets, hard ones large. The true class stands above each, in
# red if the set lacks it; the set stands below, the most probable class first.

sets = model.predict_set(X_new, confidence_level=0.8)
proba = model.predict_proba(X_new)
sizes = sets.sum(axis=1)
shown = [np.flatnonzero(sizes == size)[k] for size in range(1, 6) for k in (0, 1)]

fig, axes = plt.subplots(2, 5, figsize=(9, 7), layout="constrained")
for ax, row in zip(axes.T.flat, shown, strict=True):
    inside = sets[row, model.classes_ == y_new[row]].item()
    ax.imshow(test.data[row], interpolation="bilinear")
    ax.set_title(y_new[row], color="black" if inside else "C3", fontweight="bold")
    ordered = np.argsort(-proba[row])[: sizes[row]]
    ax.set_xlabel("\n".join(model.classes_[ordered]))
    ax.set(xticks=[], yticks=[])
fig.suptitle(f"Sets at 80 %; the most probable class alone is right in {accuracy:.0%}")

# %%
# They keep their word
# --------------------
# Whatever the level, the sets hold the truth about as often as was asked. What more
# certainty costs is length.

levels = np.linspace(0.5, 0.95, 10)
many = model.predict_set(X_new, confidence_level=levels)
held = many[np.arange(len(y_new)), np.searchsorted(model.classes_, y_new)].mean(axis=0)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(levels, levels, color="0.5", linestyle=":", label="as asked")
left.plot(levels, held, marker="o", label="found")
left.set(xlabel="level asked", ylabel="share of sets with the true class")
left.legend()
right.plot(levels, many.sum(axis=1).mean(axis=0), marker="o")
right.set(xlabel="level asked", ylabel="classes in a set, on average")
plt.show()
