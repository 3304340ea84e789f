"""Write the data file of `orac.envs.citylearn.env` from the CityLearn 2.1.2 wheel.

This tool is for maintainers. It copies numbers (hourly rows, device constants, weights of
the temperature models). The only change is that rows and weights are rounded to single
precision, as CityLearn does. `orac.envs.citylearn.data` computes everything else from these
numbers. The tool needs numpy and torch.

    pip download --no-deps CityLearn==2.1.2
    python tools/extract_citylearn.py CityLearn-2.1.2-py3-none-any.whl
"""

import argparse
import csv
import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np

DATASET = "citylearn_challenge_2023_phase_2_local_evaluation"
WHEEL_SHA256 = "95730b1deed73b1f5a4d17eb8334be3c99efa4aef8677822378d62d8359511dd"
DATA_FOLDER = (
    Path(__file__).parents[1] / "src" / "orac" / "envs" / "citylearn" / "data_files"
)
LICENCE = "CityLearn-2.1.2.dist-info/LICENSE"

HOURS = 720
TIME = {"Month": "month", "Day Type": "day_type", "Hour": "hour"}
OUTDOOR = {
    "Outdoor Drybulb Temperature (C)": "outdoor_dry_bulb_temperature",
    "Diffuse Solar Radiation (W/m2)": "diffuse_solar_irradiance",
    "Direct Solar Radiation (W/m2)": "direct_solar_irradiance",
}
INDOOR = {
    "Indoor Temperature (C)": "indoor_dry_bulb_temperature",
    "Equipment Electric Power (kWh)": "non_shiftable_load",
    "DHW Heating (kWh)": "dhw_demand",
    "Cooling Load (kWh)": "cooling_demand",
    "Solar Generation (W/kW)": "solar_generation_per_kw",
    "Occupant Count (people)": "occupant_count",
    "Temperature Set Point (C)": "indoor_dry_bulb_temperature_set_point",
}
DEVICES = {
    "cooling_device": ("nominal_power", "efficiency", "target_cooling_temperature"),
    "dhw_device": ("nominal_power", "efficiency"),
    "dhw_storage": ("capacity", "loss_coefficient"),
    "electrical_storage": (
        "capacity",
        "nominal_power",
        "efficiency",
        "loss_coefficient",
        "capacity_loss_coefficient",
        "depth_of_discharge",
    ),
    "pv": ("nominal_power",),
}

NOTICE = """\
citylearn.npz is extracted from CityLearn 2.1.2, data set
{dataset}:
720 hourly rows of weather, prices and three buildings, the constants of their devices
and the weights of their temperature models. The numbers are unchanged, rounded to
single precision as CityLearn itself does.

Source: CityLearn-2.1.2-py3-none-any.whl from the Python Package Index
sha256: {sha256}
Written by tools/extract_citylearn.py of this project.

CityLearn is distributed under this licence:

{licence}
"""


