"""The least an update can cost: its matrix products, once each, and nothing else.

Defined, not chosen. Every product that one gradient step mathematically needs, as a 2-D
product of the same sizes through XLA: forward for the targets; forward, input gradient
and weight gradient for each trained network (no input gradient where the input is data);
forward and input gradient of the critics for the actor. Nothing element-wise.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from orac.config.schema import AgentConfig
from orac.core.cost_models import Problem
from orac.core.risk_forms import make_learner
from orac.training.xla import compiler_options


class Product(NamedTuple):
    """(rows, inner) times (inner, columns), so often in one update."""

    what: str
    rows: int
    inner: int
    columns: int
    count: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inner * self.columns * self.count


class Dense(NamedTuple):
    """One layer applied to so many rows."""

    name: str
    rows: int
    inputs: int
    outputs: int

    def forward(self, what: str, count: int) -> Product:
        return Product(
            f"{what} {self.name} forward", self.rows, self.inputs, self.outputs, count
        )

    def weight_gradient(self, what: str, count: int) -> Product:
        return Product(
            f"{what} {self.name} dW", self.inputs, self.rows, self.outputs, count
        )

    def input_gradient(self, what: str, count: int) -> Product:
        return Product(
            f"{what} {self.name} dX", self.rows, self.outputs, self.inputs, count
        )


def mlp_layers(batch: int, sizes: tuple[int, ...]) -> list[Dense]:
    return [
        Dense(f"layer {i}", batch, sizes[i], sizes[i + 1])
        for i in range(len(sizes) - 1)
    ]


def cost_layers(
    problem: Problem, config: AgentConfig, batch: int, quantiles: int
) -> list[Dense]:
    """One cost critic; an implicit one embeds each shared level once."""
    inputs = make_learner(problem, config).costs.input_size + problem.action_size
    if config.risk_form != "implicit":
        outputs = 1 if config.risk_form == "scalar" else config.num_quantiles
        return mlp_layers(batch, (inputs, *config.hidden_sizes, outputs))
    *features, merged = config.hidden_sizes
    return [
        *mlp_layers(batch, (inputs, *features)),
        Dense("embedding", quantiles, config.embedding_size, features[-1]),
        Dense("merge", batch * quantiles, features[-1], merged),
        Dense("output", batch * quantiles, merged, 1),
    ]


def products_of(problem: Problem, config: AgentConfig, batch: int) -> list[Product]:
    """The whole list for one update."""
    inputs = make_learner(problem, config).costs.input_size
    actor = mlp_layers(batch, (inputs, *config.hidden_sizes, 2 * problem.action_size))
    reward = mlp_layers(batch, (inputs + problem.action_size, *config.hidden_sizes, 1))
    cost = cost_layers(problem, config, batch, config.num_quantiles)
    policy_cost = cost_layers(problem, config, batch, config.num_policy_quantiles)
    members = problem.num_constraints * config.num_cost_critics
    found = [layer.forward("target: actor", 1) for layer in actor]
    for name, layers, at_policy, count in (
        ("reward critic", reward, reward, 2),
        ("cost critic", cost, policy_cost, members),
    ):
        found += [layer.forward(f"target: {name}", count) for layer in layers]
        for layer in layers:
            found.append(layer.forward(f"train: {name}", count))
            found.append(layer.weight_gradient(f"train: {name}", count))
            if not reads_data(layer, layers):
                found.append(layer.input_gradient(f"train: {name}", count))
        for layer in at_policy:
            found.append(layer.forward(f"actor: {name}", count))
            if layer.name != "embedding":
                found.append(layer.input_gradient(f"actor: {name}", count))
    for layer in actor:
        found.append(layer.forward("train: actor", 1))
        found.append(layer.weight_gradient("train: actor", 1))
        if not reads_data(layer, actor):
            found.append(layer.input_gradient("train: actor", 1))
    return found


def reads_data(layer: Dense, layers: list[Dense]) -> bool:
    return layer is layers[0] or layer.name == "embedding"


def floor_program(products: list[Product], loop: int):
    """A compiled function of random operands that makes every product `loop` times.

    In a loop and with the compiler's options, as the update it is compared with. Barriers
    keep the compiler from making a product once for all, or only what is read of it.
    """
    key = jax.random.key(0)
    operands = []
    for i, product in enumerate(products):
        for j in range(product.count):
            left, right = jax.random.split(jax.random.fold_in(key, 100 * i + j))
            operands.append(
                (
                    jax.random.normal(left, (product.rows, product.inner)),
                    jax.random.normal(right, (product.inner, product.columns)),
                )
            )

    def once(total, _):
        tied, total = jax.lax.optimization_barrier((operands, total))
        results = jax.lax.optimization_barrier([jnp.matmul(a, b) for a, b in tied])
        return total + sum(result[0, 0] for result in results), None

    def run(start):
        return jax.lax.scan(once, start, None, loop)[0]

    return jax.jit(run, compiler_options=compiler_options())
