"""Images from Hugging Face, kept in the data folder as one file of arrays."""

from typing import NamedTuple

import numpy as np

from uqformer._typing import AnyArray
from uqformer.datasets._source import Source, import_extra, written_whole

__all__ = ["HubImages", "load_hub_images", "read_images"]

Images = tuple[AnyArray, AnyArray, list[str]]
"""Pixels (n_samples, H, W) or (n_samples, H, W, 3), labels, names of the classes."""


class HubImages(NamedTuple):
    """Where a set of labelled images lies on the hub."""

    name: str
    path: str
    config: str | None = None
    image: str = "image"
    label: str = "label"


def load_hub_images(
    source: Source, images: HubImages, subset: str, instead: str | None = None
) -> Images:
    """Load a subset from the folder, or from the hub and keep it in the folder.

    An error names the file that would do `instead`, where that is another one.
    """
    name = f"{images.name}/{images.name}_{subset}.npz"
    if not source.local(name):
        with source.public(f"Hugging Face ({images.path})", instead or name):
            _fetch(source, images, subset, name)
    return read_images(source, name)


def read_images(source: Source, name: str) -> Images:
    """Read a file that the hub's images were kept in."""
    with np.load(source.folder / name, allow_pickle=False) as file:
        return file["x"], file["y"].astype(np.int64), file["classes"].tolist()


def _fetch(source: Source, images: HubImages, subset: str, name: str) -> None:
    import_extra("PIL.Image")  # what the hub's own library decodes images with
    rows = import_extra("datasets").load_dataset(
        images.path,
        images.config,
        split=subset,
        cache_dir=str(source.folder / "huggingface"),
    )
    classes = rows.features[images.label].names
    pixels = np.stack([np.asarray(image) for image in rows[images.image]])
    with (
        written_whole(source.folder / name) as unfinished,
        unfinished.open("wb") as file,
    ):
        np.savez(file, x=pixels, y=np.asarray(rows[images.label]), classes=classes)
