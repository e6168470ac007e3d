"""Write models/qwen: a Qwen3 language model of some 0.8 M parameters, trained for a few seconds on the example's texts.

It stands for a real one (`source: hf:Qwen/Qwen3-0.6B@<commit>`), so that the whole workflow runs in minutes on a CPU
and without a model hub. The same on every run of one machine.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

HERE = Path(__file__).parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}{{'<|im_start|>'+m['role']+'\n'+m['content']+'<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n'}}{% endif %}"
)
STEPS, BATCH, LENGTH = 300, 32, 48


def texts() -> list[str]:
    lines = (HERE / "data" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines if line.strip()]


def tokenizer(corpus: list[str]) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        corpus,
        trainers.BpeTrainer(vocab_size=1024, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=SPECIAL[2], pad_token=SPECIAL[0], chat_template=CHAT, model_max_length=256
    )


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    corpus = texts()
    tok = tokenizer(corpus)
    config = Qwen3Config(
        vocab_size=(len(tok) + 63) // 64 * 64, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=256, bos_token_id=0,
        eos_token_id=2, pad_token_id=0, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rows = [[*tok(t)["input_ids"][: LENGTH - 1], 2] for t in corpus]
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        chosen = torch.randint(len(rows), (BATCH,), generator=generator).tolist()
        width = max(len(rows[i]) for i in chosen)
        ids = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in chosen])
        mask = (ids != 0).long()
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(ids == 0, -100)).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if step % 50 == 0:
            print(f"step {step} of {STEPS}: loss {float(loss.detach()):.3f}")
    folder = HERE / "models" / "qwen"
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters in {folder}")


if __name__ == "__main__":
    main()
