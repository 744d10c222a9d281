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
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.dice import Terms, dice_objective, initial_term, residual_terms, telescoped_term
from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check, check_choices, policy_form
from valuedice.losses import gradient_penalty, interpolate, orthogonal_penalty
from valuedice.networks import (
    Params,
    PolicyNet,
    actor_init,
    adam_init,
    adam_step,
    critic,
    critic_init,
    follow,
    log_likelihood,
    map_rows,
    policy_entropy,
    squared_error,
    state_actions,
)
from valuedice.types import Batch, Data, InitialStates, Metrics, Pace, Sampling, Spec, Transition

PARTITION_DECAY = 0.99
"""Decay of the running mean of log E e^x over minibatches."""


def anchor_loss(actor: PolicyNet, spec: Spec, rows: Transition) -> Array:
    """How far π is from the expert's actions, as cloning sees it; the absorbing state has none."""
    if spec.discrete:
        each = -log_likelihood(actor, spec, rows.obs, rows.action)
    else:
        each = squared_error(actor, rows.obs, rows.action)
    alive = 1 - rows.obs[:, -1]
    return jnp.sum(alive * each) / jnp.maximum(jnp.sum(alive), 1.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    actor: PolicyNet
    nu: Params
    nu_target: Params
    """A slow copy of ν, used at s′ if there is a `target_rate`."""
    actor_opt: optax.OptState
    nu_opt: optax.OptState
    log_partition: Array
    """Running mean of log E e^x over minibatches, started at zero: the constant that `log_ratio` subtracts."""
    updates: Array
    key: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class ValueDICE:
    """Imitation by off-policy distribution matching (arXiv:1912.05032). The paper's own settings are `paper()`."""

    discount: float = 0.99
    """Discount factor γ."""
    replay_regularization: float = 0.5
    """Fraction α of replay data in both terms of the objective."""
    linear_term: Literal["telescoped", "initial"] = "telescoped"
    """Write the second term as E[ν(s,π) - γ ν(s′,π)] over expert and replay rows, or over initial states."""
    policy_gradient: Literal["visited", "objective"] = "visited"
    """Let π lower E ν(s, π(s)) over expert and replay states alike, or follow the gradient of the objective."""
    target_rate: float = 0.005
    """Fraction by which a copy of ν, used at s′, follows ν in one update; 0 uses ν itself."""
    anchor: float = 5.0
    """Weight of the squared error of the policy's mean action on expert rows (discrete actions: -log π)."""
    warm_start: int = 10_000
    """Updates of behavioural cloning before anything else."""
    nu_lr: float = 3e-4
    """Step size of the critic ν."""
    actor_lr: float = 1e-4
    """Step size of the policy."""
    gradient_penalty: float = 1.0
    """Weight of the gradient penalty on ν."""
    one_sided: bool = True
    """Penalise only gradients with a norm above 1, instead of pulling all norms to 1."""
    standardize: bool = True
    """Standardise the features inside ν."""
    orthogonal_penalty: float = 0.0
    """Weight of the orthogonal penalty on the policy."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of ν."""
    policy_hidden: tuple[int, ...] = ()
    """Widths of the policy's hidden layers. By default 100 100 if the expert's actions were clipped, or 256 256."""
    units: Literal["auto", "tanh", "relu"] = "auto"
    """What the policy's hidden units do. By default tanh if the expert's actions were clipped, otherwise relu."""
    bounds: Literal["auto", "clip", "tanh"] = "auto"
    """What bounds the policy's continuous actions. By default clip if the expert's were clipped, otherwise tanh."""
    batch_size: int = 128
    """Rows of each kind (expert, replay, initial state) in one update."""
    initial_states: Literal["all", "starts"] = "all"
    """Use every expert state as an initial state (Section 5.3), or only the starts of episodes."""
    sampling: Literal["uniform", "geometric"] = "uniform"
    """Draw transitions uniformly, or Geometric(1-γ) steps after an initial state."""
    absorbing: Literal["exact", "single"] = "exact"
    """Weight of an expert episode's absorbing state: its exact discounted occupancy, or that of one row."""
    updates_per_step: int = 1
    """Updates after each environment step."""
    random_steps: int = 0
    """Environment steps with uniformly random actions at the start."""
    training_starts: int = 1_000
    """Environment steps before the first update."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on the mean action while collecting data (actions span [-1, 1])."""

    remedies = "a smaller `nu_lr`, a larger `gradient_penalty`, or a smaller `actor_lr`"

    def __post_init__(self) -> None:
        check(self, "above 0 and below 1", "discount")
        check(self, "at least 0 and below 1", "replay_regularization")
        check(self, "at least 0 and at most 1", "target_rate")
        check(self, "positive and finite", "nu_lr", "actor_lr", "batch_size", "updates_per_step")
        check(self, "finite and not negative", "gradient_penalty", "orthogonal_penalty", "exploration_noise")
        check(self, "finite and not negative", "anchor", "warm_start", "random_steps", "training_starts")
        check(self, "one or more positive widths", "hidden")
        check(self, "positive widths", "policy_hidden")
        check_choices(self)

    @classmethod
    def paper(cls) -> ValueDICE:
        """The paper's settings; where it is silent, those of the authors' code. The exact weight of the absorbing
        state is ours."""
        return cls(
            discount=0.99,
            replay_regularization=0.1,
            linear_term="initial",
            policy_gradient="objective",
            target_rate=0.0,
            anchor=0.0,
            warm_start=0,
            nu_lr=1e-3,
            actor_lr=1e-5,
            gradient_penalty=10.0,
            one_sided=False,
            standardize=False,
            orthogonal_penalty=1e-4,
            hidden=(256, 256),
            policy_hidden=(256, 256),
            units="relu",
            bounds="tanh",
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
        """Some updates after each environment step."""
        return Pace(
            updates_per_step=self.updates_per_step,
            update_every=1,
            random_steps=self.random_steps,
            training_starts=self.training_starts,
            noise=self.exploration_noise,
            warm_start=self.warm_start,
        )

    @property
    def data(self) -> Data:
        """Expert rows and initial states, and replay data if there is any."""
        sampling = Sampling(self.discount, self.initial_states, self.sampling, self.absorbing)
        return Data(self.batch_size, sampling, replay="optional" if self.uses_replay else "unused")

    def suited(self, *, clipped: bool) -> ValueDICE:
        """The algorithm with the policy network that suits demonstrations whose actions were clipped, or not."""
        form, hidden = policy_form(self.units, self.bounds, self.policy_hidden, clipped=clipped)
        return replace(self, units=form.units, bounds=form.bounds, policy_hidden=hidden)

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers."""
        key, key_actor, key_nu = jax.random.split(key, 3)
        form, hidden = policy_form(self.units, self.bounds, self.policy_hidden)
        actor = actor_init(key_actor, spec, hidden, form)
        # Adding a constant to ν does not change J, so ν needs no output bias.
        nu = critic_init(key_nu, spec, self.hidden, output_bias=False)
        return State(
            actor=actor,
            nu=nu,
            # A copy, because the arrays of a state must not share memory.
            nu_target=jax.tree.map(jnp.copy, nu),
            actor_opt=adam_init(actor),
            nu_opt=adam_init(nu),
            log_partition=jnp.zeros(()),
            updates=jnp.zeros((), jnp.int32),
            key=key,
            spec=spec,
        )

    def with_policy(self, state: State, actor: PolicyNet) -> State:
        """The state with this policy in place of its own."""
        return replace(state, actor=actor)

    def terms(
        self,
        nu: Params,
        actor: PolicyNet,
        spec: Spec,
        batch: Batch,
        key: Array,
        *,
        target: Params | None = None,
        chunked: bool = False,
    ) -> Terms:
        """The values in the objective, in the form of these settings."""
        return residual_terms(
            nu,
            actor,
            spec,
            batch,
            key,
            self.discount,
            target=target,
            telescoped=self.linear_term == "telescoped",
            only_here=self.policy_gradient == "visited",
            standardize=self.standardize,
            chunked=chunked,
        )

    def objective(self, terms: Terms, batch: Batch) -> tuple[Array, Array]:
        """J of a batch, and its first term. The telescoped term is the mean over the sources of transitions."""
        if self.linear_term == "initial":
            linear = initial_term(terms.nu_start[0], self.discount, batch.initial.weight)
        else:
            weights = (batch.expert.weight, batch.replay.weight)
            sources = zip(terms.nu_start, terms.nu_next, weights, strict=False)
            each = [telescoped_term(here, after, self.discount, weight) for here, after, weight in sources]
            linear = jnp.mean(jnp.stack(each))
        return dice_objective(
            terms.x[0],
            linear,
            terms.x_replay,
            alpha=self.replay_regularization,
            expert_weight=batch.expert.weight,
        )

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One gradient step for max over π, min over ν (Equation 13); both gradients use the old parameters."""
        key, key_action, key_mix = jax.random.split(state.key, 3)
        if not self.uses_replay:
            batch = batch.without_replay()
        target = state.nu_target if self.target_rate else None

        def saddle(nu: Params, actor: PolicyNet) -> tuple[Array, Metrics]:
            """ν descends on this function, π ascends. Each penalty depends on only one of the two."""
            terms = self.terms(nu, actor, state.spec, batch, key_action, target=target)
            objective, log_term = self.objective(terms, batch)
            between = jax.lax.stop_gradient(interpolate(terms.rows, key_mix))
            slopes = partial(critic, nu, standardize=self.standardize)
            smooth = gradient_penalty(slopes, between, one_sided=self.one_sided)
            total = objective + self.gradient_penalty * smooth
            metrics = {"objective": objective, "log_term": log_term, "nu_penalty": smooth}
            # Computed only if used: each costs as much as a batch of rows.
            if self.orthogonal_penalty:
                metrics["actor_penalty"] = orthogonal_penalty(actor.layers)
                total -= self.orthogonal_penalty * metrics["actor_penalty"]
            if self.anchor:
                metrics["anchor_loss"] = anchor_loss(actor, state.spec, batch.expert)
                total -= self.anchor * metrics["anchor_loss"]
            return total, metrics

        (nu_gradient, actor_gradient), metrics = jax.grad(saddle, (0, 1), has_aux=True)(state.nu, state.actor)
        nu, nu_opt = adam_step(self.nu_lr, state.nu, nu_gradient, state.nu_opt)
        actor, actor_opt = adam_step(-self.actor_lr, state.actor, actor_gradient, state.actor_opt)
        log_partition = PARTITION_DECAY * state.log_partition + (1 - PARTITION_DECAY) * metrics["log_term"]
        networks = {"actor": actor, "nu": nu, "actor_opt": actor_opt, "nu_opt": nu_opt}
        if target is not None:
            networks["nu_target"] = follow(target, nu, self.target_rate)
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
        terms = self.terms(state.nu, state.actor, state.spec, batch, key_action, chunked=True)
        objective, log_term = self.objective(terms, batch)
        # The effective sample size is (E e^x)² / E e^2x under the mixture.
        _, log_square = self.objective(jax.tree.map(lambda part: 2 * part, terms), batch)
        obs = batch.expert.obs
        value = partial(critic, state.nu, standardize=self.standardize)
        nu = map_rows(value, state_actions(obs, batch.expert.action), chunked=True)
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
            return self.terms(state.nu, state.actor, state.spec, batch, key, chunked=True).x[0]

        keys = jax.random.split(jax.random.fold_in(state.key, MEASURING), 1 if state.spec.discrete else samples)
        # Corrects the bias of a running mean that started at zero.
        seen = 1 - PARTITION_DECAY ** jnp.maximum(state.updates, 1)
        return jnp.mean(jax.lax.map(residual, keys), axis=0) - state.log_partition / seen
