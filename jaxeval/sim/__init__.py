"""Simulators: environments behind one rollout verb. Nothing here is imported by `import jaxeval`."""
