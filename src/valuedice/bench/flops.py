"""The arithmetic that an update needs, counted by hand: its matrix products, and what they cost."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from valuedice.algorithms import GAIL, PPO, SAC, ValueDICE
from valuedice.algorithms.sac import CRITICS
from valuedice.types import Spec


class Product(NamedTuple):
    """(rows × inner) @ (inner × columns)."""

    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each term."""
        return 2 * self.rows * self.inner * self.columns


def forward(rows: int, sizes: list[int]) -> list[Product]:
    """One product a layer."""
    return [Product(rows, fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]


def weight_gradients(rows: int, sizes: list[int]) -> list[Product]:
    """Inputsᵀ @ output gradients, one product a layer."""
    return [Product(fan_in, rows, fan_out) for fan_in, fan_out in pairwise(sizes)]


def input_gradients(rows: int, sizes: list[int]) -> list[Product]:
    """Output gradients @ kernelᵀ, for every layer but the first: nobody asks for the gradient of the data."""
    return [Product(rows, fan_out, fan_in) for fan_in, fan_out in list(pairwise(sizes))[1:]]


def value_dice_products(settings: ValueDICE, spec: Spec) -> list[Product]:
    """Of one ValueDICE update with continuous actions and replay data.

    With B rows a batch: ν sees 5 B rows (expert, replay, initial, and the next rows of the first two), forward
    and backward; the policy acts on 3 B of them. The gradient penalty looks at 2 B rows. ReLU masks are constants
    in it, so it needs: forward without the last layer (for the masks), the gradient with respect to the input,
    and, backward through that, two products again for each of its two.
    """
    batch = settings.batch_size
    nu = [spec.obs_size + 1 + spec.action_size, *settings.hidden, 1]
    actor = [spec.obs_size, *settings.hidden, 2 * spec.action_size]
    objective = forward(5 * batch, nu) + weight_gradients(5 * batch, nu) + input_gradients(5 * batch, nu)
    # Only the action part of the input has a gradient that is used: it leads to the policy.
    objective.append(Product(3 * batch, settings.hidden[0], spec.action_size))
    policy = forward(3 * batch, actor) + weight_gradients(3 * batch, actor) + input_gradients(3 * batch, actor)

    inner = nu[:-1]
    slopes = [Product(2 * batch, fan_out, fan_in) for fan_in, fan_out in pairwise(inner)]
    penalty = forward(2 * batch, inner) + slopes + forward(2 * batch, inner) + weight_gradients(2 * batch, inner)
    # WᵀW and its gradient 4 W (WᵀW ⊙ (1 - I)), for each kernel of the policy.
    grams = [Product(fan_out, fan_in, fan_out) for fan_in, fan_out in pairwise(actor)]
    gram_gradients = [Product(fan_in, fan_out, fan_out) for fan_in, fan_out in pairwise(actor)]
    return objective + policy + penalty + grams + gram_gradients


def sac_products(settings: SAC, spec: Spec) -> list[Product]:
    """Of one SAC update.

    With B rows a batch, each critic sees them four times: its target the next rows, forward; the critic itself the
    rows, forward and backward, and the rows with the policy's actions, forward and backward to the actions alone.
    The policy acts on the next rows, forward, and on the rows, forward and backward.
    """
    batch = settings.batch_size
    q = [spec.obs_size + 1 + spec.action_size, *settings.hidden, 1]
    actor = [spec.obs_size, *settings.hidden, 2 * spec.action_size]
    evaluation = 2 * forward(batch, q) + weight_gradients(batch, q) + input_gradients(batch, q)
    improvement = forward(batch, q) + input_gradients(batch, q)
    improvement.append(Product(batch, settings.hidden[0], spec.action_size))
    policy = 2 * forward(batch, actor) + weight_gradients(batch, actor) + input_gradients(batch, actor)
    return CRITICS * (evaluation + improvement) + policy


def ppo_products(settings: PPO, spec: Spec) -> list[Product]:
    """Of one PPO step with continuous actions.

    Before the epochs, each row of the rollout needs its value, that of its next state, and its probability,
    forward. In each epoch each row passes policy and value function once, forward and backward.
    """
    actor = [spec.obs_size, *settings.hidden, 2 * spec.action_size]
    value = [spec.obs_size, *settings.hidden, 1]
    before = 2 * forward(settings.rollout, value) + forward(settings.rollout, actor)
    steps, rows = settings.epochs * settings.rollout // settings.minibatch, settings.minibatch
    policy = forward(rows, actor) + weight_gradients(rows, actor) + input_gradients(rows, actor)
    evaluation = forward(rows, value) + weight_gradients(rows, value) + input_gradients(rows, value)
    return before + steps * (policy + evaluation)


def gail_products(settings: GAIL, spec: Spec) -> list[Product]:
    """Of one GAIL update with continuous actions: all that is learned from one rollout.

    In each of its steps, with B rows a batch, the discriminator sees 2 B rows (the expert's and the policy's),
    forward and backward, and its gradient penalty looks at B rows between them, by the products counted for
    ValueDICE. Then it gives each row of the rollout its reward, forward. The rest is PPO's.
    """
    batch = settings.discriminator_batch
    sizes = [spec.obs_size + 1 + spec.action_size, *settings.discriminator_hidden, 1]
    telling = forward(2 * batch, sizes) + weight_gradients(2 * batch, sizes) + input_gradients(2 * batch, sizes)
    inner = sizes[:-1]
    slopes = [Product(batch, fan_out, fan_in) for fan_in, fan_out in pairwise(inner)]
    penalty = forward(batch, inner) + slopes + forward(batch, inner) + weight_gradients(batch, inner)
    rewards = forward(settings.ppo.rollout, sizes)
    return settings.discriminator_steps * (telling + penalty) + rewards + ppo_products(settings.ppo, spec)
