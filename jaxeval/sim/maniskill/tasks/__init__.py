"""ManiSkill environments of our own, from boxes and cylinders alone: nothing to download.

Importing a module registers its environment; each imports torch and sapien, so nothing here is imported eagerly.
"""
