"""Policies that are scripts: oracles, the expert and its handoff, planted deviations. They plan on the host."""
