"""What a run needs, from a spec: its artifact, the variants for other engines, the texts (edge)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgespec.benchmark.deploy import MakeProviders
from edgespec.benchmark.run import Bench
from edgespec.benchmark.texts import rows_for
from edgespec.benchmark.variants import ENGINES, NATIVE, build_variants
from edgespec.build.cache import Cache
from edgespec.build.embed import read_tokenizer
from edgespec.build.pipeline import BuildEvent, Pipeline
from edgespec.build.remote import RemoteCache
from edgespec.diagnostics import EdgespecError, error
from edgespec.spec.models import EdgeModel


def prepare(
    spec: EdgeModel,
    root: Path,
    cache: Cache,
    remote: RemoteCache | None,
    *,
    engines: tuple[str, ...],
    rounds: int,
    providers: MakeProviders,
    cache_dir: Path,
    say: Callable[[str], None],
) -> Bench:
    """Builds every variant. Raises EdgespecError for an unknown engine (ES413) or when none is left to measure."""
    if unknown := [e for e in engines if e not in (*ENGINES, NATIVE)]:
        detail = f"{', '.join(unknown)}: there are {', '.join((*ENGINES, NATIVE))}."
        raise EdgespecError(error("ES413", "Unknown engine", detail))

    def tell(event: BuildEvent) -> None:
        if not event.cached:
            say(f"model/{spec.name}: {event.stage}: {event.message}")

    pipeline = Pipeline(root, cache, tell, remote)
    own = pipeline.build(spec)
    variants, left_out = build_variants(spec, own, [e for e in engines if e != NATIVE], pipeline.build)
    if not variants:
        why = "; ".join(f"{e.engine}: {e.why}" for e in left_out) or "no engine of the Worker was named"
        raise EdgespecError(error("ES413", "No engine to measure", f"{why}."))

    def blob(sha256: str) -> Path:
        path = pipeline.blob(sha256)
        if path is None:
            raise EdgespecError(
                error("ES535", "A chunk is missing", f"The cache has lost {sha256[:12]}. Run it again.")
            )
        return path

    tokenizer = pipeline.tokenizer(spec)
    return Bench(
        spec=spec,
        own=own,
        variants=variants,
        left_out=left_out,
        native=NATIVE in engines,
        rows=rows_for(spec, root, read_tokenizer(tokenizer, None)),
        tokenizer=tokenizer,
        rounds=rounds,
        cache_dir=cache_dir,
        blob=blob,
        facts=pipeline.facts,
        providers=providers,
        say=say,
    )
