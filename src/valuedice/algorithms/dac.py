"""DAC: discriminator-actor-critic, adversarial imitation from a replay buffer (Kostrikov et al., arXiv:1809.02925).

GAIL's discriminator h (Equation 5 of arXiv:1912.05032) is trained on expert rows and replay rows. Its logit

    log h - log (1 - h)  →  log dE / dRB

is the reward of an off-policy learner, soft actor-critic. The denominator is the replay buffer's distribution, not
the policy's. If the two differ, the optimal policy need not be the expert's (docs/ring.md shows an example).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms import sac
from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import check
from valuedice.losses import absorbing_row, discriminator_loss
from valuedice.networks import Params, PolicyNet, adam_init, adam_step, critic, critic_init, state_actions
from valuedice.types import Batch, Data, Metrics, Pace, Sampling, Spec, Transition


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    discriminator: Params
    discriminator_opt: optax.OptState
    learner: sac.State
    key: Array

    @property
    def actor(self) -> PolicyNet:
        """The policy."""
        return self.learner.actor


@dataclass(frozen=True)
class DAC:
    """Discriminator-actor-critic (arXiv:1809.02925): SAC with a discriminator's logit as its reward."""

    warm_start: int = 10_000
    """Updates of behavioural cloning before anything else."""
    discriminator_lr: float = 1e-3
    """Step size of the discriminator."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalty on the discriminator."""
    one_sided: bool = False
    """Penalise only gradients with a norm above 1, instead of pulling all norms to 1."""
    discriminator_hidden: tuple[int, ...] = (256, 256)
    """Widths of the discriminator's hidden layers."""
    expert_share: float = 0.25
    """Fraction of expert transitions in SAC's batches; the rest is replay data."""
    sac: sac.SAC = sac.IMITATOR
    """Settings of SAC, which learns the policy."""

    remedies = "a smaller `discriminator_lr`, a larger `gradient_penalty`, or a smaller `critic_lr`"

    def __post_init__(self) -> None:
        check(self, "positive and finite", "discriminator_lr")
        check(self, "finite and not negative", "gradient_penalty", "warm_start")
        check(self, "at least 0 and below 1", "expert_share")
        check(self, "one or more positive widths", "discriminator_hidden")

    @classmethod
    def paper(cls) -> DAC:
        """The settings in the appendix of the ValueDICE paper."""
        return cls(warm_start=0, discriminator_lr=1e-3, expert_share=0.0, sac=sac.PAPER)

    @property
    def pace(self) -> Pace:
        """The pace of SAC, from a warm start if there is one."""
        return replace(self.sac.pace, warm_start=self.warm_start)

    @property
    def data(self) -> Data:
        """Expert and replay rows. The absorbing state counts as one row per terminated episode in both, because the
        discriminator compares the two."""
        return Data(self.sac.batch_size, Sampling(self.sac.discount, absorbing="single"), replay="required")

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers."""
        key, key_discriminator, key_learner = jax.random.split(key, 3)
        discriminator = critic_init(key_discriminator, spec, self.discriminator_hidden)
        return State(discriminator, adam_init(discriminator), self.sac.init(key_learner, spec), key)

    def with_policy(self, state: State, actor: PolicyNet) -> State:
        """The state with this policy in place of its own."""
        return replace(state, learner=self.sac.with_policy(state.learner, actor))

    def reward(self, discriminator: Params, rows: Transition) -> Array:
        """log h - log (1 - h), also in the absorbing state. It can have either sign: -log (1 - h), always positive,
        would reward long episodes, and log h, always negative, short ones."""
        return jax.vmap(partial(critic, discriminator))(state_actions(rows.obs, rows.action))

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One step of the discriminator, then one step of SAC with the new logits as rewards."""
        key, key_mix = jax.random.split(state.key)
        gradient, metrics = jax.grad(discriminator_loss, has_aux=True)(
            state.discriminator,
            state_actions(batch.expert.obs, batch.expert.action),
            state_actions(batch.replay.obs, batch.replay.action),
            key_mix,
            self.gradient_penalty,
            free=state.learner.spec.obs_size,  # the absorbing mark, see `blind_to`
            one_sided=self.one_sided,
        )
        discriminator, opt = adam_step(
            self.discriminator_lr, state.discriminator, gradient, state.discriminator_opt
        )
        learned = sac.with_expert_rows(batch, self.expert_share)
        reward = self.reward(discriminator, learned)
        learner, learning = self.sac.step(state.learner, learned, reward, absorbing=True)
        state = replace(state, discriminator=discriminator, discriminator_opt=opt, learner=learner, key=key)
        return state, metrics | learning | {"reward": jnp.mean(reward)}

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """`kl_estimate` is the discriminator's estimate of KL(dRB ‖ dE). It is about the replay buffer, which keeps
        the random first steps, not about the policy."""
        absorbing = critic(state.discriminator, absorbing_row(state.learner.spec))
        metrics = {"absorbing_reward": absorbing} | self.sac.diagnose(state.learner, batch).metrics
        return Diagnosis(metrics, -jnp.mean(self.reward(state.discriminator, batch.replay)))
