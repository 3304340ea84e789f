"""Appendix, ablation of the reward bound's optimism: ORAC in PointButton1 at tail 0.5."""

from orac.experiments.optimism_ablation import optimism_study

STUDY = optimism_study(
    name="ablation-reward-optimism",
    title="ORAC with more and less optimism about reward, PointButton1",
    field="agent.exploration.reward_optimism",
    values=(2.0, 4.0, 5.0),
    key="appendix_ablation_reward_optimism_PointButton1_0.5",
)
