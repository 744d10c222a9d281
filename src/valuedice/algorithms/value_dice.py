"""ValueDICE: imitation by off-policy distribution matching (Kostrikov, Nachum, Tompson; arXiv:1912.05032).

The KL divergence between the occupancies of policy and expert, in the form of Donsker and Varadhan,

    -KL(dπ ‖ dE) = min_x  log E_dE e^x - E_dπ x,

needs samples of dπ. With x = ν - Bπν (Equation 9, `bellman_residual`) the second term telescopes to the
initial states, and what is left needs the expert's data only (Equation 12, `dice_objective`):

    max_π min_ν  J(π, ν) = log E_dE e^(ν - Bπν) - (1-γ) E_{s0, a0~π} ν(s0, a0).

Replay data is mixed into both terms (Section 5.2), which leaves π = πE optimal for every α < 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.scipy.special import logsumexp

from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check_hidden, check_not_negative, check_positive, check_share
from valuedice.errors import InputError
from valuedice.losses import gradient_penalty, interpolate, orthogonal_penalty, weighted_mean
from valuedice.networks import (
    Params,
    actor_init,
    adam_init,
    adam_step,
    critic,
    critic_init,
    expected_value,
    policy_entropy,
    state_actions,
)
from valuedice.types import Batch, Data, InitialStates, Metrics, Pace, Sampling, Spec, Transition

PARTITION_DECAY = 0.99


def bellman_residual(nu: Array, nu_next: Array, discount: float) -> Array:
    """x = ν(s,a) - γ ν(s′,a′): the change of variables of Equation 9, by the one s′ that was seen."""
    return nu - discount * nu_next


def dice_objective(
    x_expert: Array,
    nu_initial: Array,
    x_replay: Array | None,
    *,
    discount: float,
    alpha: float,
    expert_weight: Array | None = None,
    initial_weight: Array | None = None,
    replay_weight: Array | None = None,
) -> tuple[Array, Array]:
    """J of Equation 12, or its mixture with replay data (Section 5.2), and its log-term alone:

        log E_{(1-α) dE + α dRB} e^x  -  (1-α)(1-γ) E ν(s0, a0)  -  α E_dRB x.

    Weights are probabilities of the rows; without them rows count alike. Minus the minimum over ν is
    KL((1-α) dπ + α dRB ‖ (1-α) dE + α dRB), for α = 0 or without replay data KL(dπ ‖ dE).
    """
    log_expert = _log_tilted(x_expert, expert_weight)
    linear = (1 - discount) * weighted_mean(nu_initial, initial_weight)
    if x_replay is None or alpha == 0:
        log_term = logsumexp(log_expert)
        return log_term - linear, log_term
    log_replay = _log_tilted(x_replay, replay_weight)
    log_term = logsumexp(jnp.concatenate([jnp.log1p(-alpha) + log_expert, jnp.log(alpha) + log_replay]))
    return log_term - (1 - alpha) * linear - alpha * weighted_mean(x_replay, replay_weight), log_term


def _log_tilted(x: Array, weight: Array | None) -> Array:
    """log(weight · e^x); a row of zero weight is dropped, however large its x."""
    if weight is None:
        return x - jnp.log(x.size)
    return jnp.where(weight > 0, jnp.log(weight) + x, -jnp.inf)


class Terms(NamedTuple):
    """What the objective is made of."""

    x_expert: Array
    nu_initial: Array
    x_replay: Array | None
    rows: list[Array]
    """The rows [s, a], then [s′, a′], of each source of transitions: where ν is kept smooth."""


class Apply(Protocol):
    """A way to apply a function of one row to rows."""

    def __call__(self, function: Callable[..., Any], *rows: Array | None) -> Any: ...


def apply_rows(function: Callable[..., Any], *rows: Array | None) -> Any:
    """To all rows at once."""
    return jax.vmap(function)(*rows)


def apply_chunks(function: Callable[..., Any], *rows: Array | None) -> Any:
    """Some thousands at a time, for whole data sets."""
    return jax.lax.map(lambda row: function(*row), rows, batch_size=4096)


def split_like(parts: list[Array], joined: Array) -> list[Array]:
    """Undoes `concatenate(parts)`, which made one large matrix product of several."""
    return jnp.split(joined, list(accumulate(map(len, parts)))[:-1])


def residual_terms(
    nu: Params, actor: Params, spec: Spec, batch: Batch, key: Array, discount: float, apply: Apply = apply_rows
) -> Terms:
    """x = ν(s,a) - γ ν(s′,a′) on expert and replay rows, ν(s0,a0) on initial states; a0, a′ ~ π."""
    sources = [batch.expert, batch.replay] if batch.replay.size else [batch.expert]
    now = [state_actions(rows.obs, rows.action) for rows in sources]
    acting = [batch.initial.obs, *[rows.next_obs for rows in sources]]
    noise = None
    if not spec.discrete:
        noise = jax.random.normal(key, (sum(map(len, acting)), spec.action_size))

    nu_now = split_like(now, apply(partial(critic, nu), jnp.concatenate(now)))
    expectation = apply(partial(expected_value, partial(critic, nu), actor), jnp.concatenate(acting), noise)
    nu_initial, *nu_next = split_like(acting, expectation[0])
    _, *next_action = split_like(acting, expectation[1])

    x = [bellman_residual(*values, discount) for values in zip(nu_now, nu_next, strict=True)]
    after = [state_actions(*parts) for parts in zip(acting[1:], next_action, strict=True)]
    rows = [jnp.concatenate(parts) for parts in zip(now, after, strict=True)]
    return Terms(x[0], nu_initial, x[1] if batch.replay.size else None, rows)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    actor: Params
    nu: Params
    actor_opt: optax.OptState
    nu_opt: optax.OptState
    log_partition: Array
    """Running mean, from zero, of log E_mix e^x over minibatches: the constant that `log_ratio` takes off."""
    updates: Array
    key: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class ValueDICE:
    """Imitation by off-policy distribution matching (arXiv:1912.05032). Defaults are the paper's."""

    discount: float = 0.99
    """γ."""
    replay_regularization: float = 0.1
    """α: the share of replay data in both terms of the objective."""
    nu_lr: float = 1e-3
    """Step size of the critic ν."""
    actor_lr: float = 1e-5
    """Step size of the policy."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalty on ν."""
    orthogonal_penalty: float = 1e-4
    """Weight of the orthogonal penalty on the policy."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of both networks."""
    batch_size: int = 256
    """Rows of each kind (expert, replay, initial) in one update."""
    initial_states: Literal["all", "starts"] = "all"
    """Every expert state as an initial state (Section 5.3), or only the true starts of episodes."""
    sampling: Literal["uniform", "geometric"] = "uniform"
    """How transitions are drawn: uniformly, or at an offset ~ Geometric(1-γ) behind an initial state."""
    absorbing: Literal["exact", "single"] = "exact"
    """Weight of an expert episode's absorbing state: what the flow equation needs, or one ordinary row."""
    updates_per_step: int = 4
    """Updates for each environment step."""
    random_steps: int = 2_000
    """First environment steps, taken with uniformly random actions."""
    training_starts: int = 1_000
    """Environment steps before the first update."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on the mean action while collecting (actions span [-1, 1])."""

    remedies = (
        "a smaller step of the critic (`nu_lr`), a larger `gradient_penalty`, or a smaller step of the policy "
        "(`actor_lr`)"
    )

    def __post_init__(self) -> None:
        if not 0 < self.discount < 1:
            raise InputError(f"discount is {self.discount}; it must lie between 0 and 1, both excluded")
        check_share(self, "replay_regularization")
        check_positive(self, "nu_lr", "actor_lr", "batch_size", "updates_per_step")
        check_not_negative(self, "gradient_penalty", "orthogonal_penalty", "exploration_noise")
        check_not_negative(self, "random_steps", "training_starts")
        check_hidden(self.hidden)

    @property
    def uses_replay(self) -> bool:
        """With α = 0 replay data enters neither the objective nor the penalty."""
        return self.replay_regularization > 0

    @property
    def pace(self) -> Pace:
        """When it acts and learns, in an environment."""
        return Pace(self.updates_per_step, 1, self.random_steps, self.training_starts, self.exploration_noise)

    @property
    def data(self) -> Data:
        """Expert rows and initial states; replay data if there is any."""
        sampling = Sampling(self.discount, self.initial_states, self.sampling, self.absorbing)
        return Data(self.batch_size, sampling, replay="optional" if self.uses_replay else "unused")

    def init(self, key: Array, spec: Spec) -> State:
        """Fresh networks and optimisers."""
        key, key_actor, key_nu = jax.random.split(key, 3)
        actor = actor_init(key_actor, spec.obs_size, spec.action_size, self.hidden, spec.discrete)
        nu = critic_init(key_nu, spec.obs_size, spec.action_size, self.hidden)
        return State(
            actor=actor,
            nu=nu,
            actor_opt=adam_init(actor),
            nu_opt=adam_init(nu),
            log_partition=jnp.zeros(()),
            updates=jnp.zeros((), jnp.int32),
            key=key,
            spec=spec,
        )

    def objective(self, terms: Terms, batch: Batch) -> tuple[Array, Array]:
        """J and its log-term."""
        return dice_objective(
            terms.x_expert,
            terms.nu_initial,
            terms.x_replay,
            discount=self.discount,
            alpha=self.replay_regularization,
            expert_weight=batch.expert.weight,
            initial_weight=batch.initial.weight,
        )

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """A step of max over π, min over ν (Equation 13), both gradients at the old parameters."""
        key, key_action, key_mix = jax.random.split(state.key, 3)
        if not self.uses_replay:
            batch = batch.without_replay()

        def saddle(nu: Params, actor: Params) -> tuple[Array, Metrics]:
            """ν descends on this function, π ascends. Each penalty depends on one of the two only."""
            terms = residual_terms(nu, actor, state.spec, batch, key_action, self.discount)
            objective, log_term = self.objective(terms, batch)
            between = jax.lax.stop_gradient(interpolate(terms.rows, key_mix))
            smooth = gradient_penalty(partial(critic, nu), between)
            orthogonal = orthogonal_penalty(actor)
            total = objective + self.gradient_penalty * smooth - self.orthogonal_penalty * orthogonal
            metrics = {"objective": objective, "log_term": log_term, "nu_penalty": smooth}
            return total, metrics | {"actor_penalty": orthogonal}

        (nu_gradient, actor_gradient), metrics = jax.grad(saddle, (0, 1), has_aux=True)(state.nu, state.actor)
        nu, nu_opt = adam_step(self.nu_lr, state.nu, nu_gradient, state.nu_opt)
        actor, actor_opt = adam_step(-self.actor_lr, state.actor, actor_gradient, state.actor_opt)
        constant = PARTITION_DECAY * state.log_partition + (1 - PARTITION_DECAY) * metrics["log_term"]
        networks = {"actor": actor, "nu": nu, "actor_opt": actor_opt, "nu_opt": nu_opt}
        return replace(state, **networks, log_partition=constant, updates=state.updates + 1, key=key), metrics

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """What a user without rewards can watch: J on `batch` (all the expert's rows), without penalties.

        `kl_estimate` is the KL of the two mixtures (Equation 19) as far as ν knows it: comparable only
        between runs of equal settings. `effective_sample_size` is the share of the rows that carries the
        weights e^x: 1 where all are alike.
        """
        key_action, key_entropy = jax.random.split(jax.random.fold_in(state.key, MEASURING))
        if not self.uses_replay:
            batch = batch.without_replay()
        terms = residual_terms(state.nu, state.actor, state.spec, batch, key_action, self.discount, apply_chunks)
        objective, log_term = self.objective(terms, batch)
        # The share is (E e^x)² / E e^2x, both under the mixture.
        double = None if terms.x_replay is None else 2 * terms.x_replay
        _, log_square = self.objective(terms._replace(x_expert=2 * terms.x_expert, x_replay=double), batch)
        obs = batch.expert.obs
        nu = apply_chunks(partial(critic, state.nu), state_actions(obs, batch.expert.action))
        metrics: Metrics = {
            "dv_value": objective,
            "nu_mean": jnp.mean(nu),
            "nu_std": jnp.std(nu),
            "nu_min": jnp.min(nu),
            "nu_max": jnp.max(nu),
            "entropy": policy_entropy(state.actor, state.spec, obs, key_entropy),
        }
        return Diagnosis(metrics, -objective, jnp.exp(2 * log_term - log_square))

    def log_ratio(self, state: State, transition: Transition, samples: int = 16) -> Array:
        """log [((1-α) dπ + α dRB) / ((1-α) dE + α dRB)] of each row, as far as ν knows it (Equation 20).

        Minus this is the reward that ValueDICE implicitly maximises. The expectation over a′ is exact for
        discrete actions, else a mean over `samples`. The constant is a running mean over minibatches, so the
        ratio is right up to a small one.
        """
        batch = Batch.of(state.spec, expert=transition, initial=InitialStates(transition.obs[:1]))

        def residual(key: Array) -> Array:
            terms = residual_terms(state.nu, state.actor, state.spec, batch, key, self.discount, apply_chunks)
            return terms.x_expert

        keys = jax.random.split(jax.random.fold_in(state.key, MEASURING), 1 if state.spec.discrete else samples)
        # A running mean that began at zero is too small by what it has not yet seen.
        seen = 1 - PARTITION_DECAY ** jnp.maximum(state.updates, 1)
        return jnp.mean(jax.lax.map(residual, keys), axis=0) - state.log_partition / seen
