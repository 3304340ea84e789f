"""Tests of networks against slow and simple formulas of the same functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.config.schema import AgentConfig, Constraint
from orac.core import networks
from orac.core.cost_models import make_problem
from orac.core.networks import Layer
from orac.core.risk_forms import implicit as implicit_form

apply_implicit = jax.jit(implicit_form.apply_network)


def array(*shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(rows, jnp.float32)


def init_layer(seed, inputs, outputs, layer_norm):
    keys = jax.random.key(seed)[None]
    return networks.init_layers(keys, [(inputs, outputs)], [layer_norm])[0]


@functools.cache
def random_layer(inputs, outputs, layer_norm, seed=0):
    """A layer whose norm has a scale and an offset that matter."""
    layer = init_layer(seed, inputs, outputs, layer_norm)
    if not layer_norm:
        return layer
    scale, offset = 1 + 0.5 * array(outputs, seed=seed), array(outputs, seed=seed + 1)
    return layer._replace(scale=scale, offset=offset)


def textbook_layer(layer, rows):
    """Linear, then (x - mean) / sqrt(variance + 1e-5) * scale + offset."""
    rows = np.asarray(rows, np.float64)
    out = rows @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias)
    if layer.scale is None:
        return out
    centred = out - out.mean(axis=-1, keepdims=True)
    spread = np.sqrt(out.var(axis=-1, keepdims=True) + 1e-5)
    return centred / spread * np.asarray(layer.scale) + np.asarray(layer.offset)


def textbook_implicit(member, row, level):
    """One row at one level, step by step."""
    features = row[None]
    for layer in member.features:
        features = np.maximum(textbook_layer(layer, features), 0)
    size = member.embedding.weight.shape[0]
    cosines = np.cos(np.pi * np.arange(1, size + 1) * float(level))
    embedded = 1 / (1 + np.exp(-textbook_layer(member.embedding, cosines[None])))
    hidden = np.maximum(textbook_layer(member.merge, features * embedded), 0)
    return textbook_layer(member.output, hidden)[0, 0]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_layer_is_linear_then_the_textbook_norm(layer_norm):
    layer, rows = random_layer(5, 7, layer_norm), 3 * array(11, 5, seed=3) + 1
    ours = networks.apply_layer(layer, rows)
    np.testing.assert_allclose(ours, textbook_layer(layer, rows), atol=2e-5)


def test_the_norm_is_the_textbooks_in_its_gradient_too():
    layer, rows = random_layer(5, 7, True), array(11, 5, seed=3)

    def plain(layer):
        out = rows @ layer.weight + layer.bias
        centred = out - out.mean(axis=-1, keepdims=True)
        spread = jnp.sqrt(out.var(axis=-1, keepdims=True) + 1e-5)
        return jnp.sin(centred / spread * layer.scale + layer.offset).sum()

    def ours(layer):
        return jnp.sin(networks.apply_layer(layer, rows)).sum()

    gradients = (jax.jit(jax.grad(f))(layer) for f in (ours, plain))
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_an_mlp_has_no_norm_and_no_relu_after_its_head():
    layers = networks.init_mlp(jax.random.key(0), (4, 8, 8, 3), True)
    assert [layer.scale is None for layer in layers] == [False, False, True]
    rows = array(64, 4)
    hidden = np.asarray(rows, np.float64)
    for layer in layers[:-1]:
        hidden = np.maximum(textbook_layer(layer, hidden), 0)
    expected = textbook_layer(layers[-1], hidden)
    ours = networks.apply_mlp(layers, rows)
    np.testing.assert_allclose(ours, expected, atol=2e-5)
    assert (np.asarray(ours) < 0).any()


def test_weights_start_within_one_over_the_root_of_their_inputs():
    layer = init_layer(0, 100, 50, False)
    for values in (layer.weight, layer.bias):
        assert np.abs(values).max() <= 0.1
        assert np.abs(values).max() > 0.09


def test_the_actors_spread_stays_within_its_bounds():
    actor = networks.init_mlp(jax.random.key(0), (3, 16, 16, 2 * 2), False)
    mean, std = networks.apply_actor(actor, array(5, 3))
    assert mean.shape == std.shape == (5, 2)
    far = jax.tree.map(lambda leaf: 1e4 * leaf, actor)
    _, extreme = networks.apply_actor(far, array(200, 3))
    low, high = np.exp(networks.LOG_STD_MIN), np.exp(networks.LOG_STD_MAX)
    assert np.min(extreme) == pytest.approx(low, rel=1e-5)
    assert np.max(extreme) == pytest.approx(high, rel=1e-5)


def test_the_actors_spread_keeps_a_gradient_beyond_its_bounds():
    # A clip would have none: here the raw output, 3, is above the bound of 2.
    def spread(raw):
        bias = jnp.array([0.0, raw])
        actor = (Layer(jnp.zeros((3, 2)), bias, None, None),)
        return networks.apply_actor(actor, jnp.zeros((1, 3)))[1].sum()

    value, slope = jax.value_and_grad(spread)(3.0)
    assert float(value) == pytest.approx(np.exp(-1.5 + 3.5 * np.tanh(3)), rel=1e-5)
    assert float(slope) == pytest.approx(
        float(value) * 3.5 * (1 - np.tanh(3) ** 2), rel=1e-3
    )


@pytest.mark.parametrize("mean, std", [(0.0, 0.3), (0.5, 1.0), (-1.0, 0.1), (0.0, 2.0)])
def test_the_action_density_integrates_to_one(mean, std):
    # Over the action in (-1, 1), on a grid that is even before the tanh: da = (1 - a^2) du.
    with jax.enable_x64(True):
        u = jnp.linspace(mean - 9 * std, mean + 9 * std, 40_001)
        log_prob = networks.log_prob(
            ((u - mean) / std)[:, None], u[:, None], jnp.full((u.size, 1), std)
        )
        jacobian = 1 / jnp.cosh(u) ** 2
        total = jnp.trapezoid(jnp.exp(log_prob) * jacobian, u)
    assert float(total) == pytest.approx(1, abs=1e-6)


def test_sampled_actions_have_the_density_they_report():
    # The mean of f(a) / p(a) over draws is the integral of f: here f = 1 - a^2, 4/3.
    mean, std = jnp.full((200_000, 1), 0.3), jnp.full((200_000, 1), 0.8)
    action, log_prob = networks.sample_action(jax.random.key(0), mean, std)
    estimate = ((1 - action[:, 0] ** 2) * jnp.exp(-log_prob)).mean()
    assert float(estimate) == pytest.approx(4 / 3, rel=0.01)


@pytest.mark.parametrize("u", [-20.0, 20.0, -100.0, 100.0])
def test_log_prob_is_finite_far_out_and_so_is_its_gradient(u):
    def at(pre_tanh):
        noise, std = jnp.full((1, 1), 0.5), jnp.full((1, 1), 0.7)
        return networks.log_prob(noise, pre_tanh, std).sum()

    pre_tanh = jnp.full((1, 1), u)
    value, gradient = jax.value_and_grad(at)(pre_tanh)
    # Far out log(1 - tanh(u)^2) is 2 log 2 - 2 |u|.
    gaussian = -0.125 - np.log(0.7) - 0.5 * np.log(2 * np.pi)
    assert float(value) == pytest.approx(
        gaussian - 2 * np.log(2) + 2 * abs(u), rel=1e-5
    )
    assert float(gradient[0, 0]) == pytest.approx(2 * np.sign(u), abs=1e-5)


def test_log_prob_adds_up_over_action_dimensions():
    noise, pre_tanh, std = (
        array(6, 3),
        array(6, 3, seed=1),
        jnp.exp(array(6, 3, seed=2)),
    )
    whole = networks.log_prob(noise, pre_tanh, std)
    parts = [
        networks.log_prob(
            noise[:, i : i + 1], pre_tanh[:, i : i + 1], std[:, i : i + 1]
        )
        for i in range(3)
    ]
    np.testing.assert_allclose(whole, sum(parts), rtol=1e-5)


@functools.cache
def implicit(layer_norm, seed=0, hidden=(8, 6)):
    member = implicit_form.init_network(jax.random.key(seed), 5, hidden, 10, layer_norm)
    if not layer_norm:
        return member
    return member._replace(
        features=tuple(
            random_layer(*layer.weight.shape, True, seed=i + seed)
            for i, layer in enumerate(member.features)
        ),
        merge=random_layer(*member.merge.weight.shape, True, seed=seed + 9),
    )


# A batch below and above the features' width takes one branch of `merge` each.
@pytest.mark.parametrize("batch", [3, 8, 20])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_an_implicit_network_is_its_formula_in_both_branches_of_merge(
    batch, layer_norm
):
    member, rows = implicit(layer_norm), array(batch, 5)
    levels = jnp.array([0.01, 0.3, 0.8, 0.999])
    shared = apply_implicit(member, rows, levels)
    expected = [
        [textbook_implicit(member, np.asarray(row), level) for level in levels]
        for row in rows
    ]
    np.testing.assert_allclose(shared, expected, atol=2e-5)
    per_row = jnp.broadcast_to(levels, (batch, 4))
    np.testing.assert_allclose(apply_implicit(member, rows, per_row), shared, atol=2e-6)


def test_per_row_levels_go_to_their_own_rows():
    member, rows = implicit(False), array(6, 5)
    levels = jnp.asarray(np.random.default_rng(1).uniform(size=(6, 4)), jnp.float32)
    together = apply_implicit(member, rows, levels)
    for i in range(6):
        alone = apply_implicit(member, rows[i : i + 1], levels[i])
        np.testing.assert_allclose(together[i], alone[0], atol=2e-6)


def test_both_branches_of_merge_have_the_same_gradient():
    layer = random_layer(8, 6, True)
    features, embedded = array(20, 8), array(4, 8, seed=1)

    def loss(layer, features, embedded):
        product, bias = implicit_form.merge(layer, features, embedded)
        return jnp.sin(product + bias).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    scaled_weights = gradient(layer, features, embedded)
    per_row = jnp.broadcast_to(embedded, (20, 4, 8))
    scaled_features = gradient(layer, features, per_row)
    for one, other in zip(
        jax.tree.leaves(scaled_weights), jax.tree.leaves(scaled_features), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_deeper_implicit_networks_keep_their_last_size_for_the_merge():
    member = implicit(False, hidden=(8, 7, 6))
    assert [layer.weight.shape for layer in member.features] == [(5, 8), (8, 7)]
    assert member.embedding.weight.shape == (10, 7)
    assert member.merge.weight.shape == (7, 6)
    value = apply_implicit(member, array(1, 5), jnp.array([0.4]))
    expected = textbook_implicit(member, np.asarray(array(1, 5))[0], 0.4)
    assert float(value[0, 0]) == pytest.approx(expected, abs=2e-5)


def test_changing_one_member_changes_that_member_alone():
    rows = array(4, 5)
    scalars = tuple(
        networks.init_mlp(jax.random.key(i), (5, 8, 1), False) for i in range(3)
    )
    changed = (scalars[0], jax.tree.map(lambda x: x + 1, scalars[1]), scalars[2])
    before = networks.apply_ensemble(scalars, rows)
    after = networks.apply_ensemble(changed, rows)
    assert before.shape == (3, 4, 1)
    assert [bool((before[e] == after[e]).all()) for e in range(3)] == [
        True,
        False,
        True,
    ]


def two_constraints(members, rows, levels):
    """Quantiles of two members for each of two constraints, as (member, row, level)."""
    problem = make_problem(3, 2, (Constraint("a"), Constraint("b")), 10, 0.9)
    config = AgentConfig(num_cost_critics=2)
    quantiles = implicit_form.level_quantiles(
        members, rows[:, :3], rows[:, 3:], levels, problem, config
    )
    return quantiles.reshape(4, *quantiles.shape[2:])


def test_members_gradients_are_independent():
    members, rows = tuple(implicit(False, seed=i) for i in range(4)), array(4, 5)
    levels = jnp.array([[0.1, 0.5], [0.8, 0.9]])

    def third(members):
        return two_constraints(members, rows, levels)[2].sum()

    gradients = jax.jit(jax.grad(third))(members)
    touched = [
        any(bool((leaf != 0).any()) for leaf in jax.tree.leaves(gradient))
        for gradient in gradients
    ]
    assert touched == [False, False, True, False]


def test_members_are_ordered_by_constraint_and_take_its_levels():
    members, rows = tuple(implicit(False, seed=i) for i in range(4)), array(4, 5)
    levels = jnp.array([[0.1, 0.5], [0.8, 0.9]])
    together = two_constraints(members, rows, levels)
    for i, member in enumerate(members):
        alone = apply_implicit(member, rows, levels[i // 2])
        # The last bit differs between versions of XLA.
        np.testing.assert_allclose(together[i], alone, rtol=1e-6)


def test_members_with_different_keys_start_differently():
    one, other = implicit(False, seed=0), implicit(False, seed=1)
    assert not np.allclose(one.merge.weight, other.merge.weight)
