"""ManiSkill: environments, the tasks that it does not bring, and how their episodes run. Torch is imported late."""
