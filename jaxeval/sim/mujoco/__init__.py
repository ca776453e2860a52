"""MuJoCo and MJX: embodiments, tasks at any execution speed, and how their episodes run and are drawn."""