def checked_wheel(path: Path) -> zipfile.Path:
    """Return the wheel's root, or raise an error if it is not the tested wheel."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise ValueError(
            f"expected the CityLearn 2.1.2 wheel with sha256 {WHEEL_SHA256}, got "
            f"{digest} for {path}. "
            "Fetch it with `pip download --no-deps CityLearn==2.1.2`."
        )
    return zipfile.Path(path)


def read_columns(file, names: dict[str, str]) -> dict[str, np.ndarray]:
    """Return columns of a CSV file. `names` maps their headers to our names."""
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    if len(rows) != HOURS:
        raise ValueError(f"expected {HOURS} rows in {file.name}, got {len(rows)}.")
    return {
        ours: np.array([float(row[theirs]) for row in rows], np.float32)
        for theirs, ours in names.items()
    }


def with_forecasts(names: dict[str, str], pattern: str) -> dict[str, str]:
    """Return the names, and names of the forecasts for 6, 12 and 24 hours ahead."""
    both = {}
    for theirs, ours in names.items():
        both[theirs] = ours
        for ahead in (6, 12, 24):
            both[pattern.format(ahead, theirs)] = f"{ours}_predicted_{ahead}h"
    return both


def read_shared(folder) -> dict[str, np.ndarray]:
    """Return the columns that all buildings share: calendar, weather, carbon and prices."""
    price = {"Electricity Pricing [$/kWh]": "electricity_pricing"}
    return {
        **read_columns(folder / "Building_1.csv", TIME),
        **read_columns(folder / "weather.csv", with_forecasts(OUTDOOR, "{}h {}")),
        **read_columns(
            folder / "carbon_intensity.csv", {"kg_CO2/kWh": "carbon_intensity"}
        ),
        **read_columns(
            folder / "pricing.csv", with_forecasts(price, "{}h Prediction {}")
        ),
    }


def read_building(folder, name: str) -> dict[str, np.ndarray]:
    """Return the hourly rows of a building, after a check that it is never heated."""
    file = folder / f"{name}.csv"
    unused = {"Heating Load (kWh)": "heat", "HVAC Mode (Off/Cooling/Heating)": "mode"}
    checks = read_columns(file, unused)
    if checks["heat"].any() or (checks["mode"] != 1).any():
        raise ValueError(
            f"expected only cooling in {name}; the environment does not model heating."
        )
    return read_columns(file, INDOOR)


def read_weights(folder, name: str) -> dict[str, np.ndarray]:
    """Return the weights of a building's LSTM, without running code from the file."""
    import torch

    stored = torch.load(
        io.BytesIO((folder / f"{name}.pth").read_bytes()), weights_only=True
    )
    return {
        key: value.numpy().astype(np.float32)
        for key, value in stored["model_state_dict"].items()
    }


def read_constants(schema: dict) -> dict[str, np.ndarray]:
    """Return a building's device constants and the input ranges of its LSTM."""
    constants = {
        f"{device}/{attribute}": np.float64(schema[device]["attributes"][attribute])
        for device, attributes in DEVICES.items()
        for attribute in attributes
    }
    curve = schema["electrical_storage"]["attributes"]["power_efficiency_curve"]
    model = schema["dynamics"]["cooling"]["attributes"]
    return {
        **constants,
        "electrical_storage/power_efficiency_curve": np.array(curve, np.float64),
        "model/minimum": np.array(model["input_normalization_minimum"], np.float64),
        "model/maximum": np.array(model["input_normalization_maximum"], np.float64),
        "model/inputs": np.array(model["input_observation_names"]),
    }


def extract(package) -> dict[str, np.ndarray]:
    """Return all arrays by name. `package` is the folder `citylearn`.

    Arrays of the buildings are stacked along the first axis: Building_1, 2, 3.
    """
    folder = package / "data" / DATASET
    schema = json.loads((folder / "schema.json").read_text(encoding="utf-8"))
    buildings = [
        {
            **{f"hourly/{k}": v for k, v in read_building(folder, name).items()},
            **read_constants(description),
            **{f"weights/{k}": v for k, v in read_weights(folder, name).items()},
        }
        for name, description in schema["buildings"].items()
    ]
    stacked = {key: np.stack([b[key] for b in buildings]) for key in buildings[0]}
    shared = {f"shared/{key}": value for key, value in read_shared(folder).items()}
    return {"wheel_sha256": np.array(WHEEL_SHA256), **shared, **stacked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="CityLearn-2.1.2-py3-none-any.whl")
    root = checked_wheel(parser.parse_args().wheel)
    DATA_FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(DATA_FOLDER / "citylearn.npz", **extract(root / "citylearn"))
    notice = NOTICE.format(
        dataset=DATASET,
        sha256=WHEEL_SHA256,
        licence=(root / LICENCE).read_text(encoding="utf-8").strip(),
    )
    (DATA_FOLDER / "citylearn.LICENSE").write_text(notice, encoding="utf-8")


if __name__ == "__main__":
    main()
