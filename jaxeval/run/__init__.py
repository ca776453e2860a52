"""The work of each verb as an importable function, without Hydra."""
