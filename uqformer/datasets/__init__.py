"""Data to learn from and to judge by: public sets, corruptions, synthetic truth."""

from uqformer.datasets._characters import fetch_mnist, fetch_omniglot
from uqformer.datasets._corruptions import CORRUPTIONS, corrupt_images
from uqformer.datasets._images import (
    fetch_cifar10,
    fetch_cifar10c,
    fetch_cifar100,
    fetch_svhn,
)
from uqformer.datasets._synthetic import (
    make_gapped_sine,
    make_heteroscedastic,
    make_moons_with_ood,
)
from uqformer.datasets._tables import (
    fetch_adult,
    fetch_bank,
    fetch_covtype15k,
    fetch_titanic,
)
from uqformer.datasets._text import fetch_cola, fetch_imdb
from uqformer.datasets._time_series import fetch_era5_t2m, fetch_ett
from uqformer.datasets._uci import fetch_uci

__all__ = [
    "CORRUPTIONS",
    "corrupt_images",
    "fetch_adult",
    "fetch_bank",
    "fetch_cifar10",
    "fetch_cifar10c",
    "fetch_cifar100",
    "fetch_cola",
    "fetch_covtype15k",
    "fetch_era5_t2m",
    "fetch_ett",
    "fetch_imdb",
    "fetch_mnist",
    "fetch_omniglot",
    "fetch_svhn",
    "fetch_titanic",
    "fetch_uci",
    "make_gapped_sine",
    "make_heteroscedastic",
    "make_moons_with_ood",
]
