"""Appendix, ablation of the cost bound's optimism: ORAC in PointButton1 at tail 0.5."""

from orac.experiments.optimism_ablation import optimism_study

STUDY = optimism_study(
    name="ablation-cost-optimism",
    title="ORAC with more and less optimism about cost, PointButton1",
    field="agent.exploration.cost_optimism",
    values=(0.5, 1.0, 1.5),
    key="appendix_ablation_cost_optimism_PointButton1_0.5",
)
