"""Episodes written for others: LeRobot data sets, training files. TUM files are written where they are read."""
