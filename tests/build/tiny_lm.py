"""A tiny causal language model in Hugging Face layout, made on the spot and always the same: Qwen3 with a byte-level
BPE tokenizer, without torch.

    folder = write_tiny_qwen(tmp_path / "models" / "qwen")        # source: ./models/qwen
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.tiny import EXAMPLES

WIDTH, INNER, HEADS, GROUPS, LAYERS, POSITIONS = 64, 128, 2, 2, 2, 128
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}{{'<|im_start|>'+m['role']+'\\n'+m['content']+'<|im_end|>\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\\n'}}{% endif %}"
)


def lm_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [text for some in EXAMPLES.values() for text in some] + ["user", "assistant", *EXAMPLES]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=SPECIAL, initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def lm_config(vocabulary: int, layers: int = LAYERS, **more: Any) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": vocabulary, "hidden_size": WIDTH,
        "intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS, "head_dim": WIDTH // HEADS, "max_position_embeddings": POSITIONS,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 2,
        "pad_token_id": 0, "initializer_range": 0.02, "rope_theta": 10000.0, **more,
    }  # fmt: skip


def lm_weights(vocabulary: int, layers: int = LAYERS, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    width = WIDTH // HEADS

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0, 0.08, (rows, columns)).astype(np.float32)

    out = {"model.embed_tokens.weight": matrix(vocabulary, WIDTH), "model.norm.weight": np.ones(WIDTH, np.float32)}
    for i in range(layers):
        at = f"model.layers.{i}"
        out |= {
            f"{at}.self_attn.q_proj.weight": matrix(HEADS * width, WIDTH),
            f"{at}.self_attn.k_proj.weight": matrix(GROUPS * width, WIDTH),
            f"{at}.self_attn.v_proj.weight": matrix(GROUPS * width, WIDTH),
            f"{at}.self_attn.o_proj.weight": matrix(WIDTH, HEADS * width),
            f"{at}.self_attn.q_norm.weight": np.ones(width, np.float32),
            f"{at}.self_attn.k_norm.weight": np.ones(width, np.float32),
            f"{at}.mlp.gate_proj.weight": matrix(INNER, WIDTH),
            f"{at}.mlp.up_proj.weight": matrix(INNER, WIDTH),
            f"{at}.mlp.down_proj.weight": matrix(WIDTH, INNER),
            f"{at}.input_layernorm.weight": np.ones(WIDTH, np.float32),
            f"{at}.post_attention_layernorm.weight": np.ones(WIDTH, np.float32),
        }
    return out


def write_tiny_qwen(
    folder: Path,
    *,
    layers: int = LAYERS,
    seed: int = 0,
    weights: Mapping[str, np.ndarray] | None = None,
    **config: Any,
) -> Path:
    """Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = lm_tokenizer()
    size = (tokenizer.get_vocab_size() + 63) // 64 * 64
    (folder / "config.json").write_text(json.dumps(lm_config(size, layers, **config), indent=2) + "\n")
    tensors = dict(weights) if weights is not None else lm_weights(size, layers, seed)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS, "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "chat_template": CHAT, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(options, indent=2) + "\n")
    return folder


def write_conversations(path: Path, examples: Mapping[str, Sequence[str]] | None = None) -> Path:
    """A question and its label as the answer, for each of the examples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": label}]}
        for label, texts in (examples or EXAMPLES).items()
        for text in texts
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="\n")
    return path
