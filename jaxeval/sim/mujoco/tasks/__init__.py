"""Tasks on MuJoCo: `named` reads them from `conf/task/`."""
