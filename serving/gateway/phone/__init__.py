"""Phone calls: routes, tokens, queue, outbound calls and the sessions of callers."""
