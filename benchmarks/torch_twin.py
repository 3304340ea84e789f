"""The same update in eager PyTorch, for the clock only: what a straightforward port does.

Networks, losses and optimisers are those of one gradient step of ours (critics, actor,
temperature, multiplier, targets), ensembles as Python loops over modules.
"""

import torch
from timing import median_ms
from torch import nn

from orac.config.schema import AgentConfig
from orac.core.cost_models import Problem
from orac.core.risk_forms import make_learner
from orac.core.types import Transition


def mlp(sizes, norm, head=True):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if head and i == len(sizes) - 2:
            break
        if norm:
            layers.append(nn.LayerNorm(sizes[i + 1]))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Implicit(nn.Module):
    def __init__(self, inputs, hidden, embedding, norm):
        super().__init__()
        *features, merged = hidden
        self.features = mlp((inputs, *features), norm, head=False)
        embed = [nn.Linear(embedding, features[-1])]
        self.embed = nn.Sequential(
            *embed, *([nn.LayerNorm(features[-1])] if norm else []), nn.Sigmoid()
        )
        self.merge = mlp((features[-1], merged), norm, head=False)
        self.output = nn.Linear(merged, 1)
        self.register_buffer("multiples", torch.pi * torch.arange(1, embedding + 1))

    def forward(self, rows, levels):
        features = self.features(rows)[:, None]
        embedded = self.embed(torch.cos(levels[:, None] * self.multiples))
        return self.output(self.merge(features * embedded)).squeeze(-1)


def fractions(count):
    raw = torch.rand(count) + 0.1
    widths = raw / raw.sum()
    return widths.cumsum(0) - widths / 2, widths


def quantile_loss(predictions, levels, targets, widths, kappa):
    error = targets[..., None, :] - predictions[..., :, None]
    size = error.abs()
    huber = torch.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa))
    weight = (levels[:, None] - (error < 0).float()).abs()
    return (weight * huber / kappa * widths).sum(-1).mean()


