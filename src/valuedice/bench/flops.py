"""The matrix products that an update needs, counted by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from valuedice.algorithms import BC, DAC, GAIL, PPO, SAC, DualDICE, ValueDICE
from valuedice.algorithms.sac import CRITICS
from valuedice.types import Spec


class Product(NamedTuple):
    """(rows × inner) @ (inner × columns)."""

    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Floating-point operations: a multiplication and an addition for each term."""
        return 2 * self.rows * self.inner * self.columns


def forward(rows: int, sizes: list[int]) -> list[Product]:
    """A forward pass: one product per layer."""
    return [Product(rows, fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]


def weight_gradients(rows: int, sizes: list[int]) -> list[Product]:
    """Inputsᵀ @ output gradients: one product per layer."""
    return [Product(fan_in, rows, fan_out) for fan_in, fan_out in pairwise(sizes)]


def input_gradients(rows: int, sizes: list[int]) -> list[Product]:
    """Output gradients @ kernelᵀ for every layer but the first: the gradient of the data is not needed."""
    return [Product(rows, fan_out, fan_in) for fan_in, fan_out in list(pairwise(sizes))[1:]]


def slope_penalty(rows: int, sizes: list[int]) -> list[Product]:
    """The gradient penalty and its own gradient. ReLU masks are constants, so it needs a forward pass without the
    last layer (for the masks), the gradient with respect to the input, and a backward pass through that gradient,
    with two products for each of its products."""
    inner = sizes[:-1]
    slopes = [Product(rows, fan_out, fan_in) for fan_in, fan_out in pairwise(inner)]
    return forward(rows, inner) + slopes + forward(rows, inner) + weight_gradients(rows, inner)


def orthogonality(sizes: list[int]) -> list[Product]:
    """The orthogonal penalty: WᵀW and the gradient 4 W (WᵀW ⊙ (1 - I)) for each kernel."""
    grams = [Product(fan_out, fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
    return grams + [Product(fan_in, fan_out, fan_out) for fan_in, fan_out in pairwise(sizes)]


def learning(rows: int, sizes: list[int]) -> list[Product]:
    """A forward pass, and a backward pass to the weights."""
    return forward(rows, sizes) + weight_gradients(rows, sizes) + input_gradients(rows, sizes)


def value_dice_products(settings: ValueDICE, spec: Spec) -> list[Product]:
    """The products of one ValueDICE update with continuous actions and replay data.

    With B rows per batch, ν sees 5 B rows (expert, replay, initial, and the next rows of the first two), forward
    and backward. The policy acts on 3 B of them. The gradient penalty uses 2 B rows.
    """
    batch = settings.batch_size
    nu = [spec.obs_size + 1 + spec.action_size, *settings.hidden, 1]
    actor = [spec.obs_size, *settings.suited(clipped=False).policy_hidden, 2 * spec.action_size]
    objective = learning(5 * batch, nu)
    # Of the input, only the actions need a gradient: it leads to the policy.
    objective.append(Product(3 * batch, settings.hidden[0], spec.action_size))
    policy = learning(3 * batch, actor)
    return objective + policy + slope_penalty(2 * batch, nu) + orthogonality(actor)


def sac_products(settings: SAC, spec: Spec) -> list[Product]:
    """The products of one SAC update.

    With B rows per batch, a critic's target sees the next rows, forward. The critic itself sees the rows, forward
    and backward, and the rows with the policy's actions, forward and backward to the actions only. The policy acts
    on the next rows, forward, and on the rows, forward and backward.
    """
    batch = settings.batch_size
    q = [spec.obs_size + 1 + spec.action_size, *settings.hidden, 1]
    actor = [spec.obs_size, *settings.hidden, 2 * spec.action_size]
    evaluation = 2 * forward(batch, q) + weight_gradients(batch, q) + input_gradients(batch, q)
    improvement = forward(batch, q) + input_gradients(batch, q)
    improvement.append(Product(batch, settings.hidden[0], spec.action_size))
    policy = forward(batch, actor) + learning(batch, actor)
    penalty = orthogonality(actor) if settings.orthogonal_penalty else []
    return CRITICS * (evaluation + improvement) + policy + penalty


def bc_products(settings: BC, spec: Spec) -> list[Product]:
    """The products of one update of behavioural cloning: the rows forward and backward, and the orthogonal penalty
    if it has a weight."""
    actor = [spec.obs_size, *settings.suited(clipped=False).hidden, 2 * spec.action_size]
    penalty = orthogonality(actor) if settings.orthogonal_penalty else []
    return learning(settings.batch_size, actor) + penalty


def dac_products(settings: DAC, spec: Spec) -> list[Product]:
    """The products of one DAC update: the discriminator on expert and replay rows, forward and backward; its
    penalty on rows between them; its logits, forward; and SAC."""
    batch = settings.data.batch_size
    logit = [spec.obs_size + 1 + spec.action_size, *settings.discriminator_hidden, 1]
    discriminator = learning(2 * batch, logit) + slope_penalty(batch, logit) + forward(batch, logit)
    return discriminator + sac_products(settings.sac, spec)


def dual_dice_products(settings: DualDICE, spec: Spec) -> list[Product]:
    """The products of one DualDICE update: ν as in ValueDICE, but without a gradient for the policy, which acts on
    3 B rows, forward; ζ on expert and replay rows, forward and backward; a penalty on each, at 2 B rows; the
    rewards, forward; and SAC."""
    batch = settings.data.batch_size
    ratio = [spec.obs_size + 1 + spec.action_size, *settings.ratio_hidden, 1]
    actor = [spec.obs_size, *settings.sac.hidden, 2 * spec.action_size]
    nu = learning(5 * batch, ratio) + forward(3 * batch, actor)
    zeta = learning(2 * batch, ratio) + forward(batch, ratio)
    return nu + zeta + 2 * slope_penalty(2 * batch, ratio) + sac_products(settings.sac, spec)


def ppo_products(settings: PPO, spec: Spec) -> list[Product]:
    """The products of one PPO update with continuous actions.

    Before the epochs, each row of the rollout needs its value, the value of its next state and its probability,
    forward. In each epoch, each row passes the policy and the value function once, forward and backward.
    """
    actor = [spec.obs_size, *settings.hidden, 2 * spec.action_size]
    value = [spec.obs_size, *settings.hidden, 1]
    before = 2 * forward(settings.rollout, value) + forward(settings.rollout, actor)
    steps = settings.epochs * settings.rollout // settings.minibatch
    return before + steps * (learning(settings.minibatch, actor) + learning(settings.minibatch, value))


def gail_products(settings: GAIL, spec: Spec) -> list[Product]:
    """The products of one GAIL update, which learns from one rollout: the steps of the discriminator, as in DAC;
    the reward of each row of the rollout, forward; and PPO."""
    batch = settings.discriminator_batch
    logit = [spec.obs_size + 1 + spec.action_size, *settings.discriminator_hidden, 1]
    discriminator = learning(2 * batch, logit) + slope_penalty(batch, logit)
    rewards = forward(settings.ppo.rollout, logit)
    return settings.discriminator_steps * discriminator + rewards + ppo_products(settings.ppo, spec)
