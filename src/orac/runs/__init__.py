"""What a run leaves on disk, and how it gets there: the shell's side of training."""
