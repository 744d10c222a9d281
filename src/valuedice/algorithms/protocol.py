"""The contract between an algorithm and the loop that trains it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from jax import Array

from valuedice.algorithms.observed import Observed
from valuedice.networks import PolicyNet
from valuedice.types import Batch, Data, Metrics, Pace, Spec


class State(Protocol):
    """Everything that an update changes: a frozen dataclass registered with `jax.tree_util.register_dataclass`.

    Its arrays must not share memory, because a compiled update reuses the memory of the old state.
    """

    @property
    def actor(self) -> PolicyNet:
        """The policy network, as `networks.actor_init` creates it."""
        ...


class Diagnosis(NamedTuple):
    """An algorithm's own measures of progress, without rewards."""

    metrics: Metrics
    """Additional columns of `metrics.csv`, by name."""
    kl_estimate: Array | None = None
    """Estimated divergence of the policy from the expert; None if the algorithm has no estimate."""
    effective_sample_size: Array | None = None
    """Effective fraction of the rows under the learned weights. A run is stopped if it stays close to 0."""
    converged: Array | None = None
    """Whether training has converged, which ends the run; None if the algorithm cannot tell."""


S = TypeVar("S", bound=State)


@runtime_checkable
class Algorithm(Protocol[S]):
    """What `valuedice.train` requires of an algorithm. It can train any object that implements this protocol.

    An algorithm is a frozen dataclass. Its fields are its settings: numbers, strings, tuples of these, or nested
    dataclasses of the same kind. `config.json` stores them. The algorithm must be hashable, because its methods are
    compiled once for each combination of settings. The methods are pure functions of JAX arrays: no I/O, no global
    state. The random key is part of the state.

        @jax.tree_util.register_dataclass
        @dataclass(frozen=True)
        class State:
            actor: PolicyNet
            key: Array
            spec: Spec = field(metadata={"static": True})

        @dataclass(frozen=True)
        class Mine:
            lr: float = 1e-3
            remedies = "a smaller `lr`"
            pace = None
            @property
            def data(self): return Data(batch_size=256)
            def init(self, key, spec): ...
            def update(self, state, batch): ...
            def diagnose(self, state, batch): return Diagnosis({})

    The loop saves and restores the state, so every algorithm can be stopped and resumed exactly.
    """

    @property
    def data(self) -> Data:
        """What the algorithm learns from, and how rows are drawn."""
        ...

    @property
    def pace(self) -> Pace | None:
        """When the algorithm acts in an environment and when it learns. None if it never acts: then it learns from
        the demonstrations alone, and an environment is used for evaluation only."""
        ...

    @property
    def remedies(self) -> str:
        """Advice for when training diverges, with settings in backticks."""
        ...

    def init(self, key: Array, spec: Spec) -> S:
        """The initial state for a task of this shape."""
        ...

    def update(self, state: S, batch: Batch) -> tuple[S, Metrics]:
        """One update on one batch, inside a compiled loop. Metrics are scalars; their means are logged, and a
        non-finite value stops the run."""
        ...

    def diagnose(self, state: S, batch: Batch) -> Diagnosis:
        """Measures progress at an evaluation, on all expert rows (with weights) and a sample of the replay data."""
        ...


@runtime_checkable
class TakesPolicy(Protocol[S]):
    """What an algorithm must offer besides, to begin with a warm start (`Pace.warm_start`) or a policy file."""

    def with_policy(self, state: S, actor: PolicyNet) -> S:
        """The initial state with this policy in place of its own."""
        ...


@runtime_checkable
class Normalizes(Protocol):
    """What a state must offer besides, if the algorithm normalises observations itself, by what it has seen."""

    @property
    def observed(self) -> Observed:
        """The observations so far. The policy normalises by them."""
        ...


@runtime_checkable
class SuitsDemos(Protocol):
    """What an algorithm may offer besides, to choose settings that are left to the demonstrations."""

    def suited(self, *, clipped: bool) -> Any:
        """The same algorithm with these settings filled in; `clipped` says whether actions were clipped."""
        ...


AnyAlgorithm = Algorithm[Any]
"""An algorithm with any type of state."""
