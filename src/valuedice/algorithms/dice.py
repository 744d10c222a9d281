"""The objective of ValueDICE term by term (arXiv:1912.05032, Equations 9 to 19). DualDICE shares the residuals.

    J(π, ν) = log E_dE e^x - E_dπ x,    x = ν - Bπν.

The second term needs no samples of dπ, because it telescopes. There are two ways to write it:

    E_dπ x = (1-γ) E_{s0, a0~π} ν(s0, a0)                         (`initial_term`, Equation 13)
           = E_{(s,s′)~μ} [ν(s, π(s)) - γ ν(s′, π(s′))]           (`telescoped_term`)

The second holds for the occupancy μ of any policy that starts where π starts: expert rows, replay rows, or both.
It needs neither initial states nor unbroken trajectories.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from valuedice.losses import weighted_mean
from valuedice.networks import Params, PolicyNet, critic, expected_value, map_rows, state_actions
from valuedice.types import Batch, Spec


def bellman_residual(nu: Array, nu_next: Array, discount: float) -> Array:
    """x = ν(s,a) - γ ν(s′,a′): Equation 9, with the one observed s′ in place of the expectation (Section 5.1)."""
    return nu - discount * nu_next


def dice_objective(
    x_expert: Array,
    linear: Array,
    x_replay: Array | None,
    *,
    alpha: float,
    expert_weight: Array | None = None,
    replay_weight: Array | None = None,
) -> tuple[Array, Array]:
    """J with replay data (Equation 18), and its first term alone:

        log E_{(1-α) dE + α dRB} e^x  -  (1-α) E_dπ x  -  α E_dRB x,

    where `linear` is E_dπ x. Without replay data, or with α = 0, this is Equation 12. Weights are the probabilities
    of the rows; None means equal. Minus the minimum over ν is the KL of the two mixtures, (1-α) dπ + α dRB and
    (1-α) dE + α dRB (Equation 19).
    """
    log_expert = log_weighted_exp(x_expert, expert_weight)
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


def initial_term(nu_initial: Array, discount: float, weight: Array | None = None) -> Array:
    """E_dπ x = (1-γ) E ν(s0, a0) over initial states (Equation 13)."""
    return (1 - discount) * weighted_mean(nu_initial, weight)


def telescoped_term(nu_here: Array, nu_next: Array, discount: float, weight: Array | None = None) -> Array:
    """E_dπ x = E_μ [ν(s, π(s)) - γ ν(s′, π(s′))] over the rows of any policy from the same start."""
    return weighted_mean(bellman_residual(nu_here, nu_next, discount), weight)


class Terms(NamedTuple):
    """The values in the objective, and the points for the gradient penalty. Lists have an entry for each source of
    transitions: the expert, then replay data if there is any."""

    x: list[Array]
    nu_start: list[Array]
    """ν(s0, a0) of the initial states alone; or, to telescope, ν(s, π(s)) of each source."""
    nu_next: list[Array]
    """ν(s′, a′) of each source, by the slow copy of ν if there is one."""
    rows: list[Array]
    """The rows [s, a] of each source, followed by its rows [s′, a′]."""

    @property
    def x_replay(self) -> Array | None:
        """None without replay data."""
        return self.x[1] if len(self.x) > 1 else None


def residual_terms(
    nu: Params,
    actor: PolicyNet,
    spec: Spec,
    batch: Batch,
    key: Array,
    discount: float,
    *,
    target: Params | None = None,
    telescoped: bool = False,
    only_here: bool = False,
    standardize: bool = False,
    chunked: bool = False,
) -> Terms:
    """x = ν(s,a) - γ ν(s′,a′) on expert and replay rows, and ν(s, a) where the linear term begins, with a, a′ ~ π.

    A `target`, a slow copy of ν, takes its place at every s′: in x and in the linear term alike, because only then
    does a constant added to ν change nothing. Otherwise ν drifts without end. `only_here` lets no gradient reach π
    except through the start of the linear term. `standardize` is how ν was made.
    """
    sources = [batch.expert, batch.replay] if batch.replay.size else [batch.expert]
    now = [state_actions(rows.obs, rows.action) for rows in sources]
    starts = [rows.obs for rows in sources] if telescoped else [batch.initial.obs]
    acting = [*starts, *[rows.next_obs for rows in sources]]
    noise = None if spec.discrete else jax.random.normal(key, (sum(map(len, acting)), spec.action_size))
    begins = sum(map(len, starts))
    moves = jnp.arange(sum(map(len, acting))) < begins if only_here else None

    # Joined rows make one large matrix product, which is faster than several small ones.
    value = partial(critic, nu, standardize=standardize)
    nu_now = split_like(now, map_rows(value, jnp.concatenate(now), chunked=chunked))
    expected = partial(expected_value, value, actor)
    nu_acting, actions = map_rows(expected, jnp.concatenate(acting), noise, moves, chunked=chunked)
    pieces, next_action = split_like(acting, nu_acting), split_like(acting, actions)[len(starts) :]
    nu_start, nu_next = pieces[: len(starts)], pieces[len(starts) :]
    if target is not None:
        slow = partial(expected_value, partial(critic, target, standardize=standardize), actor)
        later = [None if part is None else part[begins:] for part in (jnp.concatenate(acting), noise, moves)]
        nu_next = split_like(acting[len(starts) :], map_rows(slow, *later)[0])

    x = [bellman_residual(*pair, discount) for pair in zip(nu_now, nu_next, strict=True)]
    after = [state_actions(*pair) for pair in zip(acting[len(starts) :], next_action, strict=True)]
    rows = [jnp.concatenate(pair) for pair in zip(now, after, strict=True)]
    return Terms(x, nu_start, nu_next, rows)


def split_like(parts: list[Array], joined: Array) -> list[Array]:
    """Splits an array into pieces as long as `parts`; undoes `concatenate(parts)`."""
    return jnp.split(joined, list(accumulate(map(len, parts)))[:-1])
