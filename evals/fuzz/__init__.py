"""Structure-aware fuzzing of every protocol that the server and its workers speak."""
