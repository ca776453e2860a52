"""jaxeval: how well a manipulation was done, from trajectories."""