class Twin:
    def __init__(self, config: AgentConfig, problem: Problem):
        self.config, self.problem = config, problem
        inputs, actions = (
            make_learner(problem, config).costs.input_size,
            problem.action_size,
        )
        hidden, norm = config.hidden_sizes, config.layer_norm
        self.actor = mlp((inputs, *hidden, 2 * actions), norm)
        self.reward = nn.ModuleList(
            mlp((inputs + actions, *hidden, 1), norm) for _ in range(2)
        )
        self.target_reward = nn.ModuleList(
            mlp((inputs + actions, *hidden, 1), norm) for _ in range(2)
        )
        members = problem.num_constraints * config.num_cost_critics
        self.cost = nn.ModuleList(
            self.cost_critic(inputs + actions) for _ in range(members)
        )
        self.target_cost = nn.ModuleList(
            self.cost_critic(inputs + actions) for _ in range(members)
        )
        adam = torch.optim.Adam
        self.actor_adam = adam(self.actor.parameters(), 3e-4)
        self.critic_adam = adam(
            [*self.reward.parameters(), *self.cost.parameters()], 3e-4
        )
        self.log_temperature = torch.zeros((), requires_grad=True)
        self.multiplier = torch.zeros(problem.num_constraints, requires_grad=True)
        self.temperature_adam = adam([self.log_temperature], 5e-4)
        self.multiplier_adam = adam([self.multiplier], 5e-4)

    def cost_critic(self, inputs):
        config = self.config
        if config.risk_form == "implicit":
            return Implicit(
                inputs, config.hidden_sizes, config.embedding_size, config.layer_norm
            )
        outputs = 1 if config.risk_form == "scalar" else config.num_quantiles
        return mlp((inputs, *config.hidden_sizes, outputs), config.layer_norm)

    def quantiles(self, members, rows, levels):
        if self.config.risk_form == "implicit":
            return torch.stack([member(rows, levels) for member in members])
        return torch.stack([member(rows) for member in members])

    def act(self, inputs):
        mean, raw = self.actor(inputs).chunk(2, -1)
        std = torch.exp(-1.5 + 3.5 * torch.tanh(raw))
        noise = torch.randn_like(mean)
        u = mean + std * noise
        log_prob = (
            -0.5 * noise**2
            - std.log()
            - 0.919
            - 2 * (0.693 - u - nn.functional.softplus(-2 * u))
        )
        return torch.tanh(u), log_prob.sum(-1)

    def risk(self, quantiles, widths, pivot, limit, tail):
        average = quantiles.mean(0)
        if self.config.risk_form == "dual":
            return (
                torch.relu(average - pivot * limit).mean(-1) / tail
                + pivot[:, 0] * limit
            )
        return (average * widths).sum(-1)

    def update(self, batch):
        config, problem = self.config, self.problem
        observation, action, reward, cost, following = batch
        pivot = torch.rand(len(reward), problem.num_constraints)
        if config.risk_form == "dual":
            observation = torch.cat([observation, pivot], -1)
            following = torch.cat([following, pivot], -1)
        even = torch.full((config.num_quantiles,), 1 / config.num_quantiles)
        implicit = config.risk_form == "implicit"
        levels, _ = (
            fractions(config.num_quantiles) if implicit else (even.cumsum(0), even)
        )
        levels_next, widths_next = (
            fractions(config.num_quantiles) if implicit else (levels, even)
        )
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            next_action, next_log_prob = self.act(following)
            rows = torch.cat([following, next_action], -1)
            value = (
                torch.stack([q(rows) for q in self.target_reward])
                .squeeze(-1)
                .min(0)
                .values
            )
            target = reward + config.discount * (value - temperature * next_log_prob)
            if problem.num_constraints:
                onward = self.quantiles(self.target_cost, rows, levels_next)
                cost_target = cost + config.cost_discount * onward
        rows = torch.cat([observation, action], -1)
        values = torch.stack([q(rows) for q in self.reward]).squeeze(-1)
        loss = ((values - target) ** 2).mean(-1).sum()
        if problem.num_constraints:
            predictions = self.quantiles(self.cost, rows, levels)
            if config.risk_form == "scalar":
                loss = loss + ((predictions - cost_target) ** 2).mean()
            else:
                loss = loss + len(predictions) * quantile_loss(
                    predictions, levels, cost_target, widths_next, config.kappa
                )
        self.critic_adam.zero_grad(set_to_none=True)
        loss.backward()
        self.critic_adam.step()
        self.update_actor(observation, pivot, temperature)
        self.update_targets()

    def update_actor(self, observation, pivot, temperature):
        config, problem = self.config, self.problem
        for critic in (self.reward, self.cost):
            critic.requires_grad_(False)
        action, log_prob = self.act(observation)
        rows = torch.cat([observation, action], -1)
        value = torch.stack([q(rows) for q in self.reward]).squeeze(-1).min(0).values
        loss = temperature * log_prob - value
        if problem.num_constraints:
            tail, limit = problem.constraints[0].tail, problem.cost_value_limits[0]
            levels, widths = fractions(config.num_policy_quantiles)
            if config.risk_form == "scalar":
                widths = torch.ones(1)
            quantiles = self.quantiles(self.cost, rows, 1 - tail + tail * levels)
            risk = self.risk(quantiles, widths, pivot, limit, tail)
            loss = loss + self.multiplier.detach()[0] * risk
        self.actor_adam.zero_grad(set_to_none=True)
        loss.mean().backward()
        self.actor_adam.step()
        for critic in (self.reward, self.cost):
            critic.requires_grad_(True)
        self.temperature_adam.zero_grad()
        (
            -self.log_temperature.exp()
            * (log_prob.detach().mean() - problem.action_size)
        ).backward()
        self.temperature_adam.step()
        if problem.num_constraints:
            self.multiplier_adam.zero_grad()
            (self.multiplier[0] * (limit - risk.detach().mean())).backward()
            self.multiplier_adam.step()
            with torch.no_grad():
                self.multiplier.clamp_(min=0)

    @torch.no_grad()
    def update_targets(self):
        for target, online in (
            (self.target_reward, self.reward),
            (self.target_cost, self.cost),
        ):
            for t, o in zip(target.parameters(), online.parameters(), strict=True):
                t.lerp_(o, self.config.polyak)


def time_torch_update(
    config: AgentConfig, problem: Problem, batch: Transition
) -> float:
    import numpy as np

    twin = Twin(config, problem)
    fields = (
        batch.observation,
        batch.action,
        batch.reward,
        batch.cost,
        batch.next_observation,
    )
    tensors = [torch.from_numpy(np.array(x)) for x in fields]
    return median_ms(lambda: twin.update(tensors))
