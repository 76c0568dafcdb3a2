"""The eight rules of the house, as code; docs/design.rst says why they are rules."""

import ast
import hashlib
import importlib.util
import inspect
import itertools
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "uqformer"
SOURCES = sorted(PACKAGE.rglob("*.py"))
UNTESTED = {"__init__", "__main__", "_typing", "_version"}  # nothing to run in them
TORCH_FREE = (
    "predictive",
    "metrics",
    "_response",
    "scorers",
    "plotting",
    "calibration",
    "comparison",
    "datasets",
    "series",
)
ABOVE_THE_BORDER = ("estimators", *TORCH_FREE)
# these part or make rows of X, and draw no members
ROWS_ARE_COUNTED = {"uqformer/estimators/_rows.py", "uqformer/datasets/_synthetic.py"}
WORDS = {
    "n_mc": "n_members",
    "alpha": "confidence_level",
    "lr": "learning_rate",
    "epochs": "max_epochs",
    "patience": "n_iter_no_change",
    "num_heads": "n_heads",
    "num_bins": "n_bins",
    "y_prob": "y_proba",
    "y_intervals": "y_interval",
}
UNIONS_ALLOWED = {
    "predict": "return_std=True is scikit-learn's own convention, and the only way "
    "through a Pipeline",
}

# models are trained for three epochs here, and the house rightly says what that means
pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def _room(path: Path) -> str:
    """First name below the package: `estimators` for `uqformer/estimators/_base.py`."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    spec = function.args
    return [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for every import; name is empty for `import module`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _identifiers(path: Path) -> set[str]:
    """All names and attributes that the code of a file uses; text does not count."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


# -- 1. Stairs go down only ---------------------------------------------------------


@pytest.mark.skipif(
    importlib.util.find_spec("importlinter") is None,
    reason="import-linter is not installed",
)
def test_imports_only_go_down() -> None:
    lint = "from importlinter.cli import lint_imports_command as run; run()"
    done = _run_python(lint, "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=_where)
def test_only_validation_leans_on_private_parts_of_sklearn(path: Path) -> None:
    private = [
        f"{module}.{name}"
        for module, name in _imports(path)
        if module.split(".")[0] == "sklearn"
        and any(part.startswith("_") for part in [*module.split("."), name])
    ]
    assert not private or path.name == "_validation.py"


# -- 2. One border ------------------------------------------------------------------


def test_results_are_read_without_torch() -> None:
    code = """if True:
        import importlib, sys
        for room in sys.argv[1:]:
            importlib.import_module(f"uqformer.{room}")
            if "torch" in sys.modules:
                sys.exit(f"{room} loads torch")
    """
    done = _run_python(code, *TORCH_FREE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if _room(path) in ABOVE_THE_BORDER], ids=_where
)
def test_no_tensor_is_promised_above_the_border(path: Path) -> None:
    public = [node for node in _functions(path) if not node.name.startswith("_")]
    hints = [
        (function.name, ast.unparse(hint))
        for function in public
        for hint in [function.returns, *(a.annotation for a in _arguments(function))]
        if hint is not None
    ]
    assert [hint for hint in hints if "Tensor" in hint[1]] == []


# -- 3. One source of chance --------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=_where)
def test_only_random_touches_a_global_generator(path: Path) -> None:
    seeders = {"np.random.seed", "torch.manual_seed", "torch.cuda.manual_seed"}
    attributes = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert not attributes & seeders or path.name == "_random.py"


@pytest.fixture(scope="module")
def fitted(heteroscedastic: tuple[Any, Any]) -> Any:
    from uqformer import StochasticAttentionRegressor

    regressor = StochasticAttentionRegressor(max_epochs=3, n_members=4, random_state=0)
    return regressor.fit(*heteroscedastic)


def test_global_generators_stay_as_they_were(heteroscedastic: tuple[Any, Any]) -> None:
    import torch

    from uqformer import StochasticAttentionRegressor

    X, y = heteroscedastic
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    model = StochasticAttentionRegressor(max_epochs=3, n_members=4, random_state=0)
    model.fit(X, y).predict_interval(X, confidence_level=0.5)
    assert torch.equal(torch.get_rng_state(), torch_before)
    numpy_after = np.random.get_state()  # noqa: NPY002
    assert all(map(np.array_equal, numpy_before, numpy_after))


