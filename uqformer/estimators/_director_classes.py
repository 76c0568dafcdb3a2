"""The verbs of a classifier whose members are chains."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import check_confidence_level
from uqformer.calibration import TemperatureCalibrator
from uqformer.director import Task
from uqformer.director._tasks import WEIGHTED_CLASSIFICATION
from uqformer.estimators._classifier_core import ClassifierCore
from uqformer.estimators._director_core import DirectorCore
from uqformer.estimators._director_passes import ChainPasses
from uqformer.estimators._inputs import UserInputs
from uqformer.estimators._passes import Passes
from uqformer.estimators._rows import HeldOut
from uqformer.predictive import ClassificationEnsemble, UncertaintyParts

__all__ = ["ChainClassifier", "ChainUncertainty"]


@dataclass(frozen=True, slots=True, eq=False)
class ChainUncertainty(UncertaintyParts):
    """Doubt about each row, and how far the chains part on their way.

    Parameters
    ----------
    total : ndarray of shape (n_samples,)
        Entropy of the average probabilities, in nats.
    aleatoric : ndarray of shape (n_samples,)
        Average entropy of the chains, in nats: classes that overlap.
    epistemic : ndarray of shape (n_samples,)
        Mutual information, total less aleatoric, in nats: chains that disagree.
    representation : ndarray of shape (n_samples, n_steps)
        Variance of the features over chains after each step, as a mean over tokens and
        widths, in the square of the features' unit.

    See Also
    --------
    UncertaintyParts : The same without the last.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.estimators import ChainUncertainty
    >>> parts = [np.array([value]) for value in (0.7, 0.5, 0.2)]
    >>> ChainUncertainty(*parts, np.array([[0.1, 0.3]])).representation
    array([[0.1, 0.3]])
    """

    representation: Float64Array


def _has_sets(classifier: "ChainClassifier") -> bool:
    """Say why there are no sets, where there are none."""
    if classifier.conformal is None:
        raise AttributeError(
            "predict_set needs conformal='lac', 'aps' or 'raps'; got conformal=None. "
            "Set it and fit again."
        )
    return True


class ChainClassifier(ClassifierMixin, ClassifierCore, DirectorCore):
    """A classifier by chains; its subclass has the parameters."""

    def predict(self, X: UserInputs) -> AnyArray:
        """Predict the class that the chains' average puts first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
            Labels from `classes_`; of equally probable classes the first.
        """
        first = self.predict_log_proba(X).argmax(axis=1)
        labels: AnyArray = self.classes_[first]
        return labels

    def predict_proba(self, X: UserInputs) -> Float64Array:
        """Predict calibrated probabilities: the chains' average, at the temperature.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; rows sum to 1.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: UserInputs) -> Float64Array:
        """Predict logarithms of the calibrated probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_log_proba : ndarray of shape (n_samples, n_classes)
            In nats. Before the temperature, probabilities below 1e-12 are read as that.
        """
        self._check_ready()
        return self._log_proba(self._validate_new(X))

    def decision_function(self, X: UserInputs) -> Float64Array:
        """Predict logits whose softmax or sigmoid is the calibrated probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        logits : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes the log-odds of the second; else logarithms of the
            probabilities.
        """
        log_proba = self.predict_log_proba(X)
        if log_proba.shape[1] > 2:
            return log_proba
        odds: Float64Array = log_proba[:, 1] - log_proba[:, 0]
        return odds

    @available_if(_has_sets)
    def predict_set(self, X: UserInputs, confidence_level: ArrayLike = 0.9) -> AnyArray:
        """Predict which classes may be the true one, by conformal prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        confidence_level : float or array-like of shape (n_levels,), default=0.9
            How often the true class should be in the set, strictly between 0 and 1.

        Returns
        -------
        sets : ndarray of bool, shape (n_samples, n_classes[, n_levels])
            True for the classes in the set, which always holds the most probable one;
            without `n_levels` for a single number.

        Raises
        ------
        InsufficientCalibrationError
            If a level asks for more calibration rows than were kept.
        """
        self._check_ready()
        check_confidence_level(confidence_level)
        return self._conformal_sets().predict_set(
            self.predict_proba(X), confidence_level
        )

    def predict_ensemble(self, X: UserInputs) -> ClassificationEnsemble:
        """Predict with every chain and keep them all.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        ensemble : ClassificationEnsemble
            Bare chains, ``(n_chains, n_samples, n_classes)``: neither the temperature
            nor anything conformal is in them.
        """
        self._check_ready()
        return self._ensemble(self._validate_new(X))

    def predict_uncertainty(self, X: UserInputs) -> ChainUncertainty:
        """Predict the doubt about each row, and where on the way the chains part.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        uncertainty : ChainUncertainty
            ``total``, ``aleatoric`` and ``epistemic`` parts of shape ``(n_samples,)``,
            in nats, of the bare chains; and ``representation``, the variance of the
            features after each step, ``(n_samples, n_steps)``.
        """
        self._check_ready()
        logits, spread = self._chain_passes().traced(
            self._validate_new(X), self._seeds()
        )
        ensemble = ClassificationEnsemble(softmax(logits, axis=2))
        return ChainUncertainty(
            ensemble.entropy(),
            ensemble.expected_entropy(),
            ensemble.mutual_information(),
            spread,
        )

    def score_samples(self, X: UserInputs) -> Float64Array:
        """Score how familiar each row looks: the less doubt, the more familiar.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        scores : ndarray of shape (n_samples,)
            Entropy of the bare chains' average with its sign turned, in nats: at most
            0, and low for rows that do not belong.
        """
        self._check_ready()
        return -self._mixture(self._validate_new(X)).uncertainty().total

    def backbone_proba(self, X: UserInputs) -> Float64Array:
        """Predict the probabilities of the backbone, before it was distilled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_proba : ndarray of shape (n_samples, n_classes)
            Softmax of its logits, not calibrated; columns in the order of `classes_`.
        """
        self._check_ready()
        logits = self._passes(self.backbone_).exact(self._validate_new(X))
        proba: Float64Array = softmax(logits, axis=1)
        return proba

    def _chain_passes(self) -> ChainPasses:
        return cast(ChainPasses, self._passes(self.module_))

    def _task_targets(self, targets: AnyArray, weight: Float64Array) -> AnyArray:
        hot = np.eye(len(self.columns_))[self.columns_[targets]]
        return np.column_stack([hot, weight])

    def _answers(self, train: HeldOut, validation: HeldOut) -> AnyArray:
        """Return tempered probabilities: rows it learned are answered too surely."""
        classes = np.arange(len(self.columns_))
        temperature = TemperatureCalibrator(input="logits", classes=classes)
        temperature.fit(validation.exact, validation.y, validation.weight)
        proba = temperature.transform(train.exact)
        return proba[:, np.argsort(self.columns_)]

    def _tasks(self, targets: torch.Tensor) -> tuple[Task, Task]:
        return WEIGHTED_CLASSIFICATION, WEIGHTED_CLASSIFICATION

    def _calibrate(self, passes: Passes) -> None:
        """Do now what the first prediction would otherwise wait for."""
        settings = self._settings(self.findings_.n_draws)
        if settings.is_sharpened:
            with self._timed("temperature"):
                self.calibration_.temperature(passes, settings)
        if self.conformal is not None:
            with self._timed("conformal"):
                self.calibration_.conformal(passes, settings, self.conformal)
