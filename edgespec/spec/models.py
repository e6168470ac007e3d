"""The documents that users write, as types: Project and EdgeModel, version `edgespec/v1`.

Scalars reach these models as text (see `document`); the field's type says what the text means. Durations are
seconds and sizes are bytes once here. Only fields whose behaviour exists are declared; `later` names the rest.
"""

# Annotations are not postponed here: pydantic would evaluate each of them from its text at every start.

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from edgespec import limits
from edgespec.spec.codes import COUNTRIES
from edgespec.spec.pipeline import HeadStage, Quantization, Stage, Tune
from edgespec.spec.types import (
    ACCOUNT,
    BUCKET,
    KEY_PREFIX,
    EnvironmentName,
    Label,
    Name,
    ProjectName,
    RelativePath,
    ShardName,
    Strict,
    unique,
)
from edgespec.spec.units import Count, Duration, Size

API_VERSION: Final = "edgespec/v1"


def _known_country(code: str) -> str:
    if code not in COUNTRIES:
        upper = "GB" if code.upper() == "UK" else code.upper()
        hint = f". Did you mean `{upper}`?" if upper in COUNTRIES else ""
        raise ValueError(f"{code!r} is not an ISO 3166-1 alpha-2 country code{hint}")
    return code


Country = Annotated[str, AfterValidator(_known_country)]
Continent = Literal["AF", "AN", "AS", "EU", "NA", "OC", "SA"]


# --- EdgeModel -------------------------------------------------------------------------------------------------------


class Metadata(Strict):
    name: Name
    labels: dict[str, str] = Field(default_factory=dict)


class Model(Strict):
    source: Annotated[str, StringConstraints(min_length=1)]
    """`package:NAME`, `hf:ORG/NAME@REVISION`, `ms:ORG/NAME@REVISION`, `./directory` in Hugging Face layout, or
    `./model.onnx` with its tokenizer beside it."""
    pipeline: tuple[Stage, ...] = ()


DisplayText = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class TextClassification(Strict):
    type: Literal["text-classification"]
    labels: Annotated[tuple[Label, ...], Field(min_length=2, max_length=1000), AfterValidator(unique)]
    multi_label: bool = False
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Multi-label only: a label is given when its probability reaches this."""
    display: Annotated[dict[str, DisplayText], Field(exclude=True)] = Field(default_factory=dict)
    """Label -> what people are shown for it. The Worker gives it beside the label; no artifact depends on it."""
    max_tokens: Annotated[int, Field(ge=4, le=8192)] = 128


class KeywordExtraction(Strict):
    type: Literal["keyword-extraction"]
    max_tokens: Annotated[int, Field(ge=4, le=8192)] = 128
    top_k: Annotated[int, Field(ge=1, le=50)] = 5
    diversity: Annotated[float, Field(ge=0, le=1)] = 0.5
    """0 ranks by similarity to the text alone; 1 by difference from the keywords already taken."""
    max_words: Annotated[int, Field(ge=1, le=5)] = 3


class Embedding(Strict):
    type: Literal["embedding"]
    max_tokens: Annotated[int, Field(ge=4, le=8192)] = 128
    normalize: bool = True
    """Scale every embedding to length 1."""


Task = Annotated[TextClassification | KeywordExtraction | Embedding, Field(discriminator="type")]


class Match(Strict):
    continents: Annotated[tuple[Continent, ...], AfterValidator(unique)] = ()
    countries: Annotated[tuple[Country, ...], AfterValidator(unique)] = ()


def _lower(value: object) -> object:
    """The API answers `WNAM` to `wnam`, and people write what they have read."""
    return value.lower() if isinstance(value, str) else value


Location = Annotated[Literal["wnam", "enam", "weur", "eeur", "apac", "oc"], BeforeValidator(_lower)]
Jurisdiction = Annotated[Literal["eu", "us", "fedramp"], BeforeValidator(_lower)]


class Shard(Strict):
    """One bucket. `location` is a hint, `jurisdiction` a guarantee; at most one of them."""

    location: Location | None = None
    jurisdiction: Jurisdiction | None = None
    match: Match | None = None

    @property
    def placement(self) -> str:
        """What tells this shard's bucket from another: the jurisdiction, the location hint or `auto`."""
        return self.jurisdiction or self.location or "auto"


class Regions(Strict):
    default: ShardName | None = None
    shards: Annotated[dict[ShardName, Shard], Field(min_length=1, max_length=16)] = Field(
        default_factory=lambda: {"default": Shard()}
    )

    @property
    def default_shard(self) -> str:
        """The shard of everyone whom no other matches; `check` has made sure that there is exactly one."""
        return self.default or next(iter(self.shards))


