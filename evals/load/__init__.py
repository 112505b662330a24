"""Number of calls that one server holds, with callers that cost little."""
