# pyright: reportMissingImports=false
"""The same ValueDICE update in idiomatic PyTorch, only to compare the speed."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from valuedice.algorithms import ValueDICE
from valuedice.types import LOG_STD_MAX, LOG_STD_MIN, Transition


def mlp(sizes: list[int], output_bias: bool) -> nn.Sequential:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        last = index == len(sizes) - 2
        layers.append(nn.Linear(fan_in, fan_out, bias=output_bias or not last))
        if not last:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class TorchValueDICE:
    """Networks, optimisers and one update, for continuous actions."""

    def __init__(self, settings: ValueDICE, obs_size: int, action_size: int) -> None:
        self.settings = settings
        self.actor = mlp([obs_size, *settings.policy_hidden, 2 * action_size], output_bias=True)
        self.nu = mlp([obs_size + 1 + action_size, *settings.hidden, 1], output_bias=False)
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), settings.actor_lr)
        self.nu_adam = torch.optim.Adam(self.nu.parameters(), settings.nu_lr)

    def sample(self, obs: Tensor) -> Tensor:
        """A reparameterised action; in the absorbing state, the fixed action."""
        location, raw = self.actor(obs[:, :-1]).chunk(2, dim=1)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(raw) + 1)
        action = torch.tanh(location + log_std.exp() * torch.randn_like(location))
        return torch.where(obs[:, -1:] > 0.5, torch.zeros_like(action), action)

    def update(self, expert: Transition, initial: Tensor, replay: Transition) -> None:
        """One simultaneous step, as in `ValueDICE.update`; `initial` are observations."""
        alpha, gamma, rows = self.settings.replay_regularization, self.settings.discount, len(initial)
        acting = torch.cat([initial, expert.next_obs, replay.next_obs])
        after = torch.cat([acting, self.sample(acting)], dim=1)
        now = torch.cat([torch.cat([part.obs, part.action], dim=1) for part in (expert, replay)])
        values = self.nu(torch.cat([now, after])).squeeze(1)
        x = values[: 2 * rows] - gamma * values[3 * rows :]
        log_weights = (
            torch.tensor([1 - alpha, alpha]).log().repeat_interleave(rows) - torch.tensor(float(rows)).log()
        )
        linear = (1 - gamma) * values[2 * rows : 3 * rows].mean()
        objective = (log_weights + x).logsumexp(0) - (1 - alpha) * linear - alpha * x[rows:].mean()

        with torch.no_grad():
            ours = torch.cat([now[:rows], after[rows : 2 * rows]])
            theirs = torch.cat([now[rows:], after[2 * rows :]])
            mix = torch.rand(len(ours), 1)
            between = mix * ours + (1 - mix) * theirs
        between.requires_grad_()
        slope = torch.autograd.grad(self.nu(between).sum(), between, create_graph=True)[0]
        smooth = (((slope**2).sum(1) + 1e-12).sqrt() - 1).square().mean()
        orthogonal = torch.zeros(())
        for layer in self.actor:
            if isinstance(layer, nn.Linear):
                gram = layer.weight @ layer.weight.T
                orthogonal = orthogonal + (gram * (1 - torch.eye(len(gram)))).square().sum()
        saddle = objective + self.settings.gradient_penalty * smooth
        saddle = saddle - self.settings.orthogonal_penalty * orthogonal

        self.nu_adam.zero_grad(set_to_none=True)
        self.actor_adam.zero_grad(set_to_none=True)
        saddle.backward()
        for parameter in self.actor.parameters():
            if parameter.grad is not None:
                parameter.grad.neg_()
        self.nu_adam.step()
        self.actor_adam.step()
