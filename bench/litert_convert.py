"""For bench/litert.py, in the venv that it makes: a BERT encoder as int8 .tflite files, one for each length.

    python litert_convert.py FOLDER LENGTH ...

FOLDER/*.npz hold the tensors of a BERT encoder (without its prefix) and its number of heads; NAME.LENGTH.tflite go
beside them. Weights are int8 per channel and activations quantised at run time, as in onnxruntime's dynamic int8. Every
file is run once: an output that is not near torch's is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import litert_torch
import numpy as np
import torch
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe
from torch import Tensor, nn

LEAST_COSINE = 0.98


class Encoder(nn.Module):
    """The mean of the last hidden state of BERT. Every token is seen: the length is the file's."""

    def __init__(self, tensors: dict[str, np.ndarray], heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.layers = len([n for n in tensors if n.endswith("intermediate.dense.weight")])
        for name, value in tensors.items():
            self.register_buffer(name.replace(".", "_"), torch.from_numpy(value))

    def get(self, name: str) -> Tensor:
        found: Tensor = self.get_buffer(name.replace(".", "_"))
        return found

    def linear(self, x: Tensor, name: str) -> Tensor:
        return nn.functional.linear(x, self.get(f"{name}.weight"), self.get(f"{name}.bias"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.get(f"{name}.weight"), self.get(f"{name}.bias"), 1e-12)

    def split(self, x: Tensor, name: str) -> Tensor:
        batch, length, width = x.shape
        return self.linear(x, name).view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def attention(self, x: Tensor, at: str) -> Tensor:
        query, key, value = (self.split(x, f"{at}.self.{part}") for part in ("query", "key", "value"))
        chances = torch.softmax(query @ key.transpose(2, 3) * query.shape[-1] ** -0.5, -1)
        return self.linear((chances @ value).transpose(1, 2).reshape(x.shape), f"{at}.output.dense")

    def forward(self, ids: Tensor) -> Tensor:
        words = nn.functional.embedding(ids, self.get("embeddings.word_embeddings.weight"))
        positions = self.get("embeddings.position_embeddings.weight")[: ids.shape[1]]
        types = self.get("embeddings.token_type_embeddings.weight")[0]
        x = self.norm(words + positions + types, "embeddings.LayerNorm")
        for i in range(self.layers):
            at = f"encoder.layer.{i}"
            x = self.norm(x + self.attention(x, f"{at}.attention"), f"{at}.attention.output.LayerNorm")
            inner = nn.functional.gelu(self.linear(x, f"{at}.intermediate.dense"))
            x = self.norm(x + self.linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return x.mean(1)


def check(path: Path, ids: Tensor, wanted: np.ndarray) -> None:
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], ids.numpy())
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    cosine = float((found * wanted).sum() / np.linalg.norm(found) / np.linalg.norm(wanted))
    if not cosine > LEAST_COSINE:
        raise SystemExit(f"{path.name}: a cosine of {cosine:.4f} to float32")


def convert(source: Path, lengths: list[int]) -> None:
    with np.load(source) as file:
        tensors = dict(file)
    encoder = Encoder(tensors, int(tensors.pop("heads"))).eval()
    whole = source.with_suffix(".f32")
    for length in lengths:
        ids = (1000 + 7 * torch.arange(length, dtype=torch.int32))[None]
        litert_torch.convert(encoder, (ids,)).export(str(whole))
        small = source.with_suffix(f".{length}.tflite")
        quantizer.Quantizer(str(whole), recipe.dynamic_wi8_afp32()).quantize().export_model(str(small), overwrite=True)
        with torch.no_grad():
            check(small, ids, encoder(ids).numpy())
    whole.unlink()


if __name__ == "__main__":
    for one in sorted(Path(sys.argv[1]).glob("*.npz")):
        convert(one, [int(n) for n in sys.argv[2:]])
