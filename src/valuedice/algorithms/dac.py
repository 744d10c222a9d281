"""DAC: discriminator-actor-critic, adversarial imitation from a replay buffer (Kostrikov et al., arXiv:1809.02925).

GAIL's discriminator h tells the expert's rows from others (Equation 5 of arXiv:1912.05032), here from all that the
replay buffer holds, and its logit

    log h - log (1 - h)  →  log dE / dRB

is the reward of an off-policy learner, soft actor-critic. What it matches is the expert against the *replay
buffer*; the optimum is the expert only as far as the buffer is the policy's own (docs/ring.md shows where it goes
otherwise).
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
from valuedice.algorithms.settings import check_hidden, check_not_negative, check_positive, check_share
from valuedice.losses import absorbing_row, discriminator_loss
from valuedice.networks import Params, adam_init, adam_step, critic, mlp_init, state_actions
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
    def actor(self) -> Params:
        """The policy."""
        return self.learner.actor


@dataclass(frozen=True)
class DAC:
    """Discriminator-actor-critic (arXiv:1809.02925): a discriminator on replay data gives SAC its rewards."""

    discriminator_lr: float = 1e-3
    """Step size of the discriminator."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalty on the discriminator."""
    one_sided: bool = False
    """Whether the logit may be flatter than slope 1, as the log ratio is where buffer and expert are alike."""
    discriminator_hidden: tuple[int, ...] = (256, 256)
    """Widths of the discriminator's hidden layers."""
    expert_share: float = 0.25
    """Share of the expert's transitions in the rows that SAC learns from; the rest is replay data."""
    sac: sac.SAC = sac.IMITATOR
    """The reinforcement learner."""

    remedies = (
        "a smaller step of the discriminator (`discriminator_lr`), a larger `gradient_penalty`, or a smaller "
        "step of the critics (`critic_lr`)"
    )

    def __post_init__(self) -> None:
        check_positive(self, "discriminator_lr")
        check_not_negative(self, "gradient_penalty")
        check_share(self, "expert_share")
        check_hidden(self.discriminator_hidden)

    @classmethod
    def paper(cls) -> DAC:
        """The settings of ValueDICE's appendix."""
        return cls(discriminator_lr=1e-3, expert_share=0.0, sac=sac.PAPER)

    @property
    def pace(self) -> Pace:
        """The reinforcement learner's."""
        return self.sac.pace

    @property
    def data(self) -> Data:
        """Expert and replay rows. On both sides the absorbing state counts once for each episode that ends in it,
        because the discriminator compares the two."""
        return Data(self.sac.batch_size, Sampling(self.sac.discount, absorbing="single"), replay="required")

    def init(self, key: Array, spec: Spec) -> State:
        """Fresh networks and optimisers."""
        key, key_discriminator, key_learner = jax.random.split(key, 3)
        discriminator = mlp_init(
            key_discriminator, (spec.obs_size + 1 + spec.action_size, *self.discriminator_hidden, 1)
        )
        return State(discriminator, adam_init(discriminator), self.sac.init(key_learner, spec), key)

    def reward(self, discriminator: Params, rows: Transition) -> Array:
        """log h - log (1 - h), which may have either sign: -log (1 - h) would pay for staying alive, log h for
        dying. Learned for the absorbing state as for any other."""
        return jax.vmap(partial(critic, discriminator))(state_actions(rows.obs, rows.action))

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """A step of the discriminator, then one of SAC with its logits as rewards."""
        key, key_mix = jax.random.split(state.key)
        gradient, metrics = jax.grad(discriminator_loss, has_aux=True)(
            state.discriminator,
            state_actions(batch.expert.obs, batch.expert.action),
            state_actions(batch.replay.obs, batch.replay.action),
            key_mix,
            self.gradient_penalty,
            # The absorbing row lies in the middle of the normalised ones: a bounded slope along its mark would
            # bound how much worse than they it can be, and dying would pay.
            state.learner.spec.obs_size,
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
        """`kl_estimate` is the discriminator's estimate of KL(dRB ‖ dE): of the replay buffer, which keeps its
        random first steps, not of the policy."""
        absorbing = critic(state.discriminator, absorbing_row(state.learner.spec))
        metrics = {"absorbing_reward": absorbing} | self.sac.diagnose(state.learner, batch).metrics
        return Diagnosis(metrics, -jnp.mean(self.reward(state.discriminator, batch.replay)))
