"""Soft actor-critic: off-policy reinforcement learning with an entropy bonus (Haarnoja et al., arXiv:1812.05905).

    max_π  E Σ γᵗ [ r(s, a) + α H(π(·|s)) ]

Two critics Q learn the soft value of π by Bellman backups. π maximises the smaller of the two. α adapts so that π
keeps a target entropy. Rewards come from the environment (`update`) or from another algorithm (`step`). The
equation numbers are those of the SAC paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import check
from valuedice.errors import InputError
from valuedice.losses import orthogonal_penalty
from valuedice.networks import (
    Params,
    PolicyNet,
    actor_init,
    adam_init,
    adam_step,
    critic_init,
    follow,
    gaussian_policy,
    mlp,
    state_actions,
)
from valuedice.types import Batch, Data, Metrics, Pace, Sampling, Spec, Transition

CRITICS = 2


def soft_value(q: Array, entropy: Array, alpha: Array) -> Array:
    """V(s) = E [Q(s, a) - α log π(a|s)] (Equation 3), with the smaller Q; critics are the first axis."""
    return jnp.min(q, axis=0) + alpha * entropy


def critic_loss(q: Array, target: Array) -> Array:
    """J_Q = E ½ (Q(s, a) - (r + γ V(s′)))², summed over the critics (Equation 5)."""
    return 0.5 * jnp.sum(jnp.mean((q - target) ** 2, axis=1))


def actor_loss(q: Array, entropy: Array, alpha: Array, alive: Array) -> Array:
    """J_π = E [α log π(a|s) - Q(s, a)] with reparameterised a (Equation 9), without absorbing states."""
    return -mean_where(soft_value(q, entropy, alpha), alive)


def temperature_loss(log_alpha: Array, entropy: Array, target_entropy: float, alive: Array) -> Array:
    """J(α) = E [-α log π(a|s) - α H̄] (Equation 18): α increases while the entropy is below H̄."""
    return jnp.exp(log_alpha) * (mean_where(entropy, alive) - target_entropy)


def mean_where(x: Array, alive: Array) -> Array:
    """Mean over the rows with `alive` = 1: all except absorbing states."""
    return jnp.sum(alive * x) / jnp.maximum(jnp.sum(alive), 1.0)


def act(actor: PolicyNet, obs: Array, noise: Array) -> tuple[Array, Array]:
    """A sample of π(·|s), and an estimate of the entropy from it. In the absorbing state the action is fixed, and
    the entropy is 0, otherwise dying would pay. No gradient reaches π there."""
    policy, alive = gaussian_policy(actor, obs), 1 - obs[-1]
    return alive * policy.sample(noise), alive * policy.entropy(noise)


def q_values(critics: list[Params], obs: Array, action: Array) -> Array:
    """Q(s, a) of each critic (the first axis) and row. Standardised features limit the error of a critic at actions
    that it has not seen, which allows larger steps."""
    rows = state_actions(obs, action)
    q = partial(mlp, standardize=True)
    return jnp.stack([jax.vmap(partial(q, params))(rows)[:, 0] for params in critics])


def with_expert_rows(batch: Batch, share: float) -> Transition:
    """The replay rows of a batch, with a fraction of them replaced by expert rows."""
    count = round(share * batch.replay.size)
    return jax.tree.map(
        lambda expert, replay: jnp.concatenate([expert[:count], replay[count:]]), batch.expert, batch.replay
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    actor: PolicyNet
    critics: list[Params]
    targets: list[Params]
    log_alpha: Array
    actor_opt: optax.OptState
    critics_opt: optax.OptState
    alpha_opt: optax.OptState
    key: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic (arXiv:1812.05905): reinforcement learning for continuous actions."""

    discount: float = 0.99
    """Discount factor γ."""
    critic_lr: float = 1e-3
    """Step size of the critics."""
    actor_lr: float = 1e-3
    """Step size of the policy."""
    alpha_lr: float = 1e-3
    """Step size of log α, where α is the entropy temperature; 0 keeps α fixed."""
    initial_alpha: float = 0.1
    """Initial temperature α: the weight of the entropy in the reward."""
    target_rate: float = 0.005
    """Fraction by which the target networks move towards the critics in one update."""
    target_entropy: float = -1.0
    """Target entropy of the policy per action dimension (actions span [-1, 1])."""
    orthogonal_penalty: float = 0.0
    """Weight of the orthogonal penalty on the policy."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of all networks."""
    batch_size: int = 128
    """Rows in one update."""
    updates_per_step: int = 1
    """Updates each time it learns."""
    update_every: int = 2
    """Learn once every this many environment steps."""
    random_steps: int = 5_000
    """Environment steps with uniformly random actions at the start."""
    training_starts: int = 5_000
    """Environment steps before the first update."""

    remedies = "a smaller `critic_lr` or `actor_lr`"

    def __post_init__(self) -> None:
        check(self, "at least 0 and below 1", "discount")
        check(self, "above 0 and at most 1", "target_rate")
        check(self, "positive and finite", "critic_lr", "actor_lr", "initial_alpha")
        check(self, "positive and finite", "batch_size", "updates_per_step", "update_every")
        check(self, "finite and not negative", "alpha_lr", "orthogonal_penalty", "random_steps", "training_starts")
        check(self, "finite", "target_entropy")
        check(self, "one or more positive widths", "hidden")

    @property
    def pace(self) -> Pace:
        """Actions are sampled from the policy, without further noise."""
        return Pace(self.updates_per_step, self.update_every, self.random_steps, self.training_starts, noise=None)

    @property
    def data(self) -> Data:
        """Replay rows with rewards of the environment, and no demonstrations."""
        return Data(self.batch_size, Sampling(self.discount), demos=False, replay="required")

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers."""
        if spec.discrete:
            raise InputError(
                "SAC, also inside dac and dual-dice, needs continuous actions, but this task has discrete ones; "
                "choose another task, imitate with value-dice, bc or gail, or learn from rewards with ppo"
            )
        key, key_actor, *keys = jax.random.split(key, 2 + CRITICS)
        actor = actor_init(key_actor, spec, self.hidden)
        critics = [critic_init(each, spec, self.hidden) for each in keys]
        log_alpha = jnp.log(self.initial_alpha)
        return State(
            actor=actor,
            critics=critics,
            # Copies, because the arrays of a state must not share memory.
            targets=jax.tree.map(jnp.copy, critics),
            log_alpha=log_alpha,
            actor_opt=adam_init(actor),
            critics_opt=adam_init(critics),
            alpha_opt=adam_init(log_alpha),
            key=key,
            spec=spec,
        )

    def with_policy(self, state: State, actor: PolicyNet) -> State:
        """The state with this policy in place of its own."""
        return replace(state, actor=actor)

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One step with the environment's rewards. After termination there are none, so the value is 0."""
        return self.step(state, batch.replay, batch.replay.reward)

    def step(
        self, state: State, rows: Transition, reward: Array, *, absorbing: bool = False
    ) -> tuple[State, Metrics]:
        """One step of the critics, then the policy, then the temperature, with a reward for each row. `absorbing`
        learns the value of the absorbing state from its self-loops; otherwise this value is 0."""
        key, key_next, key_now = jax.random.split(state.key, 3)
        shape = (len(rows.obs), state.spec.action_size)
        alpha = jnp.exp(state.log_alpha)

        next_action, next_entropy = jax.vmap(partial(act, state.actor))(
            rows.next_obs, jax.random.normal(key_next, shape)
        )
        next_value = soft_value(q_values(state.targets, rows.next_obs, next_action), next_entropy, alpha)
        if not absorbing:
            next_value = (1 - rows.next_obs[:, -1]) * next_value
        target = reward + self.discount * next_value

        def evaluation(critics: list[Params]) -> tuple[Array, Array]:
            q = q_values(critics, rows.obs, rows.action)
            return critic_loss(q, target), jnp.mean(q)

        (loss, q_mean), gradient = jax.value_and_grad(evaluation, has_aux=True)(state.critics)
        critics, critics_opt = adam_step(self.critic_lr, state.critics, gradient, state.critics_opt)

        noise, alive = jax.random.normal(key_now, shape), 1 - rows.obs[:, -1]

        def improvement(actor: PolicyNet) -> tuple[Array, Array]:
            action, entropy = jax.vmap(partial(act, actor))(rows.obs, noise)
            loss = actor_loss(q_values(critics, rows.obs, action), entropy, alpha, alive)
            # Computed only if used: it costs as much as a batch of rows.
            if self.orthogonal_penalty:
                loss += self.orthogonal_penalty * orthogonal_penalty(actor.layers)
            return loss, entropy

        gradient, entropy = jax.grad(improvement, has_aux=True)(state.actor)
        actor, actor_opt = adam_step(self.actor_lr, state.actor, gradient, state.actor_opt)

        goal = self.target_entropy * state.spec.action_size
        slope = jax.grad(temperature_loss)(state.log_alpha, entropy, goal, alive)
        log_alpha, alpha_opt = adam_step(self.alpha_lr, state.log_alpha, slope, state.alpha_opt)

        networks = {"actor": actor, "critics": critics, "targets": follow(state.targets, critics, self.target_rate)}
        moments = {"actor_opt": actor_opt, "critics_opt": critics_opt, "alpha_opt": alpha_opt}
        metrics = {"critic_loss": loss, "q_mean": q_mean, "alpha": alpha, "entropy": mean_where(entropy, alive)}
        return replace(state, **networks, **moments, log_alpha=log_alpha, key=key), metrics

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """The spread of the smaller Q over replay rows."""
        q = jnp.min(q_values(state.critics, batch.replay.obs, batch.replay.action), axis=0)
        return Diagnosis({"q_std": jnp.std(q), "q_min": jnp.min(q), "q_max": jnp.max(q)})


IMITATOR = SAC(
    critic_lr=1e-3, actor_lr=3e-4, batch_size=256, update_every=1, random_steps=1_000, training_starts=1_000
)
"""Defaults inside DAC and DualDICE, where the rewards are learned and environment steps are few."""

PAPER = SAC(
    critic_lr=1e-3,
    actor_lr=1e-5,
    orthogonal_penalty=1e-4,
    batch_size=256,
    updates_per_step=4,
    update_every=1,
    random_steps=2_000,
    training_starts=1_000,
)
"""Settings of the ValueDICE paper's appendix, except that the critics standardise their features (`q_values`)."""
