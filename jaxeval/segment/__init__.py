"""Structure found in demonstrations, on the host: change-points, roles of bodies, proposed task specs."""
