"""What every endpoint that runs a turn shares: attempts, answers, failures."""