def test_a_row_is_predicted_alike_in_any_company(
    fitted: Any, heteroscedastic: tuple[Any, Any]
) -> None:
    X, _ = heteroscedastic
    whole = fitted.predict_interval(X, confidence_level=0.5)
    part = fitted.predict_interval(X[7:12], confidence_level=0.5)
    np.testing.assert_allclose(part, whole[7:12], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        fitted.predict_interval(X, confidence_level=0.5), whole
    )


def test_a_pickled_estimator_predicts_the_same(
    fitted: Any, heteroscedastic: tuple[Any, Any]
) -> None:
    X, _ = heteroscedastic
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(
        copy.predict_interval(X, confidence_level=0.5),
        fitted.predict_interval(X, confidence_level=0.5),
    )


# -- 4. One attention ---------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=_where)
def test_only_the_context_watches_operators(path: Path) -> None:
    watched = any(
        "_python_dispatch" in f"{module}.{name}" for module, name in _imports(path)
    )
    assert watched == (_where(path) == "uqformer/attention/_watch.py")


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if _room(path) == "backbones"], ids=_where
)
def test_backbones_ask_the_seam_for_their_softmax(path: Path) -> None:
    names = _identifiers(path)
    assert names & {"softmax", "MultiheadAttention"} == set()
    assert "scaled_dot_product_attention" not in names


# -- 5. One word, one meaning -------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=_where)
def test_n_samples_never_counts_draws(path: Path) -> None:
    taken = [
        function.name
        for function in _functions(path)
        for argument in _arguments(function)
        if argument.arg == "n_samples"
    ]
    assert not taken or _where(path) in ROWS_ARE_COUNTED


def test_parameters_speak_the_words_of_the_glossary(
    public_names: dict[str, list[str]],
) -> None:
    objects = [
        getattr(importlib.import_module(module), name)
        for module, names in public_names.items()
        for name in names
    ]
    members = [vars(obj).values() for obj in objects if inspect.isclass(obj)]
    wrong = [
        f"{function.__qualname__}: {word} should be {WORDS[word]}"
        for function in itertools.chain(objects, *members)
        if inspect.isfunction(function)
        for word in inspect.signature(function).parameters
        if word in WORDS
    ]
    assert wrong == []


def test_public_names_are_those_of_the_api_page(
    public_names: dict[str, list[str]],
) -> None:
    documented: dict[str, list[str]] = {}
    module = ""
    for line in (ROOT / "docs" / "api.rst").read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
            documented[module] = []
        elif re.fullmatch(r" {3}\w+", line):
            documented[module].append(line.strip())
    assert documented == {module: sorted(public_names[module]) for module in documented}
    assert set(documented) == set(public_names)


# -- 6. One return type per method --------------------------------------------------


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if _room(path) in ABOVE_THE_BORDER], ids=_where
)
def test_a_method_returns_one_type(path: Path) -> None:
    classes = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    returns = {
        f"{node.name}.{method.name}": ast.unparse(method.returns)
        for node in classes
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        and method.returns is not None
        and not any(ast.unparse(mark) == "property" for mark in method.decorator_list)
        and method.name not in UNIONS_ALLOWED
        and not method.name.startswith("_")
    }
    assert {name: hint for name, hint in returns.items() if "|" in hint} == {}


# -- 7. Small rooms -----------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        path
        for folder in ("uqformer", "tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ],
    ids=_where,
)
def test_no_file_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.stem not in UNTESTED], ids=_where
)
def test_every_room_has_its_test_file(path: Path) -> None:
    folder = ROOT / "tests" / path.parent.relative_to(PACKAGE)
    assert (folder / f"test_{path.stem.removeprefix('_')}.py").is_file()


# -- 8. Weights are guests ----------------------------------------------------------


def _digest(module: Any) -> str:
    digest = hashlib.sha256()
    for name, value in module.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def test_a_guest_leaves_bit_for_bit_as_it_came(
    fitted: Any, heteroscedastic: tuple[Any, Any]
) -> None:
    from uqformer import StochasticAttentionRegressor
    from uqformer.backbones import FrozenBackbone

    X, y = heteroscedastic
    guest = fitted.module_
    before = _digest(guest)
    model = StochasticAttentionRegressor(
        FrozenBackbone(guest), n_members=4, random_state=0
    )
    model.fit(X, y).predict_interval(X, confidence_level=0.5)
    assert _digest(guest) == before