class KvTier(Strict):
    chunk: Annotated[Size, Field(ge=limits.CHUNK_MIN, le=limits.KV_VALUE)] = 8 * limits.MIB
    ttl: Annotated[Duration, Field(ge=limits.KV_TTL_MIN)] = 7 * 86400
    cache_ttl: Annotated[Duration, Field(ge=limits.KV_CACHE_TTL_MIN)] = 3600
    pin: Annotated[tuple[Literal["tokenizer", "model"], ...], AfterValidator(unique)] = ()
    """Files written to KV at apply, without expiry, before the Worker goes live."""


class WeightsCache(Strict):
    tiers: Annotated[tuple[Literal["memory", "kv"], ...], AfterValidator(unique)] = ("memory", "kv")
    kv: KvTier = KvTier()
    memory: Annotated[Size, Field(le=96 * limits.MIB)] = 64 * limits.MIB


class Cache(Strict):
    weights: WeightsCache = WeightsCache()


class WorkerOptions(Strict):
    engine: Literal["auto", "edge", "onnxruntime"] = "auto"
    """`auto` takes the engine edge where it covers the model's graph, else onnxruntime."""
    plan: Literal["free", "paid"] = "paid"
    """The Workers plan whose limits `plan` checks."""


class Threshold(Strict):
    """What a metric must reach: at least `min`, and no more than `max_drop` below the teacher."""

    min: Annotated[float, Field(ge=-1, le=1)] | None = None
    max_drop: Annotated[float, Field(ge=0, le=1)] | None = None
    """The allowed loss to compression: to the pipeline before its first `distill` or `prune`, in float32."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.min is None and self.max_drop is None:
            raise ValueError("needs `min`, `max_drop` or both")
        return self


class Quality(Strict):
    """Measured through the deployed Worker; a version that misses a gate gets no traffic."""

    data: RelativePath
    metrics: Annotated[dict[str, Threshold], Field(min_length=1)]


class CpuBudget(Strict):
    """Milliseconds of CPU of one request, over the spec's own texts as `edgespec bench` measures them."""

    p50: Annotated[float, Field(gt=0, le=300_000)] | None = None
    p99: Annotated[float, Field(gt=0, le=300_000)] | None = None


class Budget(Strict):
    """What the model may cost at most; a plan that is known to pass it is refused."""

    script: Size | None = None
    """Bytes of the Worker's modules."""
    memory: Size | None = None
    """Bytes of the isolate."""
    cpu_ms: CpuBudget | None = None
    monthly_cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """USD a month at list prices, for `requests`."""
    requests: Annotated[Count, Field(ge=0)] = 1_000_000
    """Requests a month that the estimate of the cost is made for."""
    cold_loads: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Of all requests, those that meet an isolate without the weights."""


class Lifecycle(Strict):
    prevent_destroy: bool = False
    """Nothing of this spec is destroyed, also after the spec is deleted: state remembers it. Set it to false and apply
    before you remove what it protects."""
    renamed_from: Name | None = None
    """The name that this spec had: what was deployed under it is moved, not made again."""


class EdgeModel(Strict):
    """One model on the edge: where it comes from, how it is made small, what it does and whom it serves."""

    apiVersion: Literal["edgespec/v1"]
    kind: Literal["EdgeModel"]
    metadata: Metadata
    model: Model
    task: Task
    quantization: Quantization = Quantization()
    regions: Regions = Field(default_factory=Regions)
    cache: Cache = Cache()
    worker: WorkerOptions = WorkerOptions()
    quality: Quality | None = None
    budget: Budget = Budget()
    lifecycle: Lifecycle = Lifecycle()
    tune: Tune | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def head(self) -> HeadStage | None:
        """The classifier that the pipeline ends in, where it fits one."""
        return self.model.pipeline[-1].head if self.model.pipeline else None


# --- Project ---------------------------------------------------------------------------------------------------------


class LocalTarget(Strict):
    """The embedded edge on this machine: real workerd behind Cloudflare's API shape."""

    type: Literal["local"]
    port: Annotated[int, Field(ge=0, le=65535)] = 8787
    """Loopback port; 0 takes a free one and keeps it."""


class CloudflareTarget(Strict):
    """A Cloudflare account. The API token is read from CLOUDFLARE_API_TOKEN when it is needed, never from here."""

    type: Literal["cloudflare"]
    account: Annotated[str, StringConstraints(pattern=ACCOUNT)]
    api_base_url: str = "https://api.cloudflare.com/client/v4"
    s3_base_url: str | None = None
    """Only for a stand-in of R2; the real endpoints follow from the account and the jurisdiction."""


