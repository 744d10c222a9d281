"""GAIL: imitation by reinforcement learning against a discriminator (Ho, Ermon; arXiv:1606.03476).

    min_π max_D  E_dE log D + E_dπ log(1 - D)

For a fixed π, the optimal D has the logit log dE/dπ (Equations 5 and 6 of arXiv:1912.05032). The reward is this
logit, log D - log(1-D), and its mean under dπ is -KL(dπ ‖ dE). It can have either sign, so it favours neither long
nor short episodes. PPO learns the policy, from a new rollout for each update. Of the algorithms here, GAIL needs
the most environment steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.ppo import PPO, Networks
from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check
from valuedice.losses import absorbing_row, discriminator_loss, weighted_mean
from valuedice.networks import (
    Params,
    PolicyNet,
    adam_init,
    adam_step,
    critic,
    critic_init,
    policy_entropy,
    state_actions,
)
from valuedice.types import Batch, Data, Metrics, Pace, Rollout, Sampling, Spec

LEARNER = PPO(actor_lr=3e-4, least_std=0.0, epochs=5, hidden=(128, 128), units="relu", bounds="tanh")
"""Rewards of a discriminator change all the time, so each rollout is used less."""


def policy_rows(rollout: Rollout, discount: float) -> tuple[Array, Array]:
    """Rows [s, a] of dπ, and their probabilities. Each step of the rollout has weight 1; for each there is also a
    self-loop of the absorbing state, of weight γ/(1-γ) if the episode terminated there, otherwise 0."""
    rows = state_actions(rollout.obs, rollout.action)
    rows = rows.reshape(-1, rows.shape[-1])
    terminated = rollout.next_obs[..., -1].ravel()
    spec = Spec(rollout.obs.shape[-1] - 1, rollout.action.shape[-1])
    loops = jnp.broadcast_to(absorbing_row(spec), rows.shape)
    weights = jnp.concatenate([jnp.ones_like(terminated), terminated * discount / (1 - discount)])
    return jnp.concatenate([rows, loops]), weights / jnp.sum(weights)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    ppo: Networks
    discriminator: Params
    discriminator_opt: optax.OptState
    key: Array
    spec: Spec = field(metadata={"static": True})

    @property
    def actor(self) -> PolicyNet:
        """The policy."""
        return self.ppo.actor


@dataclass(frozen=True)
class GAIL:
    """Generative adversarial imitation learning (arXiv:1606.03476), on-policy, with PPO.

    For each terminated episode, of the expert or the policy, the absorbing state counts as γ/(1-γ) rows: its exact
    weight in the discounted occupancy.
    """

    warm_start: int = 0
    """Updates of behavioural cloning before anything else."""
    discriminator_lr: float = 1e-3
    """Step size of the discriminator."""
    discriminator_steps: int = 8
    """Discriminator steps in one update."""
    discriminator_batch: int = 512
    """Expert rows in one discriminator step, and as many rows of the rollout."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalty on the discriminator."""
    discriminator_hidden: tuple[int, ...] = (128, 128)
    """Widths of the discriminator's hidden layers."""
    ppo: PPO = LEARNER
    """Settings of PPO, which learns the policy."""

    remedies = "a smaller `actor_lr` or `discriminator_lr`, or a larger `gradient_penalty`"

    def __post_init__(self) -> None:
        check(self, "positive and finite", "discriminator_lr", "discriminator_steps", "discriminator_batch")
        check(self, "finite and not negative", "gradient_penalty", "warm_start")
        check(self, "one or more positive widths", "discriminator_hidden")

    @classmethod
    def paper(cls) -> GAIL:
        """The settings of the GAIL authors' code for MuJoCo, with which the ValueDICE paper ran GAIL, as far as PPO
        has them: widths, discount, λ, change of the policy, steps per update, and one discriminator step of 0.01 on
        as many rows, without a gradient penalty. PPO's own settings (clip, step sizes, epochs, minibatch) are ours,
        and so is what is no setting: ReLU units, the reward, absorbing states."""
        # For small tasks they take 5,000 steps per update; both are multiples of 8 and 250.
        ppo = replace(LEARNER, discount=0.995, trace=0.97, policy_change=0.01, entropy_bonus=0.0, hidden=(100, 100))
        ppo = replace(ppo, rollout=50_000, environments=8, minibatch=250)
        return cls(
            warm_start=0,
            discriminator_lr=0.01,
            discriminator_steps=1,
            discriminator_batch=50_000,
            gradient_penalty=0.0,
            discriminator_hidden=(100, 100),
            ppo=ppo,
        )

    @property
    def pace(self) -> Pace:
        """One update per rollout. Actions are sampled from the policy, without further noise."""
        return replace(self.ppo.pace, warm_start=self.warm_start)

    @property
    def data(self) -> Data:
        """Expert rows for all discriminator steps: uniform, with the exact weight of the absorbing state."""
        return Data(self.discriminator_steps * self.discriminator_batch, Sampling(self.ppo.discount))

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers."""
        key, key_ppo, key_discriminator = jax.random.split(key, 3)
        discriminator = critic_init(key_discriminator, spec, self.discriminator_hidden)
        return State(self.ppo.begin(key_ppo, spec), discriminator, adam_init(discriminator), key, spec)

    def with_policy(self, state: State, actor: PolicyNet) -> State:
        """The state with this policy in place of its own."""
        return replace(state, ppo=replace(state.ppo, actor=self.ppo.held(actor, state.spec)))

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """Trains the discriminator on one rollout, then PPO with the new logits as rewards."""
        key, key_rows, key_mix = jax.random.split(state.key, 3)
        discriminator, moments, metrics = self.discriminate(state, batch, key_rows, key_mix)
        logit = partial(critic, discriminator)
        reward = jax.vmap(jax.vmap(logit))(state_actions(batch.rollout.obs, batch.rollout.action))
        learned, more = self.ppo.step(state.ppo, batch.rollout, reward, logit(absorbing_row(state.spec)))
        metrics |= more | {"reward": jnp.mean(reward)}
        networks = {"ppo": learned, "discriminator": discriminator, "discriminator_opt": moments}
        return replace(state, **networks, key=key), metrics

    def discriminate(
        self, state: State, batch: Batch, key_rows: Array, key_mix: Array
    ) -> tuple[Params, optax.OptState, Metrics]:
        """Trains the discriminator to distinguish expert rows from rows of the rollout."""
        shape = (self.discriminator_steps, self.discriminator_batch)
        expert = state_actions(batch.expert.obs, batch.expert.action).reshape(*shape, -1)
        rows, weights = policy_rows(batch.rollout, self.ppo.discount)
        chosen = jax.random.choice(key_rows, len(rows), shape, p=weights)
        mark = state.spec.obs_size  # not penalised, see `blind_to`

        def body(
            networks: tuple[Params, optax.OptState], now: tuple[Array, Array, Array]
        ) -> tuple[tuple[Params, optax.OptState], Metrics]:
            (params, moments), (theirs, numbers, key) = networks, now
            gradient, metrics = jax.grad(discriminator_loss, has_aux=True)(
                params, theirs, rows[numbers], key, self.gradient_penalty, free=mark
            )
            return adam_step(self.discriminator_lr, params, gradient, moments), metrics

        keys = jax.random.split(key_mix, self.discriminator_steps)
        start = (state.discriminator, state.discriminator_opt)
        (params, moments), metrics = jax.lax.scan(body, start, (expert, chosen, keys))
        return params, moments, jax.tree.map(jnp.mean, metrics)

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """Measures on the newest rollout and all expert rows. `kl_estimate` is minus the mean reward, the
        discriminator's estimate of KL(dπ ‖ dE). Values are (1-γ) V, on the scale of one reward."""
        key_entropy = jax.random.fold_in(state.key, MEASURING)
        logit = jax.vmap(partial(critic, state.discriminator))
        rows, weights = policy_rows(batch.rollout, self.ppo.discount)
        expert = logit(state_actions(batch.expert.obs, batch.expert.action))
        value = self.ppo.evaluate(state.ppo.value, batch.rollout.obs)
        metrics: Metrics = {
            "expert_logit": weighted_mean(expert, batch.expert.weight),
            "absorbing_reward": critic(state.discriminator, absorbing_row(state.spec)),
            "value_mean": jnp.mean(value),
            "value_std": jnp.std(value),
            "entropy": policy_entropy(state.actor, state.spec, batch.expert.obs, key_entropy),
        }
        return Diagnosis(metrics, -jnp.sum(weights * logit(rows)))
