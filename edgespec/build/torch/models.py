"""Models of transformers from a folder in Hugging Face layout, and back into files that are always the same bytes.

A model whose heads were pruned has fewer of them than its width is shared between, and says how wide they are:
`head_dim`. transformers does not know that of BERT, RoBERTa, XLM-RoBERTa and DistilBERT; `load_model` builds them with
all their heads and puts narrower matrices in.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from edgespec.build.problems import fail
from edgespec.build.surgery.checkpoint import encode_json
from edgespec.build.surgery.families import FAMILIES, is_narrow
from edgespec.diagnostics import some

VARIES: Final = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")
"""Keys of config.json that say who wrote it, not what it is."""


def load_model(folder: Path, *, classifier: bool) -> Any:
    """A PreTrainedModel in float32 on the CPU, as it is for inference; `classifier` with its classification head,
    else the bare encoder. Raises EdgespecError (ES560) for files that transformers refuses."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification if classifier else AutoModel
    written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    try:
        with quiet():
            if is_narrow(written):
                return _load_narrow(kind, folder, written)
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            how = {"dtype": "float32", "attn_implementation": "eager", "local_files_only": True}
            model, found = kind.from_pretrained(folder, config=config, output_loading_info=True, **how)
    except (OSError, ValueError, KeyError, RuntimeError) as why:
        raise fail("ES560", f"transformers cannot load the model: {_first_line(why)}") from None
    _whole(found["missing_keys"])
    return model.eval()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers without its bars and reports; what is missing is said here."""
    from transformers.utils import logging as reports

    logging: Any = reports  # without types
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _load_narrow(kind: Any, folder: Path, written: dict[str, Any]) -> Any:
    from safetensors.torch import load_file
    from transformers import AutoConfig

    family = FAMILIES[written["model_type"]]
    heads = written[family.heads_key]
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    setattr(config, family.heads_key, written[family.width_key] // written["head_dim"])
    model = kind.from_config(config, attn_implementation="eager").float()
    narrow(model, heads, written["head_dim"])
    state: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        state |= load_file(file)
    prefix = f"{model.base_model_prefix}."
    own = model.state_dict().keys()
    for name in [n for n in state if n not in own]:
        other = name.removeprefix(prefix) if name.startswith(prefix) else prefix + name
        state[other] = state.pop(name)
    _whole(model.load_state_dict(state, strict=False).missing_keys)
    return model.eval()


def narrow(model: Any, heads: int, depth: int) -> None:
    """Gives every attention layer of an encoder room for `heads` heads of `depth` columns each, its weights unset."""
    import torch

    family = FAMILIES[model.config.model_type]
    setattr(model.config, family.heads_key, heads)
    model.config.head_dim = depth
    modules = dict(model.named_modules())
    inside = tuple("." + n.rpartition(".")[2] for n in (family.query, family.key, family.value))
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if name.endswith(inside) and isinstance(module, torch.nn.Linear):
            setattr(modules[parent], last, torch.nn.Linear(module.in_features, heads * depth))
        elif name.endswith(f".{family.out}") and isinstance(module, torch.nn.Linear):
            setattr(modules[parent], last, torch.nn.Linear(heads * depth, module.out_features))
        if hasattr(module, "attention_head_size"):
            for count in ("num_attention_heads", "n_heads"):
                if hasattr(module, count):
                    setattr(module, count, heads)
            module.all_head_size = heads * depth


def _whole(missing: Iterable[str]) -> None:
    """The pooler of a bare encoder is of no use and often left out."""
    absent = sorted(n for n in missing if "pooler." not in n and not n.endswith("position_ids"))
    if absent:
        raise fail(
            "ES560", f"the model's files have no tensor {some(absent, 3)}, which its config.json makes one expect."
        )


def new_model(config: dict[str, Any], table: Any, *, classifier: bool) -> Any:
    """A model of this config.json with random weights, under torch's seed; `table` are its vectors of tokens."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForSequenceClassification

    kind: Any = AutoModelForSequenceClassification if classifier else AutoModel
    known = {k: v for k, v in config.items() if k not in (*VARIES, "architectures", "model_type")}
    made = CONFIG_MAPPING[config["model_type"]](**known)
    model = kind.from_config(made, attn_implementation="eager").float()
    if table is not None:
        with torch.no_grad():
            model.get_input_embeddings().weight.copy_(torch.from_numpy(table))
    return model.eval()


def own_config(model: Any) -> dict[str, Any]:
    """config.json, without what says who wrote it."""
    return {k: v for k, v in model.config.to_dict().items() if k not in VARIES and v is not None}


def model_files(model: Any, config: dict[str, Any]) -> dict[str, bytes]:
    """config.json and model.safetensors."""
    from safetensors.torch import save

    from edgespec.build.weights_file import join_safetensors

    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    tensors = {n: t.detach().to("cpu").clone() for n, t in model.state_dict().items() if n not in tied}
    return {"config.json": encode_json(config), "model.safetensors": join_safetensors([save(tensors)])}


def _first_line(why: Exception) -> str:
    return f"{str(why).strip().splitlines()[0] if str(why).strip() else type(why).__name__}"
