"""GuardedMaze: a maze with a short path past an unseen guard and a long way around."""
