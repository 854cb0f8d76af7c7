"""One file per place where blocks of runs are played: this process, worker processes, a Ray cluster."""
