"""Run the package CityLearn 2.1.2 as a reference. Needs `make setup-citylearn`."""

import sys
import warnings
from typing import NamedTuple

import numpy as np

DATASET = "citylearn_challenge_2023_phase_2_local_evaluation"


class Episode(NamedTuple):
    """An episode of CityLearn. The first axis of arrays is the hour, the last the building."""

    outage: np.ndarray
    observation: np.ndarray
    """Observations, scaled by CityLearn's observation space; there is one more than actions."""
    temperature: np.ndarray
    set_point: np.ndarray
    net: np.ndarray
    tank_level: np.ndarray
    battery_level: np.ndarray
    unserved_energy: float
    outage_violations: float


def make_reference(buildings: tuple[int, ...], saifi: float, caidi: float):
    """Make an unmodified CityLearnEnv of the chosen buildings, which are numbered from 1."""
    import gymnasium
    import torch

    # One thread is fastest for networks this small.
    torch.set_num_threads(1)
    # CityLearn 2.1.2 was written for the old name of Gymnasium and needs its spaces.
    sys.modules.setdefault("gym", gymnasium)
    from citylearn.citylearn import CityLearnEnv
    from citylearn.data import DataSet

    schema = DataSet.get_schema(DATASET)
    for building in schema["buildings"].values():
        model = building["power_outage"]["stochastic_power_outage_model"]
        model["attributes"].update(saifi=saifi, caidi=caidi)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CityLearnEnv(
            schema, central_agent=True, buildings=[i - 1 for i in buildings]
        )


def play_reference(env, actions: np.ndarray) -> list[list[float]]:
    """Return every observation of an episode, unscaled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        observations = [env.reset()[0]]
        for action in actions:
            observations.append(env.step([action.tolist()])[0][0])
    return observations


def run_reference(env, actions: np.ndarray, seed: int) -> Episode:
    """Play an episode. `actions` are in CityLearn's action space, `seed` is that of the outages."""
    for building in env.buildings:
        building.stochastic_power_outage_model.random_seed = seed
    observations = play_reference(env, actions)
    assert env.done
    space = env.observation_space[0]
    scaled = (np.array(observations) - space.low) / (space.high - space.low)

    def stack(*names: str) -> np.ndarray:
        values = env.buildings
        for name in names:
            values = [getattr(value, name) for value in values]
        return np.stack(values, axis=-1)

    return Episode(
        outage=np.asarray(env.buildings[0].power_outage_signal),
        observation=scaled,
        temperature=stack("indoor_dry_bulb_temperature"),
        set_point=stack("indoor_dry_bulb_temperature_set_point"),
        net=stack("net_electricity_consumption"),
        tank_level=stack("dhw_storage", "soc"),
        battery_level=stack("electrical_storage", "soc"),
        unserved_energy=np.mean([unserved_energy(b) for b in env.buildings]),
        outage_violations=np.mean([outage_violations(b) for b in env.buildings]),
    )


def unserved_energy(building) -> float:
    """Return the unserved energy in outages, as CityLearn computes it."""
    from citylearn.cost_function import CostFunction

    expected = (
        building.cooling_demand
        + building.heating_demand
        + building.dhw_demand
        + building.non_shiftable_load
    )
    served = (
        building.energy_from_cooling_device
        + building.energy_from_heating_device
        + building.energy_from_dhw_device
        + building.energy_from_dhw_storage
        + building.energy_to_non_shiftable_load
    )
    return CostFunction.normalized_unserved_energy(
        expected, served, building.power_outage_signal
    )[-1]


def outage_violations(building) -> float:
    """Return the share of occupied outage hours more than 1 degree off, as CityLearn does."""
    from citylearn.cost_function import CostFunction

    return CostFunction.one_minus_thermal_resilience(
        power_outage=building.power_outage_signal,
        indoor_dry_bulb_temperature=building.indoor_dry_bulb_temperature,
        dry_bulb_temperature_set_point=building.indoor_dry_bulb_temperature_set_point,
        band=1.0,
        occupant_count=building.occupant_count,
    )[-1]
