"""GAIL: imitation by reinforcement learning against a discriminator (Ho, Ermon; arXiv:1606.03476).

    min_π max_D  E_dE log D + E_dπ log(1 - D)

For a fixed π the best D has the logit log dE/dπ. That logit, log D - log(1-D), is the reward, so that the return
of π is -KL(dπ ‖ dE): it may be positive or negative, and neither a long nor a short episode pays by itself. The
policy learns by PPO, which needs fresh rollouts of its own: no algorithm here takes more environment steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.ppo import PPO, values
from valuedice.algorithms.ppo import State as PPOState
from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check_hidden, check_not_negative, check_positive
from valuedice.losses import absorbing_row, discriminator_loss, weighted_mean
from valuedice.networks import Params, adam_init, adam_step, critic, mlp_init, policy_entropy, state_actions
from valuedice.types import Batch, Data, Metrics, Pace, Rollout, Sampling, Spec

LEARNER = PPO()


def policy_rows(rollout: Rollout, discount: float) -> tuple[Array, Array]:
    """The rows [s, a] of dπ, and their weights: each row of the rollout counts 1, and is followed by a self-loop of
    the absorbing state that counts γ/(1-γ) where the task ended and nothing where it went on."""
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

    ppo: PPOState
    discriminator: Params
    discriminator_opt: optax.OptState
    key: Array
    spec: Spec = field(metadata={"static": True})

    @property
    def actor(self) -> Params:
        """The policy."""
        return self.ppo.actor


@dataclass(frozen=True)
class GAIL:
    """Generative adversarial imitation learning (arXiv:1606.03476), on policy, by PPO.

    The absorbing state weighs the same on both sides: γ/(1-γ) ordinary rows for each episode that ended in the
    task, the expert's or the policy's, which is what the flow of the discounted occupancy needs.
    """

    discriminator_lr: float = 1e-3
    """Step size of the discriminator."""
    discriminator_steps: int = 8
    """Steps of the discriminator in one update."""
    discriminator_batch: int = 512
    """Rows of the expert, and as many of the rollout, in one such step."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalty on the discriminator's logit."""
    discriminator_hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of the discriminator."""
    ppo: PPO = LEARNER
    """How the policy learns."""

    remedies = (
        "a smaller step of the policy (`actor_lr`) or of the discriminator (`discriminator_lr`), or a larger "
        "`gradient_penalty`"
    )

    def __post_init__(self) -> None:
        check_positive(self, "discriminator_lr", "discriminator_steps", "discriminator_batch")
        check_not_negative(self, "gradient_penalty")
        check_hidden(self.discriminator_hidden)

    @property
    def pace(self) -> Pace:
        """One update for each rollout; samples of the policy are exploration enough."""
        shape = (self.ppo.rollout // self.ppo.environments, self.ppo.environments)
        return Pace(1, self.ppo.rollout, 0, self.ppo.rollout, noise=None, rollout=shape)

    @property
    def data(self) -> Data:
        """Expert rows for all steps of the discriminator: uniform, with the absorbing state's exact weight."""
        return Data(self.discriminator_steps * self.discriminator_batch, Sampling(self.ppo.discount))

    def init(self, key: Array, spec: Spec) -> State:
        """Fresh networks and optimisers."""
        key, key_ppo, key_discriminator = jax.random.split(key, 3)
        sizes = (spec.obs_size + 1 + spec.action_size, *self.discriminator_hidden, 1)
        discriminator = mlp_init(key_discriminator, sizes)
        return State(self.ppo.init(key_ppo, spec), discriminator, adam_init(discriminator), key, spec)

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One rollout: steps of the discriminator, then PPO on the rewards that it gives."""
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
        """Teaches the discriminator to tell the expert's rows from those of the rollout."""
        shape = (self.discriminator_steps, self.discriminator_batch)
        expert = state_actions(batch.expert.obs, batch.expert.action).reshape(*shape, -1)
        rows, weights = policy_rows(batch.rollout, self.ppo.discount)
        chosen = jax.random.choice(key_rows, len(rows), shape, p=weights)
        # But for its mark, the absorbing state is all zeros, where the middle of the demonstrations lies too. A
        # slope of 1 along the mark would let the two differ by no more than 1, and it would be better to die than
        # to be unlike the expert in any other way.
        mark = state.spec.obs_size

        def body(
            networks: tuple[Params, optax.OptState], now: tuple[Array, Array, Array]
        ) -> tuple[tuple[Params, optax.OptState], Metrics]:
            (params, moments), (theirs, numbers, key) = networks, now
            gradient, metrics = jax.grad(discriminator_loss, has_aux=True)(
                params, theirs, rows[numbers], key, self.gradient_penalty, mark
            )
            return adam_step(self.discriminator_lr, params, gradient, moments), metrics

        keys = jax.random.split(key_mix, self.discriminator_steps)
        start = (state.discriminator, state.discriminator_opt)
        (params, moments), metrics = jax.lax.scan(body, start, (expert, chosen, keys))
        return params, moments, jax.tree.map(jnp.mean, metrics)

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """What a user without rewards can watch, on the newest rows of the policy and all rows of the expert.

        `kl_estimate` is minus the mean reward, KL(dπ ‖ dE) as far as the discriminator knows it. Values are
        (1-γ) V: the mean reward that the policy believes to come.
        """
        key_entropy = jax.random.fold_in(state.key, MEASURING)
        logit = jax.vmap(partial(critic, state.discriminator))
        rows, weights = policy_rows(batch.rollout, self.ppo.discount)
        expert = logit(state_actions(batch.expert.obs, batch.expert.action))
        value = jax.vmap(partial(values, state.ppo.value))(batch.rollout.obs)
        metrics: Metrics = {
            "expert_logit": weighted_mean(expert, batch.expert.weight),
            "absorbing_reward": critic(state.discriminator, absorbing_row(state.spec)),
            "value_mean": jnp.mean(value),
            "value_std": jnp.std(value),
            "entropy": policy_entropy(state.actor, state.spec, batch.expert.obs, key_entropy),
        }
        return Diagnosis(metrics, -jnp.sum(weights * logit(rows)))
