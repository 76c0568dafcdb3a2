"""Where the spread of an estimator comes from: the share of each part of attention."""

from typing import Literal

from sklearn.base import is_classifier

from uqformer.estimators._core import TransformerCore
from uqformer.estimators._inputs import UserInputs

__all__ = ["AttentionSharesMixin"]


class AttentionSharesMixin(TransformerCore):
    """The verb of estimators whose members differ by redrawn attention."""

    def attention_shares(
        self, X: UserInputs, by: Literal["layer", "head"] = "layer"
    ) -> dict[str, float]:
        """Tell how much of the members' variance each part of the attention makes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Rows whose predictions vary, as in ``fit``.

        by : {"layer", "head"}, default="layer"
            What to tell apart.

        Returns
        -------
        shares : dict of str to float
            Share of each part, by name; they sum to 1. Of a classifier, in the variance
            of its logits less their mean.

        Raises
        ------
        ValueError
            If `by` is another word.
        AttentionNotRedrawnError
            If the attention of a guest is computed where no gradient reaches it.

        See Also
        --------
        uqformer.attention.attention_variance : The numbers behind the shares.
        uqformer.plotting.AttentionVarianceDisplay : Draw them.

        Notes
        -----
        By the delta method, from one pass and one backward for each output; right to
        first order, and so for many draws. `n_draws` then plays no part.
        """
        self._check_ready()
        inputs = self._validate_new(X)
        passes = self._passes(self.module_)
        return passes.shares(inputs, by, of_logits=is_classifier(self))
