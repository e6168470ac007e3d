"""A folder of model2vec from the spec to the Worker's answer, by both engines."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from edgespec.diagnostics import EdgespecError
from tests.e2e.conftest import TinyProject
from tests.tiny import tiny_tokenizer
from tests.unit.build.test_onnx_model2vec import encode, write_static

TEXTS = ["where is my parcel", "refund ☃ my money please", "退款 快递 123", "☃ ☃☃"]


@pytest.mark.parametrize("engine", ["edge", "onnxruntime"])
def test_a_worker_answers_as_model2vec_does(project: TinyProject, engine: str) -> None:
    folder = write_static(project.root / "models" / "static", weights=True, mapping=np.int64)
    project.write_spec(
        quantization={"method": "none"},
        worker={"engine": engine},
        task={"type": "embedding", "max_tokens": 32, "normalize": False},
        model={"source": "./models/static"},
    )
    project.apply_well()
    found = np.array([answer["embedding"] for answer in project.infer("tiny", *TEXTS)])
    wanted = encode(folder, TEXTS)
    assert not found[3].any()
    # Six digits of each number are sent.
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_a_text_of_which_nothing_is_left(project: TinyProject) -> None:
    plain = Tokenizer.from_str(json.dumps({**json.loads(tiny_tokenizer().to_str()), "post_processor": None}))
    write_static(project.root / "models" / "static", plain)
    project.write_spec(task={"type": "embedding", "max_tokens": 32}, model={"source": "./models/static"})
    project.apply_well()
    assert project.infer("tiny", "parcel")[0]["tokens"] == 1
    with pytest.raises(EdgespecError, match="leaves nothing of the text"):
        project.infer("tiny", "parcel", "\u200b")
