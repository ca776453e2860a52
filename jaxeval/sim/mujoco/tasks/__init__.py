"""Tasks on MuJoCo, one module each; `named` lists them."""
