"""Statistics of evaluations: arrays (and a key) in; a value, an interval and a status out.

Written for one cell, to be vmapped over many. `proportions` rates · `paired` policies on the same starts · `values`
means of any number, `rank_tests_host` and `values_host` beside them · `bootstrap` and `aggregate` over runs and tasks ·
`sequential` looked at any time · `planning` how many episodes · `multiplicity` many cells · `agreement` and
`ranking` raters and metrics · `calibration` and `logistic` metrics as predictors.
"""
