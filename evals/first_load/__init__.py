"""Size of a page that a browser has not seen before, and the time until it can be used."""
