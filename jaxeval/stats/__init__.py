"""Statistics of evaluations: arrays (and a key) in; value, interval and a status out. Write for one cell, vmap over many."""
