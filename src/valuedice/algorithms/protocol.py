"""The contract between an algorithm and the loop that trains it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from jax import Array

from valuedice.networks import Params
from valuedice.types import Batch, Data, Metrics, Pace, Spec


class State(Protocol):
    """Everything that an update changes: a frozen dataclass registered with `jax.tree_util.register_dataclass`.

    No two of its arrays may share memory, because a compiled update reuses the memory of the old state.
    """

    @property
    def actor(self) -> Params:
        """The policy's layers, as `networks.actor_init` makes them."""
        ...


class Diagnosis(NamedTuple):
    """What an algorithm knows about its own progress, without rewards. The loop reads the named fields."""

    metrics: Metrics
    """Further columns of `metrics.csv`, by name."""
    kl_estimate: Array | None = None
    """How far policy and expert are apart; None if the algorithm does not know."""
    effective_sample_size: Array | None = None
    """Share of the rows that carries the weights; a run is stopped if it stays close to 0."""
    converged: Array | None = None
    """Whether nothing is left to learn; then the run ends. None if the algorithm does not know."""


S = TypeVar("S", bound=State)


@runtime_checkable
class Algorithm(Protocol[S]):
    """What `valuedice.train` asks of an algorithm. Any object that keeps this contract can be trained.

    An algorithm is a frozen dataclass. Its fields are its settings: numbers, strings, tuples of these, or further
    such dataclasses. They are stored in `config.json`, and the algorithm must be hashable, because its methods are
    compiled once for each setting. The methods are pure functions of JAX arrays: no I/O, no global state. The
    random key is part of the state.

        @jax.tree_util.register_dataclass
        @dataclass(frozen=True)
        class State:
            actor: Params
            key: Array
            spec: Spec = field(metadata={"static": True})

        @dataclass(frozen=True)
        class Mine:
            lr: float = 1e-3
            remedies = "a smaller step (`lr`)"
            pace = None
            @property
            def data(self): return Data(batch_size=256)
            def init(self, key, spec): ...
            def update(self, state, batch): ...
            def diagnose(self, state, batch): return Diagnosis({})

    The loop saves and restores the state by itself, so every algorithm stops and resumes exactly.
    """

    @property
    def data(self) -> Data:
        """What it learns from, and how rows are drawn."""
        ...

    @property
    def pace(self) -> Pace | None:
        """When it acts in an environment and when it learns. None if it never acts: it then learns offline from
        the demonstrations alone, and an environment only evaluates it."""
        ...

    @property
    def remedies(self) -> str:
        """What usually helps if training diverges; settings stand in backticks."""
        ...

    def init(self, key: Array, spec: Spec) -> S:
        """The first state, for a task of this shape."""
        ...

    def update(self, state: S, batch: Batch) -> tuple[S, Metrics]:
        """One update on one batch: the body of a `lax.scan`. Metrics are scalars; their means are logged, and a
        value that is not finite stops the run."""
        ...

    def diagnose(self, state: S, batch: Batch) -> Diagnosis:
        """Measures at an evaluation, on all of the expert's rows (with weights) and a sample of the replay data."""
        ...


AnyAlgorithm = Algorithm[Any]
"""An algorithm whose state only it knows."""
