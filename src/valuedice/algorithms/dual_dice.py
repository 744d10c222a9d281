"""DualDICE for imitation: a density ratio by duality, and its logarithm as SAC's reward (arXiv:1912.05032, in the
commented-out sections of its source).

The f-divergence form of the KL, 1 - KL(dπ ‖ dE) = min_x E_dE e^x - E_dπ x, with the change of variables of
ValueDICE, x = ν - Bπν, and with e^x written by its conjugate, e^x = max_ζ x ζ - f*(ζ), f*(ζ) = ζ log ζ - ζ:

    min_ν max_ζ  E_dE [(ν - Bπν) ζ - f*(ζ)] - (1-γ) E ν(s0, a0).

At the saddle point ζ = e^x = dπ/dE, and -log ζ is the reward that imitates. Replay data enters both terms with the
share α, as in ValueDICE; then ζ is the ratio of the mixtures. Unlike ValueDICE, the policy is learned from that
reward, by SAC.
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
from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check_hidden, check_not_negative, check_positive, check_share
from valuedice.algorithms.value_dice import Apply, apply_chunks, apply_rows, residual_terms
from valuedice.errors import InputError
from valuedice.losses import blind_to, gradient_penalty, interpolate, weighted_mean
from valuedice.networks import Params, adam_init, adam_step, critic, critic_init, mlp, mlp_init, state_actions
from valuedice.types import Batch, Data, Metrics, Pace, Sampling, Spec, Transition

REWARDS = ("minus-log-zeta", "zeta")


def dual_terms(x: Array, log_zeta: Array) -> Array:
    """x ζ - f*(ζ) with f*(ζ) = ζ log ζ - ζ: at most e^x, which it reaches at ζ = e^x."""
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
    """(1-α) J_RE + α J_R of the pseudocode. Its saddle value is 1 - KL of the two mixtures of ValueDICE."""
    expert = weighted_mean(dual_terms(x_expert, log_zeta_expert), expert_weight)
    expert -= (1 - discount) * weighted_mean(nu_initial, initial_weight)
    if x_replay is None or log_zeta_replay is None or alpha == 0:
        return expert
    replay = weighted_mean(dual_terms(x_replay, log_zeta_replay) - x_replay, replay_weight)
    return (1 - alpha) * expert + alpha * replay


def log_ratio(zeta: Params, row: Array) -> Array:
    """log ζ([s, a]) of one row. Its features are standardised: where policy and expert are alike log ζ is flat, and
    the units of a plain network on the way there die, after which it follows nothing any more."""
    return mlp(zeta, row, standardize=True)[0]


class Terms(NamedTuple):
    """What the objective is made of, and the rows at which both networks are kept smooth."""

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
    """Gives log ζ, which keeps ζ positive."""
    nu_opt: optax.OptState
    zeta_opt: optax.OptState
    learner: sac.State
    key: Array

    @property
    def actor(self) -> Params:
        """The policy."""
        return self.learner.actor


@dataclass(frozen=True)
class DualDICE:
    """DualDICE for imitation (arXiv:1912.05032, appendix of its source): a density ratio is SAC's reward."""

    replay_regularization: float = 0.5
    """α: the share of replay data in both terms of the objective."""
    nu_lr: float = 1e-3
    """Step size of ν."""
    zeta_lr: float = 1e-3
    """Step size of ζ."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalties on ν and on log ζ."""
    one_sided: bool = True
    """Whether log ζ is free to be flatter than slope 1: it is flat where policy and expert are alike."""
    ratio_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of ν and ζ."""
    expert_share: float = 0.5
    """Share of the expert's transitions in the rows that SAC learns from; the rest is replay data."""
    reward: Literal["minus-log-zeta", "zeta"] = "minus-log-zeta"
    """What SAC maximises: -log ζ; or, as an ablation, the paper's g(ζ) = ζ to the letter, which rewards leaving the
    expert, since ζ is the ratio of policy to expert."""
    sac: sac.SAC = sac.IMITATOR
    """The reinforcement learner."""

    remedies = (
        "smaller steps of the ratio (`nu_lr`, `zeta_lr`), a larger `gradient_penalty`, or a smaller step of the "
        "critics (`critic_lr`)"
    )

    def __post_init__(self) -> None:
        check_share(self, "replay_regularization", "expert_share")
        check_positive(self, "nu_lr", "zeta_lr")
        check_not_negative(self, "gradient_penalty")
        check_hidden(self.ratio_hidden)
        if self.reward not in REWARDS:
            raise InputError(f"reward is {self.reward!r}; it must be one of: {', '.join(REWARDS)}")

    @classmethod
    def paper(cls) -> DualDICE:
        """The settings of the source's comparison, and SAC with those of the appendix."""
        learner = cls(sac=sac.PAPER, expert_share=0.0)
        return replace(learner, replay_regularization=0.1, nu_lr=1e-4, zeta_lr=1e-3, one_sided=False)

    @property
    def pace(self) -> Pace:
        """The reinforcement learner's."""
        return self.sac.pace

    @property
    def data(self) -> Data:
        """Rows as ValueDICE draws them: uniform, all states initial, exact weight of the absorbing one."""
        return Data(self.sac.batch_size, Sampling(self.sac.discount), replay="required")

    def ratio_batch(self, batch: Batch) -> Batch:
        """What ν and ζ learn from: no replay data if α = 0."""
        return batch if self.replay_regularization > 0 else batch.without_replay()

    def init(self, key: Array, spec: Spec) -> State:
        """Fresh networks and optimisers. log ζ begins near zero: policy and expert alike."""
        key, key_nu, key_zeta, key_learner = jax.random.split(key, 4)
        nu = critic_init(key_nu, spec.obs_size, spec.action_size, self.ratio_hidden)
        zeta = mlp_init(key_zeta, (spec.obs_size + 1 + spec.action_size, *self.ratio_hidden, 1))
        return State(nu, zeta, adam_init(nu), adam_init(zeta), self.sac.init(key_learner, spec), key)

    def terms(
        self, nu: Params, zeta: Params, learner: sac.State, batch: Batch, key: Array, apply: Apply = apply_rows
    ) -> Terms:
        """x of ν and log ζ, on expert and replay rows."""
        residuals = residual_terms(nu, learner.actor, learner.spec, batch, key, self.sac.discount, apply)
        return Terms(
            residuals.x_expert,
            self.log_zeta(zeta, batch.expert, apply),
            residuals.nu_initial,
            residuals.x_replay,
            self.log_zeta(zeta, batch.replay, apply) if batch.replay.size else None,
            residuals.rows,
        )

    def log_zeta(self, zeta: Params, rows: Transition, apply: Apply = apply_rows) -> Array:
        """log ζ(s, a) of each row."""
        return apply(partial(log_ratio, zeta), state_actions(rows.obs, rows.action))

    def objective(self, terms: Terms, batch: Batch) -> Array:
        """J."""
        return dual_objective(
            *terms[:5],
            discount=self.sac.discount,
            alpha=self.replay_regularization,
            expert_weight=batch.expert.weight,
            initial_weight=batch.initial.weight,
        )

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """A step of min over ν, max over ζ, both gradients at the old parameters; then one of SAC."""
        key, key_action, key_mix = jax.random.split(state.key, 3)
        ratio_batch = self.ratio_batch(batch)

        def saddle(nu: Params, zeta: Params) -> tuple[Array, Metrics]:
            """ν descends on this function, ζ ascends. Each penalty depends on one of the two only."""
            terms = self.terms(nu, zeta, state.learner, ratio_batch, key_action)
            objective = self.objective(terms, ratio_batch)
            between = jax.lax.stop_gradient(interpolate(terms.rows, key_mix))
            # The absorbing row lies in the middle of the normalised ones: a slope along its mark that is held at 1
            # would say that it is better or worse than they, whatever the data say.
            mark = state.learner.spec.obs_size
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
        return replace(state, **networks, learner=learner, key=key), metrics | learning | {
            "reward": jnp.mean(reward)
        }

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """`kl_estimate` is 1 - J on all the expert's rows, without penalties: the estimate by ν and ζ of the KL of
        the two mixtures."""
        key_action = jax.random.fold_in(state.key, MEASURING)
        ratio_batch = self.ratio_batch(batch)
        terms = self.terms(state.nu, state.zeta, state.learner, ratio_batch, key_action, apply_chunks)
        metrics = {"log_zeta_expert": weighted_mean(terms.log_zeta_expert, batch.expert.weight)}
        metrics |= self.sac.diagnose(state.learner, batch).metrics
        return Diagnosis(metrics, 1 - self.objective(terms, ratio_batch))