Target = Annotated[LocalTarget | CloudflareTarget, Field(discriminator="type")]


class LocalState(Strict):
    type: Literal["local"]
    path: RelativePath | None = None
    """Default `.edgespec/state/<environment>.json`."""


class R2State(Strict):
    """A bucket of the environment's account, for machines and people that deploy to the same environment."""

    type: Literal["r2"]
    bucket: Annotated[str, StringConstraints(pattern=BUCKET)]
    """Made by `edgespec state init`; no spec's, and none is destroyed with it."""
    prefix: Annotated[str, StringConstraints(pattern=KEY_PREFIX, max_length=200)] = "edgespec"
    """The state's key is `<prefix>/<project>/<environment>.json`."""
    jurisdiction: Literal["eu", "us", "fedramp"] | None = None
    """Of the bucket."""


StatePlace = Annotated[LocalState | R2State, Field(discriminator="type")]


class Environment(Strict):
    target: Target
    state: StatePlace = LocalState(type="local")
    protect: bool = False
    """Nothing is destroyed without `--allow-destroy`."""
    promote_from: EnvironmentName | None = None
    """Only artifacts that were promoted from there (`releases/ENVIRONMENT.yaml`) are deployed, and nothing is built."""
    keep: Annotated[int, Field(ge=0, le=100)] = 5
    """Artifacts of each model that stay in its buckets after they served, for a rollback."""
    overrides: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Selector -> partial spec: `*`, labels such as `team=support`, or a spec's name. Merged into the specs' documents
    before these are validated (`overlays`)."""


class SharedCache(Strict):
    """A bucket in which machines share what they have built."""

    bucket: Annotated[str, StringConstraints(pattern=BUCKET)]
    """Made by `edgespec cache init`; no spec's, and none is destroyed with it."""
    environment: EnvironmentName | None = None
    """Whose target's account holds the bucket; the one that a command is for when it is not given."""


class BuildOptions(Strict):
    cache: SharedCache | None = None


class ProvenanceOptions(Strict):
    """Who is trusted to say where an artifact comes from."""

    keys: Annotated[tuple[RelativePath, ...], AfterValidator(unique)] = ()
    """Files with public keys (Ed25519, PEM): statements that one of them has signed are trusted."""


PolicyMessage = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Policy(Strict):
    """What a plan may not do, or not silently. Exactly one of `deny` and `warn`."""

    name: Name
    when: Annotated[str, StringConstraints(min_length=1, max_length=4000)]
    """A CEL expression over the plan (docs/policies.md); the policy speaks where it is true."""
    deny: PolicyMessage | None = None
    """Why the plan is refused."""
    warn: PolicyMessage | None = None
    """What a person has to know before saying yes."""
    environments: Annotated[tuple[EnvironmentName, ...], AfterValidator(unique)] = ()
    """Where it holds; everywhere when it is empty."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.deny is None) == (self.warn is None):
            raise ValueError("needs `deny` or `warn`, and not both")
        return self

    @property
    def message(self) -> str:
        return self.deny or self.warn or ""


class Project(Strict):
    """What a repository deploys and to where."""

    apiVersion: Literal["edgespec/v1"]
    kind: Literal["Project"]
    name: ProjectName
    specs: Annotated[tuple[RelativePath, ...], Field(min_length=1)] = ("specs/*.yaml",)
    environments: dict[EnvironmentName, Environment] = Field(
        default_factory=lambda: {"local": Environment(target=LocalTarget(type="local"))}
    )
    build: BuildOptions = BuildOptions()
    provenance: ProvenanceOptions = ProvenanceOptions()
    policies: tuple[Policy, ...] = ()


METRICS: Final[dict[str, tuple[str, ...]]] = {
    "text-classification": ("accuracy", "macro_f1"),
    "text-classification/multi_label": ("exact_match", "macro_f1", "micro_f1"),
    "keyword-extraction": (
        "f1",
        "mrr",
        "ndcg",
        "precision",
        "precision_at_1",
        "precision_at_5",
        "recall",
        "recall_at_5",
    ),
    "embedding": ("mrr", "pearson", "recall_at_1", "recall_at_5", "spearman"),
}


def metrics_of(task: Any) -> tuple[str, ...]:
    """The metrics that `quality` may name for this task."""
    multi = isinstance(task, TextClassification) and task.multi_label
    return METRICS[f"{task.type}/multi_label" if multi else task.type]
