"""Compute the floor of an update: the time of its matrix products and nothing else.

Apart from noise of the measurement, an update cannot be faster than its floor. The floor has
every product that one gradient step needs mathematically, with the sizes that the update uses:

- the forward pass of the targets;
- the forward pass, the weight gradient and the input gradient of each trained network,
  without the input gradient of a layer whose input is data;
- the forward pass and the input gradient of the critics, for the actor.

Every member of an ensemble has its own products. Element-wise operations are not counted. Outer
products (inner size 1) are regarded as element-wise.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from orac.config.schema import AgentConfig
from orac.core.cost_models import Problem
from orac.core.risk_forms import make_learner
from orac.training.xla import compiler_options


class Layer(NamedTuple):
    """A linear layer of one network, which is applied to `rows` rows."""

    name: str
    rows: int
    inputs: int
    outputs: int
    reads_data: bool
    """Whether the input is data, so that training needs no gradient of the input."""
    has_gradient: bool = True
    """Whether the input depends on the action, so that the actor needs its gradient."""


class Product(NamedTuple):
    """One matrix product: `forward` X W, `weights` X'G or `inputs` G W'."""

    kind: str
    where: str
    member: int
    layer: Layer

    @property
    def flops(self) -> int:
        return 2 * self.layer.rows * self.layer.inputs * self.layer.outputs

    @property
    def inner(self) -> int:
        """The size that the product sums over."""
        _, rows, inputs, outputs = self.layer[:4]
        return {"forward": inputs, "weights": rows, "inputs": outputs}[self.kind]

    def describe(self) -> str:
        rows, inputs, outputs = self.layer[1:4]
        sizes = {
            "forward": f"({rows}, {inputs}) x ({inputs}, {outputs})",
            "weights": f"({inputs}, {rows}) x ({rows}, {outputs})",
            "inputs": f"({rows}, {outputs}) x ({outputs}, {inputs})",
        }[self.kind]
        return f"{sizes:<32} {self.where} {self.layer.name}, {self.kind}"


def mlp_layers(name: str, batch: int, sizes: tuple[int, ...]) -> list[Layer]:
    return [
        Layer(f"{name} {i}", batch, inputs, outputs, reads_data=i == 0)
        for i, (inputs, outputs) in enumerate(pairwise(sizes))
    ]


def cost_layers(
    problem: Problem, config: AgentConfig, batch: int, quantiles: int
) -> list[Layer]:
    """Return the layers of one cost critic. An implicit critic embeds each level once."""
    learner = make_learner(problem, config)
    inputs = learner.costs.input_size + problem.action_size
    if config.risk_form != "implicit":
        outputs = 1 if config.risk_form == "scalar" else config.num_quantiles
        outputs += config.recentre_quantiles
        return mlp_layers("cost critic", batch, (inputs, *config.hidden_sizes, outputs))
    *features, merged = config.hidden_sizes
    width, rows = features[-1], batch * quantiles
    merge = Layer("merge", rows, width, merged, reads_data=False)
    if config.shared_fractions and batch >= width:
        # The embedding scales the weights instead of the rows, so there are fewer and wider
        # rows.
        merge = Layer("merge", batch, width, quantiles * merged, reads_data=False)
    embedding = Layer(
        "embedding", quantiles, config.embedding_size, width, True, has_gradient=False
    )
    return [
        *mlp_layers("cost critic", batch, (inputs, *features)),
        embedding,
        merge,
        Layer("output", rows, merged, 1, reads_data=False),
    ]


def products_of(problem: Problem, config: AgentConfig, batch: int) -> list[Product]:
    """Return the products of one update."""
    inputs = make_learner(problem, config).costs.input_size
    hidden, actions = config.hidden_sizes, problem.action_size
    actor = mlp_layers("actor", batch, (inputs, *hidden, 2 * actions))
    reward = mlp_layers("reward critic", batch, (inputs + actions, *hidden, 1))
    cost = cost_layers(problem, config, batch, config.num_quantiles)
    policy_cost = cost_layers(problem, config, batch, config.num_policy_quantiles)
    members = problem.num_constraints * config.num_cost_critics
    found = [Product("forward", "target", 0, layer) for layer in actor]
    found += training_products(actor, 0)
    for layers, at_policy, count in ((reward, reward, 2), (cost, policy_cost, members)):
        for member in range(count):
            found += [Product("forward", "target", member, x) for x in layers]
            found += training_products(layers, member)
            found += [Product("forward", "for the actor", member, x) for x in at_policy]
            found += [
                Product("inputs", "for the actor", member, layer)
                for layer in at_policy
                if layer.has_gradient
            ]
    return [product for product in found if product.inner > 1]


def training_products(layers: list[Layer], member: int) -> list[Product]:
    """Return the products that train a network: its forward pass and both gradients."""
    found = []
    for layer in layers:
        kinds = ("forward", "weights", *([] if layer.reads_data else ["inputs"]))
        found += [Product(kind, "training", member, layer) for kind in kinds]
    return found


def floor_program(products: list[Product], loop: int) -> Any:
    """Return a compiled function that computes every product `loop` times.

    The loop and the compiler options are the same as in an update. Products share operands in
    the same way as in an update: for example, the forward pass and the weight gradient of a
    layer read the same input. Barriers prevent the compiler from computing a product only
    once for all iterations, or only the part of it that is read.
    """
    operands: dict[tuple[Any, ...], jax.Array] = {}

    def operand(rows: int, columns: int, *names: Any) -> tuple[Any, ...]:
        key = (rows, columns, *names)
        if key not in operands:
            random = jax.random.fold_in(jax.random.key(0), len(operands))
            operands[key] = jax.random.normal(random, (rows, columns))
        return key

    pairs = []
    for kind, where, member, layer in products:
        rows, inputs, outputs = layer[1:4]
        network = "target" if where == "target" and layer.name[:5] != "actor" else ""
        weight = operand(inputs, outputs, "weight", network, member, layer.name)
        # All members of an ensemble read the same data, but each has its own hidden layers.
        read = 0 if layer.reads_data else member
        given = operand(rows, inputs, "rows", where, read, layer.name)
        gradient = operand(rows, outputs, "gradient", where, member, layer.name)
        pairs.append(
            {
                "forward": (given, weight, (1, 0)),
                "weights": (given, gradient, (0, 0)),
                "inputs": (gradient, weight, (1, 1)),
            }[kind]
        )

    def run(start: jax.Array, operands: dict[Any, jax.Array]) -> jax.Array:
        def once(total: jax.Array, _: None) -> tuple[jax.Array, None]:
            tied, total = jax.lax.optimization_barrier((operands, total))
            results = [
                jax.lax.dot_general(tied[a], tied[b], (((i,), (j,)), ((), ())))
                for a, b, (i, j) in pairs
            ]
            results = jax.lax.optimization_barrier(results)
            return total + sum(result[0, 0] for result in results), None

        return jax.lax.scan(once, start, None, loop)[0]

    program = jax.jit(run, compiler_options=compiler_options())
    return lambda: program(jnp.float32(0), operands)
