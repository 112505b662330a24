"""Whether the record of an interrupted reply is what the caller heard, judged by the caller's recording."""
