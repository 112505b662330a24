"""End of the caller's turn: predictors, evidence, policies and the wait."""
