"""GuardedMaze: a maze with a short path past an invisible guard and a long way around."""
