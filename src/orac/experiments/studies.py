"""Every study of the paper by its name on the command line."""

from orac.experiments import (
    ablation_cost_optimism,
    ablation_ensemble,
    ablation_reward_optimism,
    figure1,
    figure2,
    iqn_vs_linear,
)
from orac.experiments import table1 as table1_guarded_maze
from orac.experiments import table2 as table2_safety_gym
from orac.experiments import table3 as table3_citylearn
from orac.experiments.study import Study

STUDIES: dict[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (
        table1_guarded_maze,
        table2_safety_gym,
        table3_citylearn,
        iqn_vs_linear,
        ablation_cost_optimism,
        ablation_reward_optimism,
        ablation_ensemble,
        figure1,
        figure2,
    )
}
