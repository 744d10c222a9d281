"""DualDICE for imitation (source of arXiv:1912.05032, commented out): SAC with a log density ratio as its reward.

The ratio comes from the f-divergence form of the KL,

    1 - KL(dπ ‖ dE) = min_x  E_dE e^x - E_dπ x.

With x = ν - Bπν (Equation 9) and the conjugate e^x = max_ζ x ζ - f*(ζ), f*(ζ) = ζ log ζ - ζ, this becomes

    min_ν max_ζ  E_dE [(ν - Bπν) ζ - f*(ζ)] - (1-γ) E ν(s0, a0).

At the saddle point ζ = e^x = dπ/dE, so the reward for imitation is -log ζ. Replay data enters both terms with
weight α, as in ValueDICE; ζ is then the ratio of the mixtures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms import sac
from valuedice.algorithms.dice import initial_term, residual_terms
from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check, check_choices
from valuedice.losses import blind_to, gradient_penalty, interpolate, weighted_mean
from valuedice.networks import (
    Params,
    PolicyNet,
    adam_init,
    adam_step,
    critic,
    critic_init,
    map_rows,
    mlp,
    state_actions,
)
from valuedice.types import Batch, Data, Metrics, Pace, Sampling, Spec, Transition


def dual_terms(x: Array, log_zeta: Array) -> Array:
    """x ζ - f*(ζ) with f*(ζ) = ζ log ζ - ζ. The maximum over ζ is e^x, at ζ = e^x."""
    return jnp.exp(log_zeta) * (x - log_zeta + 1)


def dual_objective(
    x_expert: Array,
    log_zeta_expert: Array,
    nu_initial: Array,
    x_replay: Array | None,
    log_zeta_replay: Array | None,
    *,
    discount: float,
    alpha: float,
    expert_weight: Array | None = None,
    initial_weight: Array | None = None,
    replay_weight: Array | None = None,
) -> Array:
    """(1-α) J_RE + α J_R of the pseudocode. At the saddle point it is 1 - KL of the two mixtures (Equation 19)."""
    expert = weighted_mean(dual_terms(x_expert, log_zeta_expert), expert_weight)
    expert -= initial_term(nu_initial, discount, initial_weight)
    if x_replay is None or log_zeta_replay is None or alpha == 0:
        return expert
    replay = weighted_mean(dual_terms(x_replay, log_zeta_replay) - x_replay, replay_weight)
    return (1 - alpha) * expert + alpha * replay


def log_ratio(zeta: Params, row: Array) -> Array:
    """log ζ([s, a]) of one row. Features are standardised: if policy and expert are alike, log ζ is flat, and
    without standardisation its ReLUs die on the way there, after which it no longer learns."""
    return mlp(zeta, row, standardize=True)[0]


class Terms(NamedTuple):
    """The values in the objective, and the points for the gradient penalties."""

    x_expert: Array
    log_zeta_expert: Array
    nu_initial: Array
    x_replay: Array | None
    log_zeta_replay: Array | None
    rows: list[Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    nu: Params
    zeta: Params
    """Network of log ζ, so that ζ is positive."""
    nu_opt: optax.OptState
    zeta_opt: optax.OptState
    learner: sac.State
    key: Array

    @property
    def actor(self) -> PolicyNet:
        """The policy."""
        return self.learner.actor


@dataclass(frozen=True)
class DualDICE:
    """DualDICE for imitation (source of arXiv:1912.05032): SAC with a learned log density ratio as its reward."""

    warm_start: int = 0
    """Updates of behavioural cloning before anything else."""
    replay_regularization: float = 0.5
    """Fraction α of replay data in both terms of the objective."""
    nu_lr: float = 1e-3
    """Step size of ν."""
    zeta_lr: float = 1e-3
    """Step size of ζ."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalties on ν and log ζ."""
    one_sided: bool = True
    """For log ζ, penalise only gradients with a norm above 1, instead of pulling all norms to 1."""
    ratio_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of ν and ζ."""
    expert_share: float = 0.5
    """Fraction of expert transitions in SAC's batches; the rest is replay data."""
    reward: Literal["minus-log-zeta", "zeta"] = "minus-log-zeta"
    """Reward of SAC: -log ζ, or, as an ablation, the paper's literal ζ, which rewards leaving the expert."""
    sac: sac.SAC = sac.IMITATOR
    """Settings of SAC, which learns the policy."""

    remedies = "a smaller `nu_lr` and `zeta_lr`, a larger `gradient_penalty`, or a smaller `critic_lr`"

    def __post_init__(self) -> None:
        check(self, "at least 0 and below 1", "replay_regularization", "expert_share")
        check(self, "positive and finite", "nu_lr", "zeta_lr")
        check(self, "finite and not negative", "gradient_penalty", "warm_start")
        check(self, "one or more positive widths", "ratio_hidden")
        check_choices(self)

    @classmethod
    def paper(cls) -> DualDICE:
        """The settings of the comparison in the paper's source; those of SAC are in the appendix."""
        ratio = cls(warm_start=0, replay_regularization=0.1, nu_lr=1e-4, zeta_lr=1e-3, one_sided=False)
        return replace(ratio, expert_share=0.0, sac=sac.PAPER)

    @property
    def pace(self) -> Pace:
        """The pace of SAC, from a warm start if there is one."""
        return replace(self.sac.pace, warm_start=self.warm_start)

    @property
    def data(self) -> Data:
        """Rows drawn as in ValueDICE: uniformly, every state initial, exact weight of the absorbing state."""
        return Data(self.sac.batch_size, Sampling(self.sac.discount), replay="required")

    def ratio_batch(self, batch: Batch) -> Batch:
        """The batch for ν and ζ, without replay data if α = 0."""
        return batch if self.replay_regularization > 0 else batch.without_replay()

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers."""
        key, key_nu, key_zeta, key_learner = jax.random.split(key, 4)
        nu = critic_init(key_nu, spec, self.ratio_hidden, output_bias=False)
        zeta = critic_init(key_zeta, spec, self.ratio_hidden)
        return State(nu, zeta, adam_init(nu), adam_init(zeta), self.sac.init(key_learner, spec), key)

    def with_policy(self, state: State, actor: PolicyNet) -> State:
        """The state with this policy in place of its own."""
        return replace(state, learner=self.sac.with_policy(state.learner, actor))

    def terms(
        self, nu: Params, zeta: Params, learner: sac.State, batch: Batch, key: Array, chunked: bool = False
    ) -> Terms:
        """x = ν - Bπν and log ζ on expert and replay rows."""
        residuals = residual_terms(nu, learner.actor, learner.spec, batch, key, self.sac.discount, chunked=chunked)
        return Terms(
            residuals.x[0],
            self.log_zeta(zeta, batch.expert, chunked),
            residuals.nu_start[0],
            residuals.x_replay,
            self.log_zeta(zeta, batch.replay, chunked) if batch.replay.size else None,
            residuals.rows,
        )

    def log_zeta(self, zeta: Params, rows: Transition, chunked: bool = False) -> Array:
        """log ζ(s, a) of each row."""
        return map_rows(partial(log_ratio, zeta), state_actions(rows.obs, rows.action), chunked=chunked)

    def objective(self, terms: Terms, batch: Batch) -> Array:
        """The objective on a batch."""
        return dual_objective(
            *terms[:5],
            discount=self.sac.discount,
            alpha=self.replay_regularization,
            expert_weight=batch.expert.weight,
            initial_weight=batch.initial.weight,
        )

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One gradient step for min over ν, max over ζ, both at the old parameters; then one step of SAC."""
        key, key_action, key_mix = jax.random.split(state.key, 3)
        ratio_batch = self.ratio_batch(batch)

        def saddle(nu: Params, zeta: Params) -> tuple[Array, Metrics]:
            """ν descends on this function, ζ ascends. Each penalty depends on only one of the two."""
            terms = self.terms(nu, zeta, state.learner, ratio_batch, key_action)
            objective = self.objective(terms, ratio_batch)
            between = jax.lax.stop_gradient(interpolate(terms.rows, key_mix))
            mark = state.learner.spec.obs_size  # not penalised, see `blind_to`
            smooth_nu = gradient_penalty(blind_to(partial(critic, nu), mark), between)
            free_zeta = blind_to(partial(log_ratio, zeta), mark)
            smooth_zeta = gradient_penalty(free_zeta, between, one_sided=self.one_sided)
            total = objective + self.gradient_penalty * (smooth_nu - smooth_zeta)
            return total, {"objective": objective, "nu_penalty": smooth_nu, "zeta_penalty": smooth_zeta}

        (nu_gradient, zeta_gradient), metrics = jax.grad(saddle, (0, 1), has_aux=True)(state.nu, state.zeta)
        nu, nu_opt = adam_step(self.nu_lr, state.nu, nu_gradient, state.nu_opt)
        zeta, zeta_opt = adam_step(-self.zeta_lr, state.zeta, zeta_gradient, state.zeta_opt)
        learned = sac.with_expert_rows(batch, self.expert_share)
        log_zeta = self.log_zeta(zeta, learned)
        reward = -log_zeta if self.reward == "minus-log-zeta" else jnp.exp(log_zeta)
        learner, learning = self.sac.step(state.learner, learned, reward, absorbing=True)
        networks = {"nu": nu, "zeta": zeta, "nu_opt": nu_opt, "zeta_opt": zeta_opt}
        metrics |= learning | {"reward": jnp.mean(reward)}
        return replace(state, **networks, learner=learner, key=key), metrics

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """`kl_estimate` is 1 minus the objective on all expert rows: an estimate of the KL of the two mixtures."""
        key_action = jax.random.fold_in(state.key, MEASURING)
        ratio_batch = self.ratio_batch(batch)
        terms = self.terms(state.nu, state.zeta, state.learner, ratio_batch, key_action, chunked=True)
        metrics = {"log_zeta_expert": weighted_mean(terms.log_zeta_expert, batch.expert.weight)}
        metrics |= self.sac.diagnose(state.learner, batch).metrics
        return Diagnosis(metrics, 1 - self.objective(terms, ratio_batch))
