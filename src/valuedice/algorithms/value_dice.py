"""ValueDICE: imitation learning by off-policy distribution matching (Kostrikov, Nachum, Tompson; arXiv:1912.05032).

The Donsker-Varadhan form of the KL divergence between the occupancies of policy and expert (Equation 7),

    -KL(dπ ‖ dE) = min_x  log E_dE e^x - E_dπ x,

needs samples of dπ. With the change of variables x = ν - Bπν (Equation 9, `bellman_residual`) the second term
telescopes to the initial states. The result needs expert data only (Equations 12 and 13, `dice_objective`):

    max_π min_ν  J(π, ν) = log E_dE e^(ν - Bπν) - (1-γ) E_{s0, a0~π} ν(s0, a0).

Replay data can be mixed into both terms (Equation 18). The optimal policy is still πE for every α < 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.scipy.special import logsumexp

from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check, check_choices
from valuedice.losses import gradient_penalty, interpolate, orthogonal_penalty, weighted_mean
from valuedice.networks import (
    Params,
    actor_init,
    adam_init,
    adam_step,
    critic,
    critic_init,
    expected_value,
    map_rows,
    policy_entropy,
    state_actions,
)
from valuedice.types import Batch, Data, InitialStates, Metrics, Pace, Sampling, Spec, Transition

PARTITION_DECAY = 0.99
"""Decay of the running mean of log E e^x over minibatches."""


def bellman_residual(nu: Array, nu_next: Array, discount: float) -> Array:
    """x = ν(s,a) - γ ν(s′,a′): Equation 9, with the one observed s′ in place of the expectation (Section 5.1)."""
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
    """J with replay data (Equation 18), and its first term alone:

        log E_{(1-α) dE + α dRB} e^x  -  (1-α)(1-γ) E ν(s0, a0)  -  α E_dRB x.

    Without replay data, or with α = 0, this is Equation 12. Weights are the probabilities of the rows; None means
    equal. Minus the minimum over ν is KL((1-α) dπ + α dRB ‖ (1-α) dE + α dRB) (Equation 19).
    """
    log_expert = log_weighted_exp(x_expert, expert_weight)
    linear = (1 - discount) * weighted_mean(nu_initial, initial_weight)
    if x_replay is None or alpha == 0:
        log_term = logsumexp(log_expert)
        return log_term - linear, log_term
    log_replay = log_weighted_exp(x_replay, replay_weight)
    log_term = logsumexp(jnp.concatenate([jnp.log1p(-alpha) + log_expert, jnp.log(alpha) + log_replay]))
    return log_term - (1 - alpha) * linear - alpha * weighted_mean(x_replay, replay_weight), log_term


def log_weighted_exp(x: Array, weight: Array | None) -> Array:
    """log(weight · e^x) of each row. Rows of zero weight are dropped, however large x is."""
    if weight is None:
        return x - jnp.log(x.size)
    return jnp.where(weight > 0, jnp.log(weight) + x, -jnp.inf)


class Terms(NamedTuple):
    """The values in the objective, and the points for the gradient penalty."""

    x_expert: Array
    nu_initial: Array
    x_replay: Array | None
    rows: list[Array]
    """For each source of transitions, its rows [s, a] followed by its rows [s′, a′]."""


def residual_terms(
    nu: Params, actor: Params, spec: Spec, batch: Batch, key: Array, discount: float, chunked: bool = False
) -> Terms:
    """x = ν(s,a) - γ ν(s′,a′) on expert and replay rows, and ν(s0,a0) on initial states, with a0, a′ ~ π."""
    sources = [batch.expert, batch.replay] if batch.replay.size else [batch.expert]
    now = [state_actions(rows.obs, rows.action) for rows in sources]
    acting = [batch.initial.obs, *[rows.next_obs for rows in sources]]
    noise = None if spec.discrete else jax.random.normal(key, (sum(map(len, acting)), spec.action_size))

    # Joined rows make one large matrix product, which is faster than several small ones.
    value = partial(critic, nu)
    nu_now = split_like(now, map_rows(value, jnp.concatenate(now), chunked=chunked))
    expected = partial(expected_value, value, actor)
    nu_acting, actions = map_rows(expected, jnp.concatenate(acting), noise, chunked=chunked)
    nu_initial, *nu_next = split_like(acting, nu_acting)
    _, *next_action = split_like(acting, actions)

    x = [bellman_residual(*pair, discount) for pair in zip(nu_now, nu_next, strict=True)]
    after = [state_actions(*pair) for pair in zip(acting[1:], next_action, strict=True)]
    rows = [jnp.concatenate(pair) for pair in zip(now, after, strict=True)]
    return Terms(x[0], nu_initial, x[1] if batch.replay.size else None, rows)


def split_like(parts: list[Array], joined: Array) -> list[Array]:
    """Splits an array into pieces as long as `parts`; undoes `concatenate(parts)`."""
    return jnp.split(joined, list(accumulate(map(len, parts)))[:-1])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    actor: Params
    nu: Params
    actor_opt: optax.OptState
    nu_opt: optax.OptState
    log_partition: Array
    """Running mean of log E e^x over minibatches, started at zero: the constant that `log_ratio` subtracts."""
    updates: Array
    key: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class ValueDICE:
    """Imitation by off-policy distribution matching (arXiv:1912.05032). The defaults are the paper's."""

    discount: float = 0.99
    """Discount factor γ."""
    replay_regularization: float = 0.1
    """Fraction α of replay data in both terms of the objective."""
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
    """Rows of each kind (expert, replay, initial state) in one update."""
    initial_states: Literal["all", "starts"] = "all"
    """Use every expert state as an initial state (Section 5.3), or only the starts of episodes."""
    sampling: Literal["uniform", "geometric"] = "uniform"
    """Draw transitions uniformly, or Geometric(1-γ) steps after an initial state."""
    absorbing: Literal["exact", "single"] = "exact"
    """Weight of an expert episode's absorbing state: its exact discounted occupancy, or that of one row."""
    updates_per_step: int = 4
    """Updates after each environment step."""
    random_steps: int = 2_000
    """Environment steps with uniformly random actions at the start."""
    training_starts: int = 1_000
    """Environment steps before the first update."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on the mean action while collecting data (actions span [-1, 1])."""

    remedies = "a smaller `nu_lr`, a larger `gradient_penalty`, or a smaller `actor_lr`"

    def __post_init__(self) -> None:
        check(self, "above 0 and below 1", "discount")
        check(self, "at least 0 and below 1", "replay_regularization")
        check(self, "positive and finite", "nu_lr", "actor_lr", "batch_size", "updates_per_step")
        check(self, "finite and not negative", "gradient_penalty", "orthogonal_penalty", "exploration_noise")
        check(self, "finite and not negative", "random_steps", "training_starts")
        check(self, "one or more positive widths", "hidden")
        check_choices(self)

    @classmethod
    def paper(cls) -> ValueDICE:
        """The paper's settings; where it is silent, those of the authors' code. The exact weight of the absorbing
        state is ours."""
        return cls(
            discount=0.99,
            replay_regularization=0.1,
            nu_lr=1e-3,
            actor_lr=1e-5,
            gradient_penalty=10.0,
            orthogonal_penalty=1e-4,
            hidden=(256, 256),
            batch_size=256,
            initial_states="all",
            sampling="uniform",
            absorbing="exact",
            updates_per_step=4,
            random_steps=2_000,
            training_starts=1_000,
            exploration_noise=0.1,
        )

    @property
    def uses_replay(self) -> bool:
        """With α = 0, replay data is used neither in the objective nor in the penalty."""
        return self.replay_regularization > 0

    @property
    def pace(self) -> Pace:
        """Some updates after each environment step, after a start with random actions."""
        return Pace(self.updates_per_step, 1, self.random_steps, self.training_starts, self.exploration_noise)

    @property
    def data(self) -> Data:
        """Expert rows and initial states, and replay data if there is any."""
        sampling = Sampling(self.discount, self.initial_states, self.sampling, self.absorbing)
        return Data(self.batch_size, sampling, replay="optional" if self.uses_replay else "unused")

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers."""
        key, key_actor, key_nu = jax.random.split(key, 3)
        actor = actor_init(key_actor, spec.obs_size, spec.action_size, self.hidden, spec.discrete)
        # Adding a constant to ν does not change J, so ν needs no output bias.
        nu = critic_init(key_nu, spec, self.hidden, output_bias=False)
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
        """J of a batch, and its first term."""
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
        """One gradient step for max over π, min over ν (Equation 13); both gradients use the old parameters."""
        key, key_action, key_mix = jax.random.split(state.key, 3)
        if not self.uses_replay:
            batch = batch.without_replay()

        def saddle(nu: Params, actor: Params) -> tuple[Array, Metrics]:
            """ν descends on this function, π ascends. Each penalty depends on only one of the two."""
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
        log_partition = PARTITION_DECAY * state.log_partition + (1 - PARTITION_DECAY) * metrics["log_term"]
        networks = {"actor": actor, "nu": nu, "actor_opt": actor_opt, "nu_opt": nu_opt}
        state = replace(state, **networks, log_partition=log_partition, updates=state.updates + 1, key=key)
        return state, metrics

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """J on all expert rows, without penalties.

        `kl_estimate` is -J, an estimate of the KL between the two mixtures (Equation 19); compare it only between
        runs with the same settings. `effective_sample_size` is a fraction: 1 if all rows have the same weight e^x.
        """
        key_action, key_entropy = jax.random.split(jax.random.fold_in(state.key, MEASURING))
        if not self.uses_replay:
            batch = batch.without_replay()
        terms = residual_terms(state.nu, state.actor, state.spec, batch, key_action, self.discount, chunked=True)
        objective, log_term = self.objective(terms, batch)
        # The effective sample size is (E e^x)² / E e^2x under the mixture.
        _, log_square = self.objective(jax.tree.map(lambda part: 2 * part, terms), batch)
        obs = batch.expert.obs
        nu = map_rows(partial(critic, state.nu), state_actions(obs, batch.expert.action), chunked=True)
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
        """Estimates log [((1-α) dπ + α dRB) / ((1-α) dE + α dRB)] for each row (Equation 20).

        Minus this is the reward that ValueDICE implicitly maximises. The expectation over a′ is exact for discrete
        actions, otherwise a mean over `samples`. The normalising constant is a running mean over minibatches, so
        the ratio is correct up to a small constant.
        """
        batch = Batch.of(state.spec, expert=transition, initial=InitialStates(transition.obs[:1]))

        def residual(key: Array) -> Array:
            terms = residual_terms(state.nu, state.actor, state.spec, batch, key, self.discount, chunked=True)
            return terms.x_expert

        keys = jax.random.split(jax.random.fold_in(state.key, MEASURING), 1 if state.spec.discrete else samples)
        # Corrects the bias of a running mean that started at zero.
        seen = 1 - PARTITION_DECAY ** jnp.maximum(state.updates, 1)
        return jnp.mean(jax.lax.map(residual, keys), axis=0) - state.log_partition / seen
